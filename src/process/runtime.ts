import { availableParallelism } from 'node:os'
import type { Logger } from 'pino'
import { type AccessStore, type CurrentAccess, openAccessStore } from '../access/store.ts'
import { type IdSource, newId } from '../adapters/ids.ts'
import type { Logs } from '../adapters/logger.ts'
import { isLoopback } from '../adapters/network-addresses.ts'
import { hashing } from '../adapters/passwords.ts'
import type { Tracing } from '../adapters/running-span.ts'
import { openTracing, type Traces } from '../adapters/tracing.ts'
import { goneSignal } from '../admission/asker.ts'
import { type AdmissionLanes, type Lane, openDoor, openLane, rushNow } from '../admission/lane.ts'
import { noRush, type PlaceCounts, placesNow, readPlaces } from '../admission/step.ts'
import { openDataCache, type ResultCache } from '../cache/data-cache.ts'
import { openSystemSync, type SyncedStore } from '../cache/system-sync.ts'
import { type CurrentCatalog, openCatalog } from '../catalog/store.ts'
import type { Config, Configuration } from '../config/config.ts'
import type { ProcessVariables } from '../config/variable.ts'
import { type Clock, openDatabaseClock } from '../db/clock.ts'
import { openLeases } from '../db/leases.ts'
import { type Listening, openListener } from '../db/listener.ts'
import { notSetUp } from '../db/needs.ts'
import type { Line, ServerLine } from '../db/poolers/line.ts'
import { lookAtDatabase, onceReached, refuseLostSettings } from '../db/poolers/poolers.ts'
import {
  type Database,
  databaseUrl,
  type FeedReads,
  openDatabase,
  openPool,
  type PoolStates,
  poolShares,
  type Reads,
  type ReservedReads,
  stateOf,
  workerShares,
} from '../db/pools.ts'
import { openReplicas, type ReplicaReads, type Replicas } from '../db/replicas/replicas.ts'
import { loadWritePositions, openWritePositions } from '../db/replicas/write-positions.ts'
import { sql, type UnloggedWrites } from '../db/sql.ts'
import { forgetWritePositions, storeWritePositions } from '../db/unlogged/processes.ts'
import { keyOf, openWritePool, type WritePool } from '../db/write-pool.ts'
import { bossSchema, checkJobTables, type Jobs, openJobs } from '../events/jobs.ts'
import type { ProgressNotices } from '../events/progress.ts'
import { openSessionStore, type Sessions } from '../features/accounts/auth/auth.ts'
import { type ItemHooks, openHooks } from '../features/data/hooks/hooks.ts'
import type { SystemRules } from '../features/data/items/context.ts'
import { refuseNewer } from '../features/data/migrations/migrations.ts'
import { type ImageProcessing, openImages } from '../features/files/images/images.ts'
import { openStorages, type StorageServices } from '../features/files/storage/storage.ts'
import { openProgress } from '../features/messaging/notifications/notifications.ts'
import { openSocketRegistry, type Sockets } from '../features/messaging/rooms/rooms.ts'
import { type MailLogo, type MailRenderer, openRenderer, readLogo } from '../features/messaging/templates/templates.ts'
import { type Meters, openInstruments } from '../features/operations/metrics/metrics.ts'
import { type CurrentSettings, openSettings, type SettingsStore } from '../features/settings/settings.ts'
import type { Scripts } from '../features/work/scripts/scripts.ts'
import type { WorkflowParts, Workflows } from '../features/work/workflows/capabilities.ts'
import { openSystemRules } from './system-rules.ts'

/**
 * Everything a process shares: opened once, passed as a value, closed in reverse order. It can read; to write, call
 * `commit` (events/commit.ts) or a statement of `db/unlogged/`.
 */
export type Runtime = Configuration &
  ProcessVariables &
  Logs &
  Traces &
  Meters &
  Clock &
  IdSource &
  Connections &
  ReplicaReads &
  AdmissionLanes &
  Jobs &
  Stores &
  ResultCache &
  MailRenderer &
  MailLogo &
  ItemHooks &
  SystemRules &
  ProgressNotices &
  StorageServices &
  ImageProcessing &
  Workflows &
  Sockets & { readonly close: () => Promise<void> }

/** The ways to the database. */
type Connections = Reads & ReservedReads & FeedReads & UnloggedWrites & PoolStates & ServerLine & Listening

/** Values that are read once and kept up to date. */
type Stores = CurrentCatalog & CurrentAccess & CurrentSettings & Sessions

type RuntimeOptions = {
  config: Config
  log: Logger
  /** Name of the process in logs and in pg_stat_activity: `web`, `mail`, … */
  name: string
  /** Workers keep pg-boss's maintenance running; web processes only insert jobs. */
  worker: boolean
  env?: Readonly<Record<string, string | undefined>>
}

