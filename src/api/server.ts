import type { Server } from 'node:http'
import cors from '@fastify/cors'
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import Fastify, { type FastifyBaseLogger, type FastifyReply, type FastifyRequest, LogController } from 'fastify'
import { compilersFactory } from '../adapters/fastify.ts'
import type { IdSource } from '../adapters/ids.ts'
import type { Logs } from '../adapters/logger.ts'
import type { Span } from '../adapters/running-span.ts'
import type { Traces } from '../adapters/tracing.ts'
import type { Config } from '../config/config.ts'
import { AppError } from '../errors.ts'
import { type Agent, type Cause, deepestCause } from '../events/types.ts'
import type { Extensions } from '../extensions/extensions.ts'
import { isTrustedOrigin } from '../features/accounts/auth/auth.ts'
import type { App } from '../http/http.ts'
import { acceptJsonBodies, askForBodies, refuseEncodedBodies } from './bodies.ts'
import type { WebWrites } from './capabilities.ts'
import { answerBadPath, answerBrokenRequest, isRefused, registerErrorBodies } from './error-bodies.ts'
import { drainOnClose, knowAskers, limitBodyTimes, limitConnections, longestIdleMs } from './http-connections.ts'
import { openEngine, realtimeServerFactory } from './realtime/connections.ts'
import { openRealtime } from './realtime.ts'
import { registerRoutes } from './routes.ts'

/**
 * Builds the HTTP server without listening. Tests call it by `inject`, `main.ts` listens. With SOCKET_ENABLED the
 * realtime channel starts with it and ends with it.
 */
export async function buildServer(
  deps: WebWrites,
  { endpoints = [], consoles = [] }: Partial<Extensions> = {},
): Promise<App> {
  const { config } = deps
  const sockets = config.realtime.enabled ? openEngine(config) : undefined
  const app = newApp(deps, sockets, { foreign: endpoints.length > 0 })
  limitTimes(app.server, config)
  limitBodyTimes(app)
  drainOnClose(app.server, config.server.shutdownGraceMs)
  const { connections } = config.rateLimit
  // Behind proxies all connections are theirs.
  if (connections > 0 && config.server.trustProxy === false) limitConnections(app.server, connections)
  app.decorateRequest('caller', null as never)
  app.decorateRequest('credentialFault', undefined)
  app.decorateRequest('sessionCookie', 'none')
  app.decorateRequest('sessionToken', undefined)
  app.decorateRequest('renewed', undefined)
  app.decorateRequest('logId', '')
  app.decorateRequest('agent', undefined)
  app.decorateRequest('cause', undefined)
  traceRequests(app, deps)
  registerErrorBodies(app, config)
  acceptJsonBodies(app)
  askForBodies(app)
  refuseEncodedBodies(app)
  // With callbacks, because an async hook makes every request wait for a promise.
  app.addHook('onRequest', (request, reply, done) => {
    // An answer that depends on its caller is for that caller alone; routes may say more, e.g. `no-store`.
    reply.header('x-request-id', request.id).header('cache-control', 'private, no-cache')
    nameForLog(deps, request, reply)
    done()
  })
  app.addHook('onResponse', (request, reply, done) => {
    deps.instruments.request(request.method, request.routeOptions.url, reply.statusCode, reply.elapsedTime / 1000)
    logRequest(deps, request, reply)
    done()
  })
  knowAskers(app)
  await app.register(cors, corsOptions(config))
  const realtime = sockets === undefined ? undefined : await openRealtime(deps, sockets)
  closeWith(app, async () => realtime?.close())
  registerRoutes(app, deps, realtime, { endpoints, consoles })
  return app
}

