import type pg from 'pg'
import type { Case, Side } from './cases.ts'
import type { Account, Role } from './daybook.ts'
import { fire, type Load, type Round, requestsMade, warmUp } from './load.ts'
import { meterOf } from './meter.ts'
import type { Server } from './processes.ts'

export type Figures = {
  /** Median of the rounds. */
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  readonly requests: number
  readonly errors: number
  /** Processor time per request of the server, and of PostgreSQL, in microseconds; undefined where it cannot be told. */
  readonly serverCpu: number | undefined
  readonly databaseCpu: number | undefined
}

export type Line = {
  readonly id: string
  readonly title: string
  readonly role: Role
  readonly rowsEach: number
  readonly figures: Readonly<Partial<Record<Side, Figures>>>
}

export type Contest = {
  readonly servers: Readonly<Partial<Record<Side, Server>>>
  readonly accounts: Readonly<Record<Role, Account>>
  readonly rounds: number
  readonly seconds: number
  readonly databasePid: number | undefined
  /** For what a case needs in the tables. */
  readonly sql: pg.Client
}

/**
 * Rounds of a case: each side warms up once, then they take turns, in another order every round, so that what else
 * happens on the machine meets all of them.
 */
export async function compete(contest: Contest, what: Case, role: Role): Promise<Line> {
  const sides = Object.keys(contest.servers) as Side[]
  const entries = sides.map((side) => entryOf(contest, side, what, role))
  for (const entry of entries) await entry.warmUp()
  for (let round = 0; round < contest.rounds; round += 1) for (const entry of rotated(entries, round)) await entry.run()
  const figures = Object.fromEntries(entries.map(({ side, took }) => [side, figuresOf(took)]))
  return { id: what.id, title: what.title, role, rowsEach: what.rowsEach ?? 1, figures }
}

type Measured = Round & { readonly serverCpu: number | undefined; readonly databaseCpu: number | undefined }

/** How many light requests a server answers before V8 has compiled all that they run through; both sides need 16,000. */
const requestsUntilCompiled = 20_000

/** Lets every side answer so many requests of a light case that none of them compiles while it is measured. */
export async function breakIn(contest: Contest, light: Case, role: Role): Promise<void> {
  for (const side of Object.keys(contest.servers) as Side[])
    await fire(loadOf(contest, side, light, role), requestsUntilCompiled)
}

/** Requests of a case to one side, each with another number. */
export function loadOf({ servers, accounts, sql }: Contest, side: Side, what: Case, role: Role): Load {
  let n = 0
  const next = () => {
    n += 1
    return n
  }
  const kind = side === 'ceiling' ? 'ceiling' : 'daybook'
  const as = accounts[role]
  const prepare = what.prepare && ((requests: number) => what.prepare!(sql, { as, role, kind }, requests))
  return { what, role, as, kind, server: servers[side]!, next, prepare }
}

/** One side's part in a contest. */
function entryOf(contest: Contest, side: Side, what: Case, role: Role) {
  const load = loadOf(contest, side, what, role)
  const meters = [meterOf(load.server.pid), meterOf(contest.databasePid, 'with its children')]
  let amount = 0
  const took: Measured[] = []
  return {
    side,
    took,
    warmUp: async () => {
      amount = await warmUp(load, contest.seconds)
    },
    run: async () => {
      await load.prepare?.(requestsMade(amount, what))
      const before = meters.map((meter) => meter())
      const round = await fire({ ...load, prepare: undefined }, amount)
      const [serverCpu, databaseCpu] = meters.map((meter, i) => perRequest(meter(), before[i], round.requests))
      took.push({ ...round, serverCpu, databaseCpu })
    },
  }
}

/** Microseconds. */
function perRequest(after: number | undefined, before: number | undefined, requests: number): number | undefined {
  return after === undefined || before === undefined ? undefined : ((after - before) * 1e6) / Math.max(requests, 1)
}

function figuresOf(took: readonly Measured[]): Figures {
  const middle = (pick: (round: Measured) => number) => median(took.map(pick))
  const cpu = (pick: (round: Measured) => number | undefined) =>
    took.some((round) => pick(round) === undefined) ? undefined : middle((round) => pick(round)!)
  return {
    perSecond: middle((round) => round.perSecond),
    p50: middle((round) => quantile(round.latencies, 0.5)),
    p99: middle((round) => quantile(round.latencies, 0.99)),
    requests: took.reduce((sum, round) => sum + round.requests, 0),
    errors: took.reduce((sum, round) => sum + round.errors, 0),
    serverCpu: cpu((round) => round.serverCpu),
    databaseCpu: cpu((round) => round.databaseCpu),
  }
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  return (sorted[Math.ceil(sorted.length / 2) - 1]! + sorted[Math.floor(sorted.length / 2)]!) / 2
}

/** Of ascending values; NaN of none. */
export function quantile(values: Float64Array, at: number): number {
  return values[Math.min(values.length - 1, Math.floor(values.length * at))] ?? Number.NaN
}

const rotated = <T>(list: readonly T[], by: number): T[] => [
  ...list.slice(by % list.length),
  ...list.slice(0, by % list.length),
]
