/**
 * Which changes have come already. A resumption tells again what transactions wrote that began after the oldest one
 * that was still open at the cursor, and there are as many of those as that one lasted. So what is remembered is
 * bounded, and it is known which positions can no longer be told apart.
 */
export type Seen = {
  has(position: string): boolean
  add(position: string): void
  /** It may be one of those that were forgotten. */
  isDoubtful(position: string): boolean
}

export function openSeen(most: number): Seen {
  const positions = new Set<string>()
  let highestForgotten = -1n
  return {
    has: (position) => positions.has(position),
    add: (position) => {
      positions.add(position)
      if (positions.size <= most) return
      const [oldest] = positions as Iterable<string> as [string]
      positions.delete(oldest)
      if (BigInt(oldest) > highestForgotten) highestForgotten = BigInt(oldest)
    },
    isDoubtful: (position) => BigInt(position) <= highestForgotten,
  }
}
