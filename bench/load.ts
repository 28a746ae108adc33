import autocannon from 'autocannon'
import type { Case, Kind } from './cases.ts'
import type { Account, Role } from './daybook.ts'
import type { Server } from './processes.ts'

/** What one round on one server came to. Latencies in milliseconds, ascending. */
export type Round = {
  readonly perSecond: number
  readonly latencies: Float64Array
  readonly requests: number
  /** Broken lines, timeouts, other statuses than the right one, bodies that cannot be right. */
  readonly errors: number
}

export type Load = {
  readonly what: Case
  readonly role: Role
  readonly as: Account
  readonly kind: Kind
  readonly server: Server
  readonly seconds: number
  /** Gives every request of a case on a side another number. */
  readonly next: () => number
}

/** Sends requests over keep-alive connections for so many seconds, each connection its next one when it has its answer. */
export async function fire({ what, role, as, kind, server, seconds, next }: Load): Promise<Round> {
  const latencies: number[] = []
  let wrong = 0
  const started = performance.now()
  const done = Promise.withResolvers<autocannon.Result>()
  const options: autocannon.Options = {
    url: server.url,
    connections: what.connections,
    duration: seconds,
    sampleInt: 50,
    timeout: 30,
    headers: { authorization: `Bearer ${as.token}`, 'content-type': 'application/json' },
    requests: [{ setupRequest: (request) => ({ ...request, ...what.request({ n: next(), as, role, kind }) }) }],
    verifyBody: (body) => what.accepts(String(body)),
  }
  const run = autocannon(options, (error: unknown, result: autocannon.Result) =>
    error ? done.reject(error as Error) : done.resolve(result),
  )
  let last = started
  run.on('response', (_client, status, _bytes, ms) => {
    last = performance.now()
    latencies.push(ms)
    if (status !== what.status) wrong += 1
  })
  const { errors, mismatches } = await done.promise
  return {
    perSecond: latencies.length / ((last - started) / 1000),
    latencies: Float64Array.from(latencies).sort(),
    requests: latencies.length,
    errors: errors + Math.max(wrong, mismatches),
  }
}
