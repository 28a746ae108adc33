import { expect, inject, it } from 'vitest'
import { startProcess } from '../support/processes.ts'

/** The bench compares answers before it times them, so a run of it says that both of its sides still work. */
it('the bench runs, both sides answer alike, and none of the answers is an error', async () => {
  const options = ['--only', 'W1,W5,P9', '--products', '1000', '--rounds', '1', '--seconds', '0.2', '--no-cache']
  const bench = startProcess('bench/main.ts', [...options, '--quick', '--json'], {
    BENCH_DATABASE_URL: inject('server').url,
  })
  const { code } = await bench.exited
  const text = bench.lines.map((line) => line.text).join('\n')
  expect(code, text).toBe(0)
  const { lines, figures } = JSON.parse(text.slice(text.indexOf('\n{\n')))
  const shown = lines.map(({ id, role, figures: { ceiling, daybook } }: any) => [
    id,
    role,
    ceiling.errors + daybook.errors,
    ceiling.requests > 0 && daybook.requests > 0,
  ])
  const each = (id: string) => ['admin', 'limited'].map((role) => [id, role, 0, true])
  expect(shown).toEqual([...each('W1'), ...each('W5')])
  expect(figures.map(({ ceiling, daybook }: any) => [ceiling, daybook])).toEqual([
    [expect.any(Number), expect.any(Number)],
    [0, 0],
    [0, 0],
  ])
})
