/** A set of positions for whole logs: a bit for each, in blocks that are made when needed. */
export type Positions = {
  /** False where it is in the set already. */
  add(position: string): boolean
  /** Takes it out; false where it is not in the set. */
  take(position: string): boolean
}

const bitsPerBlock = 2n ** 16n

export function openPositions(): Positions {
  const blocks = new Map<bigint, Uint8Array>()
  const placeOf = (position: string) => {
    const number = BigInt(position)
    const block = number / bitsPerBlock
    const bit = Number(number % bitsPerBlock)
    return { block, byte: bit >> 3, mask: 1 << (bit & 7) }
  }
  return {
    add: (position) => {
      const { block, byte, mask } = placeOf(position)
      const bytes = blocks.get(block) ?? new Uint8Array(Number(bitsPerBlock / 8n))
      blocks.set(block, bytes)
      if ((bytes[byte]! & mask) !== 0) return false
      bytes[byte]! |= mask
      return true
    },
    take: (position) => {
      const { block, byte, mask } = placeOf(position)
      const bytes = blocks.get(block)
      if (bytes === undefined || (bytes[byte]! & mask) === 0) return false
      bytes[byte]! &= ~mask
      return true
    },
  }
}
