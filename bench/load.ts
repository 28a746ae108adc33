import autocannon from 'autocannon'
import type { Case, Kind, Request } from './cases.ts'
import type { Account, Role } from './daybook.ts'
import type { Server } from './processes.ts'

/** The result of one round on one server. Latencies in milliseconds, ascending. */
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
  /** Gives every request of a case on a side another number. */
  readonly next: () => number
  /** Makes what so many requests use up. */
  readonly prepare?: ((requests: number) => Promise<void>) | undefined
}

/**
 * Sends so many requests over keep-alive connections, each connection its next one when it has its answer. All of them
 * are answered when it ends: none runs into the next round, and each is in the figures.
 */
export async function fire({ what, role, as, kind, server, next, prepare }: Load, amount: number): Promise<Round> {
  await prepare?.(requestsMade(amount, what))
  return shoot(server, as, {
    amount,
    connections: what.connections,
    status: what.status,
    requests: [
      {
        setupRequest: (request) => {
          const asked = what.request({ n: next(), as, role, kind })
          return { ...request, ...asked, headers: { ...typed(request.headers, asked), ...asked.headers } }
        },
      },
    ],
    verifyBody: (body) => what.accepts(String(body)),
  })
}

/** A request without a body has no type of one. */
function typed(headers: object | undefined, { body }: Request): Readonly<Record<string, string>> {
  const { 'content-type': type, ...others } = { ...headers } as Record<string, string>
  return body === undefined || type === undefined ? others : { ...others, 'content-type': type }
}

/** Each connection has its first request made twice, and one more than it sends. */
export const requestsMade = (amount: number, { connections }: Pick<Case, 'connections'>): number =>
  amount + 3 * connections

type Shots = Pick<autocannon.Options, 'requests' | 'verifyBody'> & {
  readonly amount: number
  readonly connections: number
  readonly status: number
}

/** As {@link fire}, for requests of any kind. */
export async function shoot(server: Server, as: Account, { status: expected, ...shots }: Shots): Promise<Round> {
  const latencies: number[] = []
  let wrong = 0
  const done = Promise.withResolvers<autocannon.Result>()
  const options: autocannon.Options = {
    ...shots,
    url: server.url,
    connections: Math.min(shots.connections, shots.amount),
    // How soon it notices that the last answer is there, in milliseconds.
    sampleInt: 20,
    timeout: 60,
    headers: { authorization: `Bearer ${as.token}`, 'content-type': 'application/json' },
  }
  const run = autocannon(options, (error: unknown, result: autocannon.Result) =>
    error ? done.reject(error as Error) : done.resolve(result),
  )
  const started = performance.now()
  let last = started
  run.on('response', (_client, status, _bytes, ms) => {
    last = performance.now()
    latencies.push(ms)
    if (status !== expected) wrong += 1
  })
  const { errors, mismatches } = await done.promise
  return {
    perSecond: latencies.length / ((last - started) / 1000),
    latencies: Float64Array.from(latencies).sort(),
    requests: latencies.length,
    errors: errors + Math.max(wrong, mismatches),
  }
}

/**
 * Warms a server up for about so many seconds, and tells how many requests it answers in that time from then on.
 */
export async function warmUp(load: Load, seconds: number): Promise<number> {
  const { connections } = load.what
  let amount = connections * 2
  for (let spent = 0; ; ) {
    const { perSecond } = await fire(load, amount)
    spent += amount / perSecond
    amount = Math.max(connections, Math.round(perSecond * seconds))
    if (spent >= seconds / 2) return amount
  }
}
