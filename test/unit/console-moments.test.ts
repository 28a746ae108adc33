import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isCursor, isMomentOf, momentOf, placeOf, timeAt } from '../../console/src/pages/data/moments.ts'

describe('the scale of the past', () => {
  const now = Date.parse('2026-03-14T12:00:00Z')

  it('goes from the oldest moment to now, back and forth, ever finer', () => {
    const spans = fc.integer({ min: 60_000, max: 10 * 365 * 86_400_000 })
    fc.assert(
      fc.property(spans, fc.double({ min: 0, max: 1, noNaN: true }), (span, place) => {
        const reach = { oldest: now - span, now }
        expect([timeAt(0, reach), timeAt(1, reach)]).toEqual([reach.oldest, now])
        expect(timeAt(placeOf(timeAt(place, reach), reach), reach)).toBe(timeAt(place, reach))
        expect(timeAt(place, reach)).toBeLessThanOrEqual(timeAt(Math.min(1, place + 0.01), reach))
      }),
    )
    const year = { oldest: now - 365 * 86_400_000, now }
    expect(now - timeAt(0.95, year)).toBeLessThan(5 * 60_000)
    expect(now - timeAt(0.5, year)).toBeGreaterThan(6 * 3_600_000)
  })

  it('keeps what lies beyond it at its ends', () => {
    const reach = { oldest: now - 86_400_000, now }
    expect([placeOf(now + 5000, reach), placeOf(0, reach)]).toEqual([1, 0])
  })
})

describe('a moment', () => {
  it('is a time or a cursor, whatever else a browser takes for a time', () => {
    expect(isCursor('2026-03-14T09:26:53.589793Z')).toBe(false)
    for (const other of ['cy84', 'a 84', '2026-99-99', 'eyJ4IjoxfQ'])
      expect([other, isCursor(other)]).toEqual([other, true])
  })
})

describe('the moment of an event', () => {
  it('holds all of the millisecond that is shown of it', () => {
    expect(momentOf('2026-03-14T09:26:53.589Z')).toBe('2026-03-14T09:26:53.589999Z')
    expect(isMomentOf('2026-03-14T09:26:53.589793Z', '2026-03-14T09:26:53.589Z')).toBe(true)
    expect(isMomentOf('2026-03-14T09:26:53.590000Z', '2026-03-14T09:26:53.589Z')).toBe(false)
    expect(isMomentOf(undefined, '2026-03-14T09:26:53.589Z')).toBe(false)
  })
})
