import { createHash } from 'node:crypto'
import type { PgBoss } from 'pg-boss'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import type { Database } from '../db/pools.ts'
import type { Tx } from '../db/sql.ts'
import { parseSnapshot } from '../events/cursor.ts'
import { enqueueInvalidations } from './invalidations.ts'
import { type LogWatch, type Look, openLogWatch } from './log-watch.ts'
import { type Answer, type CachedAnswer, openResultCache } from './result-cache.ts'
import { isShared, openSharedStore, type SharedEntry, type SharedStore } from './shared-store.ts'

type Lookup = {
  /** Everything that the answer is a function of, but the rows. */
  readonly key: string
  /** How long the answer may be kept. */
  readonly ttlMs: number
  /** How old it may be. */
  readonly maxAgeMs: number
  /** Whether it must be made anew, for those who come later. */
  readonly reload: boolean
  /** A condition that the log knows nothing of. */
  isStill?(answer: Answer): Promise<boolean>
}

/** The result of a read: an answer with the tables that it depends on, or something that can't be kept. */
export type Made<Other> =
  | { readonly answer: Answer; readonly tables: readonly string[] }
  | { readonly answer?: undefined; readonly other: Other }

type CacheResult<Other> =
  | { readonly state: 'HIT' | 'MISS'; readonly answer: Answer }
  | { readonly state: 'BYPASS'; readonly answer: Answer }
  | { readonly state: 'BYPASS'; readonly answer?: undefined; readonly other: Other }

/** Since the process began; `entries` and `bytes` are what memory holds now. */
type CacheStats = {
  readonly hits: number
  readonly misses: number
  /** Asked for and read, but not fit to be kept. */
  readonly uncacheable: number
  /** Found, but made before a change. */
  readonly stale: number
  /** Questions that the database, Redis or Upstash failed to answer; each was a read without the cache. */
  readonly errors: number
  readonly entries: number
  readonly bytes: number
}

type DataCache = {
  /**
   * The kept answer, or the one that `make` reads. An answer is never older than the last write that this process has
   * committed before; with a shared store, than the last one that any process has. `make` is also called where the cache
   * can't tell.
   */
  read<Other>(lookup: Lookup, make: () => Promise<Made<Other>>): Promise<CacheResult<Other>>
  /** This process has committed something. */
  written(): void
  /** Whether processes share the answers; a writing transaction then ends with {@link DataCache.invalidate}. */
  readonly isShared: boolean
  /** Enqueues, in a writing transaction, the jobs that free what it has made worthless. */
  invalidate(tx: Tx): Promise<void>
  /**
   * Deletes from the shared store what depends on a table and was made before transaction `upTo`; nothing where there is
   * none. Rejects when the store does not answer.
   */
  purge(table: string, upTo: string): Promise<void>
  stats(): CacheStats
  close(): Promise<void>
}

/** Answers of reads; opened by the first one that may be cached. */
export type ResultCache = { readonly dataCache: DataCache }

type DataCacheOptions = {
  config: Config
  /** Connections to the primary. */
  db: Database
  log: Logger
  /** Takes the jobs that free the shared store. */
  boss: PgBoss
}

/** `look`: one that was over when it was read. */
type Entry = CachedAnswer & { readonly look: number }
type PendingAnswer = { readonly look: number; readonly made: Promise<Made<unknown>> }

/** With memory alone, what others have written counts this much later; with a shared store at once. */
const othersLateMs = 20
/** An answer that is only kept needs no look of its own; a change of its tables since the last one makes it worthless. */
const longestLookMs = 1000

/** The parts of the cache. */
type Parts = {
  readonly watch: LogWatch
  readonly shared: SharedStore | undefined
  readonly memory: ReturnType<typeof openResultCache<Entry>>
  /** Reads that are under way, by key. */
  readonly making: Map<string, PendingAnswer>
  readonly counts: { hits: number; misses: number; uncacheable: number; stale: number; errors: number }
  /** Counts and logs a failure of a part, which costs no more than the cache. */
  failed(what: string): (error: unknown) => undefined
}

export function openDataCache({ config, db, log, boss }: DataCacheOptions): DataCache {
  const watch = openLogWatch({ db, reachBackSeconds: isShared(config) ? config.dataCache.ttlSeconds : 0 })
  const shared = openSharedStore(config, log, () => `daybook{${watch.identity()}}:`)
  const memory = openResultCache<Entry>(config.dataCache.maxBytes)
  const counts = { hits: 0, misses: 0, uncacheable: 0, stale: 0, errors: 0 }
  const failed = (what: string) => (error: unknown) => {
    counts.errors += 1
    log.debug({ err: error }, what)
    return undefined
  }
  const parts: Parts = { watch, shared, memory, making: new Map(), counts, failed }
  return {
    read: (lookup, make) => read(parts, lookup, make),
    written: watch.written,
    isShared: shared !== undefined,
    invalidate: (tx) => enqueueInvalidations(boss, tx),
    purge: async (table, upTo) => {
      if (shared === undefined) return
      if (watch.identity() === '') await watch.look(0)
      await shared.purge(table, upTo)
    },
    stats: () => ({ ...counts, entries: memory.entries(), bytes: memory.bytes() }),
    close: async () => {
      shared?.close()
      memory.clear()
    },
  }
}

