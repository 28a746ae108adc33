import { afterAll, describe, expect, it } from 'vitest'
import { scenarios } from './scenarios.ts'

/** The run of scripts/faults.ts, which gives the seeds and names the scenarios. */
const { FAULTS_SEEDS = '', FAULTS_ONLY = '' } = process.env
const seeds = FAULTS_SEEDS.split(',').map(Number)
const chosen = scenarios.filter(({ id }) => FAULTS_ONLY === '' || FAULTS_ONLY.split(',').includes(id))
const table: object[] = []

describe.each(chosen)('$id: $title', ({ id, run }) => {
  it.each(seeds)('seed %i', { timeout: 3_600_000 }, async (seed) => {
    const { faults, figures } = await run(seed)
    table.push({ id, seed, ...figures, faults: faults.length })
    expect(faults).toEqual([])
  })
})

// biome-ignore lint/suspicious/noConsole: the figures are what the run is for
afterAll(() => console.table(table))
