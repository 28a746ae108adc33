import { createHash } from 'node:crypto'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import type { Database } from '../db/pools.ts'
import type { WalPosition } from '../db/replicas/write-positions.ts'
import type { Tx } from '../db/sql.ts'
import { parseSnapshot } from '../events/cursor.ts'
import type { Jobs } from '../events/jobs.ts'
import { type AdmissionPolicy, openAdmissionPolicy } from './admission-policy.ts'
import { type LogWatch, type Look, openLogWatch } from './log-watch.ts'
import { type Answer, type CachedAnswer, isShared, openResultCache, type TimeWindow } from './result-cache.ts'
import { enqueueInvalidations, openSharedStore, type SharedEntry, type SharedStore } from './shared-store.ts'

type Lookup = {
  /** Everything that the answer is a function of, but the rows. */
  readonly key: string
  /** How long the answer may be kept. */
  readonly ttlMs: number
  /** How old it may be. */
  readonly maxAgeMs: number
  /** Whether it must be made anew, for those who come later. */
  readonly reload: boolean
  /** The time that the request means by now, by the database's clock. */
  readonly now: number
  /** Kept automatically: only where that pays, in memory alone, and as new as the database. */
  readonly isAutomatic?: boolean
  /** A condition that the log knows nothing of. */
  isStill?(answer: Answer): Promise<boolean>
}

/**
 * The result of a read: an answer with the tables that it depends on, or something that can't be kept. `replayed`: what had
 * been replayed by the standbys that it came from, before it was read.
 */
export type Made<Other> =
  | {
      readonly answer: Answer
      readonly tables: readonly string[]
      readonly window?: TimeWindow
      readonly replayed?: readonly WalPosition[]
    }
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
  /** Repeated, but not kept, because automatic keeping would not have paid. */
  readonly refused: number
  /** Questions that the database, Redis or Upstash failed to answer; each was a read without the cache. */
  readonly errors: number
  readonly entries: number
  readonly bytes: number
}

