import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import type { Logger } from 'pino'
import { goneSignal } from '../../admission/asker.ts'
import type { Config } from '../../config/config.ts'
import { AppError } from '../../errors.ts'
import { Connection, streamOf } from '../connection.ts'
import { isConnectionLoss, isStalePlan, sqlState } from '../errors.ts'
import { type Line, openLine, settingsOf } from '../poolers/line.ts'
import { lookAtLine } from '../poolers/poolers.ts'
import {
  type Database,
  openDatabase,
  openPool,
  type PgClient,
  type Reads,
  tlsOptions,
  withoutOwnParameters,
} from '../pools.ts'
import {
  anybody,
  type CallerKey,
  databaseIdentitySql,
  floor,
  type WalPosition,
  type WritePositions,
  walEndSql,
  walReplayedSql,
} from './write-positions.ts'

/** The caller who reads, and from which state of the database on the answer is right. */
type ReadNeed = {
  readonly caller: CallerKey
  /** Everything of the transactions before this one must be there: what a read of the past undoes changes from. */
  readonly horizon?: bigint | undefined
  /** Gets what the replica had replayed before it is asked. */
  readonly servedBy?: ((replayed: WalPosition) => void) | undefined
}

/** The read replicas of a web process (ADR 22). */
export type Replicas = {
  /**
   * Runs a read on a replica that is whole, recent enough, knows this process's catalog and has everything that the caller
   * has written; on the primary where there is none, and once more there when the replica fails it.
   */
  read<T>(
    primary: Database,
    need: ReadNeed,
    work: (db: Database) => Promise<T>,
    discard?: (result: T) => void,
  ): Promise<T>
  /** Later reads of these callers are not older than now; to be awaited before they are answered. */
  note(...callers: readonly CallerKey[]): Promise<void>
  /** The collections have changed for this process; a replica that has not replayed that does not serve. */
  catalogChanged(): void
  stats(): ReplicasStats
  /** How many serve now, as of the last time they were asked. */
  serving(): number
  close(): Promise<void>
}

/** Where reads may go instead (`readAnywhere`); undefined without replicas, and in workers. */
export type ReplicaReads = { readonly replicas: Replicas | undefined }

export type ReplicaStats = {
  readonly replica: number
  readonly serving: boolean
  /** Why it does not serve. */
  readonly reason: string | undefined
  /** Bytes of the log that it has not replayed; undefined while it is away. */
  readonly behindBytes: number | undefined
  /** Age of what it shows, as it was last seen; undefined while it is away or older than two minutes. */
  readonly behindMs: number | undefined
  readonly reads: number
  /** Reads that it failed and the primary was asked for. */
  readonly faults: number
}

type ReplicasStats = {
  readonly replicas: readonly ReplicaStats[]
  /** Reads that the primary was asked for because no replica served, and because none had the caller's writes yet. */
  readonly primary: { readonly noneServing: number; readonly ownWrites: number }
}

type ReplicasOptions = {
  readonly config: Config
  readonly log: Logger
  readonly name: string
  /** Where the primary is asked how far it is: never waits for reads. */
  readonly primary: Database
  readonly writePositions: WritePositions
  /** Called once a minute: deletes positions that every serving replica has passed. */
  readonly forgetWritePositions: () => Promise<void>
}

type KnownReplica = { readonly replica: Replica; reads: number; faults: number }

type Shell = ReplicasOptions & {
  readonly members: readonly KnownReplica[]
  readonly samples: Samples
  readonly missed: { noneServing: number; ownWrites: number }
  /** When the collections changed last for this process. */
  catalogSince: number
  served: { readonly number: number; readonly until: number }
}

