import pino from 'pino'
import { parseConfig } from '../src/config/config.ts'
import type { Consumer } from '../src/events/consumer.ts'
import { sealLag } from '../src/events/seals/seals.ts'
import { openRuntime, type Runtime } from '../src/process/runtime.ts'
import { openConsumers } from '../src/workers/consumers.ts'
import { openSeals } from '../src/workers/log-seals.ts'
import type { Prepared } from './daybook.ts'
import type { Figure } from './figures.ts'
import { fire, type Load } from './load.ts'
import { meterOf } from './meter.ts'
import { type Contest, loadOf, median } from './rounds.ts'
import { writeCases } from './writes.ts'

type FollowerSizes = { readonly writes: number; readonly rounds: number }

const whole: FollowerSizes = { writes: 20_000, rounds: 3 }
const quick: FollowerSizes = { writes: 2_000, rounds: 2 }
const productsOfCase = 1000
const restMs = 1000

/**
 * P13: what follows the log. One-row updates over HTTP, by 16 clients, whose events a consumer then reads and the seals then
 * seal, each alone, so that the processor time of each can be told: that of its process and of PostgreSQL.
 *
 * @throws {Error} where events were not followed or not sealed
 */
export async function measureFollowers(
  contest: Contest,
  { env }: Prepared,
  isQuick: boolean,
): Promise<readonly Figure[]> {
  const sizes = isQuick ? quick : whole
  const log = pino({ level: 'warn' }, pino.destination(2))
  const runtime = await openRuntime({ config: parseConfig(env), log, name: 'bench followers', worker: true })
  try {
    const update = writeCases(productsOfCase).find(({ id }) => id === 'W5')!
    const load = loadOf(contest, 'daybook', update, 'admin')
    const meters = metersOf(contest)
    // What came before is none of the measurement, and V8 compiles.
    await fire(load, sizes.writes)
    await sealAll(runtime)
    const rounds: Cost[] = []
    for (let round = 0; round < sizes.rounds; round += 1)
      rounds.push(await measureRound(runtime, load, meters, sizes.writes))
    const middle = (pick: (cost: Cost) => number) => median(rounds.map(pick))
    const write = middle(({ write }) => write)
    const seal = middle(({ seal }) => seal)
    return [
      figure(
        'events followed by a consumer',
        'events/s',
        middle(({ followedPerSecond }) => followedPerSecond),
      ),
      figure(
        'events sealed',
        'events/s',
        middle(({ sealedPerSecond }) => sealedPerSecond),
      ),
      figure('a one-row update, web process and PostgreSQL', 'CPU µs', write),
      figure(
        'following its event, consumer and PostgreSQL',
        'CPU µs',
        middle(({ follow }) => follow),
      ),
      figure('sealing its event, worker and PostgreSQL', 'CPU µs', seal),
      figure('seals, share of an update', '%', (seal / write) * 100),
    ]
  } finally {
    await runtime.close()
  }
}

const figure = (title: string, unit: string, daybook: number): Figure => ({ id: 'P13', title, unit, daybook })

/** Microseconds of processor time for each event, and events per second. */
type Cost = {
  readonly write: number
  readonly follow: number
  readonly seal: number
  readonly followedPerSecond: number
  readonly sealedPerSecond: number
}

type Meters = { readonly web: () => number; readonly own: () => number; readonly database: () => number }

/** Seconds so far. Where the system does not tell of other processes the figures are of this one alone. */
function metersOf({ servers, databasePid }: Contest): Meters {
  const web = meterOf(servers.daybook!.pid)
  const database = meterOf(databasePid, 'with its children')
  const own = () => {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1e6
  }
  return { web: () => web() ?? 0, own, database: () => database() ?? 0 }
}

async function measureRound(
  runtime: Runtime,
  load: Load,
  { web, own, database }: Meters,
  writes: number,
): Promise<Cost> {
  const follower = await openFollower(runtime)
  await follower.stop()
  const beforeWrites = web() + database()
  const { requests, errors } = await fire(load, writes)
  if (errors > 0) throw new Error(`${errors} updates failed`)
  const write = web() + database() - beforeWrites
  const follow = await timed(own, database, () => follower.countTo(requests))
  // What PostgreSQL does by itself after so many writes.
  const rest = await timed(own, database, () => new Promise((resolve) => setTimeout(resolve, restMs)))
  const seal = await timed(own, database, () => sealAll(runtime))
  const micros = (seconds: number) => (seconds * 1e6) / requests
  const ofItsOwn = ({ cpu, seconds }: typeof rest) => micros(Math.max(0, cpu - (rest.cpu * seconds) / rest.seconds))
  return {
    write: micros(write),
    follow: ofItsOwn(follow),
    seal: ofItsOwn(seal),
    followedPerSecond: requests / follow.seconds,
    sealedPerSecond: requests / seal.seconds,
  }
}

async function timed(own: () => number, database: () => number, work: () => Promise<void>) {
  const before = own() + database()
  const began = performance.now()
  await work()
  return { cpu: own() + database() - before, seconds: (performance.now() - began) / 1000 }
}

/** A consumer that only counts, and keeps its place between two runs. */
async function openFollower(runtime: Runtime) {
  let seen = 0
  let wanted = Number.POSITIVE_INFINITY
  let all = Promise.withResolvers<void>()
  const consumer: Consumer = {
    name: 'bench',
    onFailure: 'halt',
    wants: () => ({ collections: ['article'] }),
    handle: async (_tx, { events }) => {
      seen += events.length
      if (seen >= wanted) all.resolve()
      return undefined
    },
  }
  const consumers = await openConsumers(runtime, [consumer])
  return {
    stop: () => consumers.stop(5000),
    async countTo(events: number): Promise<void> {
      all = Promise.withResolvers()
      seen = 0
      wanted = events
      const again = await openConsumers(runtime, [consumer])
      await all.promise
      await again.stop(5000)
      if (seen !== events) throw new Error(`${seen} of ${events} events were followed`)
    },
  }
}

/** Has the worker's own code seal all that waits. */
async function sealAll(runtime: Runtime): Promise<void> {
  // What it looks after besides is a statement every two seconds, as in a worker.
  const seals = await openSeals(runtime, { paceMs: 20 })
  try {
    for (;;) {
      const { number, seconds, sweeping } = await sealLag(runtime.db)
      if (number > 0 && seconds === 0 && !sweeping) return
      await new Promise((resolve) => setTimeout(resolve, 200))
    }
  } finally {
    await seals.stop(5000)
  }
}
