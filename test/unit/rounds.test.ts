import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, it, vi } from 'vitest'
import { inRounds, onceASecond } from '../../src/db/rounds.ts'

describe('questions asked in rounds', () => {
  it('are asked one at a time; questions that come meanwhile share the next, each key once', async () => {
    const asked: (readonly string[])[] = []
    const waiting: PromiseWithResolvers<string>[] = []
    const ask = inRounds((keys: readonly string[]) => {
      asked.push(keys)
      waiting.push(Promise.withResolvers())
      return waiting.at(-1)!.promise
    })
    const first = ask('a')
    const later = [ask('b'), ask('c', 'b'), ask('d')]
    expect(asked).toEqual([['a']])
    waiting[0]!.resolve('one')
    expect(await first).toBe('one')
    await turn()
    expect(asked).toEqual([['a'], ['b', 'c', 'd']])
    waiting[1]!.resolve('two')
    expect(await Promise.all(later)).toEqual(['two', 'two', 'two'])
  })

  it('that fail, fail for those who wait, and the next are asked all the same', async () => {
    let times = 0
    const ask = inRounds(async (keys: readonly string[]) => {
      times += 1
      if (times === 1) throw new Error('no answer')
      return keys.length
    })
    const [first, second] = await Promise.allSettled([ask('a'), ask('b', 'c')])
    expect(first).toMatchObject({ status: 'rejected', reason: { message: 'no answer' } })
    expect(second).toEqual({ status: 'fulfilled', value: 2 })
  })
})

describe('events that are read once a second', () => {
  it('is read once, however many ask, and again after a second, but not while it is read', async () => {
    vi.useFakeTimers({ toFake: ['performance'] })
    try {
      const reads: PromiseWithResolvers<string>[] = []
      const ask = onceASecond(() => {
        reads.push(Promise.withResolvers())
        return reads.at(-1)!.promise
      })
      const first = [ask(), ask()]
      vi.advanceTimersByTime(1001)
      first.push(ask())
      expect(reads).toHaveLength(1)
      reads[0]!.resolve('one')
      expect(await Promise.all(first)).toEqual(['one', 'one', 'one'])
      const second = ask()
      expect(reads).toHaveLength(2)
      reads[1]!.resolve('two')
      expect(await second).toBe('two')
      expect(await ask()).toBe('two')
      expect(reads).toHaveLength(2)
    } finally {
      vi.useRealTimers()
    }
  })
})
