import { randomBytes } from 'node:crypto'
import { openLogger } from '../adapters/logger.ts'
import { type Config, ConfigError } from '../config/config.ts'
import { encodingLack } from '../db/needs.ts'
import { type Line, type LineFacts, openLine } from '../db/poolers/line.ts'
import { lookAtLine, lostSettings, readArrived } from '../db/poolers/poolers.ts'
import { type Database, openDatabase, openPool, poolShares, workerShares } from '../db/pools.ts'
import { type Reader, rawQuery, sql } from '../db/sql.ts'
import { workersWithWork } from '../workers/names.ts'
import { type Finding, ok, problem, reasonOf, warning } from './finding.ts'

/** Facts of a server and of our role. Settings are as PostgreSQL spells them. */
export type ServerFacts = {
  readonly version: number
  readonly versionText: string
  readonly role: string
  readonly database: string
  readonly superuser: boolean
  readonly recovering: boolean
  readonly encoding: string
  readonly isolation: string
  readonly replicationRole: string
  readonly fsync: string
  readonly fullPageWrites: string
  readonly synchronousCommit: string
  readonly autovacuum: string
  readonly collationChanged: boolean
  readonly walLevel: string
  readonly mayReplicate: boolean
  readonly freeSlots: number
  readonly freeSenders: number
  /** That a role like ours may open. */
  readonly connectionsAtMost: number
  readonly connectionsOpen: number
}

export function readServerFacts(db: Reader): Promise<ServerFacts> {
  return db.one<ServerFacts>(sql`
    select current_setting('server_version_num')::int as version, current_setting('server_version') as "versionText",
      current_user as role, current_database() as database, (select rolsuper from pg_roles where rolname = current_user) as superuser, pg_is_in_recovery() as recovering, current_setting('server_encoding') as encoding,
      current_setting('default_transaction_isolation') as isolation,
      current_setting('session_replication_role') as "replicationRole", current_setting('fsync') as fsync,
      current_setting('full_page_writes') as "fullPageWrites",
      current_setting('synchronous_commit') as "synchronousCommit", current_setting('autovacuum') as autovacuum,
      (select datcollversion is distinct from pg_database_collation_actual_version(oid) from pg_database
       where datname = current_database()) as "collationChanged",
      current_setting('wal_level') as "walLevel",
      (select rolsuper or rolreplication or exists (
         select from pg_roles managed where managed.rolname = 'rds_replication' and pg_has_role(managed.oid, 'MEMBER'))
       from pg_roles where rolname = current_user) as "mayReplicate",
      current_setting('max_replication_slots')::int - (select count(*)::int from pg_replication_slots) as "freeSlots",
      current_setting('max_wal_senders')::int - (select count(*)::int from pg_stat_replication) as "freeSenders",
      current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true), '0')::int as "connectionsAtMost",
      (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as "connectionsOpen"`)
}

const oldestVersion = 150_000

/** Whether this is a server that the program can rely on. */
export function judgeServer(facts: ServerFacts): Finding[] {
  const faults = [...versionFaults(facts), ...safetyFaults(facts), ...settingFaults(facts)]
  return faults.length > 0 ? faults : [ok('server', `PostgreSQL ${facts.versionText}, its settings are fine`)]
}

function versionFaults({ version, versionText, recovering }: ServerFacts): Finding[] {
  return [
    ...(version < oldestVersion
      ? [problem('server', `PostgreSQL ${versionText} is too old`, 'upgrade to PostgreSQL 15 or newer')]
      : []),
    ...(recovering
      ? [
          problem(
            'server',
            'DATABASE_URL leads to a standby, which takes no writes',
            'name the primary in DATABASE_URL',
          ),
        ]
      : []),
  ]
}

function safetyFaults({ fsync, fullPageWrites, synchronousCommit, autovacuum }: ServerFacts): Finding[] {
  const settings = { fsync, full_page_writes: fullPageWrites, synchronous_commit: synchronousCommit }
  const unsafe = Object.entries(settings).filter(([, value]) => value === 'off')
  const turnedOn = unsafe.map(([name]) => `alter system set ${name} = on`).join('; ')
  return [
    ...(unsafe.length > 0
      ? [
          warning(
            'durability',
            `${unsafe.map(([name]) => name).join(', ')} is off: a crash loses what was answered with 2xx`,
            `${turnedOn}; select pg_reload_conf()`,
          ),
        ]
      : []),
    ...(autovacuum === 'off'
      ? [
          warning(
            'server',
            'autovacuum is off: tables will only grow',
            'alter system set autovacuum = on; select pg_reload_conf()',
          ),
        ]
      : []),
  ]
}

