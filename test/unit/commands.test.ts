import { expect, it } from 'vitest'
import { commands } from '../../src/cli/commands.ts'
import { worker } from '../../src/cli/processes.ts'
import { workerNames } from '../../src/workers/names.ts'

it.each(Object.entries(commands))('daybook %s says how it is used', async (name, { load }) => {
  const { usage, run } = await load()
  expect(usage).toMatch(new RegExp(`^Usage: daybook ${name}\\b`))
  expect(usage.split('\n').filter((line) => line.length > 140)).toEqual([])
  expect(run).toBeTypeOf('function')
})

it('daybook worker names every worker', () => {
  const named = [...worker.usage.matchAll(/^ {2}([a-z-]+) {2,}/gm)].map(([, name]) => name)
  expect(named.toSorted()).toEqual([...workerNames].sort())
})
