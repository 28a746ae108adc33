import { describe, expect, it } from 'vitest'
import {
  decideClaim,
  decideRecord,
  decideSleep,
  isIsolated,
  openCircuitBreaker,
} from '../../src/workers/tasks/claims.ts'

const first = (type: string) => ({ type, retry_count: 0 })

describe('the circuit breaker of a type', () => {
  it('opens when a first attempt breaks and closes after five that did not', () => {
    const breaker = openCircuitBreaker()
    expect(breaker.note(first('a'), false)).toBeUndefined()
    expect(breaker.openTypes()).toEqual([])
    expect(breaker.note(first('a'), true)).toBe('opened')
    for (let n = 0; n < 4; n += 1) expect(breaker.note(first('a'), false)).toBeUndefined()
    expect(breaker.note(first('a'), true)).toBeUndefined()
    for (let n = 0; n < 4; n += 1) expect(breaker.note(first('a'), false)).toBeUndefined()
    expect(breaker.openTypes()).toEqual(['a'])
    expect(breaker.note(first('a'), false)).toBe('closed')
    expect(breaker.openTypes()).toEqual([])
  })

  it('knows each type for itself, and blames none for the repetitions of one task', () => {
    const breaker = openCircuitBreaker()
    expect(breaker.note({ type: 'a', retry_count: 1 }, true)).toBeUndefined()
    expect(breaker.note(first('b'), true)).toBe('opened')
    for (let n = 0; n < 9; n += 1) breaker.note({ type: 'b', retry_count: 1 }, false)
    expect(breaker.openTypes()).toEqual(['b'])
    expect(isIsolated(first('b'), breaker.openTypes())).toBe(true)
    expect(isIsolated(first('a'), breaker.openTypes())).toBe(false)
    expect(isIsolated({ type: 'a', retry_count: 1 }, breaker.openTypes())).toBe(true)
  })
})

describe('the worker', () => {
  const wanted = { types: ['a', 'b'], isolatedTypes: ['b'], isolatedAtMost: 1 }

  it('claims as many tasks as it has free slots', () => {
    expect(decideClaim({ ...wanted, freeSlots: 3, mayRun: true })).toEqual({ claim: wanted, limit: 3 })
  })

  it('sleeps until a slot is free, while another worker holds the lock, and when it has no handlers', () => {
    expect(decideClaim({ ...wanted, freeSlots: 0, mayRun: true })).toEqual({ sleepMs: undefined })
    expect(decideClaim({ ...wanted, freeSlots: 3, mayRun: false })).toEqual({ sleepMs: 5000 })
    expect(decideClaim({ ...wanted, types: [], freeSlots: 3, mayRun: true })).toEqual({ sleepMs: 60_000 })
  })

  it('sleeps until the next task is due, a minute at most', () => {
    expect([0, 1500, 90_000, undefined].map(decideSleep)).toEqual([0, 1500, 60_000, 60_000])
  })

  it('records nothing of a task that it has lost, and gives back what ended because it stops', () => {
    const broken = { state: 'broken', message: 'killed' } as const
    const done = { state: 'completed', result: null } as const
    expect(decideRecord(done, { isLost: true, isStopping: false })).toBeUndefined()
    expect(decideRecord(broken, { isLost: false, isStopping: false })).toEqual(broken)
    expect(decideRecord(broken, { isLost: false, isStopping: true })).toEqual({ state: 'given back' })
    expect(decideRecord(done, { isLost: false, isStopping: true })).toEqual(done)
  })
})
