import { execFileSync } from 'node:child_process'
import { expect, it } from 'vitest'

/** A process of its own: what it changes is Node's. */
const program = `
  import { getHeapSpaceStatistics } from 'node:v8'
  import { growWithWork, startSmall } from '${new URL('../../src/process/start-up.ts', import.meta.url).href}'

  const youngMB = () => getHeapSpaceStatistics().find((space) => space.space_name === 'new_space').space_size / 2 ** 20
  const allocateWhatStays = () => Array.from({ length: 300_000 }, (_, i) => ({ text: 'x' + i }))
  startSmall()
  const asLongAsItStarts = [allocateWhatStays(), youngMB()].at(-1)
  growWithWork()
  const afterwards = [allocateWhatStays(), allocateWhatStays(), youngMB()].at(-1)
  console.log(JSON.stringify({ asLongAsItStarts, afterwards }))`

it('a process starts with a small young generation, which grows with its work', () => {
  const args = ['--input-type=module-typescript', '--eval', program]
  const { asLongAsItStarts, afterwards } = JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' }))
  expect(asLongAsItStarts).toBeLessThanOrEqual(4)
  expect(afterwards).toBeGreaterThanOrEqual(16)
})
