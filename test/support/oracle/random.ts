/** A repeatable source of choices: the same seed makes the same world, the same queries, the same failure. */
export type Random = {
  /** A whole number from 0 to below `n`. */
  below(n: number): number
  chance(probability: number): boolean
  pick<T>(from: readonly T[]): T
  /** A random subset, in the order given. */
  some<T>(from: readonly T[], probability: number): T[]
}

export function randomFrom(seed: number): Random {
  let state = seed >>> 0
  // mulberry32
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
  const below = (n: number) => Math.floor(next() * n)
  return {
    below,
    chance: (probability) => next() < probability,
    pick: (from) => from[below(from.length)]!,
    some: (from, probability) => from.filter(() => next() < probability),
  }
}
