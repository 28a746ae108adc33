import type { Logger } from 'pino'
import { openRedis } from '../adapters/redis.ts'
import { openUpstash, type RemoteRedis } from '../adapters/upstash.ts'
import type { Config } from '../config/config.ts'
import type { TimeWindow } from './result-cache.ts'

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

/** Whether processes share the answers of reads, which are then invalidated by jobs. */
export const isShared = ({ dataCache }: Config): boolean => dataCache.enabled && dataCache.adapter !== 'memory'

/** Entries in Redis or Upstash. Nobody trusts them, so an entry that is lost, kept too long or comes back does no harm. */
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