/**
 * Opens pools, notification connection, job queue, catalog and caches. Waits for a database that can't be reached, and fails if it
 * never can.
 */
export async function openRuntime(options: RuntimeOptions): Promise<Runtime> {
  const { config, log } = options
  const mailLogo = readLogo(config.server.extensionsDir)
  const line = await lookAtDatabase(config, log)
  return onceReached(options, () => openOnLine(options, line, mailLogo))
}

async function openOnLine(options: RuntimeOptions, line: Line, mailLogo: MailLogo['mailLogo']): Promise<Runtime> {
  const { config, log, name, worker, env = {} } = options
  const closers: (() => Promise<void>)[] = []
  const opened: NoteClose = (value, close) => {
    closers.unshift(async () => close(value))
    return value
  }
  const close = async () => {
    for (const closer of closers) await closer()
  }
  try {
    const tracing = opened(await openTracing(config, name, log), (t) => t.close())
    const shares = sharesOf(options)
    const opening = { ...options, line, tracing, shares, opened }
    const { writePool, clock, reading, ...connections } = await openConnections(opening)
    const stores = await openStores(opening, connections, reading)
    const { boss } = opened(openJobs({ db: { executeSql: writePool.script }, log, supervise: worker }), (j) =>
      j.close(),
    )
    if (worker) await boss()
    const replicas = worker ? undefined : openReplicaReads(opening, connections)
    stores.catalog.onChange(() => replicas?.catalogChanged())
    const runtime: Omit<Runtime, keyof SystemRules | keyof ProgressNotices> = {
      config,
      log,
      env,
      tracing,
      instruments: openInstruments(),
      clock,
      newId,
      ...connections,
      replicas,
      admission: worker ? openDoor : openAdmission(config, shares, replicas),
      quickReads: worker ? openDoor : openLane({ places: () => quickPlaces, refusal: tooMuch }),
      boss,
      ...stores,
      dataCache: opened(
        openDataCache({ config, db: connections.reserved, hasReplicas: replicas !== undefined, log, boss }),
        (cache) => cache.close(),
      ),
      ...openServices(config, log, opened),
      mailLogo,
      close,
    }
    const whole = Object.assign(runtime, { systemRules: openSystemRules(runtime), progress: openProgress(runtime) })
    if (config.workflows.enabled) {
      const { openHookedWorkflows } = await import('../features/work/workflows/hooked.ts')
      whole.hooks.follow(await openHookedWorkflows(whole))
    }
    return whole
  } catch (error) {
    await close()
    throw error
  }
}

/** The parts that need no database. */
function openServices(config: Config, log: Logger, opened: NoteClose) {
  return {
    renderer: opened(openRenderer(), (renderer) => renderer.close()),
    hooks: openHooks(log),
    storages: opened(openStorages(config), (storages) => storages.close()),
    images: opened(openImages(config, log), (images) => images.close()),
    workflows: {
      scripts: openScriptsOf(config, log, opened),
      nodes: new Map(),
      modules: new Map(),
      definitions: new Map(),
      changed: async () => undefined,
    },
    sockets: openSocketRegistry(),
  }
}

/** Notes how something is closed that was opened. */
type NoteClose = <T>(value: T, close: (value: T) => void | Promise<void>) => T

type Shares = ReturnType<typeof poolShares>

type OpeningContext = RuntimeOptions & {
  readonly line: Line
  readonly tracing: Tracing
  readonly shares: Shares
  readonly opened: NoteClose
}

function sharesOf({ config, worker, name }: RuntimeOptions): Shares {
  const { poolMax } = config.database
  return worker ? workerShares(poolMax, name) : poolShares(poolMax, config.realtime.enabled)
}

type Opens = Connections &
  Clock & {
    readonly writePool: WritePool
    /** The pool of `db`, for reads that do not end with the asker's. */
    readonly reading: Database
  }

async function openConnections(opening: OpeningContext): Promise<Opens> {
  const { config, log, line, name, worker, tracing, shares, opened } = opening
  const pool = (share: 'read' | 'reserved' | 'feed') =>
    opened(openPool({ config, log, line, max: shares[share], readOnly: true, name: `${name} ${share}` }), (p) =>
      p.end(),
    )
  const reads = { log, logSql: config.database.logging, tracing, onLoss: 'repeat' } as const
  const read = pool('read')
  const db = openDatabase(read, { ...reads, ends: goneSignal })
  const reserved = openDatabase(pool('reserved'), reads)
  const feedDb = shares.feed > 0 ? openDatabase(pool('feed'), reads) : db
  await checkSetUp(reserved)
  const clock = opened(await openDatabaseClock(reserved, log), (c) => c.close())
  const writePool = opened(
    openWritePool({ config, log, line, transactions: shares.write, hot: shares.hotWrite, name, tracing }),
    (pool) => pool.close(),
  )
  await refuseLostSettings({ config, log, line, reading: reserved, writing: writePool.hot })
  const listener = opened(await openListener({ config, log, db: reserved, leased: !worker }), (l) => l.close())
  const pools = () => [
    stateOf('read', db.pool),
    stateOf('reserved', reserved.pool),
    ...(feedDb === db ? [] : [stateOf('feed', feedDb.pool)]),
    ...writePool.states(),
  ]
  const reading = openDatabase(read, reads)
  return { db, reserved, feedDb, writes: keyOf(writePool), pools, line, listener, clock: clock.now, writePool, reading }
}

