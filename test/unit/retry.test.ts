import { describe, expect, it } from 'vitest'
import { openSemaphore, pauseAfter, retryTransient } from '../../src/adapters/retry.ts'

const backoff = { firstMs: 1, longestMs: 4 }

/** Work that throws what is listed, attempt by attempt, and then succeeds. */
function failing(...errors: unknown[]) {
  let attempts = 0
  return {
    attempts: () => attempts,
    work: async () => {
      attempts += 1
      if (attempts <= errors.length) throw errors[attempts - 1]
      return 'done'
    },
  }
}

describe('retryTransient', () => {
  it('repeats work until it succeeds, with growing pauses', async () => {
    const pauses: number[] = []
    const { work } = failing(new Error('a'), new TypeError('b'), 'c', new Error('d'))
    const onRetry = (_error: unknown, pauseMs: number) => pauses.push(pauseMs)
    expect(await retryTransient(work, { backoff, onRetry })).toBe('done')
    expect(pauses).toEqual([1, 2, 4, 4])
  })

  it('rejects with the error itself where that may not be retried', async () => {
    const error = new TypeError('final')
    const { work, attempts } = failing(new Error('passing'), error)
    await expect(retryTransient(work, { backoff, mayRetry: (e) => e !== error })).rejects.toBe(error)
    expect(attempts()).toBe(2)
  })

  it('rejects with the last error when the attempts are used up', async () => {
    const seen: unknown[] = []
    const { work, attempts } = failing('a', 'b', 'c')
    const options = { backoff, attempts: 2, onRetry: (error: unknown) => seen.push(error) }
    await expect(retryTransient(work, options)).rejects.toBe('b')
    expect({ attempts: attempts(), seen }).toEqual({ attempts: 2, seen: ['a'] })
  })

  it('ends a pause when it is aborted', async () => {
    const controller = new AbortController()
    const { work, attempts } = failing('a')
    const onRetry = () => controller.abort(new Error('closing'))
    const waiting = retryTransient(work, {
      backoff: { firstMs: 60_000, longestMs: 60_000 },
      onRetry,
      signal: controller.signal,
    })
    await expect(waiting).rejects.toThrow('closing')
    expect(attempts()).toBe(1)
  })

  it('has pauses up to the longest, however many failures there were', () => {
    expect([1, 2, 3, 2000].map((failures) => pauseAfter(failures, { firstMs: 100, longestMs: 300 }))).toEqual([
      100, 200, 300, 300,
    ])
  })
})

describe('a semaphore', () => {
  it('lets so much work be under way and no more, in order, whether it fails or not', async () => {
    const semaphore = openSemaphore(2)
    const begun: number[] = []
    let [running, most] = [0, 0]
    const work = (n: number) => async () => {
      begun.push(n)
      most = Math.max(most, ++running)
      await new Promise(setImmediate)
      running -= 1
      if (n === 1) throw new Error('failed')
      return n
    }
    const results = await Promise.allSettled([0, 1, 2, 3, 4].map((n) => semaphore(work(n))))
    expect(begun).toEqual([0, 1, 2, 3, 4])
    expect(most).toBe(2)
    expect(results.map(({ status }) => status)).toEqual([
      'fulfilled',
      'rejected',
      'fulfilled',
      'fulfilled',
      'fulfilled',
    ])
  })
})