function newApp(
  deps: WebWrites,
  sockets: ReturnType<typeof openEngine> | undefined,
  routes: { readonly foreign: boolean },
): App {
  const { config } = deps
  return Fastify({
    loggerInstance: deps.log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    childLoggerFactory: (logger, bindings, options) =>
      new RequestLog(logger, bindings, options) as unknown as FastifyBaseLogger,
    bodyLimit: config.server.bodySizeLimit,
    trustProxy: config.server.trustProxy as never,
    requestIdHeader: false,
    genReqId: (request) => acceptedRequestId(request.headers['x-request-id']) ?? deps.newId(),
    onProtoPoisoning: 'error',
    onConstructorPoisoning: 'ignore',
    // While the server closes, requests on connections that are open are still answered, and end them.
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    frameworkErrors: answerBadPath as never,
    clientErrorHandler: answerBrokenRequest,
    ...(sockets !== undefined && { serverFactory: realtimeServerFactory(config, sockets.engine) as never }),
    routerOptions: { maxParamLength: 500, ignoreTrailingSlash: true },
    schemaController: { compilersFactory: compilersFactory(routes) },
  }).withTypeProvider<TypeBoxTypeProvider>() as App
}

function logRequest({ log }: Logs, request: FastifyRequest, { statusCode, elapsedTime }: FastifyReply): void {
  const level = statusCode >= 500 && !isRefused(request) ? 'error' : 'debug'
  if (!log.isLevelEnabled(level)) return
  const { method } = request
  request.log[level]({ method, path: loggedPath(request), status: statusCode, ms: Math.round(elapsedTime) }, 'request')
}

/** Without the query. Paths under /auth hold tokens and codes: of them (and of what might be one) only the route. */
function loggedPath({ url, routeOptions }: FastifyRequest): string | undefined {
  const path = url.split('?', 1)[0] ?? ''
  return /^\/auth\/|%/i.test(path) ? routeOptions.url : path
}

/** A client that sends nothing must not hold a connection; bodies have times of their own. Milliseconds. */
function limitTimes(server: Server, config: Config): void {
  server.headersTimeout = 15_000
  server.keepAliveTimeout = 72_000
  server.setTimeout(longestIdleMs(config))
}

/** Begins to close something together with the server, which waits for its sockets, without delaying the server's end. */
function closeWith(app: App, close: () => Promise<void>): void {
  let closed: Promise<PromiseSettledResult<void>[]> | undefined
  const begin = () => {
    closed ??= Promise.allSettled([close()])
    return closed
  }
  app.addHook('preClose', async () => void begin())
  app.addHook('onClose', async () => {
    const [outcome] = await begin()
    if (outcome?.status === 'rejected') throw outcome.reason
  })
}

/** An id that the client chose may be that of several requests, so the log gets one of its own, and the client is told. */
function nameForLog({ newId }: IdSource, request: FastifyRequest, reply: FastifyReply): void {
  request.logId = request.id
  if (request.headers['x-request-id'] === request.id) {
    request.logId = newId()
    reply.header('x-log-request-id', request.logId)
  }
  request.agent = agentOf(request.headers['x-svc-agent'])
  request.cause = causeOfDelivery(request.headers['daybook-cause'])
}

const causeText = /^([\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12})\/(\d{1,4})$/i
/**
 * The cause that a delivery of a webhook carries and its receiver may pass on. 400 for anything else, 409 for a loop.
 */
function causeOfDelivery(header: string | string[] | undefined): Cause | undefined {
  if (header === undefined) return undefined
  const [, request, depth] = (typeof header === 'string' && causeText.exec(header)) || []
  if (request === undefined) throw new AppError(400, 'daybook-cause must be as the delivery of a webhook had it')
  if (Number(depth) > deepestCause)
    throw new AppError(409, `Webhooks have led to this request ${depth} times: it is taken for a loop`, {
      code: 'WEBHOOK_LOOP',
    })
  return { request: request.toLowerCase(), depth: Number(depth), by: 'webhook' }
}

const agentName = /^([\w .,@/:+()-]{1,100})(?:;\s*tool=([\w.@/:+-]{1,100}))?$/

/** `name`, or `name; tool=name`. 400 for anything else: what is logged must be what was said. */
function agentOf(header: string | string[] | undefined): Agent | undefined {
  if (header === undefined) return undefined
  const [, name, tool] = (typeof header === 'string' && agentName.exec(header)) || []
  if (name === undefined)
    throw new AppError(400, 'x-svc-agent must be `name` or `name; tool=name`, each of at most 100 characters')
  return tool === undefined ? { name } : { name, tool }
}

