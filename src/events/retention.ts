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
  /** Partitions that are kept for consumers of the log that have yet to read them. */
  readonly held: readonly string[]
  /** Events deleted one by one, from the month that has expired in part. */
  readonly deleted: number
}

/** How much longer than its time the log is kept for consumers that lag. Beyond that they are stopped. */
type ConsumerBound = { readonly days: number; readonly bytes: number }

type ExpiryOptions = {
  /** Default: nothing is kept for consumers. */
  readonly forConsumers?: ConsumerBound
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
 * retention floor, so that a reader with an older cursor has to start over. Events that a consumer has yet to read
 * stay, up to `forConsumers`; if they are removed all the same, the same transaction stops the consumer. `db` must be
 * allowed to write.
 */
export async function expireEvents(db: LogDb, before: Date, options: ExpiryOptions = {}): Promise<Expiry> {
  const { batch = 10_000, lockAttempts = 1, forConsumers = nothingKept, signal, onProgress } = options
  const beyond = new Date(before.getTime() - forConsumers.days * dayMs)
  const { rows } = await db.query(expiredPartitionsSql, [before.toISOString(), beyond.toISOString()])
  const { drops, restStops } = decideExpiry(rows as ExpiredPartition[], forConsumers.bytes)
  const dropped: string[] = []
  const postponed: string[] = []
  const held: string[] = []
  let deleted = 0
  const advance = () => {
    onProgress?.({ dropped, postponed, held, deleted })
    signal?.throwIfAborted()
  }
  signal?.throwIfAborted()
  for (const { name, stops } of drops) {
    const outcome = await dropPartition(db, name, lockAttempts, stops)
    const list = { dropped, busy: postponed, held }[outcome]
    list.push(name)
    advance()
  }
  const unread = restStops ? before : beyond
  for (let found = batch, from = '-infinity'; found === batch; advance()) {
    const values = [before.toISOString(), [...postponed, ...held], batch, from, unread.toISOString()]
    const [round] = (await db.query(deleteSql, values)).rows as [DeletedRound]
    deleted += round.deleted
    found = round.found
    from = round.upTo ?? from
  }
  return { dropped, postponed, held, deleted }
}

const nothingKept: ConsumerBound = { days: 0, bytes: 0 }
const dayMs = 86_400_000

/** `bytes`: of what has expired in it, for a month that has in part by the share of its time. */
export type ExpiredPartition = {
  readonly name: string
  readonly isWhole: boolean
  /** Older than is kept for consumers. */
  readonly isBeyond: boolean
  readonly bytes: number
}

/**
 * Decides which of the expired partitions, the oldest first, to drop as a whole, and where that and the deletion of the
 * rest stops consumers that have yet to read them: beyond the days that are kept for them, and where a partition with
 * all later ones has more than `mostBytes`.
 */
export function decideExpiry(expired: readonly ExpiredPartition[], mostBytes: number) {
  const exceeds = (partitions: readonly ExpiredPartition[]) =>
    partitions.reduce((sum, { bytes }) => sum + bytes, 0) > mostBytes
  return {
    drops: expired.flatMap(({ name, isWhole, isBeyond }, i) =>
      isWhole ? [{ name, stops: isBeyond || exceeds(expired.slice(i)) }] : [],
    ),
    restStops: exceeds(expired.filter(({ isWhole }) => !isWhole)),
  }
}

/** `found` exceeds `deleted` where another process deletes the same. */
type DeletedRound = { readonly found: number; readonly deleted: number; readonly upTo: string | null }

type DropOutcome = 'dropped' | 'busy' | 'held'

/** `busy` when the locks could not be had: waiting longer at a time would stop every writer that queues after this. */
async function dropPartition(db: LogDb, name: string, attempts: number, stops: boolean): Promise<DropOutcome> {
  for (let attempt = 1; ; attempt += 1) {
    const outcome = await tryDropPartition(db, name, stops)
    if (outcome !== 'busy' || attempt === attempts) return outcome
    await delay(lockPauseMs)
  }
}

/** `stops`: consumers that have yet to read it are stopped; otherwise it stays for them. */
async function tryDropPartition(db: LogDb, name: string, stops: boolean): Promise<DropOutcome> {
  try {
    await db.query(`do $do$
declare
  newest xid8;
begin
  perform set_config('lock_timeout', '${lockWaitMs}ms', true);
  if to_regclass(${quoteText(quoteName(name))}) is null then return; end if;
  select max(xid) into newest from ${quoteName(name)};
  if ${logSchema}."$unread_from"() <= newest and not ${stops} then
    raise exception using errcode = '${heldForConsumers}', message = 'consumers have yet to read it';
  end if;
  lock table "${logTable}" in access exclusive mode;
  if to_regclass(${quoteText(quoteName(name))}) is not null then
    update ${logSchema}.floor set (removed, "upTo") =
      (select greatest(removed, max(xid)), greatest("upTo", max("createdAt")) from ${quoteName(name)});
    perform ${logSchema}.stop_unread((select removed from ${logSchema}.floor));
    drop table ${quoteName(name)};
  end if;
end
$do$`)
    return 'dropped'
  } catch (error) {
    const { code } = error as { code?: string }
    if (code === lockNotAvailable) return 'busy'
    if (code === heldForConsumers) return 'held'
    throw error
  }
}

const heldForConsumers = 'SV423'
const lockNotAvailable = '55P03'
const lockWaitMs = 250
/** Writers that had to wait get through meanwhile. */
const lockPauseMs = 250

// The name is read as a month where it is one: the planner may look at every table's, and those of TOAST tables end in
// numbers of as many digits.
const expiredPartitionsSql = `select name, month_end <= $1 as "isWhole", month_end <= $2 as "isBeyond",
  (size * least(1, greatest(0, extract(epoch from $1 - month) / extract(epoch from least(month_end, greatest(now(), $1)) - month))))::float8 as bytes
from (
  select child.relname as name, pg_total_relation_size(child.oid)::numeric as size,
    case when child.relname ~ '^${logTable}_[0-9]{6}$' then to_date(right(child.relname, 6), 'YYYYMM')::timestamp at time zone 'UTC' end as month,
    case when child.relname ~ '^${logTable}_[0-9]{6}$'
      then (to_date(right(child.relname, 6), 'YYYYMM') + interval '1 month') at time zone 'UTC' end as month_end
  from pg_inherits join pg_class child on child.oid = inhrelid
  where inhparent = '"${logTable}"'::regclass
) partition
where month < $1::timestamptz and $2::timestamptz is not null
order by name`

// From where the last batch ended, or each would pass over all that the ones before have deleted.
const deleteSql = `${logDoors.retention} with unread as materialized (
  select ${logSchema}."$unread_from"() as xid
), expired as materialized (
  select e.id, e."createdAt" from "${logTable}" e, unread
  where (unread.xid is null or e.xid < unread.xid or e."createdAt" < $5::timestamptz)
    and e."createdAt" >= $4::timestamptz and e."createdAt" < $1
    and e.tableoid <> all (array(select quote_ident(name)::regclass from unnest($2::text[]) name))
  order by e."createdAt" limit $3
), gone as (
  delete from "${logTable}" e using expired where e.id = expired.id and e."createdAt" = expired."createdAt" returning e.xid, e."createdAt"
), raised as (
  update ${logSchema}.floor set (removed, "upTo") =
    (select greatest(removed, max(xid)), greatest("upTo", max("createdAt")) from gone) where exists (select from gone)
), stopped as materialized (
  select ${logSchema}.stop_unread((select max(xid) from gone)) where exists (select from gone)
)
select (select count(*) from stopped), (select count(*)::int from gone) as deleted, count(*)::int as found, max("createdAt")::text as "upTo" from expired`