function settingFaults(facts: ServerFacts): Finding[] {
  const { isolation, replicationRole, collationChanged, role } = facts
  const encoding = encodingLack(facts)
  const reset = (name: string) =>
    `alter role "${role}" reset ${name}; alter system reset ${name}; select pg_reload_conf()`
  return [
    ...(encoding === undefined ? [] : [problem('server', encoding.says, encoding.remedy)]),
    ...(isolation === 'read committed'
      ? []
      : [problem('server', `default_transaction_isolation is ${isolation}`, reset('default_transaction_isolation'))]),
    ...(replicationRole === 'replica'
      ? [problem('server', 'session_replication_role is replica: nothing is logged', reset('session_replication_role'))]
      : []),
    ...(collationChanged
      ? [
          warning(
            'server',
            'the operating system sorts text differently than when the database was made: indexes may be wrong',
            'reindex database, then: alter database … refresh collation version',
          ),
        ]
      : []),
  ]
}

/** Whether injected SQL could do more than the program. */
export function judgeSuperuser({ role, superuser }: ServerFacts): Finding {
  if (!superuser) return ok('superuser', `${role} is none`)
  return warning(
    'superuser',
    `${role} is one: anybody who gets it to run SQL can also read files, run programs and see other databases`,
    'connect as a role that only owns this database (docs/operating.md#the-database-role)',
  )
}

/** Whether changes can be followed by the WAL; without, realtime looks at the log every 20 ms. */
export function judgeReplication(facts: ServerFacts, wanted: boolean): Finding {
  const { walLevel, mayReplicate, freeSlots, freeSenders, role } = facts
  const check = 'realtime by WAL'
  const polls = 'realtime polls the log instead'
  if (!wanted)
    return ok(
      check,
      'not used: SOCKET_ENABLED or REALTIME_WAL_CONSUMER_ENABLED is false here (npm start sets the first unless you do)',
    )
  if (walLevel !== 'logical')
    return warning(
      check,
      `wal_level is ${walLevel}: ${polls}`,
      'alter system set wal_level = logical; restart the server',
    )
  if (!mayReplicate)
    return warning(check, `the role ${role} may not replicate: ${polls}`, `alter role "${role}" replication`)
  if (freeSlots < 1 || freeSenders < 1)
    return warning(
      check,
      `no replication slot or WAL sender is free: ${polls}`,
      'raise max_replication_slots and max_wal_senders, one for each web process; restart the server',
    )
  return ok(check, `wal_level is logical; free slots: ${freeSlots}, free WAL senders: ${freeSenders}`)
}

const listening = 1
/** Of the cleanup worker, for locks and partitions. */
const direct = 1
const crowded = 0.8

/** Most connections that one web process and one worker of each kind open together. */
export function connectionsOfEach(config: Config): number {
  const { database, realtime } = config
  const of = (shares: Readonly<Record<string, number>>) =>
    Object.values(shares).reduce((sum, share) => sum + share, listening)
  const web = of(poolShares(database.poolMax, realtime.enabled))
  const workers = workersWithWork(config).map((name) => of(workerShares(database.poolMax, name)))
  return workers.reduce((sum, one) => sum + one, web) + direct
}

/** Whether the server takes the connections of all processes. WAL senders are counted apart by PostgreSQL. */
export function judgeCapacity(
  config: Config,
  { connectionsAtMost, connectionsOpen }: ServerFacts,
  { isPooled }: Pick<LineFacts, 'isPooled'> = { isPooled: false },
): Finding {
  const needed = connectionsOfEach(config)
  // How many of the server's the pooler takes is its own affair.
  if (isPooled && connectionsOpen <= connectionsAtMost * crowded)
    return ok(
      'connections',
      `one of each process opens up to ${needed} connections, most of them to the pooler; of the server's ${connectionsAtMost}, ${connectionsOpen} are open`,
    )
  const says = `one of each process opens up to ${needed} connections; the server takes ${connectionsAtMost}, ${connectionsOpen} are open`
  const remedy = 'raise max_connections of the server, lower DATABASE_POOL_MAX, or put a pooler in between'
  if (needed > connectionsAtMost) return warning('connections', says, remedy)
  if (connectionsOpen > connectionsAtMost * crowded)
    return warning('connections', `nearly all are in use: ${says}`, remedy)
  return ok('connections', says)
}

const longestWaitMs = 3000

