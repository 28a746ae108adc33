import { type Reader, rawQuery, type Tx } from '../db/sql.ts'
import { bossSchema, enqueue } from '../events/jobs.ts'
import { logTable } from '../events/log.ts'
import type { Runtime } from '../runtime.ts'
import { isShared } from './sharing.ts'

/**
 * Enqueues, in the writing transaction, one job for each table that it has changed, as the log tells. Many writes, one
 * job: a table whose job is still waiting gets no other one. That job's row is locked, so that no worker takes it before
 * this transaction has ended; another writer shares the lock.
 *
 * Only where processes share a store. The jobs free what it holds in vain; that nobody is answered from it is no matter of
 * theirs (ADR 19).
 */
export async function enqueueInvalidations(rt: Runtime, tx: Tx): Promise<void> {
  if (!isShared(rt.config)) return
  const tables = await tx.any<{ table: string; xid: string }>(rawQuery(touchedSql))
  const jobs = tables.map((data) => ({ queue: 'cache-invalidation', data, startAfterSeconds: collectSeconds }) as const)
  await enqueue(rt.boss, tx, jobs)
}

/** The newest transaction that changed a table, from `since` on; undefined when none has. */
export async function newestChange(db: Reader, table: string, since: string): Promise<string | undefined> {
  const newest = await db.maybeOne<{ xid: string }>(rawQuery(newestSql, [table, since]))
  return newest?.xid
}

/** How long a job waits for further writes. */
const collectSeconds = 1

const touchedSql = `
  with touched as materialized (
    select distinct e.entity::text as "table" from "${logTable}" e
    where e.xid = pg_current_xact_id_if_assigned() and e.type = 'data'),
  waiting as materialized (
    select j.data->>'table' as "table" from ${bossSchema}.job j
    where j.name = 'cache-invalidation' and j.state = 'created' and j.start_after > clock_timestamp()
      and j.data->>'table' in (select "table" from touched)
    for key share of j skip locked)
  select "table", pg_current_xact_id()::text as xid from touched where "table" not in (select "table" from waiting)`

const newestSql = `
  select e.xid::text as xid from "${logTable}" e
  where e.xid >= $2::xid8 and e.entity = $1 and e.type = 'data' order by e.xid desc limit 1`