async function read<Other>(
  parts: Parts,
  lookup: Lookup,
  make: () => Promise<Made<Other>>,
): Promise<CacheResult<Other>> {
  const { watch, shared, counts, failed } = parts
  const maxAgeMs = shared !== undefined ? 0 : mayBeKnown(parts, lookup) ? othersLateMs : longestLookMs
  const look = await watch.look(maxAgeMs).catch(failed('the log could not be asked'))
  if (look === undefined) return uncached(await make())
  const known = lookup.reload ? undefined : ((await find(parts, lookup, look)) ?? (await besides(parts, lookup)))
  if (known === undefined) return makeNow(parts, lookup, look, make)
  counts.hits += 1
  return { state: 'HIT', answer: known }
}

/** Whether there may be an answer here already, which only a new look can tell to be good. */
const mayBeKnown = ({ memory, making }: Parts, { key }: Lookup) => memory.has(key) || making.has(key)

async function find(parts: Parts, lookup: Lookup, look: Look): Promise<Entry | undefined> {
  const { shared } = parts
  const entry = inMemory(parts, lookup) ?? (shared && (await inStore(parts, shared, lookup, look)))
  if (entry === undefined || lookup.isStill === undefined) return entry
  return (await lookup.isStill(entry)) ? entry : undefined
}

function inMemory({ memory, watch, counts }: Parts, lookup: Lookup): Entry | undefined {
  const entry = memory.get(lookup.key)
  if (entry === undefined) return undefined
  if (watch.isUnchanged(entry.tables, entry.look)) return isFit(entry, lookup) ? entry : undefined
  memory.delete(lookup.key)
  counts.stale += 1
  return undefined
}

async function inStore(parts: Parts, store: SharedStore, lookup: Lookup, look: Look): Promise<Entry | undefined> {
  const { memory, watch, counts, failed } = parts
  const found = await store.get(hashed(lookup.key)).catch(failed('the shared cache did not answer'))
  if (found === undefined || !isFit(found, lookup)) return undefined
  if (!isSeen(watch, found)) {
    counts.stale += 1
    return undefined
  }
  const { snapshot: _snapshot, ttlMs, ...entry } = found
  const kept = { ...entry, look: look.number, expiresAt: found.madeAt + ttlMs }
  return memory.set(lookup.key, kept) ? kept : undefined
}

const isFit = (entry: Pick<Entry, 'madeAt'>, { maxAgeMs }: Lookup) => Date.now() - entry.madeAt <= maxAgeMs

/** The answer of a read that is under way, if nothing has changed since it began. Its failure is not shared. */
async function besides({ making, watch }: Parts, lookup: Lookup): Promise<Answer | undefined> {
  const other = making.get(lookup.key)
  if (other === undefined || !watch.isQuiet(other.look)) return undefined
  return (await other.made.catch(() => undefined))?.answer
}

async function makeNow<Other>(
  parts: Parts,
  lookup: Lookup,
  look: Look,
  make: () => Promise<Made<Other>>,
): Promise<CacheResult<Other>> {
  const { making, counts } = parts
  const mine: PendingAnswer = { look: look.number, made: make() }
  making.set(lookup.key, mine)
  try {
    const made = (await mine.made) as Made<Other>
    if (made.answer === undefined) {
      counts.uncacheable += 1
      return { state: 'BYPASS', other: made.other }
    }
    counts.misses += 1
    keep(parts, lookup, look, made)
    return { state: 'MISS', answer: made.answer }
  } finally {
    if (making.get(lookup.key) === mine) making.delete(lookup.key)
  }
}

function keep({ watch, memory, shared, failed }: Parts, { key, ttlMs }: Lookup, look: Look, made: Keepable): void {
  const { answer, tables } = made
  if (!watch.isUnchanged(tables, look.number)) return
  const madeAt = Date.now()
  const fits = memory.set(key, { ...answer, tables, madeAt, look: look.number, expiresAt: madeAt + ttlMs })
  if (!fits || shared === undefined) return
  const entry = { ...answer, tables, madeAt, ttlMs, snapshot: look.snapshot }
  void shared.put(hashed(key), entry).catch(failed('the shared cache took no answer'))
}

type Keepable = Extract<Made<never>, { readonly answer: Answer }>

function uncached<Other>(made: Made<Other>): CacheResult<Other> {
  return made.answer === undefined ? { state: 'BYPASS', other: made.other } : { state: 'BYPASS', answer: made.answer }
}

function isSeen(watch: LogWatch, { tables, snapshot }: SharedEntry): boolean {
  const parsed = parseSnapshot(snapshot)
  return parsed !== undefined && watch.hasSeenAll(tables, parsed)
}

const hashed = (key: string): string => createHash('sha256').update(key).digest('base64url')
