import { expect, it } from 'vitest'
import { runOverload } from '../faults/overload.ts'

const seed = 20_261_122

/** A small form of `npm run faults -- --only overload`. */
it('light reads are answered while more is asked for than can be done, and what is refused is told so', async () => {
  const size = { rows: 20_000, seconds: 2, heavy: 60, light: 5, loginsPerSecond: 50, isTimed: false }
  const { faults, figures } = await runOverload(seed, size)
  expect(faults).toEqual([])
  expect(figures['crowded: reads']).toBeGreaterThan(0)
  expect(figures['flooded: rss']).toBeLessThan(400)
})
