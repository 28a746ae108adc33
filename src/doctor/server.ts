import type { Config } from '../config/config.ts'
import type { LineFacts } from '../db/poolers/line.ts'
import { poolShares, workerShares } from '../db/pools.ts'
import { type Reader, sql } from '../db/sql.ts'
import { workersWithWork } from '../workers/names.ts'
import { type Finding, ok, problem, warning } from './finding.ts'

/** Facts of a server and of our role. Settings are as PostgreSQL spells them. */
export type ServerFacts = {
  readonly version: number
  readonly versionText: string
  readonly role: string
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
  return db.one<ServerFacts>(sql.unsafe`
    select current_setting('server_version_num')::int as version, current_setting('server_version') as "versionText",
      current_user as role, (select rolsuper from pg_roles where rolname = current_user) as superuser, pg_is_in_recovery() as recovering, current_setting('server_encoding') as encoding,
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

function settingFaults({ encoding, isolation, replicationRole, collationChanged, role }: ServerFacts): Finding[] {
  const reset = (name: string) =>
    `alter role "${role}" reset ${name}; alter system reset ${name}; select pg_reload_conf()`
  return [
    ...(encoding === 'UTF8'
      ? []
      : [problem('server', `the database's encoding is ${encoding}`, 'create the database with encoding UTF8')]),
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

/** Whether SQL that somebody smuggles in could do more than the program. */
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
  if (!wanted) return ok(check, 'not used: SOCKET_ENABLED or REALTIME_WAL_CONSUMER_ENABLED is false')
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