/**
 * Whether NOTIFY of one session reaches LISTEN of another. Behind a transaction pooler it does not: then caches, jobs and
 * sessions of other processes are found by polling only, and locks of setup and cleanup hold nothing.
 */
export async function checkNotifications(pooled: Database, direct: Database, config: Config): Promise<Finding> {
  const channel = `svc_doctor_${randomBytes(6).toString('hex')}`
  const listener = await direct.pool.connect()
  try {
    const heard = new Promise<boolean>((resolve) => {
      listener.on('notification', () => resolve(true))
      setTimeout(resolve, longestWaitMs, false).unref()
    })
    await listener.query(`listen ${channel}`)
    await pooled.any(rawQuery(`select pg_notify('${channel}', '')`))
    if (await heard) return ok('notifications', 'NOTIFY reaches LISTEN')
  } finally {
    listener.release(true)
  }
  return config.database.directUrl === undefined
    ? problem(
        'notifications',
        'NOTIFY does not reach LISTEN: there is a transaction pooler in between',
        'set DATABASE_DIRECT_URL to the address of the server itself',
      )
    : problem(
        'notifications',
        'NOTIFY over DATABASE_URL does not reach LISTEN over DATABASE_DIRECT_URL',
        'name the same database in both, and the server itself, no pooler, in DATABASE_DIRECT_URL',
      )
}

/** LISTEN would hear nothing, and the locks of setup and cleanup hold nothing: the processes do not start. */
export function sharedSessions({ database }: Config): Finding {
  return problem(
    'notifications',
    `${database.directUrl === undefined ? 'DATABASE_URL' : 'DATABASE_DIRECT_URL'} leads through a pooler in transaction mode: nothing starts`,
    'set DATABASE_DIRECT_URL to the address of the server itself',
  )
}

/** Poolers on the way to the server, and how statements are sent because of them. */
export function judgePooler(line: Line): Finding {
  const { isPooled, keepsSessions, keepsNames } = line.facts()
  const names = line.isNamed() ? 'statements are sent by name' : 'statements are sent without names'
  if (!isPooled) return ok('pooler', `none; ${names}`)
  const mode = keepsSessions ? 'session' : 'transaction'
  const says = `one in ${mode} mode; settings go with each transaction, ${names}`
  if (keepsNames) return ok('pooler', says)
  return warning(
    'pooler',
    `${says}, as it does not keep them`,
    'PgBouncer 1.21 or newer with max_prepared_statements = 200 makes reads by key about twice as fast',
  )
}

/** Whether the settings that statements rely on arrive: time zone, time limits, read-only connections. */
export async function checkSessionSettings(db: Database, config: Config, { isPooled }: LineFacts): Promise<Finding> {
  const lost = lostSettings(config, await readArrived(db), true)
  if (lost.length === 0)
    return ok(
      'session settings',
      `time zone, time limits and read-only connections arrive${isPooled ? ', with each transaction' : ''}`,
    )
  return problem('session settings', lost.join(', '), 'name the server itself, or another pooler: docs/poolers.md')
}

const samples = 3

/** How much further the database's clock is than ours, in milliseconds, as exact as the quickest of three answers. */
export async function readSkew(db: Reader, now: () => number): Promise<number> {
  let best = { roundTrip: Number.POSITIVE_INFINITY, skew: 0 }
  for (let i = 0; i < samples; i += 1) {
    const asked = now()
    const { at } = await db.one<{ at: number }>(
      sql`select (extract(epoch from clock_timestamp()) * 1000)::float8 as at`,
    )
    const answered = now()
    const roundTrip = answered - asked
    if (roundTrip < best.roundTrip) best = { roundTrip, skew: at - (asked + answered) / 2 }
  }
  return best.skew
}

const noticeableMs = 1000
const harmfulMs = 30_000

/** Sessions and codes expire by the database's clock, tokens and authenticator apps by ours. */
export function judgeSkew(skewMs: number): Finding {
  const off = Math.abs(skewMs)
  if (off < noticeableMs) return ok('clock', `within ${Math.ceil(off)} ms of the database's`)
  const judged = off < harmfulMs ? warning : problem
  const direction = skewMs > 0 ? 'behind' : 'ahead of'
  return judged(
    'clock',
    `${(off / 1000).toFixed(1)} s ${direction} the database's`,
    'synchronise both machines by NTP, e.g. chrony or systemd-timesyncd',
  )
}

const longestLagSeconds = 10
const replicaCheck = 'read replica'

