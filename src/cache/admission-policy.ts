import { openBoundedMemory } from '../adapters/bounded-memory.ts'

/**
 * Decides which answers to keep without being told to: those that are requested again and cost more than keeping them, which
 * takes a look at the log for each hit and a new answer after each change. Pure: it knows no clock and no answer.
 *
 * Requests are counted in a sketch that forgets by halves (as TinyLFU does), so that those that never come again take no
 * memory. Of those that do come again it remembers how much a kept answer was used: an answer that changes before it is
 * used is not kept, until it is tried again later.
 */
export type AdmissionPolicy = {
  /** Counts a request. Whether it was seen before, lately. */
  isRepeated(request: string): boolean
  /** Whether to find out, by this read of a repeated request, what its answer costs. */
  isWorthTrying(key: string): boolean
  /** Whether the answer of this read is to be kept; `lookMs` is what a hit will cost at least. */
  admits(key: string, costMs: number, lookMs: number): boolean
  /** The answer could not have been kept. */
  unfit(key: string): void
  /** A kept answer was used. */
  used(key: string): void
  /** A kept answer was dropped because of a change. */
  dropped(key: string): void
}

/** The history of a repeated request. */
type AnswerStanding = {
  costMs: number
  /** How often a kept answer will be used before a change drops it, as a moving mean. */
  uses: number
  /** Whether a kept answer has told, since the last refusal; else `uses` is a presumption. */
  isMeasured: boolean
  /** Since it was kept. */
  usesNow: number
  /** How many reads to let pass before it is tried again. */
  pause: number
}

/** The cost of recording a read's tables, keeping its answer and dropping it. */
const keepMs = 0.1
const pauseOfCheap = 16
const pauseOfUnfit = 64
const mostBytes = 1024 ** 2

export function openAdmissionPolicy(): AdmissionPolicy {
  const sketch = openSketch()
  const standings = openBoundedMemory<AnswerStanding>({
    maxBytes: mostBytes,
    maxEntryBytes: mostBytes / 16,
    sizeOf: (_, key) => 2 * key.length + 100,
  })
  const pauseFor = (key: string, pause: number, standing: AnswerStanding = newStanding()) => {
    standing.pause = pause
    standings.set(key, standing, longestMs)
  }
  return {
    isRepeated: (request) => sketch.add(request) > 1,
    isWorthTrying: (key) => {
      const standing = standings.get(key)
      if (standing === undefined || standing.pause === 0) return true
      standing.pause -= 1
      return false
    },
    admits: (key, costMs, lookMs) => {
      const standing = standings.get(key) ?? newStanding()
      standing.costMs = leastLately(standing.costMs, costMs)
      const gainMs = standing.uses * (standing.costMs - lookMs)
      if (gainMs > (standing.isMeasured ? clearly : 1) * (lookMs + keepMs)) {
        standing.usesNow = 0
        standings.set(key, standing, longestMs)
        return true
      }
      standing.uses += (1 - standing.uses) / 4
      standing.isMeasured = false
      pauseFor(key, pauseOfCheap, standing)
      return false
    },
    unfit: (key) => pauseFor(key, pauseOfUnfit, standings.get(key)),
    used: (key) => {
      const standing = standings.get(key)
      if (standing !== undefined) standing.usesNow += 1
    },
    dropped: (key) => {
      const standing = standings.get(key)
      if (standing === undefined) return
      standing.uses += (Math.min(standing.usesNow, mostUses) - standing.uses) / 4
      standing.usesNow = 0
      standing.isMeasured = true
    },
  }
}

/** Among others a read takes longer than its own time, and never less: what is measured counts at once where it is less. */
function leastLately(leastMs: number, costMs: number): number {
  return leastMs < costMs ? leastMs + (costMs - leastMs) / 8 : costMs
}

/** The gain of measured uses must be so many times the cost of keeping: a process under load measures its waits with both. */
const clearly = 2

/** A request that was repeated once will be repeated once more. */
const newStanding = (): AnswerStanding => ({
  costMs: Number.POSITIVE_INFINITY,
  uses: 1,
  isMeasured: false,
  usesNow: 0,
  pause: 0,
})
const mostUses = 100
const longestMs = 3_600_000

/** Counts keys approximately, never too low, in 128 kB; all counts are halved after so many additions. */
export function openSketch(halvedAfter = 16_384) {
  const counts = new Uint8Array(rows * width)
  let added = 0
  const halve = () => {
    added = 0
    for (let place = 0; place < counts.length; place += 1) counts[place]! >>= 1
  }
  return {
    /** Adds one; returns the count with it. */
    add: (key: string): number => {
      if (added >= halvedAfter) halve()
      added += 1
      const hash = hashOf(key)
      const step = Math.imul(hash, 0x9e3779b1) >>> 0
      let least = most
      for (let row = 0; row < rows; row += 1) {
        const place = row * width + (((hash + row * step) >>> 7) & (width - 1))
        const count = Math.min(most, counts[place]! + 1)
        counts[place] = count
        if (count < least) least = count
      }
      return least
    },
  }
}

const rows = 4
const width = 32_768
const most = 255

/** FNV-1a, with its bits mixed at the end. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i += 1) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 15), 0x85ebca6b)
  return (hash ^ (hash >>> 13)) >>> 0
}