const requestId = /^[A-Za-z0-9._:-]{1,128}$/

/** Ids of callers are taken over when they are safe to log. */
function acceptedRequestId(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && requestId.test(header) ? header : undefined
}

/** Of files and of uploads that are gone on with. */
const fileHeaders = [
  ...['location', 'upload-offset', 'upload-length', 'upload-expires', 'tus-resumable', 'tus-version', 'x-file-id'],
  ...['tus-extension', 'tus-max-size', 'tus-checksum-algorithm'],
  ...['content-range', 'accept-ranges', 'content-disposition', 'last-modified'],
]
const rateLimitHeaders = ['ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset']

/** Trusted frontends only, by exact origin; never `*` with credentials. */
function corsOptions(config: Config) {
  return {
    origin: (origin: string | undefined, decide: (error: null, allow: boolean) => void) =>
      decide(null, origin !== undefined && isTrustedOrigin(config, origin)),
    credentials: config.cors.credentials,
    methods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
    exposedHeaders: [
      'x-request-id',
      'x-log-request-id',
      'retry-after',
      'etag',
      'x-cache',
      'www-authenticate',
      ...fileHeaders,
      ...rateLimitHeaders,
    ],
    maxAge: 600,
  }
}

type Level = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace'

/**
 * The logger of a request, whose lines carry its id. Making one costs as much as 5 % of a light request, and most
 * requests log nothing: it is made with the first line.
 */
class RequestLog {
  readonly #make: () => FastifyBaseLogger
  readonly #parent: FastifyBaseLogger
  #made: FastifyBaseLogger | undefined

  constructor(parent: FastifyBaseLogger, bindings: object, options: object) {
    this.#parent = parent
    this.#make = () => parent.child(bindings, options)
  }

  get level(): string {
    return this.#parent.level
  }

  fatal(...line: unknown[]): void {
    this.#log('fatal', line)
  }

  error(...line: unknown[]): void {
    this.#log('error', line)
  }

  warn(...line: unknown[]): void {
    this.#log('warn', line)
  }

  info(...line: unknown[]): void {
    this.#log('info', line)
  }

  debug(...line: unknown[]): void {
    this.#log('debug', line)
  }

  trace(...line: unknown[]): void {
    this.#log('trace', line)
  }

  silent(): void {}

  child(...args: Parameters<FastifyBaseLogger['child']>): FastifyBaseLogger {
    return this.#own().child(...args)
  }

  #own(): FastifyBaseLogger {
    this.#made ??= this.#make()
    return this.#made
  }

  #log(level: Level, line: unknown[]): void {
    if (rank[level] < (rank[this.level as Level] ?? 0)) return
    const own = this.#own()
    own[level](...(line as [string]))
  }
}

/** As pino has them. */
const rank: Readonly<Record<Level, number>> = { trace: 10, debug: 20, info: 30, warn: 40, error: 50, fatal: 60 }

/**
 * One span per request, by the pattern of its route: neither path nor query, which hold ids and tokens. It continues the
 * trace of a caller who sends `traceparent`. To be called before any other hook is added.
 */
function traceRequests(app: App, { tracing }: Traces): void {
  if (!tracing.isOn) return
  const spans = new WeakMap<FastifyRequest, Span>()
  app.addHook('onRequest', (request, _reply, done) => {
    const { method, headers, id } = request
    const { url: route } = request.routeOptions
    const attributes = { 'http.request.method': method, 'http.route': route, 'daybook.request_id': id }
    const name = route === undefined ? method : `${method} ${route}`
    const span = tracing.begin(name, { kind: 'server', attributes, parent: headers.traceparent })
    spans.set(request, span)
    span.within(done)
  })
  // Work after the arrival of the body is called by its stream, outside of the span.
  app.addHook('preValidation', (request, _reply, done) => spans.get(request)!.within(done))
  app.addHook('onResponse', (request, reply, done) => {
    const span = spans.get(request)
    // The router has refused it before any hook.
    if (span === undefined) return done()
    const { statusCode } = reply
    span.set({ 'http.response.status_code': statusCode })
    span.end(statusCode >= 500 ? String(statusCode) : undefined)
    span.within(done)
  })
}