/** Each replica: there, a standby, and not far behind. None where they are not enabled. */
export async function checkReplicas(config: Config): Promise<Finding[]> {
  const { readReplicaEnabled, readReplicaUrls } = config.database
  return readReplicaEnabled ? Promise.all(readReplicaUrls.map((url) => checkReplica(config, url))) : []
}

async function checkReplica(config: Config, url: string): Promise<Finding> {
  let db: Database | undefined
  try {
    db = openForLooking(config, url, await lookForLine(config, url))
    return judgeReplica(placeOf(url), await readReplicaFacts(db))
  } catch (error) {
    return unreachable(replicaCheck, 'DATABASE_READ_REPLICA_URLS', url, error)
  } finally {
    await db?.pool.end()
  }
}

type ReplicaFacts = { readonly recovering: boolean; readonly lagSeconds: number }

/** A standby that has replayed all it received is not behind, however long nothing was written. */
function readReplicaFacts(db: Reader): Promise<ReplicaFacts> {
  return db.one<ReplicaFacts>(sql`
    select pg_is_in_recovery() as recovering,
      case when not pg_is_in_recovery() or pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() then 0
        else coalesce(extract(epoch from now() - pg_last_xact_replay_timestamp()), 0) end::float8 as "lagSeconds"`)
}

export function judgeReplica(place: string, { recovering, lagSeconds }: ReplicaFacts): Finding {
  if (!recovering)
    return warning(
      replicaCheck,
      `${place} is no standby: it answers what it has itself`,
      'name a streaming standby in DATABASE_READ_REPLICA_URLS',
    )
  if (lagSeconds > longestLagSeconds)
    return warning(
      replicaCheck,
      `${place} is ${lagSeconds.toFixed(0)} s behind`,
      'look for long queries and a full disk on the standby',
    )
  return ok(replicaCheck, `${place} is a standby and up to date`)
}

const connectTimeoutMs = 5000

/** A few read-only connections to one address, opened as the processes open theirs but with shorter time limits. */
export function openForLooking(config: Config, url: string, line?: Line): Database {
  const impatient: Config = { ...config, database: { ...config.database, poolAcquireMs: connectTimeoutMs } }
  const pool = openPool({ config: impatient, log, max: 2, readOnly: true, name: 'doctor', url, ...(line && { line }) })
  return openDatabase(pool, { log, logSql: false, onLoss: 'fail' })
}

/** Poolers on the way to an address, as the processes would find them. */
export async function lookForLine(config: Config, url: string): Promise<Line> {
  const facts = await lookAtLine({ config, url, timeoutMs: connectTimeoutMs })
  return openLine({ facts, named: config.database.preparedStatements, log })
}

const log = openLogger({ level: 'silent', name: 'doctor', stderr: true })

/** Server and database of an address, without who signs in. */
export function placeOf(url: string): string {
  const { host, pathname } = new URL(url)
  return `${host}${pathname}`
}

/**
 * Why an address gives no connection, and what would help; `variable` holds the address. Without one it is the embedded
 * server's, which runs as long as `npm start` does, and whose address is in a file.
 */
export function unreachable(check: string, variable: string | undefined, url: string, thrown: unknown): Finding {
  const cause = (thrown as { cause?: unknown }).cause ?? thrown
  if (cause instanceof ConfigError) return problem(check, cause.message, 'correct it, or let this user read the file')
  const { code = '' } = cause as { code?: string }
  const isStopped = variable === undefined && code === 'ECONNREFUSED'
  const remedy = isStopped ? 'start Daybook, which starts its embedded PostgreSQL: npm start' : remedies[code]
  const holder = variable ?? 'database-url in DAYBOOK_DATA_DIR'
  return problem(
    check,
    `${placeOf(url)} cannot be reached: ${reasonOf(cause)}`,
    (remedy ?? unknownRemedy).replaceAll('$', holder),
  )
}

const unknownRemedy = 'see that the server runs, that a firewall lets you through, and that $ is right'

/** By the codes of the operating system and of PostgreSQL; `$` is what holds the address. */
const remedies: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'start PostgreSQL there, or correct host and port in $',
  ENOTFOUND: 'correct the host in $',
  EAI_AGAIN: 'correct the host in $, or repair the name service',
  '28P01': 'correct user or password in $',
  '28000': 'let this user and client in by pg_hba.conf, or correct the user in $',
  '3D000': 'create the database, or correct its name in $',
  '42501': 'grant the user CONNECT on the database',
  '53300': 'raise max_connections, or lower DATABASE_POOL_MAX of the processes that run',
  '57P03': 'wait until the server has started or recovered',
  '08P01': 'take what the pooler does not know out of $, or name the server itself there',
}