/** Opens the replicas of the configuration; undefined without any. They need not be there. */
export function openReplicas(options: ReplicasOptions): Replicas | undefined {
  const { config, log, name, primary, writePositions } = options
  if (!config.database.readReplicaEnabled) return undefined
  const members: KnownReplica[] = config.database.readReplicaUrls.map((url, i) => ({
    replica: openReplica({ config, log, name, url, place: i + 1 }),
    reads: 0,
    faults: 0,
  }))
  const samples = openSamples(primary)
  const missed = { noneServing: 0, ownWrites: 0 }
  const begun = { catalogSince: performance.now(), served: { number: 0, until: 0 } }
  const shell: Shell = { ...options, members, samples, missed, ...begun }
  const stopWatching = watchPrimary(options, samples)
  return {
    read: (primaryDb, need, work, discard) => read(shell, primaryDb, need, work, discard),
    note: (...callers) => writePositions.note(...callers),
    catalogChanged: () => {
      shell.catalogSince = performance.now()
    },
    stats: () => ({
      replicas: members.map((member) => statsOf(member, samples, unfitness(shell, member.replica))),
      primary: { ...missed },
    }),
    serving: () => servingNow(shell),
    close: async () => {
      await stopWatching()
      await Promise.all(members.map(({ replica }) => replica.close()))
    },
  }
}

async function read<T>(
  shell: Shell,
  primary: Database,
  need: ReadNeed,
  work: (db: Database) => Promise<T>,
  discard: ((result: T) => void) | undefined,
): Promise<T> {
  const member = await pick(shell, need)
  if (member === undefined) return work(primary)
  member.reads += 1
  const state = member.replica.state()
  need.servedBy?.(state.isUp ? state.replayed : 0n)
  try {
    return await member.replica.use(work, discard)
  } catch (error) {
    if (!isReplicaFault(error)) throw error
    member.faults += 1
    shell.log.debug({ err: error, replica: member.replica.place }, 'a read is repeated on the primary')
    return work(primary)
  }
}

async function pick(shell: Shell, { caller, horizon = 0n }: ReadNeed): Promise<KnownReplica | undefined> {
  const { members, samples, missed, writePositions } = shell
  const fit = members.filter(({ replica }) => {
    return unfitness(shell, replica) === undefined && reachedBy(replica, samples)!.horizon >= horizon
  })
  if (fit.length === 0) {
    missed.noneServing += 1
    return undefined
  }
  const position = await writePositions.positionFor(caller)
  const able = position === undefined ? [] : fit.filter(({ replica }) => hasReplayed(replica, position))
  if (able.length === 0) missed.ownWrites += 1
  // Among equals the one that has done less.
  return able.toSorted((a, b) => a.replica.load() - b.replica.load() || a.reads - b.reads)[0]
}

/** Counted at every read, but no more often than the replicas are asked. */
function servingNow(shell: Shell): number {
  const now = performance.now()
  if (now >= shell.served.until) {
    const number = shell.members.filter(({ replica }) => unfitness(shell, replica) === undefined).length
    shell.served = { number, until: now + watchIntervalMs }
  }
  return shell.served.number
}

function unfitness({ config, samples, catalogSince }: Shell, replica: Replica): string | undefined {
  const { readReplicaMaxLagMs: maxLagMs } = config.database
  return unfitnessOf(replica, samples, { maxLagMs, catalogSince, now: performance.now() })
}

type Bounds = { readonly maxLagMs: number; readonly catalogSince: number; readonly now: number }

/** Why a replica may not serve; undefined where it may. */
function unfitnessOf(replica: Replica, samples: Samples, { maxLagMs, catalogSince, now }: Bounds): string | undefined {
  const state = replica.state()
  if (!state.isUp) return 'away'
  const latest = samples.latest()
  if (latest === undefined) return 'the primary has not been asked yet'
  if (state.identity !== latest.identity) return 'it is not a copy of this database'
  if (!state.standby) return 'it is no standby: it takes writes of its own'
  const reached = samples.reached(state.replayed)
  if (reached === undefined || now - reached.at > maxLagMs) return 'behind'
  return reached.at < catalogSince ? 'it does not have the present collections yet' : undefined
}

