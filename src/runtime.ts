import { randomFillSync } from 'node:crypto'
import { availableParallelism } from 'node:os'
import type { PgBoss } from 'pg-boss'
import type { Logger } from 'pino'
import { v7 } from 'uuid'
import { hashing } from './adapters/passwords.ts'
import { openTracing, type Tracing } from './adapters/tracing.ts'
import { type Lane, openDoor, openLane } from './admission/lane.ts'
import { readPlaces } from './admission/places.ts'
import { goneSignal } from './asker.ts'
import { type DataCache, openDataCache } from './cache/data-cache.ts'
import { openSystemSync, type Synced } from './cache/system-sync.ts'
import { type CatalogStore, openCatalog } from './catalog/store.ts'
import { type Config, ConfigError } from './config.ts'
import { openDatabaseClock } from './db/clock.ts'
import { openLeases } from './db/leases.ts'
import type { Line } from './db/line.ts'
import { type Listener, openListener } from './db/listener.ts'
import { type PoolState, stateOf } from './db/pool-state.ts'
import { lookAtDatabase, refuseLostSettings } from './db/poolers.ts'
import { type Database, openDatabase, openPool, type PgPool, poolShares, workerConnections } from './db/pools.ts'
import { reachDatabase } from './db/reach.ts'
import { openReplicas, type Replicas } from './db/replicas.ts'
import { sql } from './db/sql.ts'
import { forgetWriteMarks, storeWriteMarks } from './db/unlogged/write-marks.ts'
import { loadWriteMarks, openWriteMarks } from './db/write-marks.ts'
import { attachWritePool, openWritePool } from './db/write-pool.ts'
import { startBoss } from './events/jobs.ts'
import { openSessionStore, type SessionStore } from './features/auth/session-store.ts'
import { type Hooks, openHooks } from './features/hooks/hooks.ts'
import { type Instruments, openInstruments } from './features/metrics/instruments.ts'
import { type AccessStore, openAccessStore } from './features/permissions/store.ts'
import { openSocketRegistry, type SocketRegistry } from './features/rooms/registry.ts'
import { openSettings, type SettingsStore } from './features/settings/store.ts'
import { readLogo } from './features/templates/logo.ts'
import { openRenderer, type Renderer } from './features/templates/renderer.ts'

/**
 * Everything a process shares: opened once, passed as a value, closed in reverse order. It can read; to write, call
 * `commit` (events/commit.ts) or a statement of `db/unlogged/`.
 */
export type Runtime = {
  readonly config: Config
  readonly log: Logger
  /** The variables of the process, for migration scripts; everything else reads `config`. */
  readonly env: Readonly<Record<string, string | undefined>>
  /** The read-only pool of the routes; what it runs ends when its asker is gone (asker.ts). */
  readonly db: Database
  /** Two connections of their own for session and health checks. */
  readonly reserved: Database
  /** What the realtime channel reads through; of its own where that is enabled. */
  readonly feedDb: Database
  /** Where reads may go instead (`readAnywhere`); undefined without replicas, and in workers. */
  readonly replicas: Replicas | undefined
  /** What lies between this process and its database. */
  readonly line: Line
  /** The places of reads and imports that may be heavy (docs/overload.md); in workers there are as many as wanted. */
  readonly admission: Lane
  /** How busy every pool is, the writing ones too. */
  pools(): readonly PoolState[]
  readonly boss: PgBoss
  readonly listener: Listener
  readonly catalog: CatalogStore
  readonly access: AccessStore
  /** The live sessions; on the reserved connections. */
  readonly sessions: SessionStore
  readonly settings: SettingsStore
  /** Answers of reads; opened by the first one that may be cached. */
  readonly dataCache: DataCache
  /** Renders mails, in a thread of its own. */
  readonly renderer: Renderer
  /** A PNG that mails show where the settings name no icon. */
  readonly mailLogo: Buffer
  /** The figures of this process. */
  readonly instruments: Instruments
  /** Where its time goes; off unless a receiver is configured. */
  readonly tracing: Tracing
  /** What extensions hooked into items; filled before the process serves. */
  readonly hooks: Hooks
  /** What extensions registered for the realtime channel; filled before the process serves. */
  readonly sockets: SocketRegistry
  /** The time of the database, whatever the clock of this machine says. */
  clock(): Date
  /** A new UUIDv7. */
  newId(): string
  close(): Promise<void>
}

export type RuntimeOptions = {
  config: Config
  log: Logger
  /** Name of the process in logs and in pg_stat_activity: `web`, `mail`, … */
  name: string
  /** Workers keep pg-boss's maintenance running; web processes only insert jobs. */
  worker: boolean
  env?: Readonly<Record<string, string | undefined>>
}

