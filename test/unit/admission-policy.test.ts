import { describe, expect, it } from 'vitest'
import { openAdmissionPolicy, openSketch } from '../../src/cache/admission-policy.ts'

const look = 1

describe('a sketch', () => {
  it('counts each key, and hardly ever one for another', () => {
    const sketch = openSketch()
    expect([sketch.add('a'), sketch.add('a'), sketch.add('b'), sketch.add('a')]).toEqual([1, 2, 1, 3])
    const taken = Array.from({ length: 50_000 }, (_, i) => sketch.add(`/items/book?page=${i}`)).filter((n) => n > 1)
    expect(taken.length).toBeLessThan(50_000 * 0.03)
  })

  it('forgets by halves', () => {
    const sketch = openSketch(10)
    for (let i = 0; i < 10; i += 1) sketch.add('a')
    expect(sketch.add('a')).toBe(6)
    for (let i = 0; i < 40; i += 1) sketch.add(`${i}`)
    expect(sketch.add('a')).toBe(1)
  })
})

describe('a policy admits', () => {
  it('answers that cost more than two looks, from the second request on', () => {
    const policy = openAdmissionPolicy()
    expect([policy.isRepeated('a'), policy.isRepeated('a')]).toEqual([false, true])
    expect([policy.isWorthTrying('a'), policy.admits('a', 2.2, look)]).toEqual([true, true])
    expect(policy.admits('b', 2, look)).toBe(false)
  })

  it('answers that were cheap only after a pause, and by their cost then', () => {
    const policy = openAdmissionPolicy()
    policy.admits('a', 0.5, look)
    const tries = Array.from({ length: 16 }, () => policy.isWorthTrying('a'))
    expect(tries).not.toContain(true)
    expect([policy.isWorthTrying('a'), policy.admits('a', 20, look)]).toEqual([true, true])
  })

  it('no single slow read of a cheap request', () => {
    const policy = openAdmissionPolicy()
    policy.admits('a', 0.5, look)
    expect(policy.admits('a', 3, look)).toBe(false)
  })

  it('answers that change before their next use no longer, unless they are expensive; and tries again', () => {
    const policy = openAdmissionPolicy()
    const keptFor = (key: string, costMs: number) => {
      for (let times = 0; times < 12; times += 1) {
        if (!policy.admits(key, costMs, look)) return times
        policy.dropped(key)
      }
      return 12
    }
    expect(keptFor('cheap', 3)).toBeLessThan(4)
    expect(keptFor('dear', 300)).toBe(12)
    let rounds = 0
    for (; !policy.admits('cheap', 3, look); rounds += 1) expect(rounds).toBeLessThan(10)
  })

  it('answers that are used so rarely between their changes that little is gained, only now and then', () => {
    const policy = openAdmissionPolicy()
    let kept = 0
    for (let reads = 0; reads < 170; reads += 1) {
      if (!policy.isWorthTrying('a') || !policy.admits('a', 4, look)) continue
      kept += 1
      if (kept % 2 === 0) policy.used('a')
      policy.dropped('a')
    }
    expect(kept).toBeGreaterThanOrEqual(10)
    expect(kept).toBeLessThan(25)
  })

  it('answers that are used between their changes, however often they change', () => {
    const policy = openAdmissionPolicy()
    for (let times = 0; times < 100; times += 1) {
      expect(policy.admits('a', 3, look)).toBe(true)
      for (let uses = 0; uses < 2; uses += 1) policy.used('a')
      policy.dropped('a')
    }
  })

  it('answers that could not be kept not soon again', () => {
    const policy = openAdmissionPolicy()
    policy.unfit('a')
    const tries = Array.from({ length: 65 }, () => policy.isWorthTrying('a'))
    expect(tries.filter(Boolean)).toHaveLength(1)
  })
})
