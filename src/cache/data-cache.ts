import { createHash } from 'node:crypto'
import type { Logger } from 'pino'
import type { Config } from '../config.ts'
import type { Database } from '../db/pools.ts'
import { parseSnapshot } from '../events/cursor.ts'
import { type Answer, type KeptAnswer, openKeptAnswers } from './kept-answers.ts'
import { type LogWatch, type Look, openLogWatch } from './log-watch.ts'
import { openSharedStore, type SharedEntry, type SharedStore } from './shared-store.ts'
import { isShared } from './sharing.ts'

export type Lookup = {
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

/** What reading came to: an answer with the tables that it depends on, or something that can't be kept. */
export type Made<Other> =
  | { readonly answer: Answer; readonly tables: readonly string[] }
  | { readonly answer?: undefined; readonly other: Other }

export type Found<Other> =
  | { readonly state: 'HIT' | 'MISS'; readonly answer: Answer }
  | { readonly state: 'BYPASS'; readonly answer: Answer }
  | { readonly state: 'BYPASS'; readonly answer?: undefined; readonly other: Other }

/** Since the process began; `entries` and `bytes` are what memory holds now. */
export type CacheStats = {
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

export type DataCache = {
  /**
   * The kept answer, or the one that `make` reads. An answer is never older than the last write that this process has
   * committed before; with a shared store, than the last one that any process has. `make` is also called where the cache
   * can't tell.
   */
  read<Other>(lookup: Lookup, make: () => Promise<Made<Other>>): Promise<Found<Other>>
  /** This process has committed something. */
  written(): void
  /**
   * Deletes from the shared store what depends on a table and was made before transaction `upTo`; nothing where there is
   * none. Rejects when the store does not answer.
   */
  purge(table: string, upTo: string): Promise<void>
  stats(): CacheStats
  close(): Promise<void>
}

export type DataCacheOptions = {
  config: Config
  /** Connections to the primary. */
  db: Database
  log: Logger
}

/** `look`: one that was over when it was read. */
type Entry = KeptAnswer & { readonly look: number }
type Making = { readonly look: number; readonly made: Promise<Made<unknown>> }

/** With memory alone, what others have written counts this much later; with a shared store at once. */
const othersLateMs = 20
/** What is only kept needs no look of its own; it is worth nothing later if others changed its tables since the last one. */
const longestLookMs = 1000

export function openDataCache({ config, db, log }: DataCacheOptions): DataCache {
  const watch = openLogWatch({ db, reachBackSeconds: isShared(config) ? config.dataCache.ttlSeconds : 0 })
  const shared = openSharedStore(config, log, () => `daybook{${watch.identity()}}:`)
  const memory = openKeptAnswers<Entry>(config.dataCache.maxBytes)
  const making = new Map<string, Making>()
  const counts = { hits: 0, misses: 0, uncacheable: 0, stale: 0, errors: 0 }

  const failed = (what: string) => (error: unknown) => {
    counts.errors += 1
    log.debug({ err: error }, what)
    return undefined
  }
  const isFit = (entry: Pick<Entry, 'madeAt'>, { maxAgeMs }: Lookup) => Date.now() - entry.madeAt <= maxAgeMs

  const inMemory = (lookup: Lookup): Entry | undefined => {
    const entry = memory.get(lookup.key)
    if (entry === undefined) return undefined
    if (watch.isUnchanged(entry.tables, entry.look)) return isFit(entry, lookup) ? entry : undefined
    memory.delete(lookup.key)
    counts.stale += 1
    return undefined
  }

  const inStore = async (store: SharedStore, lookup: Lookup, look: Look): Promise<Entry | undefined> => {
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

  const find = async (lookup: Lookup, look: Look): Promise<Entry | undefined> => {
    const entry = inMemory(lookup) ?? (shared && (await inStore(shared, lookup, look)))
    if (entry === undefined || lookup.isStill === undefined) return entry
    return (await lookup.isStill(entry)) ? entry : undefined
  }

  /** What somebody is reading now, if nothing has changed since that began; who fails takes nobody along. */
  const besides = async (lookup: Lookup): Promise<Answer | undefined> => {
    const other = making.get(lookup.key)
    if (other === undefined || !watch.isQuiet(other.look)) return undefined
    return (await other.made.catch(() => undefined))?.answer
  }

  const keep = ({ key, ttlMs }: Lookup, look: Look, answer: Answer, tables: readonly string[]): boolean => {
    if (!watch.isUnchanged(tables, look.number)) return false
    const madeAt = Date.now()
    const fits = memory.set(key, { ...answer, tables, madeAt, look: look.number, expiresAt: madeAt + ttlMs })
    if (fits && shared !== undefined) {
      const entry = { ...answer, tables, madeAt, ttlMs, snapshot: look.snapshot }
      void shared.put(hashed(key), entry).catch(failed('the shared cache took no answer'))
    }
    return fits
  }

  const make = async <Other>(lookup: Lookup, look: Look, read: () => Promise<Made<Other>>): Promise<Found<Other>> => {
    const mine: Making = { look: look.number, made: read() }
    making.set(lookup.key, mine)
    try {
      const made = (await mine.made) as Made<Other>
      if (made.answer === undefined) {
        counts.uncacheable += 1
        return { state: 'BYPASS', other: made.other }
      }
      counts.misses += 1
      keep(lookup, look, made.answer, made.tables)
      return { state: 'MISS', answer: made.answer }
    } finally {
      if (making.get(lookup.key) === mine) making.delete(lookup.key)
    }
  }

  /** Whether there may be an answer here already, which only a new look can tell to be good. */
  const mayBeKnown = ({ key }: Lookup) => memory.has(key) || making.has(key)

  return {
    read: async (lookup, read) => {
      const maxAgeMs = shared !== undefined ? 0 : mayBeKnown(lookup) ? othersLateMs : longestLookMs
      const look = await watch.look(maxAgeMs).catch(failed('the log could not be asked'))
      if (look === undefined) return uncached(await read())
      const known = lookup.reload ? undefined : ((await find(lookup, look)) ?? (await besides(lookup)))
      if (known === undefined) return make(lookup, look, read)
      counts.hits += 1
      return { state: 'HIT', answer: known }
    },
    written: watch.written,
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

function uncached<Other>(made: Made<Other>): Found<Other> {
  return made.answer === undefined ? { state: 'BYPASS', other: made.other } : { state: 'BYPASS', answer: made.answer }
}

function isSeen(watch: LogWatch, { tables, snapshot }: SharedEntry): boolean {
  const parsed = parseSnapshot(snapshot)
  return parsed !== undefined && watch.hasSeenAll(tables, parsed)
}

const hashed = (key: string): string => createHash('sha256').update(key).digest('base64url')