function reachedBy(replica: Replica, samples: Samples): PositionSample | undefined {
  const state = replica.state()
  return state.isUp ? samples.reached(state.replayed) : undefined
}

function hasReplayed(replica: Replica, position: bigint): boolean {
  const state = replica.state()
  return state.isUp && state.replayed >= position
}

function statsOf({ replica, reads, faults }: KnownReplica, samples: Samples, reason: string | undefined): ReplicaStats {
  const state = replica.state()
  const latest = samples.latest()
  const reached = reachedBy(replica, samples)
  const behind = state.isUp && latest !== undefined ? Number(latest.position - state.replayed) : undefined
  return {
    replica: replica.place,
    serving: reason === undefined,
    reason,
    behindBytes: behind === undefined ? undefined : Math.max(0, behind),
    behindMs: reached && Math.round(performance.now() - reached.at),
    reads,
    faults,
  }
}

const housekeepingMs = 60_000

/** Asks the primary how far it is, all the time; what keeps it from answering keeps the replicas from serving. */
function watchPrimary(
  { log, writePositions, forgetWritePositions }: ReplicasOptions,
  samples: Samples,
): () => Promise<void> {
  const stopped = new AbortController()
  let tidyAt = performance.now() + housekeepingMs
  const look = async () => {
    await samples.take()
    await writePositions.retry()
    if (performance.now() < tidyAt) return
    tidyAt = performance.now() + housekeepingMs
    await forgetWritePositions()
  }
  const unanswered = (error: unknown) => log.debug({ err: error }, 'the primary could not be asked how far it is')
  const watching = (async () => {
    // So that the first read finds a floor that replicas have passed.
    await writePositions.positionFor(floor).catch(unanswered)
    while (!stopped.signal.aborted) {
      await look().catch(unanswered)
      await delay(watchIntervalMs, undefined, { signal: stopped.signal, ref: false }).catch(() => undefined)
    }
  })()
  return async () => {
    stopped.abort()
    await watching
  }
}

/** The primary at a moment of `performance.now()`: what had committed before `at` is below `position`. */
type PositionSample = {
  readonly at: number
  readonly position: WalPosition
  /** Every transaction before this one had ended. */
  readonly horizon: bigint
  readonly identity: string
}

type Samples = {
  /** Asks the primary now. */
  take(): Promise<void>
  latest(): PositionSample | undefined
  /** The newest moment that a server which has replayed this much shows; undefined when it is too long ago. */
  reached(position: WalPosition): PositionSample | undefined
}

/** Two minutes at the pace at which they are taken: how long ago a replica's state can be told. */
const mostSamples = 600

function openSamples(db: Database): Samples {
  const samples: PositionSample[] = []
  return {
    take: async () => {
      const sample = await sampleOf(db)
      samples.push(sample)
      if (samples.length > mostSamples) samples.shift()
    },
    latest: () => samples.at(-1),
    reached: (position) => samples.findLast((sample) => sample.position <= position),
  }
}

// The statement's snapshot is taken before the end of the log is asked for, so the horizon is none too new.
const text = `select ${walEndSql}::text as position, pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
  ${databaseIdentitySql} as identity`

async function sampleOf(db: Database): Promise<PositionSample> {
  const at = performance.now()
  const [row] = await db.run<{ position: string; horizon: string; identity: string }>(text, [], 'prepared')
  const { position, horizon, identity } = row!
  return { at, position: BigInt(position), horizon: BigInt(horizon), identity }
}

/**
 * Whether a read that failed on a replica may succeed on the primary: the replica is lost or full, replaying a change got
 * in its way, or a table is not yet, or no longer, what the statement expects. Not a statement that took too long: it had
 * all the time that it may have.
 */
export function isReplicaFault(error: unknown): boolean {
  const state = sqlState(error)
  if (state !== undefined) return faults.has(state) || faults.has(state.slice(0, 2)) || isStalePlan(error)
  return isConnectionLoss(error) || (error instanceof AppError && error.status === 503)
}

