import { expect, it } from 'vitest'
import { type CachedAnswer, openResultCache } from '../../src/cache/result-cache.ts'

const megabyte = 1024 ** 2

const answer = (body: string, more: Partial<CachedAnswer> = {}): CachedAnswer => {
  const now = Date.now()
  return { body, tag: '"t"', version: undefined, tables: ['book'], madeAt: now, expiresAt: now + 60_000, ...more }
}

it('an answer is there from the first time on, and the same the second time', () => {
  const kept = openResultCache(10 * megabyte)
  expect([kept.has('a'), kept.set('a', answer('Grüße 🙂')), kept.has('a')]).toEqual([false, true, true])
  const [first, second] = [kept.get('a')!, kept.get('a')!]
  expect([String(first.body), String(second.body), kept.entries()]).toEqual(['Grüße 🙂', 'Grüße 🙂', 1])
  expect({ ...second, body: '' }).toEqual({ ...first, body: '' })
})

it('answers that were requested again outlive any number of answers that were not', () => {
  const kept = openResultCache(10 * megabyte)
  kept.set('wanted', answer('w'))
  kept.get('wanted')
  for (let n = 0; n < 1000; n += 1) kept.set(`other ${n}`, answer('x'.repeat(10_000)))
  expect([kept.has('wanted'), kept.has('other 0'), kept.has('other 999')]).toEqual([true, false, true])
  expect(kept.bytes()).toBeLessThan(3 * megabyte)
})

it('one that is too large for the newcomers is kept at once, up to what there is room for', () => {
  const kept = openResultCache(megabyte)
  expect(kept.set('large', answer('x'.repeat(500_000)))).toBe(true)
  for (let n = 0; n < 100; n += 1) kept.set(`other ${n}`, answer('x'.repeat(20_000)))
  expect(kept.has('large')).toBe(true)
  expect([kept.set('larger', answer('x'.repeat(2 * megabyte))), kept.has('larger')]).toEqual([false, false])
})

it('a newer one takes the place of an older one, in whichever generation that is', () => {
  const kept = openResultCache(megabyte)
  for (const body of ['one', 'two']) {
    kept.set('a', answer(body))
    expect([String(kept.get('a')!.body), String(kept.get('a')!.body), kept.entries()]).toEqual([body, body, 1])
  }
  kept.delete('a')
  expect([kept.get('a'), kept.entries(), kept.bytes()]).toEqual([undefined, 0, 0])
})

it('its time does not begin anew when it is asked for', async () => {
  const kept = openResultCache(megabyte)
  const end = Date.now() + 50
  kept.set('a', answer('a', { expiresAt: end }))
  kept.get('a')
  await expect.poll(() => kept.get('a'), { interval: 5 }).toBe(undefined)
  expect(Date.now()).toBeGreaterThanOrEqual(end - 1)
  expect(kept.set('late', answer('late', { expiresAt: end }))).toBe(false)
})
