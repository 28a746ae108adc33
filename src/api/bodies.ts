import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { AppError } from '../errors.ts'
import type { App } from '../http/http.ts'
import { bodyParser, decodeText, excessOf } from '../http/json-values.ts'

/**
 * JSON bodies: empty ones count as absent, because clients send `Content-Type: application/json` on requests without a
 * body; keys that would reach a prototype, more than 500 levels, bytes that are no UTF-8 and values that cannot be kept
 * are refused with 400, more than a million values with 413.
 */
export function acceptJsonBodies(app: App): void {
  const parse = bodyParser(app)
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    const { error, value } = body.length === 0 ? empty : outcomeOf(body as Buffer, (text) => parse(request, text))
    done(error, value)
  })
}

type ParseResult = { readonly error: Error | null; readonly value: unknown }

const empty: ParseResult = { error: null, value: undefined }

function outcomeOf(body: Buffer, parse: (text: string) => unknown): ParseResult {
  try {
    const text = decodeText(body, 'The request body')
    const excess = excessOf(text)
    if (excess !== undefined) throw excess
    return { error: null, value: parse(text) }
  } catch (error) {
    return { error: error as Error, value: undefined }
  }
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route reads what its bodies are encoded with by itself; extensions may. */
    decodesBodies?: boolean
  }
}

/**
 * Refuses compressed bodies with 415 before reading them; `Accept-Encoding` names the accepted encoding (RFC 9110,
 * 15.5.16). Gzip saves little on requests, and would let a body grow a thousandfold here.
 */
export function refuseEncodedBodies(app: App): void {
  app.addHook('preParsing', (request, _reply, payload, done) => {
    const encoding = request.headers['content-encoding']
    const isPlain = encoding === undefined || /^\s*(?:identity)?\s*$/i.test(encoding)
    if (isPlain || request.routeOptions.config.decodesBodies === true) done(null, payload)
    else done(refusal(encoding))
  })
}

function refusal(encoding: string): AppError {
  const shown = encoding.length > 40 ? `${encoding.slice(0, 40)}…` : encoding
  return new AppError(415, `Content-Encoding ${JSON.stringify(shown)} is not supported: send the body uncompressed`, {
    code: 'UNSUPPORTED_CONTENT_ENCODING',
    headers: { 'accept-encoding': 'identity' },
  })
}

/**
 * How much of an unwanted body is read, and for how long, so that its sender hears the reason: `fetch` of Node loses the answer
 * where the line is cut while it sends. What is read is thrown away, so it takes no memory, and less work than to accept it.
 */
const most = { bytes: 16_777_216, ms: 1000 }

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
 * answer with it. The answer goes out whole, some of the body is read and thrown away, then the line is closed.
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
  return raw.complete === false && hasBody(raw)
}

/** Whether a request has a body, here or still to come. */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
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
