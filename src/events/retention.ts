/** Removing old events, in a way that no reader can mistake for "nothing happened". */

import { setTimeout as delay } from 'node:timers/promises'
import { logSchema, logTable } from '../catalog/log-triggers.ts'
import { quoteName, quoteText } from '../db/sql.ts'
import { logDoors } from './log.ts'
import type { LogDb } from './log-reader.ts'

export type Expiry = {
  /** Partitions dropped. */
  readonly dropped: readonly string[]
  /** Partitions that a long transaction kept busy; they go with the next run. */
  readonly postponed: readonly string[]
  /** Events deleted one by one, from the month that has expired in part. */
  readonly deleted: number
}

type ExpiryOptions = {
  /** Events deleted by one transaction. */
  readonly batch?: number
  /** How often a partition's lock is asked for, a quarter of a second each time. */
  readonly lockAttempts?: number
  /** Stops between two transactions, with its reason. */
  readonly signal?: AbortSignal
  /** Called after each transaction, with what is done so far. */
  readonly onProgress?: (soFar: Expiry) => void
}

/**
 * Removes all events written before `before`: whole months by dropping their partition, the rest in batches, each its
 * own transaction, so it may be stopped at any moment and run again. Each transaction that removes events raises the
 * retention floor, so that a reader with an older cursor has to start over. `db` must be allowed to write.
 */
export async function expireEvents(db: LogDb, before: Date, options: ExpiryOptions = {}): Promise<Expiry> {
  const { batch = 10_000, lockAttempts = 1, signal, onProgress } = options
  const { rows } = await db.query(expiredPartitionsSql, [before.toISOString()])
  const dropped: string[] = []
  const postponed: string[] = []
  let deleted = 0
  const advance = () => {
    onProgress?.({ dropped, postponed, deleted })
    signal?.throwIfAborted()
  }
  signal?.throwIfAborted()
  for (const { name } of rows) {
    const isGone = await dropPartition(db, name, lockAttempts)
    if (isGone) dropped.push(name)
    else postponed.push(name)
    advance()
  }
  for (let found = batch, from = '-infinity'; found === batch; advance()) {
    const result = await db.query(deleteSql, [before.toISOString(), postponed, batch, from])
    const [round] = result.rows as [DeletedRound]
    deleted += round.deleted
    found = round.found
    from = round.upTo ?? from
  }
  return { dropped, postponed, deleted }
}

/** `found` exceeds `deleted` where somebody else deletes the same. */
type DeletedRound = { readonly found: number; readonly deleted: number; readonly upTo: string | null }

/** False when the locks could not be had: waiting longer at a time would stop every writer that queues after this. */
async function dropPartition(db: LogDb, name: string, attempts: number): Promise<boolean> {
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    if (attempt > 1) await delay(lockPauseMs)
    if (await tryDropPartition(db, name)) return true
  }
  return false
}

async function tryDropPartition(db: LogDb, name: string): Promise<boolean> {
  try {
    await db.query(`do $do$
begin
  perform set_config('lock_timeout', '${lockWaitMs}ms', true);
  lock table "${logTable}" in access exclusive mode;
  if to_regclass(${quoteText(quoteName(name))}) is not null then
    update ${logSchema}.floor set (removed, "upTo") =
      (select greatest(removed, max(xid)), greatest("upTo", max("createdAt")) from ${quoteName(name)});
    drop table ${quoteName(name)};
  end if;
end
$do$`)
    return true
  } catch (error) {
    if ((error as { code?: string }).code === lockNotAvailable) return false
    throw error
  }
}

const lockNotAvailable = '55P03'
const lockWaitMs = 250
/** Writers that had to wait get through meanwhile. */
const lockPauseMs = 250

// The name is read as a month where it is one: the planner may look at every table's, and those of TOAST tables end in
// numbers of as many digits.
const expiredPartitionsSql = `select child.relname as name
from pg_inherits join pg_class child on child.oid = inhrelid
where inhparent = '"${logTable}"'::regclass
  and case when child.relname ~ '^${logTable}_[0-9]{6}$'
    then (to_date(right(child.relname, 6), 'YYYYMM') + interval '1 month') at time zone 'UTC' <= $1::timestamptz end
order by 1`

// From where the last batch ended, or each would pass over all that the ones before have deleted.
const deleteSql = `${logDoors.retention} with expired as materialized (
  select e.id, e."createdAt" from "${logTable}" e
  where e."createdAt" >= $4::timestamptz and e."createdAt" < $1
    and e.tableoid <> all (array(select quote_ident(name)::regclass from unnest($2::text[]) name))
  order by e."createdAt" limit $3
), gone as (
  delete from "${logTable}" e using expired where e.id = expired.id and e."createdAt" = expired."createdAt" returning e.xid, e."createdAt"
), raised as (
  update ${logSchema}.floor set (removed, "upTo") =
    (select greatest(removed, max(xid)), greatest("upTo", max("createdAt")) from gone) where exists (select from gone)
)
select (select count(*)::int from gone) as deleted, count(*)::int as found, max("createdAt")::text as "upTo" from expired`
