import { randomBytes } from 'node:crypto'
import type { Socket } from 'node:net'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import { resourceMetadataUrl } from '../config/issuer.ts'
import { clientError, exposedWords, sqlState } from '../db/errors.ts'
import { AppError, inFull } from '../errors.ts'
import type { App, ErrorStyle } from '../http/http.ts'
import { isUnfit, unfit } from '../http/unfit.ts'
import { STATUS_CODES } from '../language/node-http.ts'
import { isBodyComing, sendBeforeBody } from './bodies.ts'

/**
 * The one place where an error becomes an answer: `{ message, code, … }` under /auth, `{ error: message, code }` for
 * validation under /realtime, `{ error: { message, code, details, statusCode } }` everywhere else.
 */
export function registerErrorBodies(app: App, config: Config): void {
  const options = { exposeDetails: config.server.exposeErrorDetails }
  app.setErrorHandler((error, request, reply) => {
    const known = knownError(error)
    const answer = known ?? internalError(error, request, options.exposeDetails)
    // Of a flood /metrics tells; to write it down would be more work than to refuse it.
    if (answer.code === overloaded) refused.add(request)
    else if (known !== undefined && answer.status >= 500) request.log.warn({ err: error }, answer.message)
    const challenge = challengeOf(config, request, answer)
    if (challenge !== undefined) reply.header('www-authenticate', challenge)
    return send(request, reply, styleOf(request), detailed(answer, options.exposeDetails))
  })
  app.setNotFoundHandler((request, reply) => send(request, reply, styleOf(request), new AppError(404, 'Not found')))
}

/**
 * A client that has no token, or not enough of one, learns where to get it (RFC 9728 §5.1), on routes that say what resource
 * they are. Undefined elsewhere, and where OAuth is off.
 */
function challengeOf(config: Config, request: FastifyRequest, { status, headers = {} }: AppError): string | undefined {
  const { resource } = request.routeOptions.config ?? {}
  const own = headers['www-authenticate'] ?? (status === 401 ? 'Bearer' : undefined)
  const address = resource === undefined ? undefined : resourceMetadataUrl(config, resource)
  if (own === undefined || address === undefined) return undefined
  return `${own}${own === 'Bearer' ? '' : ','} resource_metadata="${address}"`
}

/** Whether a request was refused because there was too much to do. */
export const isRefused = (request: FastifyRequest): boolean => refused.has(request)

const overloaded = 'OVERLOADED'
const refused = new WeakSet<FastifyRequest>()

/** Requests that the router refuses before a route is found: a path that cannot be decoded, or with too long a part. */
export function answerBadPath(error: FastifyError, request: FastifyRequest, reply: FastifyReply): void {
  const { statusCode = 400 } = error
  const message = statusCode === 414 ? 'A part of the path is too long' : 'The path is not valid'
  send(request, reply, styleOf(request), new AppError(statusCode, message))
}

