import { describe, expect, it } from 'vitest'
import { openTimeline, openWalPlaces } from '../../src/cache/log-watch.ts'

const at = (xid: bigint) => ({ xmin: xid, xmax: xid, running: [] })

describe('a new timeline', () => {
  it('knows of no table whether it has changed', () => {
    const timeline = openTimeline()
    expect([timeline.isUnchanged(['book'], 100), timeline.hasSeenAll(['book'], at(100n))]).toEqual([false, false])
  })
})

describe('after a restart', () => {
  it('every table counts as changed up to its snapshot, and not since', () => {
    const timeline = openTimeline()
    const look = timeline.restart(at(10n))
    expect([timeline.isUnchanged(['book'], look), timeline.isUnchanged(['book'], look - 1)]).toEqual([true, false])
    expect([timeline.hasSeenAll(['book'], at(10n)), timeline.hasSeenAll(['book'], at(9n))]).toEqual([true, false])
  })

  it('a change is of its tables only, from the look that found it on', () => {
    const timeline = openTimeline()
    const before = timeline.restart(at(10n))
    const look = timeline.advance([['book', 12n]])
    expect([timeline.isUnchanged(['book'], before), timeline.isUnchanged(['book', 'author'], look)]).toEqual([
      false,
      true,
    ])
    expect(timeline.isUnchanged(['author'], before)).toBe(true)
    expect([timeline.isQuiet(before), timeline.isQuiet(look)]).toEqual([false, true])
  })

  it('a look that finds nothing leaves everything as it was', () => {
    const timeline = openTimeline()
    const before = timeline.restart(at(10n))
    expect(timeline.advance([])).toBe(before + 1)
    expect([timeline.isUnchanged(['book'], before), timeline.isQuiet(before)]).toEqual([true, true])
  })

  it('a slow transaction does not hide a newer one of the same table', () => {
    const timeline = openTimeline()
    timeline.restart(at(10n))
    timeline.advance([['book', 20n]])
    timeline.advance([['book', 15n]])
    expect([timeline.hasSeenAll(['book'], at(16n)), timeline.hasSeenAll(['book'], at(21n))]).toEqual([false, true])
  })

  it('an assumed change counts for the tables without a change of their own', () => {
    const timeline = openTimeline()
    timeline.restart(at(30n))
    const look = timeline.advance([['book', 25n]])
    timeline.assume({ number: look, upTo: at(20n) })
    expect([timeline.hasSeenAll(['author'], at(20n)), timeline.hasSeenAll(['book'], at(20n))]).toEqual([true, false])
  })
})

it('a look is found by what a standby has replayed, none for one that lags too far', () => {
  const places = openWalPlaces()
  places.note(5, 100n)
  places.note(6, 200n) // Too soon after the last.
  expect([99n, 100n, 500n].map(places.newestUpTo)).toEqual([undefined, 5, 5])
  places.clear()
  expect(places.newestUpTo(500n)).toBeUndefined()
})
