import type { FastifyBaseLogger } from 'fastify'

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
