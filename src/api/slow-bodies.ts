import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { App } from '../http/http.ts'
import { hasBody } from './bodies.ts'
import { answerBrokenRequest } from './error-bodies.ts'

/** How slowly bodies may come. */
type BodyTimes = {
  /** A body that is read as a whole must be here by then. */
  readonly wholeMs: number
  /** Of one that is read as it comes: the longest silence, and the least that must come in a while. */
  readonly silenceMs: number
  readonly whileMs: number
  readonly leastBytes: number
  /** How long one that is coming may go on when the server closes. */
  readonly closingMs: number
}

const usual: BodyTimes = {
  wholeMs: 30_000,
  silenceMs: 30_000,
  whileMs: 60_000,
  leastBytes: 60_000,
  closingMs: 30_000,
}

/**
 * Ends requests whose body comes too slowly, with 408 where nothing has been answered yet. Node has one time for whole
 * requests, which cut uploads that moved well: routes that read a stream (`streamedBody`) are judged by its movement.
 */
export function limitBodyTimes(app: App, times: BodyTimes = usual): void {
  app.server.requestTimeout = 0
  // Of a connection only the latest request can have a body that is not here yet. A timer for each would be a tenth of what
  // a small request costs.
  const latest = new Map<Socket, IncomingBody>()
  const moving = new Set<IncomingBody>()
  app.server.prependListener('request', (request: IncomingMessage, response: ServerResponse) => {
    if (hasBody(request)) latest.set(request.socket, { request, response, since: performance.now() })
  })
  app.server.on('connection', (socket: Socket) => {
    socket.once('close', () => latest.delete(socket))
  })
  const sweep = setInterval(() => {
    const latestAllowed = performance.now() - times.wholeMs
    for (const [socket, coming] of latest) {
      if (coming.request.complete) latest.delete(socket)
      else if (coming.since <= latestAllowed && !moving.has(coming)) cutOff(coming)
    }
  }, times.wholeMs / 12).unref()
  app.addHook('onRequest', (request, _reply, done) => {
    const isStreamed = request.routeOptions.config.streamedBody === true
    const one = isStreamed ? latest.get(request.raw.socket) : undefined
    if (one?.request === request.raw) {
      moving.add(one)
      const stop = watchMovement(one, times)
      request.raw.once('close', () => {
        stop()
        moving.delete(one)
      })
    }
    done()
  })
  app.addHook('preClose', (done) => {
    // Alone it must not keep the process alive.
    setTimeout(() => {
      for (const one of moving) cutOff(one)
    }, times.closingMs).unref()
    done()
  })
  app.addHook('onClose', async () => clearInterval(sweep))
}

/** A request whose body may not be here yet. */
type IncomingBody = { readonly request: IncomingMessage; readonly response: ServerResponse; readonly since: number }

function watchMovement(coming: IncomingBody, { silenceMs, whileMs, leastBytes }: BodyTimes): () => void {
  const { request } = coming
  const { socket } = request
  let bytes = socket.bytesRead
  let movedAt = performance.now()
  let since = { at: movedAt, bytes }
  const look = () => {
    const now = performance.now()
    // Bytes that have arrived wait for us, not for their sender.
    const isOurs = request.readableLength > 0
    if (isOurs) since = { at: now, bytes: socket.bytesRead }
    if (isOurs || socket.bytesRead > bytes) movedAt = now
    bytes = socket.bytesRead
    const isSilent = now - movedAt >= silenceMs
    const isSlow = now - since.at >= whileMs && bytes - since.bytes < leastBytes
    if (isSilent || isSlow) return cutOff(coming)
    if (now - since.at >= whileMs) since = { at: now, bytes }
  }
  const timer = setInterval(look, Math.min(silenceMs, whileMs) / 6)
  return () => clearInterval(timer)
}

function cutOff({ request, response }: IncomingBody): void {
  const { socket } = request
  if (request.complete || socket.destroyed) return
  const late = Object.assign(new Error('the body came too slowly'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' })
  if (response.headersSent) socket.destroy(late)
  else answerBrokenRequest(late, socket)
}