type DataCache = {
  /**
   * The kept answer, or the one that `make` reads. An answer is never older than the last write that this process has
   * committed before; with a shared store or where it is automatic, than the last one that anybody has. `make` is also called
   * where the cache can't tell; `isNoted` is false where its answer will not be kept.
   */
  read<Other>(lookup: Lookup, make: (isNoted: boolean) => Promise<Made<Other>>): Promise<CacheResult<Other>>
  /** Counts a request for automatic keeping. True if it came before, lately; only then the cache is worth a question. */
  isRepeated(request: string): boolean
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

type DataCacheOptions = Jobs & {
  config: Config
  /** Connections to the primary. */
  db: Database
  /** Whether answers may come from standbys. */
  hasReplicas?: boolean
  log: Logger
}

/** `look`: one that was over when it was read. */
type KnownAnswer = CachedAnswer & { readonly look: number }
type PendingAnswer = { readonly look: number; readonly made: Promise<Made<unknown>> }

/** With memory alone, what others have written counts this much later; with a shared store at once. */
const othersLateMs = 20
/** An answer that is only kept needs no look of its own; a change of its tables since the last one makes it worthless. */
const longestLookMs = 1000

/** The most memory for automatic answers. */
const automaticBytes = 64 * 1024 ** 2
/** An automatic answer is not waited for longer than that; then, and for a while, there is none. */
const longestLookWaitMs = 250
const withoutLooksMs = 1000

/** The parts of the cache. */
type CacheParts = {
  readonly watch: LogWatch
  readonly shared: SharedStore | undefined
  readonly memory: KnownAnswers
  /** Of answers that are kept automatically. */
  readonly automatic: KnownAnswers
  readonly policy: AdmissionPolicy
  /** Until then the database is not asked for the sake of automatic answers, as it did not answer. */
  noLooksUntil: number
  /** Reads that are under way, by key. */
  readonly making: Map<string, PendingAnswer>
  readonly counts: { hits: number; misses: number; uncacheable: number; stale: number; refused: number; errors: number }
  /** Counts and logs a failure of a part, which costs no more than the cache. */
  failed(what: string): (error: unknown) => undefined
}

type KnownAnswers = ReturnType<typeof openResultCache<KnownAnswer>>

export function openDataCache({ config, db, hasReplicas = false, log, boss }: DataCacheOptions): DataCache {
  const reachBackSeconds = isShared(config) ? config.dataCache.ttlSeconds : 0
  const watch = openLogWatch({ db, reachBackSeconds, noteWal: hasReplicas })
  const shared = openSharedStore(config, log, () => `daybook{${watch.identity()}}:`)
  const { maxBytes, automatic: isAutomatic } = config.dataCache
  const bytes = Math.min(Math.floor(maxBytes / 4), automaticBytes)
  const memory = openResultCache<KnownAnswer>(isAutomatic ? maxBytes - bytes : maxBytes)
  const automatic = openResultCache<KnownAnswer>(bytes)
  const policy = openAdmissionPolicy()
  const counts = { hits: 0, misses: 0, uncacheable: 0, stale: 0, refused: 0, errors: 0 }
  const failed = (what: string) => (error: unknown) => {
    counts.errors += 1
    log.debug({ err: error }, what)
    return undefined
  }
  const making: CacheParts['making'] = new Map()
  const parts: CacheParts = { watch, shared, memory, automatic, policy, noLooksUntil: 0, making, counts, failed }
  return {
    read: (lookup, make) => read(parts, lookup, make),
    isRepeated: policy.isRepeated,
    written: watch.written,
    isShared: shared !== undefined,
    invalidate: (tx) => enqueueInvalidations({ boss }, tx),
    purge: async (table, upTo) => {
      if (shared === undefined) return
      if (watch.identity() === '') await watch.look(0)
      await shared.purge(table, upTo)
    },
    stats: () => ({
      ...counts,
      entries: memory.entries() + automatic.entries(),
      bytes: memory.bytes() + automatic.bytes(),
    }),
    close: async () => {
      shared?.close()
      memory.clear()
      automatic.clear()
    },
  }
}

async function read<Other>(
  parts: CacheParts,
  lookup: Lookup,
  make: (isNoted: boolean) => Promise<Made<Other>>,
): Promise<CacheResult<Other>> {
  const { counts, policy } = parts
  const { key, isAutomatic = false } = lookup
  const isKnown = mayBeKnown(parts, lookup)
  if (isAutomatic && !isKnown && !policy.isWorthTrying(key)) return refuse(parts, make)
  const look = await (isAutomatic ? promptLook(parts, isKnown) : askedLook(parts, isKnown))
  if (look === undefined) return uncached(await make(false))
  const known = lookup.reload ? undefined : ((await find(parts, lookup, look)) ?? (await besides(parts, lookup)))
  if (known === undefined) return makeNow(parts, lookup, look, make)
  if (isAutomatic) policy.used(key)
  counts.hits += 1
  return { state: 'HIT', answer: known }
}

async function refuse<Other>(
  { counts }: CacheParts,
  make: (isNoted: boolean) => Promise<Made<Other>>,
): Promise<CacheResult<Other>> {
  counts.refused += 1
  return uncached(await make(false))
}

function askedLook({ watch, shared, failed }: CacheParts, isKnown: boolean): Promise<Look | undefined> {
  const maxAgeMs = shared !== undefined ? 0 : isKnown ? othersLateMs : longestLookMs
  return watch.look(maxAgeMs).catch(failed('the log could not be asked'))
}

/** For a kept answer one that begins now, so that it knows all that has been acknowledged to anybody by now. */
async function promptLook(parts: CacheParts, isKnown: boolean): Promise<Look | undefined> {
  const { watch, failed } = parts
  if (performance.now() < parts.noLooksUntil) return undefined
  const late = Promise.withResolvers<undefined>()
  const timer = setTimeout(() => late.resolve(undefined), longestLookWaitMs)
  try {
    const asked = watch.look(isKnown ? 0 : longestLookMs).catch(failed('the log could not be asked'))
    const look = await Promise.race([asked, late.promise])
    if (look === undefined) parts.noLooksUntil = performance.now() + withoutLooksMs
    return look
  } finally {
    clearTimeout(timer)
  }
}

/** Whether there may be an answer here already, which only a new look can tell to be good. */
const mayBeKnown = (parts: CacheParts, lookup: Lookup) =>
  memoryFor(parts, lookup).has(lookup.key) || parts.making.has(lookup.key)

const memoryFor = ({ memory, automatic }: CacheParts, { isAutomatic = false }: Lookup): KnownAnswers =>
  isAutomatic ? automatic : memory

async function find(parts: CacheParts, lookup: Lookup, look: Look): Promise<KnownAnswer | undefined> {
  const shared = lookup.isAutomatic ? undefined : parts.shared
  const entry = inMemory(parts, lookup) ?? (shared && (await inStore(parts, shared, lookup, look)))
  if (entry === undefined || lookup.isStill === undefined) return entry
  return (await lookup.isStill(entry)) ? entry : undefined
}

function inMemory(parts: CacheParts, lookup: Lookup): KnownAnswer | undefined {
  const { watch, counts, policy } = parts
  const memory = memoryFor(parts, lookup)
  const entry = memory.get(lookup.key)
  if (entry === undefined) return undefined
  if (watch.isUnchanged(entry.tables, entry.look) && !isOver(entry, lookup))
    return isFit(entry, lookup) ? entry : undefined
  memory.delete(lookup.key)
  if (lookup.isAutomatic) policy.dropped(lookup.key)
  counts.stale += 1
  return undefined
}

async function inStore(
  parts: CacheParts,
  store: SharedStore,
  lookup: Lookup,
  look: Look,
): Promise<KnownAnswer | undefined> {
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

const isFit = (entry: Pick<KnownAnswer, 'madeAt' | 'window'>, { maxAgeMs, now }: Lookup) =>
  Date.now() - entry.madeAt <= maxAgeMs && includesTime(entry, now)

const includesTime = ({ window }: Pick<KnownAnswer, 'window'>, now: number) =>
  window === undefined || (window.from <= now && now < window.until)

/** Whether it will not be right again by passing of time. */
const isOver = ({ window }: Pick<KnownAnswer, 'window'>, { now }: Lookup) => window !== undefined && window.until <= now

/** The answer of a read that is under way, if nothing has changed since it began. Its failure is not shared. */
async function besides({ making, watch }: CacheParts, lookup: Lookup): Promise<Answer | undefined> {
  const other = making.get(lookup.key)
  if (other === undefined || !watch.isQuiet(other.look)) return undefined
  const made = await other.made.catch(() => undefined)
  if (made?.answer === undefined || !includesTime(made, lookup.now)) return undefined
  const since = sinceOf(watch, made, other.look)
  // A standby may have shown less than the look that came before.
  return since === other.look || (since !== undefined && watch.isQuiet(since)) ? made.answer : undefined
}

/** The newest look whose state, or a later one, is in the answer; undefined where that is not known. */
function sinceOf(watch: LogWatch, { replayed = [] }: Keepable, look: number): number | undefined {
  return replayed.reduce<number | undefined>((since, position) => {
    const reached = watch.lookReplayedBy(position)
    return since === undefined || reached === undefined ? undefined : Math.min(since, reached)
  }, look)
}

async function makeNow<Other>(
  parts: CacheParts,
  lookup: Lookup,
  look: Look,
  make: (isNoted: boolean) => Promise<Made<Other>>,
): Promise<CacheResult<Other>> {
  const { making, counts, policy, watch } = parts
  const { key, isAutomatic = false } = lookup
  const startedAt = performance.now()
  const mine: PendingAnswer = { look: look.number, made: make(true) }
  making.set(lookup.key, mine)
  try {
    const made = (await mine.made) as Made<Other>
    if (made.answer === undefined) {
      counts.uncacheable += 1
      if (isAutomatic) policy.unfit(key)
      return { state: 'BYPASS', other: made.other }
    }
    if (isAutomatic && !policy.admits(key, performance.now() - startedAt, watch.costMs())) {
      counts.refused += 1
      return { state: 'BYPASS', answer: made.answer }
    }
    counts.misses += 1
    keep(parts, lookup, look, made)
    return { state: 'MISS', answer: made.answer }
  } finally {
    if (making.get(lookup.key) === mine) making.delete(lookup.key)
  }
}

function keep(parts: CacheParts, lookup: Lookup, look: Look, made: Keepable): void {
  const { watch, shared, failed } = parts
  const { key, ttlMs } = lookup
  const { answer, tables, window } = made
  const since = sinceOf(watch, made, look.number)
  if (window !== undefined && window.until <= window.from) return
  if (since === undefined || !watch.isUnchanged(tables, since)) return
  const madeAt = Date.now()
  const kept = { ...answer, tables, window, madeAt, look: since, expiresAt: madeAt + ttlMs }
  const fits = memoryFor(parts, lookup).set(key, kept)
  if (!fits || shared === undefined || lookup.isAutomatic || made.replayed !== undefined) return
  const entry = { ...answer, tables, window, madeAt, ttlMs, snapshot: look.snapshot }
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
