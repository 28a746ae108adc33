import { type BoundedMemory, openBoundedMemory } from '../adapters/bounded-memory.ts'

/** An answer that was read from the database. */
export type Answer = {
  readonly body: string | Buffer
  /** Its entity tag. */
  readonly tag: string
  /** Of a single item: the version of the row it is made from. */
  readonly version: string | undefined
}

/** `tables`: what it is made from. Times are in milliseconds since 1970. */
export type KeptAnswer = Answer & {
  readonly tables: readonly string[]
  readonly madeAt: number
  readonly expiresAt: number
}

/**
 * Answers in memory, in two generations: a new one stays the text that it is, in little room, until somebody asks for it
 * again. Most are never asked for again, and a copy for each outside of the heap cost a list more than all else that this
 * process does for it. The older generation takes up to `maxBytes` and is out of the collector's way.
 */
export type KeptAnswers<Kept extends KeptAnswer> = Pick<BoundedMemory<Kept>, 'get' | 'has' | 'delete' | 'clear'> & {
  /** False for what is too large. */
  set(key: string, kept: Kept): boolean
  entries(): number
  bytes(): number
}

export function openKeptAnswers<Kept extends KeptAnswer>(maxBytes: number): KeptAnswers<Kept> {
  const young = memoryOf<Kept>(Math.min(maxBytes, youngBytes), largestYoungBytes)
  const old = memoryOf<Kept>(maxBytes, largestBytes)
  const all = [young, old]
  const age = (key: string, kept: Kept): Kept => {
    const aged = { ...kept, body: Buffer.from(kept.body) }
    old.set(key, aged, left(kept))
    return aged
  }
  const promoted = (key: string): Kept | undefined => {
    const kept = young.get(key)
    if (kept === undefined) return undefined
    young.delete(key)
    return age(key, kept)
  }
  return {
    get: (key) => old.get(key) ?? promoted(key),
    has: (key) => all.some((memory) => memory.has(key)),
    set: (key, kept) => {
      if (left(kept) <= 0) return false
      old.delete(key)
      if (young.set(key, kept, left(kept))) return true
      age(key, kept)
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

/** What survives a collection of V8's young generation, which is made small on purpose (start-up.ts), is copied by it. */
const youngBytes = 2 * 1024 ** 2
const largestYoungBytes = 256 * 1024
const largestBytes = 8 * 1024 ** 2

const left = ({ expiresAt }: KeptAnswer): number => expiresAt - Date.now()

const memoryOf = <Kept extends KeptAnswer>(maxBytes: number, largest: number): BoundedMemory<Kept> =>
  openBoundedMemory<Kept>({
    maxBytes,
    maxEntryBytes: Math.min(maxBytes, largest),
    sizeOf: ({ body, tables }, key) => body.length + 2 * key.length + 32 * tables.length + overheadBytes,
  })

/** What an entry takes beside its texts, by measure of a heap with many of them. */
const overheadBytes = 500
