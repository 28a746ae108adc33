import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { inRounds } from '../../src/db/rounds.ts'

describe('questions asked in rounds', () => {
  it('are asked one at a time; who comes meanwhile shares the next, each key once', async () => {
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
