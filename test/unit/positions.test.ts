import { describe, expect, it } from 'vitest'
import { bytesFrom, bytesOfPositions, positionsIn } from '../../src/events/log.ts'

describe('positions as bytes', () => {
  it.each([
    ['small', 1n],
    ['over the border of 32 bits', 2n ** 32n - 3n],
    ['over the border of what a number holds exactly', 2n ** 53n - 3n],
    ['up to the largest', 2n ** 63n - 6n],
  ])('are what they were made of: %s', (_what, first) => {
    const positions = Array.from({ length: 6 }, (_, i) => `${first + BigInt(i)}`)
    const bytes = bytesOfPositions(positions)
    expect(positionsIn(bytes)).toEqual(positions)
    expect(bytesFrom(first, 6)).toEqual(bytes)
  })

  it('may have gaps', () => {
    expect(positionsIn(bytesOfPositions(['3', '70000000000', '9007199254740993']))).toEqual([
      '3',
      '70000000000',
      '9007199254740993',
    ])
  })
})
