import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { clientNetwork } from '../adapters/network-addresses.ts'
import { type Asker, workFor } from '../admission/asker.ts'
import type { Config } from '../config/config.ts'
import { longestSilenceMs } from '../db/pools.ts'
import { type App, turnOf } from '../http/http.ts'
import { hasBody } from './bodies.ts'
import { answerBrokenRequest } from './error-bodies.ts'

/**
 * How long nothing may move on a connection before it is cut: an answer that waits for a connection to the database, and then
 * for a statement until its timeout, must still find its client.
 */
export function longestIdleMs(config: Config): number {
  const ofAnswer = config.database.poolAcquireMs + longestSilenceMs(config) + idleMarginMs
  return Math.min(Math.max(ofAnswer, 60_000), longestTimerMs)
}

/** For the reads before the handler, such as that of the session. */
const idleMarginMs = 10_000
/** Node takes a longer one for one of a millisecond, or cuts it with a warning. */
const longestTimerMs = 2 ** 31 - 1

/** Cuts the connections of an address beyond `limit`, so that no client alone can take all of them. */
export function limitConnections(server: Server, limit: number): void {
  const open = new Map<string, number>()
  server.on('connection', (socket: Socket) => {
    const client = clientNetwork(socket.remoteAddress ?? '')
    const before = open.get(client) ?? 0
    if (before >= limit) return void socket.destroy()
    open.set(client, before + 1)
    socket.once('close', () => {
      const left = open.get(client)! - 1
      if (left > 0) open.set(client, left)
      else open.delete(client)
    })
  })
}

/**
 * Makes `server.close()` end every connection in a way that its client has been told of: answers say `Connection: close`,
 * and a connection is closed after such an answer. One that waits for a request stays open for `graceMs`, because its
 * client may be sending one right now, which is answered. Node by itself cuts connections as idle although a request is on
 * its way, or an answer to a slow client, and keeps those whose answer comes later until the client leaves.
 */
export function drainOnClose(server: Server, graceMs: number): void {
  // No `Set` of answers: it would make a table anew for each, and keep the former ones from young collections (ADR 80).
  const answersOf = new Map<Socket, ServerResponse[]>()
  let closing = false
  let isGraceOver = false
  function onClose(this: Socket): void {
    answersOf.delete(this)
  }
  server.on('connection', (socket) => {
    answersOf.set(socket, [])
    socket.on('close', onClose)
  })
  server.on('upgrade', ({ socket }) => answersOf.delete(socket))
  server.prependListener('request', ({ socket }, answer) => {
    if (closing) answer.setHeader('connection', 'close')
    const answers = answersOf.get(socket)
    answers?.push(answer)
    answer.once('close', () => {
      answers?.splice(answers.indexOf(answer), 1)
      // Not half-closed: a request that came in meanwhile would be carried out and never answered.
      if (closing && answers?.length === 0 && (isLast(answer) || isGraceOver)) socket.destroy()
    })
  })
  const endIdle = () => {
    isGraceOver = true
    for (const [socket, answers] of answersOf) if (answers.length === 0) socket.destroy()
  }
  // Called by `close()`, perhaps more than once.
  server.closeIdleConnections = () => {
    if (closing) return
    closing = true
    for (const answers of answersOf.values())
      for (const answer of answers) if (!answer.headersSent) answer.setHeader('connection', 'close')
    // Alone it must not keep the process alive: without connections nothing is left to do.
    setTimeout(endIdle, graceMs).unref()
  }
}

/** Whether the client was told that no other answer follows on this connection. */
const isLast = (answer: ServerResponse): boolean => !answer.shouldKeepAlive

/**
 * Gives the work of every handler its asker (src/admission/asker.ts). Requests share the work before handlers, such as
 * the read of a session, so it does not end with one of them.
 */
export function knowAskers(app: App): void {
  app.addHook('preHandler', (request, reply, done) => workFor(new RequestAsker(request, reply), done))
}

/** Most requests never need the signal. */
class RequestAsker implements Asker {
  places = 0
  readonly #request: FastifyRequest
  readonly #reply: FastifyReply
  #leaving: AbortController | undefined

  constructor(request: FastifyRequest, reply: FastifyReply) {
    this.#request = request
    this.#reply = reply
  }

  get caller(): string {
    return turnOf(this.#request)
  }

  get gone(): AbortSignal | undefined {
    if (endsByItself(this.#request)) return undefined
    this.#leaving ??= untilClosed(this.#reply)
    return this.#leaving.signal
  }
}

/** A session must end although the page that asked for it is closed already. */
const endsByItself = ({ routeOptions: { url = '' } }: FastifyRequest): boolean => /^\/auth(\/|$)/.test(url)

/** The framework's own signal also aborts when the body of a request has arrived. */
function untilClosed({ raw }: FastifyReply): AbortController {
  const leaving = new AbortController()
  const onClose = () => {
    if (!raw.writableEnded) leaving.abort()
  }
  if (raw.closed || raw.destroyed) onClose()
  else raw.once('close', onClose)
  return leaving
}

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
  function onClose(this: Socket): void {
    latest.delete(this)
  }
  app.server.on('connection', (socket: Socket) => {
    socket.on('close', onClose)
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
