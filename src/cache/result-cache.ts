import { type BoundedMemory, openBoundedMemory } from '../adapters/bounded-memory.ts'
import type { Config } from '../config/config.ts'

/** An answer that was read from the database. */
export type Answer = {
  readonly body: string | Buffer
  /** Its entity tag. */
  readonly tag: string
  /** Of a single item: the version of the row it is made from. */
  readonly version: string | undefined
}

/** The times at which an answer is right, by the database's clock, as long as no row changes; `until` is not among them. */
export type TimeWindow = { readonly from: number; readonly until: number }

/** `tables`: what it is made from; `window`: of an answer that depends on the time. Times are in milliseconds since 1970. */
export type CachedAnswer = Answer & {
  readonly tables: readonly string[]
  readonly window?: TimeWindow | undefined
  readonly madeAt: number
  readonly expiresAt: number
}

/**
 * Answers in memory, in two generations: a new one stays the text that it is, in little room, until it is asked for
 * again. Most are never asked for again, and a copy for each outside of the heap cost a list more than all else that this
 * process does for it. The older generation takes up to `maxBytes` and is out of the collector's way.
 */
type AnswerMemory<Cached extends CachedAnswer> = Pick<BoundedMemory<Cached>, 'get' | 'has' | 'delete' | 'clear'> & {
  /** False for what is too large. */
  set(key: string, cached: Cached): boolean
  entries(): number
  bytes(): number
}

export function openResultCache<Cached extends CachedAnswer>(maxBytes: number): AnswerMemory<Cached> {
  const young = memoryOf<Cached>(Math.min(maxBytes, youngBytes), largestYoungBytes)
  const old = memoryOf<Cached>(maxBytes, largestBytes)
  const all = [young, old]
  const age = (key: string, cached: Cached): Cached => {
    const aged = { ...cached, body: Buffer.from(cached.body) }
    old.set(key, aged, left(cached))
    return aged
  }
  const promoted = (key: string): Cached | undefined => {
    const cached = young.get(key)
    if (cached === undefined) return undefined
    young.delete(key)
    return age(key, cached)
  }
  return {
    get: (key) => old.get(key) ?? promoted(key),
    has: (key) => all.some((memory) => memory.has(key)),
    set: (key, cached) => {
      if (left(cached) <= 0) return false
      old.delete(key)
      if (young.set(key, cached, left(cached))) return true
      age(key, cached)
      return old.has(key)
    },
    delete: (key) => {
      for (const memory of all) memory.delete(key)
    },
    clear: () => {
      for (const memory of all) memory.clear()
    },
    entries: () => young.entries() + old.entries(),
    bytes: () => young.bytes() + old.bytes(),
  }
}

/** Memory that survives a collection of V8's young generation, which is made small on purpose (start-up.ts), is copied by it. */
const youngBytes = 2 * 1024 ** 2
const largestYoungBytes = 256 * 1024
const largestBytes = 8 * 1024 ** 2

const left = ({ expiresAt }: CachedAnswer): number => expiresAt - Date.now()

const memoryOf = <Cached extends CachedAnswer>(maxBytes: number, largest: number): BoundedMemory<Cached> =>
  openBoundedMemory<Cached>({
    maxBytes,
    maxEntryBytes: Math.min(maxBytes, largest),
    sizeOf: ({ body, tables }, key) => body.length + 2 * key.length + 32 * tables.length + overheadBytes,
  })

/** The size of an entry beside its texts, by measure of a heap with many of them. */
const overheadBytes = 500

/** Whether processes share the answers of reads, which are then invalidated by jobs. */
export const isShared = ({ dataCache }: Config): boolean => dataCache.enabled && dataCache.adapter !== 'memory'
