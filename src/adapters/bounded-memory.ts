import { LRUCache } from 'lru-cache'

/** Values in memory that may take so many bytes; the least recently used one goes first. */
export type BoundedMemory<Value extends object> = {
  get(key: string): Value | undefined
  /** As `get`, but it doesn't count as being asked for. */
  has(key: string): boolean
  /** False for a value that is too large to be kept. */
  set(key: string, value: Value, ttlMs: number): boolean
  delete(key: string): void
  clear(): void
  entries(): number
  bytes(): number
}

type BoundedMemoryOptions<Value> = {
  maxBytes: number
  /** Of one value with its key. */
  maxEntryBytes: number
  sizeOf: (value: Value, key: string) => number
}

export function openBoundedMemory<Value extends object>(options: BoundedMemoryOptions<Value>): BoundedMemory<Value> {
  const { maxBytes, maxEntryBytes, sizeOf } = options
  const cache = new LRUCache<string, Value>({
    maxSize: maxBytes,
    maxEntrySize: maxEntryBytes,
    sizeCalculation: (value, key) => Math.max(1, sizeOf(value, key)),
  })
  return {
    get: (key) => cache.get(key),
    has: (key) => cache.has(key),
    set: (key, value, ttlMs) => {
      cache.set(key, value, { ttl: ttlMs })
      return cache.has(key)
    },
    delete: (key) => void cache.delete(key),
    clear: () => cache.clear(),
    entries: () => cache.size,
    bytes: () => cache.calculatedSize,
  }
}
