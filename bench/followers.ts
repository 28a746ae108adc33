import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import pino from 'pino'
import { logSchema, logTable } from '../src/catalog/log-triggers.ts'
import { parseConfig } from '../src/config/config.ts'
import type { Consumer } from '../src/events/consumer.ts'
import { openRuntime, type Runtime } from '../src/process/runtime.ts'
import { openConsumers } from '../src/workers/consumers.ts'
import { openSql } from './database.ts'
import type { Prepared } from './daybook.ts'
import type { Figure } from './figures.ts'
import { fire, type Load } from './load.ts'
import { meterOf } from './meter.ts'
import { startProcess } from './processes.ts'
import { type Contest, loadOf, median } from './rounds.ts'
import { writeCases } from './writes.ts'

type FollowerSizes = { readonly writes: number; readonly rounds: number }

const whole: FollowerSizes = { writes: 20_000, rounds: 3 }
const quick: FollowerSizes = { writes: 2_000, rounds: 2 }
const productsOfCase = 1000
const restMs = 1000
const idleMs = 8000

/**
 * P13: what follows the log. One-row creates and updates over HTTP, by 16 clients, whose events the worker seals meanwhile and a consumer
 * then reads; of each the processor time of its process and of PostgreSQL for it.
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
  await using cleanup = new AsyncDisposableStack()
  const runtime = await openRuntime({ config: parseConfig(env), log, name: 'bench followers', worker: true })
  cleanup.defer(() => runtime.close())
  const sealing = await startSealing(env, await openSql(env.DATABASE_URL!, cleanup), cleanup)
  const meters = metersOf(contest)
  const figures: Figure[] = []
  for (const [id, name] of Object.entries({ W4: 'create', W5: 'update' })) {
    const load = loadOf(contest, 'daybook', writeCases(productsOfCase).find((each) => each.id === id)!, 'admin')
    // Earlier events do not count, and V8 compiles meanwhile.
    await fire(load, sizes.writes)
    const rounds: Cost[] = []
    for (let round = 0; round < sizes.rounds; round += 1)
      rounds.push(await measureRound(runtime, sealing, load, meters, sizes.writes))
    figures.push(...figuresOf(name, rounds))
  }
  return figures
}

function figuresOf(write: string, rounds: readonly Cost[]): readonly Figure[] {
  const middle = (pick: (cost: Cost) => number) => median(rounds.map(pick))
  const figure = (title: string, unit: string, daybook: number): Figure => ({ id: 'P13', title, unit, daybook })
  return [
    figure(
      `one-row ${write}s followed by a consumer`,
      'events/s',
      middle(({ followedPerSecond }) => followedPerSecond),
    ),
    figure(
      `one-row ${write}s, web process and PostgreSQL`,
      'CPU µs',
      middle(({ write }) => write),
    ),
    figure(
      `following one-row ${write}s, consumer and PostgreSQL`,
      'CPU µs',
      middle(({ follow }) => follow),
    ),
    figure(
      `sealing one-row ${write}s, worker and PostgreSQL`,
      'CPU µs',
      middle(({ seal }) => seal),
    ),
    figure(`seals, share of one-row ${write}s`, '%', 100 * (middle(({ seal }) => seal) / middle(({ write }) => write))),
  ]
}

/** Microseconds of processor time for each event, and events per second. */
type Cost = {
  readonly write: number
  readonly follow: number
  readonly seal: number
  readonly followedPerSecond: number
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
  sealing: Sealing,
  load: Load,
  { web, own, database }: Meters,
  writes: number,
): Promise<Cost> {
  const follower = await openFollower(runtime)
  await follower.stop()
  await sealing.catchUp()
  // The work of a worker that finds nothing to seal is no cost of an event.
  const idle = await sealing.cpu()
  await delay(idleMs)
  const sealedBefore = await sealing.cpu()
  const idlePerSecond = (sealedBefore.all - idle.all) / (idleMs / 1000)
  const began = performance.now()
  const beforeWrites = web() + database()
  const { requests, errors } = await fire(load, writes)
  if (errors > 0) throw new Error(`${errors} updates failed`)
  const written = web() + database() - beforeWrites
  const besideWrites = (await sealing.cpu()).database - sealedBefore.database
  await sealing.catchUp()
  const lasted = (performance.now() - began) / 1000
  const sealed = (await sealing.cpu()).all - sealedBefore.all
  const follow = await timed(own, database, () => follower.countTo(requests))
  // PostgreSQL's own work after so many writes.
  const rest = await timed(own, database, () => delay(restMs))
  const micros = (seconds: number) => (seconds * 1e6) / requests
  return {
    write: micros(written - besideWrites),
    follow: micros(Math.max(0, follow.cpu - (rest.cpu * follow.seconds) / rest.seconds)),
    seal: micros(Math.max(0, sealed - idlePerSecond * lasted)),
    followedPerSecond: requests / follow.seconds,
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

type Sealing = Awaited<ReturnType<typeof startSealing>>

/**
 * The worker that seals, as it is shipped, from now on. Its cost is that of its process and of its connections to
 * PostgreSQL, which last for the run, so that none of it is lost.
 */
async function startSealing(env: Prepared['env'], sql: pg.Client, cleanup: AsyncDisposableStack) {
  const lasting = { DATABASE_POOL_IDLE: '3600000' }
  const launch = { script: 'src/workers/main.ts', args: ['log-cleanup'], env: { ...env, ...lasting } }
  const own = meterOf((await startProcess(launch, cleanup)).pid)
  const sessions = async (): Promise<number> => {
    const { rows } = await sql.query<{ pid: number }>(
      `select pid from pg_stat_activity where application_name like 'daybook log-cleanup%'`,
    )
    return rows.reduce((sum, { pid }) => sum + (meterOf(pid)() ?? 0), 0)
  }
  const isCaughtUp = async (): Promise<boolean> => {
    const { rows } = await sql.query(
      `select position >= (select position from "${logTable}" order by id desc limit 1) as "isCaughtUp" from ${logSchema}.seal_state`,
    )
    return rows[0].isCaughtUp
  }
  return {
    /** Seconds of processor time so far. */
    cpu: async () => {
      const database = await sessions()
      return { database, all: database + (own() ?? 0) }
    },
    async catchUp(): Promise<void> {
      while (!(await isCaughtUp())) await delay(50)
    },
  }
}
