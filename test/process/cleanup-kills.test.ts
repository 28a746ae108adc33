import { expect, it } from 'vitest'
import { runF41 } from '../faults/cleanup.ts'

it('F-41, a small seed: a cleanup killed in the middle goes on where it was, and deletes nothing young', async () => {
  const seed = Number(process.env.TEST_SEED ?? Math.floor(Math.random() * 2 ** 32))
  const { faults, figures } = await runF41(seed, { rows: 12_000, kills: 1 })
  process.stderr.write(`F-41, seed ${seed}: ${JSON.stringify(figures)}\n`)
  expect(faults).toEqual([])
})
