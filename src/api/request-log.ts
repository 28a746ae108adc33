import type { FastifyBaseLogger, FastifyRequest } from 'fastify'
import type { Span } from '../adapters/running-span.ts'
import type { Traces } from '../adapters/tracing.ts'
import type { App } from '../http/http.ts'

type Level = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace'

/**
 * The logger of a request, whose lines carry its id. Making one costs as much as 5 % of a light request, and most
 * requests log nothing: it is made with the first line.
 */
export class RequestLog {
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
export function traceRequests(app: App, { tracing }: Traces): void {
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
