/** Removing old events, in a way that no reader can mistake for "nothing happened" (design §4). */

import { quoteName } from '../db/sql.ts'
import { logSchema, logTable } from './log.ts'
import type { LogDb } from './log-reader.ts'

export type Expiry = {
  /** Partitions dropped. */
  readonly dropped: readonly string[]
  /** Partitions that a long transaction kept busy; they go with the next run. */
  readonly postponed: readonly string[]
  /** Events deleted one by one, from the month that has expired in part. */
  readonly deleted: number
}

/**
 * Removes all events written before `before`: whole months by dropping their partition, the rest in batches, each its
 * own transaction, so it may be stopped at any moment and run again. Each transaction that removes events raises the
 * retention floor, so that a reader whose cursor is older is told to start over. `db` must be allowed to write.
 */
export async function expireEvents(db: LogDb, before: Date, batch = 10_000): Promise<Expiry> {
  const { rows } = await db.query(expiredPartitionsSql, [before.toISOString()])
  const dropped: string[] = []
  const postponed: string[] = []
  for (const { name } of rows) ((await dropPartition(db, name)) ? dropped : postponed).push(name)
  let deleted = 0
  for (let count = batch; count === batch; deleted += count) {
    const result = await db.query(deleteSql, [before.toISOString(), postponed, batch])
    count = result.rows[0].count
  }
  return { dropped, postponed, deleted }
}

/** False when the locks could not be had in time: waiting longer would stop every writer behind us. */
async function dropPartition(db: LogDb, name: string): Promise<boolean> {
  try {
    await db.query(`do $do$
begin
  perform set_config('lock_timeout', '1s', true);
  lock table "${logTable}" in access exclusive mode;
  update ${logSchema}.floor set (removed, "upTo") =
    (select greatest(removed, max(xid)), greatest("upTo", max("createdAt")) from ${quoteName(name)});
  drop table ${quoteName(name)};
end
$do$`)
    return true
  } catch (error) {
    if ((error as { code?: string }).code === lockNotAvailable) return false
    throw error
  }
}

const lockNotAvailable = '55P03'

const expiredPartitionsSql = `select child.relname as name
from pg_inherits join pg_class child on child.oid = inhrelid
where inhparent = '"${logTable}"'::regclass and child.relname ~ '_[0-9]{6}$'
  and (to_date(right(child.relname, 6), 'YYYYMM') + interval '1 month') at time zone 'UTC' <= $1::timestamptz
order by 1`

const deleteSql = `with door as materialized (select set_config('svc.retention', 'on', true)),
expired as (
  select e.id, e."createdAt" from "${logTable}" e, door
  where e."createdAt" < $1 and e.tableoid <> all (array(select quote_ident(name)::regclass from unnest($2::text[]) name))
  order by e."createdAt" limit $3
), gone as (
  delete from "${logTable}" e using expired where e.id = expired.id and e."createdAt" = expired."createdAt" returning e.xid, e."createdAt"
), raised as (
  update ${logSchema}.floor set (removed, "upTo") =
    (select greatest(removed, max(xid)), greatest("upTo", max("createdAt")) from gone) where exists (select from gone)
)
select count(*)::int as count from gone`
