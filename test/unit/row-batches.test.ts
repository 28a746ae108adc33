import fc from 'fast-check'
import { expect, it } from 'vitest'
import { takeBatch } from '../../src/events/row-batches.ts'

const waiting = fc.array(fc.option(fc.constantFrom('a', 'b', 'c', 'd'), { nil: undefined }), { maxLength: 80 })

it('takes the first that wait, of each key one, and leaves the others in their order', () => {
  fc.assert(
    fc.property(waiting, (keys) => {
      const members = keys.map((key, nth) => ({ row: { key }, nth }))
      const [taken, left] = takeBatch(members)
      const named = taken.flatMap(({ row }) => row.key ?? [])
      expect(new Set(named).size).toBe(named.length)
      expect(taken.length).toBeLessThanOrEqual(32)
      for (const part of [taken, left])
        expect(part.map(({ nth }) => nth)).toEqual(part.map(({ nth }) => nth).toSorted((a, b) => a - b))
      expect([...taken, ...left].map(({ nth }) => nth).toSorted((a, b) => a - b)).toEqual(members.map(({ nth }) => nth))
      // The rest have a key that was taken, or found no room.
      if (taken.length < 32) for (const { row } of left) expect(named).toContain(row.key)
    }),
  )
})