/** Bytes that never became a request: broken HTTP, headers that are too large or come too slowly. Its line is cut. */
export function answerBrokenRequest(error: Error & { code: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || socket.destroyed) return
  const answer = brokenRequests[error.code] ?? new AppError(400, 'The request is not valid HTTP')
  const body = JSON.stringify(bodyOf('general', answer))
  const head = [
    `HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status]}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
  ]
  if (socket.writable) socket.write(`${head.join('\r\n')}\r\n\r\n${body}`)
  socket.destroy(error)
}

const brokenRequests: Readonly<Record<string, AppError>> = {
  HPE_HEADER_OVERFLOW: new AppError(431, 'The headers of the request are too large'),
  ERR_HTTP_REQUEST_TIMEOUT: new AppError(408, 'The request took too long to arrive'),
}

/** Errors of the framework that a client caused: body too large, malformed JSON, wrong content type, schema violations. */
function knownError(error: unknown): AppError | undefined {
  const mapped = clientError(error)
  if (mapped !== undefined) return mapped
  const { statusCode, code, validation, validationContext } = error as Partial<FastifyError>
  // Of a route of an extension, which has its own shapes.
  if (validation !== undefined) return unfit(validationContext, validation)
  if (statusCode === 413) return new AppError(413, 'Request body is too large', { cause: error })
  if (statusCode === 415) return new AppError(415, 'Unsupported content type', { cause: error })
  if (code === 'FST_ERR_CTP_INVALID_JSON_BODY' || error instanceof SyntaxError)
    return new AppError(400, 'The request body is not valid JSON', { cause: error })
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500)
    return new AppError(statusCode, (error as Error).message, { cause: error })
  return undefined
}

/** A fault of ours: a generic text and an id that is also in the log; the raw text only where it may be shown. */
function internalError(error: unknown, request: FastifyRequest, expose: boolean): AppError {
  const reference = randomBytes(8).toString('hex')
  request.log.error({ err: error, reference, sqlState: sqlState(error) }, 'request failed')
  const details = expose && error instanceof Error ? error.message : `Reference: ${reference}`
  return new AppError(500, request.routeOptions.config.failureMessage ?? 'Internal server error', { details })
}

/** With EXPOSE_ERROR_DETAILS what the database has said stands in for the generic words; what is the message already is not said twice. */
function detailed(error: AppError, expose: boolean): AppError {
  const words = expose ? exposedWords(error.cause) : undefined
  if (words === undefined || words === error.message) return error
  const { status, message, code, members, headers } = error
  return new AppError(status, message, {
    code,
    members: { ...members },
    headers: { ...headers },
    details: words,
  })
}

function styleOf(request: FastifyRequest): ErrorStyle {
  const { errorStyle } = request.routeOptions.config ?? {}
  if (errorStyle !== undefined) return errorStyle
  if (/^\/auth(\/|\?|$)/i.test(request.url)) return 'auth'
  return /^\/realtime(\/|\?|$)/i.test(request.url) ? 'realtime' : 'general'
}

function send(request: FastifyRequest, reply: FastifyReply, style: ErrorStyle, error: AppError): FastifyReply {
  const challenge = reply.getHeader('www-authenticate')
  reply
    .code(error.status)
    .headers({ ...(error.status === 401 && { 'www-authenticate': 'Bearer' }), ...error.headers })
    .headers({ ...(challenge !== undefined && { 'www-authenticate': challenge }) })
    .type('application/json; charset=utf-8')
  // A hook may have given a value that is no JSON, which the details show.
  const text = JSON.stringify(bodyOf(style, error), (_name, value) =>
    typeof value === 'bigint' ? value.toString() : value,
  )
  return isBodyComing(request) ? sendBeforeBody(request, reply, text) : reply.send(text)
}

function bodyOf(style: ErrorStyle, error: AppError): object {
  const { status, code, details, members } = error
  // A fault's reference has no other place there.
  const fault = status === 500 && { details }
  const message = style !== 'general' && isUnfit(error) ? inFull(error) : error.message
  if (style === 'auth') return { message, code, ...fault, ...members }
  if (style === 'oauth') return { error: oauthErrorOf(status, code), error_description: message }
  if (style === 'realtime' && status === 400) return { error: message, code }
  return { error: { message, code, details: details ?? null, statusCode: status } }
}

/** The words of RFC 6749 §5.2, 7009 and 7591; for what they have none for, one that its status comes closest to. */
function oauthErrorOf(status: number, code: string): string {
  if (oauthErrors.has(code)) return code.toLowerCase()
  if (status === 503 || status === 429) return 'temporarily_unavailable'
  return status >= 500 ? 'server_error' : 'invalid_request'
}

const oauthErrors: ReadonlySet<string> = new Set([
  ...['INVALID_REQUEST', 'INVALID_CLIENT', 'INVALID_GRANT', 'UNAUTHORIZED_CLIENT', 'UNSUPPORTED_GRANT_TYPE'],
  ...['INVALID_SCOPE', 'INVALID_TARGET', 'INVALID_REDIRECT_URI', 'INVALID_CLIENT_METADATA'],
])

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The specification's words for a fault of ours on this route, e.g. `Error generating report`. */
    failureMessage?: string
  }
}
