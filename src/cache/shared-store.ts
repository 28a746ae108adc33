import type { Logger } from 'pino'
import { openRedis } from '../adapters/redis.ts'
import { openUpstash, type RemoteRedis } from '../adapters/upstash.ts'
import { logTable } from '../catalog/log-triggers.ts'
import type { Config } from '../config/config.ts'
import type { ReservedReads } from '../db/pools.ts'
import { type Reader, rawQuery, type Tx } from '../db/sql.ts'
import { bossSchema, enqueue, type JobData, type Jobs } from '../events/jobs.ts'
import { isShared, type TimeWindow } from './result-cache.ts'

/** An answer as processes share it. `snapshot` was taken before it was read: a reader judges the entry by it (ADR 19). */
export type SharedEntry = {
  readonly body: string | Buffer
  readonly tag: string
  readonly version: string | undefined
  readonly tables: readonly string[]
  readonly window?: TimeWindow | undefined
  readonly snapshot: string
  /** Milliseconds since 1970, by the clock of who made it. */
  readonly madeAt: number
  readonly ttlMs: number
}

/** Entries in Redis or Upstash. The cache does not trust them, so a lost, overdue or returning entry does no harm. */
export type SharedStore = {
  get(key: string): Promise<SharedEntry | undefined>
  put(key: string, entry: SharedEntry): Promise<void>
  /** Deletes the entries of a table that were made before transaction `upTo`; resolves with how many there were. */
  purge(table: string, upTo: string): Promise<number>
  close(): void
}

/** Undefined where every process has a cache of its own. `prefix` keeps installations apart. */
export function openSharedStore(config: Config, log: Logger, prefix: () => string): SharedStore | undefined {
  const remote = isShared(config) ? openRemoteRedis(config, config.dataCache, log) : undefined
  if (remote === undefined) return undefined
  const tableKey = (table: string) => `${prefix()}t:${table}`
  return {
    get: async (key) => readEntry(await remote.get(`${prefix()}e:${key}`)),
    put: async (key, entry) => {
      const keys = [`${prefix()}e:${key}`, ...entry.tables.map(tableKey)]
      // A transaction that began before the entry's xmax may be missing in it.
      const [, xmax = '0'] = entry.snapshot.split(':')
      await remote.run(putScript, keys, [writeEntry(entry), entry.ttlMs, xmax, mostPerTable])
    },
    purge: (table, upTo) => purge(remote, tableKey(table), upTo),
    close: () => remote.close(),
  }
}

/** The Redis that an adapter names; undefined for memory. */
export function openRemoteRedis(
  { upstash }: Config,
  { adapter, redisUrl }: { readonly adapter: 'memory' | 'redis' | 'upstash'; readonly redisUrl: string | undefined },
  log: Logger,
): RemoteRedis | undefined {
  if (adapter === 'memory') return undefined
  if (adapter === 'upstash') return openUpstash({ url: upstash.url!, token: upstash.token! }, log)
  const redis = openRedis(redisUrl!, log)
  return {
    get: (key) => redis.call('get', key) as Promise<string | null>,
    run: (script, keys, values) => redis.run(script, keys, values),
    close: () => redis.close(),
  }
}

/** Beyond this the oldest entries of a table are left to their time limit. */
const mostPerTable = 10_000
const purgedAtOnce = 1000

const putScript = `
  redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
  for i = 2, #KEYS do
    redis.call('zadd', KEYS[i], ARGV[3], KEYS[1])
    redis.call('zremrangebyrank', KEYS[i], 0, -1 - ARGV[4])
    if redis.call('pttl', KEYS[i]) < tonumber(ARGV[2]) then redis.call('pexpire', KEYS[i], ARGV[2]) end
  end`

const purgeScript = `
  local keys = redis.call('zrangebyscore', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
  if #keys > 0 then
    redis.call('del', unpack(keys))
    redis.call('zrem', KEYS[1], unpack(keys))
  end
  return #keys`

async function purge(remote: RemoteRedis, key: string, upTo: string): Promise<number> {
  let purged = 0
  for (;;) {
    const count = Number(await remote.run(purgeScript, [key], [upTo, purgedAtOnce]))
    purged += count
    if (count < purgedAtOnce) return purged
  }
}

/** A line of JSON about the body, then the body. */
function writeEntry({ body, ...head }: SharedEntry): string {
  return `${JSON.stringify(head)}\n${body.toString()}`
}

/** Undefined for what is not there or not ours. */
function readEntry(text: string | null): SharedEntry | undefined {
  if (text === null) return undefined
  const end = text.indexOf('\n')
  const head = parseHead(text.slice(0, end))
  return head && { ...head, body: text.slice(end + 1) }
}

function parseHead(text: string): Omit<SharedEntry, 'body'> | undefined {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/**
 * Enqueues, in the writing transaction, one job for each table that it has changed, as the log shows. Many writes, one
 * job: a table whose job is still waiting gets no other one. That job's row is locked, so that no worker takes it before
 * this transaction has ended; another writer shares the lock.
 *
 * The jobs only free what the shared store holds in vain. Answers stay right without them (ADR 19).
 */
export async function enqueueInvalidations(queue: Jobs, tx: Tx): Promise<void> {
  const tables = await tx.any<{ table: string; xid: string }>(rawQuery(touchedSql))
  const jobs = tables.map((data) => ({ queue: 'cache-invalidation', data, startAfterSeconds: collectSeconds }) as const)
  await enqueue(queue, tx, jobs)
}

type PurgedStore = { readonly dataCache: { readonly purge: (table: string, upTo: string) => Promise<unknown> } }

/** Deletes from the shared store what the writes of a table have made worthless. Nothing newer goes with it. */
export async function dropInvalidated(
  deps: ReservedReads & PurgedStore,
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