/** Opens pools, notification connection, job queue, catalog and caches. Fails if the database can't be reached. */
export async function openRuntime({ config, log, name, worker, env = {} }: RuntimeOptions): Promise<Runtime> {
  const mailLogo = readLogo(config.server.extensionsDir)
  await reachDatabase(config, log)
  const line = await lookAtDatabase(config, log)
  const { poolMax } = config.database
  const shares = poolShares(worker ? Math.min(workerConnections, poolMax) : poolMax, !worker && config.realtime.enabled)
  const closers: (() => Promise<void>)[] = []
  const opened = <T>(value: T, close: (value: T) => Promise<void>): T => {
    closers.unshift(() => close(value))
    return value
  }
  const tracing = opened(await openTracing(config, name, log), (t) => t.close())
  const pool = (share: 'read' | 'reserved' | 'feed') =>
    opened(openPool({ config, log, line, max: shares[share], readOnly: true, name: `${name} ${share}` }), (p) =>
      p.end(),
    )
  const reading = { log, logSql: config.database.logging, tracing, onLoss: 'repeat' } as const
  const forEverybody = (pool: PgPool) => openDatabase(pool, reading)
  const close = async () => {
    for (const closer of closers) await closer()
  }
  try {
    const read = pool('read')
    const db = openDatabase(read, { ...reading, ends: goneSignal })
    const reserved = forEverybody(pool('reserved'))
    const feedDb = shares.feed > 0 ? forEverybody(pool('feed')) : db
    await checkSetUp(reserved)
    const clock = opened(await openDatabaseClock(reserved, log), (c) => c.close())
    const writePool = opened(
      await openWritePool({ config, log, line, transactions: shares.write, hot: shares.hotWrite, name, tracing }),
      (pool) => pool.close(),
    )
    await refuseLostSettings({ config, log, line, reading: reserved, writing: writePool.hot })
    const listener = opened(await openListener({ config, log, db: reserved, leased: !worker }), (l) => l.close())
    const leases = openLeases({ db: reserved, listener, log })
    const catalog = await openCatalog(forEverybody(read), listener, log, { multiTenant: config.tenancy.enabled })
    const access = await openAccessStore(reserved, catalog, listener, log, config.systemCache.ttlSeconds)
    const sessions = openSessionStore({ db: reserved, listener, leases, catalog, access, config, log })
    const settings = await openSettings(reserved, listener, log, config.systemCache.ttlSeconds)
    opened(openSystemSync({ config, log, synced: [syncedAccess(access), syncedSettings(settings)] }), (sync) =>
      sync.close(),
    )
    const boss = opened(await startBoss({ db: { executeSql: writePool.script }, log, supervise: worker }), (b) =>
      b.stop({ graceful: false, close: false }),
    )
    const marks = openWriteMarks({
      store: (callers) => storeWriteMarks(runtime, callers),
      load: (callers) => loadWriteMarks(reserved, callers),
      log,
    })
    const replicas = worker
      ? undefined
      : openReplicas({ config, log, name, primary: reserved, marks, forgetMarks: () => forgetWriteMarks(runtime) })
    if (replicas !== undefined) opened(replicas, (r) => r.close())
    catalog.onChange(() => replicas?.catalogChanged())
    const { all, heavy } = readPlaces(shares.read, config.overload.heavyReads)
    const places = () => {
      // Each replica that serves bears as much again.
      const servers = 1 + (replicas?.serving() ?? 0)
      // A hash takes a core for as long as it lasts, and so does heavy work where the database is on the same machine.
      const hashes = availableParallelism() < 4 ? hashing.stats().running.heavy : 0
      return { all: all * servers, heavy: Math.max(1, heavy * servers - hashes) }
    }
    const refusal = 'Too much is being asked for at once. Please try again later.'
    const runtime: Runtime = {
      config,
      log,
      env,
      db,
      reserved,
      feedDb,
      replicas,
      line,
      admission: worker ? openDoor : openLane({ places, refusal }),
      pools: () => [
        stateOf('read', db.pool),
        stateOf('reserved', reserved.pool),
        ...(feedDb === db ? [] : [stateOf('feed', feedDb.pool)]),
        ...writePool.states(),
      ],
      boss,
      listener,
      catalog,
      access,
      sessions,
      settings,
      dataCache: opened(openDataCache({ config, db: reserved, log, boss }), (cache) => cache.close()),
      renderer: opened(openRenderer(), (renderer) => renderer.close()),
      mailLogo,
      instruments: openInstruments(),
      tracing,
      hooks: openHooks(log),
      sockets: openSocketRegistry(),
      clock: clock.now,
      newId: () => v7({ random: nextRandom() }),
      close,
    }
    attachWritePool(runtime, writePool)
    return runtime
  } catch (error) {
    await close()
    throw error
  }
}

const syncedAccess = ({ current, reload, onChange }: AccessStore): Synced => ({
  value: () => {
    const { roles, permissions, acls } = current()
    return [[...roles], [...permissions], [...acls]]
  },
  reload,
  onChange,
})

const syncedSettings = ({ all, reload, onChange }: SettingsStore): Synced => ({ value: all, reload, onChange })

const randomPool = new Uint8Array(16 * 256)
let randomUsed = randomPool.length

/** Sixteen random bytes; asked of the system one by one, they were 4 µs of every request, for its id. */
function nextRandom(): Uint8Array {
  if (randomUsed === randomPool.length) {
    randomFillSync(randomPool)
    randomUsed = 0
  }
  randomUsed += 16
  return randomPool.slice(randomUsed - 16, randomUsed)
}

async function checkSetUp(db: Database): Promise<void> {
  const { done } = await db.one<{ done: boolean }>(
    sql.unsafe`select to_regclass('"svc_SchemaDefinition"') is not null as done`,
  )
  if (!done) throw new ConfigError('DATABASE_URL: this database has not been set up yet: run node src/setup.ts')
}