async function openStores(opening: OpeningContext, connections: Connections, reading: Database): Promise<Stores> {
  const { config, log, opened } = opening
  const { reserved, listener } = connections
  const leases = openLeases({ db: reserved, listener, log })
  const catalog = await openCatalog(reading, listener, log, { multiTenant: config.tenancy.enabled })
  const access = await openAccessStore(reserved, catalog, listener, log, config.systemCache.ttlSeconds)
  const sessions = openSessionStore({ db: reserved, listener, leases, catalog, access, config, log })
  const settings = await openSettings(reserved, listener, log, config.systemCache.ttlSeconds)
  const synced = [syncedAccess(access), syncedSettings(settings)]
  opened(openSystemSync({ config, log, synced }), (sync) => sync.close())
  return { catalog, access, sessions, settings }
}

const syncedAccess = ({ current, reload, onChange }: AccessStore): SyncedStore => ({
  value: () => {
    const { roles, permissions, acls } = current()
    return [[...roles], [...permissions], [...acls]]
  },
  reload,
  onChange,
})

const syncedSettings = ({ all, reload, onChange }: SettingsStore): SyncedStore => ({ value: all, reload, onChange })

function openReplicaReads(opening: OpeningContext, { reserved, writes }: Connections): Replicas | undefined {
  const { config, log, name, opened } = opening
  const writePositions = openWritePositions({
    store: (callers) => storeWritePositions({ writes }, callers),
    load: (callers) => loadWritePositions(reserved, callers),
    log,
  })
  const forget = () => forgetWritePositions({ writes })
  const replicas = openReplicas({ config, log, name, primary: reserved, writePositions, forgetWritePositions: forget })
  return replicas && opened(replicas, (r) => r.close())
}

function openAdmission(config: Config, shares: Shares, replicas: Replicas | undefined): Lane {
  // Asked of the system for every admission, the number of cores was a third of what a list costs.
  const cores = availableParallelism()
  const sharesCores = isHere(databaseUrl(config))
  const { heavyReads } = config.overload
  const counts = readPlaces(shares.read, heavyReads, sharesCores ? cores : Infinity)
  // The configured limits hold in a rush, too.
  const rush = () => (heavyReads === undefined ? rushNow() : noRush)
  const places = () =>
    placesNow(counts, {
      servers: 1 + (replicas?.serving() ?? 0),
      hashes: hashing.stats().running.heavy,
      rush: rush(),
      sharedCores: sharesCores ? cores : Infinity,
    })
  return openLane({ places, refusal: tooMuch })
}

const tooMuch = 'Too much is being asked for at once. Please try again later.'

/** So many that whole batches of them wait for a connection, and so few that they are all answered within some dozen milliseconds. */
const quickPlaces: PlaceCounts = { all: 64, heavy: 64, quick: 64 }

/** Whether a database shares this machine: its address is a loopback one or a socket file. */
function isHere(url: string): boolean {
  const { hostname } = new URL(url)
  return hostname === '' || hostname === 'localhost' || isLoopback(hostname)
}

/** The runner of scripts is loaded, and its processes start, with the first script. */
function openScriptsOf({ workflows }: Config, log: Logger, opened: NoteClose): WorkflowParts['scripts'] {
  if (!workflows.enabled || workflows.scripts === 'off') return undefined
  let loaded: Promise<Scripts> | undefined
  const load = async () => {
    const { openScripts } = await import('../features/work/scripts/scripts.ts')
    return opened(openScripts({ log, processes: workflows.scriptProcesses }), (scripts) => scripts.close())
  }
  const scripts = () => (loaded ??= load())
  return {
    run: async (script, calls) => (await scripts()).run(script, calls),
    check: async (code) => (await scripts()).check(code),
  }
}

async function checkSetUp(db: Database): Promise<void> {
  const { done } = await db.one<{ done: boolean }>(
    sql`select to_regclass('"svc_SchemaDefinition"') is not null and to_regclass(${`${bossSchema}.version`}) is not null as done`,
  )
  if (!done) throw notSetUp()
  await refuseNewer(db)
  await checkJobTables(db)
}