/** SQLSTATEs and classes of them. */
const faults: ReadonlySet<string> = new Set([
  '08', // connection
  '40', // conflict with recovery, deadlock with it
  '53', // too many connections, no memory, no disk
  '58', // a file is missing or unreadable
  'XX', // internal, corrupted data
  '55000', // recovery is in progress
  '55P03', // lock not available: replay holds it
  '57P01', // shut down
  '57P02', // crashed
  '57P03', // starting up
  '57P04', // the database was dropped
  'SV416', // a moment that has not come here yet
])

/** The reader: a user, or anybody without one. */
export type AnyReader = { readonly userId: string | undefined }

type AnywhereOptions<T> = {
  /** All transactions before this one must be there. */
  readonly horizon?: bigint | undefined
  /** Gets what the replica had replayed before it was asked; not called where the primary is. */
  readonly servedBy?: ((replayed: WalPosition) => void) | undefined
  /** Gets a result that came too late to be wanted. */
  readonly discard?: (result: T) => void
}

/**
 * Runs a read that nothing is decided by: on a read replica where one may answer, else on the primary. Never for what
 * a caller is or may do, for what a write depends on, nor for cursors of the log, whose snapshots are the primary's. `work` may
 * be run twice.
 */
export function readAnywhere<T>(
  { db, replicas }: Reads & ReplicaReads,
  { userId }: AnyReader,
  work: (db: Database) => Promise<T>,
  { horizon, servedBy, discard }: AnywhereOptions<T> = {},
): Promise<T> {
  if (replicas === undefined) return work(db)
  return replicas.read(db, { caller: userId ?? anybody, horizon, servedBy }, work, discard)
}

/**
 * Everything that these callers read after this, at any process, shows what the primary shows now. To be awaited before they are
 * answered that they have written, or given a cursor, or told to read again. Nothing to do without replicas.
 */
export async function readFromNowOn({ replicas }: ReplicaReads, ...readers: readonly AnyReader[]): Promise<void> {
  await replicas?.note(...new Set(readers.map(({ userId }) => userId ?? anybody)))
}

/** The last answer of a replica about itself. */
type ReplicaState =
  | { readonly isUp: true; readonly standby: boolean; readonly replayed: WalPosition; readonly identity: string }
  | { readonly isUp: false; readonly reason: string }

/** A standby of the primary, watched all the time. */
type Replica = {
  /** Its place in DATABASE_READ_REPLICA_URLS, from 1: addresses are secrets. */
  readonly place: number
  state(): ReplicaState
  /** Connections that are in use or waited for. */
  load(): number
  /**
   * Runs a read. When the replica is lost meanwhile it rejects at once, however long the line stays silent; `discard`
   * gets what comes all the same.
   */
  use<T>(work: (db: Database) => Promise<T>, discard?: (result: T) => void): Promise<T>
  close(): Promise<void>
}

type ReplicaOptions = { config: Config; log: Logger; name: string; url: string; place: number }

/** How often a replica is asked. */
const watchIntervalMs = 200
/** A replica that takes longer to say how it is counts as lost. */
const timeoutMs = 1000
const longestPauseMs = 5000

