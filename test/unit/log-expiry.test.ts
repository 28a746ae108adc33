import { describe, expect, it } from 'vitest'
import { decideExpiry, type ExpiredPartition } from '../../src/events/retention.ts'

const month = (name: string, bytes: number, more: Partial<ExpiredPartition> = {}): ExpiredPartition => ({
  name,
  bytes,
  isWhole: true,
  isBeyond: false,
  ...more,
})
const part = (bytes: number) => month('now', bytes, { isWhole: false })

describe('the expiry of the log', () => {
  it('drops whole months in their order, and deletes from the one that has expired in part', () => {
    const { drops, restStops } = decideExpiry([month('a', 1), month('b', 1), part(1)], 10)
    expect(drops).toEqual([
      { name: 'a', stops: false },
      { name: 'b', stops: false },
    ])
    expect(restStops).toBe(false)
  })

  it('stops consumers of months beyond the days that are kept for them', () => {
    const { drops } = decideExpiry([month('a', 1, { isBeyond: true }), month('b', 1)], 10)
    expect(drops.map(({ stops }) => stops)).toEqual([true, false])
  })

  it('stops them where a month comes with all that follows to more than is kept, from the oldest on', () => {
    const { drops, restStops } = decideExpiry([month('a', 4), month('b', 4), part(5)], 9)
    expect(drops.map(({ stops }) => stops)).toEqual([true, false])
    expect(restStops).toBe(false)
    expect(decideExpiry([part(10)], 9)).toEqual({ drops: [], restStops: true })
  })

  it('keeps nothing for consumers where nothing is to be kept', () => {
    expect(decideExpiry([month('a', 1), part(1)], 0)).toEqual({ drops: [{ name: 'a', stops: true }], restStops: true })
    expect(decideExpiry([], 0)).toEqual({ drops: [], restStops: false })
  })
})
