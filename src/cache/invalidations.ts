import type { PgBoss } from 'pg-boss'
import { logTable } from '../catalog/log-triggers.ts'
import type { ReservedReads } from '../db/pools.ts'
import { type Reader, rawQuery, type Tx } from '../db/sql.ts'
import { bossSchema, enqueue, type JobData } from '../events/jobs.ts'

/**
 * Enqueues, in the writing transaction, one job for each table that it has changed, as the log shows. Many writes, one
 * job: a table whose job is still waiting gets no other one. That job's row is locked, so that no worker takes it before
 * this transaction has ended; another writer shares the lock.
 *
 * The jobs only free what the shared store holds in vain. Answers stay right without them (ADR 19).
 */
export async function enqueueInvalidations(boss: PgBoss, tx: Tx): Promise<void> {
  const tables = await tx.any<{ table: string; xid: string }>(rawQuery(touchedSql))
  const jobs = tables.map((data) => ({ queue: 'cache-invalidation', data, startAfterSeconds: collectSeconds }) as const)
  await enqueue(boss, tx, jobs)
}

type SharedStore = { readonly dataCache: { readonly purge: (table: string, upTo: string) => Promise<unknown> } }

/** Deletes from the shared store what the writes of a table have made worthless. Nothing newer goes with it. */
export async function dropInvalidated(
  deps: ReservedReads & SharedStore,
  { table, xid }: JobData['cache-invalidation'],
): Promise<void> {
  const upTo = await newestChange(deps.reserved, table, xid)
  if (upTo !== undefined) await deps.dataCache.purge(table, upTo)
}

/** The newest transaction that changed a table, from `since` on; undefined when none has. */
async function newestChange(db: Reader, table: string, since: string): Promise<string | undefined> {
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