/** Opens a replica; it need not be there yet. */
function openReplica({ config, log, name, url, place }: ReplicaOptions): Replica {
  const { readReplicaPoolMax: max, ...database } = config.database
  const line = openLine({ named: database.preparedStatements, log })
  const pool = openPool({
    config,
    log,
    line,
    max,
    readOnly: true,
    name: `${name} replica ${place}`,
    url,
    idleMs: database.readReplicaPoolIdleMs,
    acquireMs: database.readReplicaPoolAcquireMs,
    evictMs: database.readReplicaPoolEvictMs,
  })
  // Reads that a replica fails are asked of the primary.
  const db = openDatabase(pool, { log, logSql: database.logging, onLoss: 'fail', ends: goneSignal })
  const connections = new Set<pg.PoolClient>()
  pool.on('connect', (client) => connections.add(client))
  pool.on('remove', (client) => connections.delete(client))
  const running = new Set<(error: Error) => void>()

  const lose = (reason: string) => {
    const error = replicaLost(reason)
    for (const reject of running) reject(error)
    // A connection that hangs would keep its place in the pool.
    for (const connection of connections) streamOf(connection).destroy(error)
  }
  const watcher = openWatch({ config, log, name, url, place }, { line, lose })

  return {
    place,
    state: watcher.state,
    load: () => pool.totalCount - pool.idleCount + pool.waitingCount,
    use: async (work, discard) => {
      const lost = Promise.withResolvers<never>()
      running.add(lost.reject)
      const result = work(db)
      try {
        return await Promise.race([result, lost.promise])
      } catch (error) {
        result.then(discard, () => undefined)
        throw error
      } finally {
        running.delete(lost.reject)
      }
    },
    close: async () => {
      await watcher.close()
      await pool.end()
    },
  }
}

type WatchedLine = { readonly line: Line; readonly lose: (reason: string) => void }

/** Asks a replica again and again how it is, on a connection of its own. */
function openWatch({ config, log, name, url, place }: ReplicaOptions, { line, lose }: WatchedLine) {
  const stopped = new AbortController()
  let state: ReplicaState = { isUp: false, reason: 'not asked yet' }
  let isAway = false

  const onLost = (reason: string) => {
    if (!isAway) log.warn({ replica: place, reason }, 'a read replica is away')
    isAway = true
    state = { isUp: false, reason }
    lose(reason)
  }

  const watch = async () => {
    let client: PgClient | undefined
    let pause = watchIntervalMs
    while (!stopped.signal.aborted) {
      try {
        if (client === undefined) {
          line.found(await lookAtLine({ config, url, timeoutMs }))
          client = await connect({ config, name, url }, onLost)
        }
        const next = await ask(client)
        if (isAway) log.info({ replica: place }, 'a read replica is back')
        isAway = false
        state = next
        pause = watchIntervalMs
      } catch (error) {
        onLost((error as Error).message)
        drop(client, log)
        client = undefined
        pause = Math.min(pause * 2, longestPauseMs)
      }
      await delay(pause, undefined, { signal: stopped.signal, ref: false }).catch(() => undefined)
    }
    await client?.end()
  }
  const watching = watch()

  return {
    state: () => state,
    close: async () => {
      stopped.abort()
      await watching
    },
  }
}

type Address = Pick<ReplicaOptions, 'config' | 'name' | 'url'>

/** The connection that asks; its end is the first that is heard of a replica's. */
async function connect({ config, name, url }: Address, onLost: (reason: string) => void): Promise<PgClient> {
  const { ofAddress } = settingsOf(url, { transactionTimeoutMs: config.database.transactionTimeoutMs, readOnly: true })
  const client = new Connection({
    connectionString: withoutOwnParameters(url),
    ssl: tlsOptions(config, url),
    application_name: `daybook ${name} watch`,
    ...(ofAddress !== undefined && { options: ofAddress }),
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
  })
  client.on('error', (error) => onLost(error.message))
  await client.connect()
  return client
}

async function ask(client: PgClient): Promise<ReplicaState> {
  const { rows } = await client.query(
    `select pg_is_in_recovery() as standby, ${walReplayedSql}::text as replayed, ${databaseIdentitySql} as identity`,
  )
  const { standby, replayed, identity } = rows[0]
  return { isUp: true, standby, replayed: BigInt(replayed ?? 0), identity }
}

/** Ends a connection that may not answer any more. */
function drop(client: PgClient | undefined, log: Logger): void {
  if (client === undefined) return
  streamOf(client).destroy()
  client.end().catch((error: unknown) => log.debug({ err: error }, 'closing a lost connection failed'))
}

function replicaLost(reason: string): Error {
  return Object.assign(new Error(`the read replica was lost: ${reason}`), { code: 'ECONNRESET' })
}
