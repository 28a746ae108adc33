import type { IncomingMessage, ServerResponse } from 'node:http'
import type { App } from '../http/http.ts'
import { answerBrokenRequest } from './error-bodies.ts'

/** How slowly bodies may come. */
export type BodyTimes = {
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
  const watched = new WeakMap<IncomingMessage, Watched>()
  const coming = new Set<Watched>()
  app.server.prependListener('request', (request: IncomingMessage, response: ServerResponse) => {
    if (!hasBody(request)) return
    const cut = () => cutOff(request, response)
    const timer = setTimeout(cut, times.wholeMs)
    watched.set(request, { request, cut, timer })
    request.once('close', () => clearTimeout(timer))
  })
  app.addHook('onRequest', (request, _reply, done) => {
    const one = request.routeOptions.config.streamedBody === true ? watched.get(request.raw) : undefined
    if (one !== undefined) {
      clearTimeout(one.timer)
      coming.add(one)
      const stop = watchMovement(one, times)
      request.raw.once('close', () => {
        stop()
        coming.delete(one)
      })
    }
    done()
  })
  app.addHook('preClose', (done) => {
    // Alone it must not keep the process alive.
    setTimeout(() => {
      for (const { cut } of coming) cut()
    }, times.closingMs).unref()
    done()
  })
}

type Watched = { readonly request: IncomingMessage; readonly cut: () => void; readonly timer: NodeJS.Timeout }

const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0

function watchMovement({ request, cut }: Watched, { silenceMs, whileMs, leastBytes }: BodyTimes): () => void {
  const { socket } = request
  let bytes = socket.bytesRead
  let movedAt = performance.now()
  let since = { at: movedAt, bytes }
  const look = () => {
    const now = performance.now()
    // What is here already waits for us, not for its sender.
    const isOurs = request.readableLength > 0
    if (isOurs) since = { at: now, bytes: socket.bytesRead }
    if (isOurs || socket.bytesRead > bytes) movedAt = now
    bytes = socket.bytesRead
    const isSilent = now - movedAt >= silenceMs
    const isSlow = now - since.at >= whileMs && bytes - since.bytes < leastBytes
    if (isSilent || isSlow) return cut()
    if (now - since.at >= whileMs) since = { at: now, bytes }
  }
  const timer = setInterval(look, Math.min(silenceMs, whileMs) / 6)
  return () => clearInterval(timer)
}

function cutOff(request: IncomingMessage, response: ServerResponse): void {
  const { socket } = request
  if (request.complete || socket.destroyed) return
  const late = Object.assign(new Error('the body came too slowly'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' })
  if (response.headersSent) socket.destroy(late)
  else answerBrokenRequest(late, socket)
}
