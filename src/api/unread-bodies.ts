import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { AppError } from '../errors.ts'
import type { App } from '../http/http.ts'

/** How much of a body that nobody wants is read, so that its sender hears why, and for how long. */
const most = { bytes: 1_048_576, ms: 1000 }

/**
 * Lets a client that asks (`Expect: 100-continue`) send its body once nothing speaks against it any more, and refuses one
 * that is declared to be too large before its type is looked at. To be called before any hook that reads bodies.
 */
export function askForBodies(app: App): void {
  app.server.on('checkContinue', (request: IncomingMessage, response) => {
    asking.add(request)
    app.server.emit('request', request, response)
  })
  app.addHook('preParsing', (request, reply, payload, done) => {
    if (isDeclaredTooLarge(request)) return done(new AppError(413, 'Request body is too large'))
    if (asking.delete(request.raw)) reply.raw.writeContinue()
    done(null, payload)
  })
}

/**
 * Answers a request whose body has not been read, and may still be on its way: a line that is cut at once would take the
 * answer with it. The answer goes out whole, a little of the body is read and thrown away, then the line is closed.
 */
export function sendBeforeBody(request: FastifyRequest, reply: FastifyReply, text: string): FastifyReply {
  const { raw } = request
  if (!asking.has(raw) && isSoonOver(raw)) return reply.send(text)
  reply.header('connection', 'close').header('content-length', Buffer.byteLength(text))
  // A client that has asked and got no 100 sends nothing.
  if (asking.delete(raw)) return reply.send(text)
  return reply.send(Readable.from(thenDrained(raw, text)))
}

/** Whether there is a body of which the end is not here yet. */
export function isBodyComing({ raw }: FastifyRequest): boolean {
  const { headers, complete } = raw
  return (
    complete === false && (headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0)
  )
}

/**
 * Whether the rest of a body is so short that reading it costs less than another connection: Node reads it after the answer
 * and keeps the line. A client that is refused over and over, such as in a flood of sign-ins, would otherwise connect each time.
 */
function isSoonOver({ headers }: IncomingMessage): boolean {
  return Number(headers['content-length'] ?? Number.POSITIVE_INFINITY) <= soonOverBytes
}

const soonOverBytes = 16_384

const asking = new WeakSet<IncomingMessage>()

/** Files have limits of their own. */
function isDeclaredTooLarge({ headers, routeOptions, server, method }: FastifyRequest): boolean {
  if (method === 'GET' || method === 'HEAD') return false
  const isForm = headers['content-type']?.startsWith('multipart/') === true
  if (isForm && server.hasContentTypeParser('multipart/form-data')) return false
  return Number(headers['content-length'] ?? 0) > (routeOptions.bodyLimit ?? Number.POSITIVE_INFINITY)
}

async function* thenDrained(raw: IncomingMessage, text: string): AsyncGenerator<string> {
  yield text
  let bytes = 0
  const isOver = Promise.withResolvers<void>()
  const over = () => isOver.resolve()
  raw.unpipe()
  raw.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes > most.bytes) over()
  })
  raw.once('end', over).once('close', over).once('error', over).resume()
  if (raw.complete) over()
  await Promise.race([isOver.promise, delay(most.ms, undefined, { ref: false })])
}
