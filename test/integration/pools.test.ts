import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { startApi } from '../support/api.ts'

const pageFaults = (pid: number): number =>
  Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ')[7])

it.runIf(process.platform === 'linux')('PostgreSQL takes no memory anew for each statement', async () => {
  const { runtime } = await startApi({ DATABASE_POOL_MAX: '5' })
  // 280 kB in pieces of which none is large.
  const sorts = `select (count(*))::int as n, pg_backend_pid() as pid
    from (select repeat('x', 7000) as text, i from generate_series(1, 40) i order by 1, 2) t`
  const sort = () => runtime.db.run<{ n: number; pid: number }>(sorts, [], 'prepared')
  const ask = async (times: number) => {
    const pids = new Set<number>()
    for (let n = 0; n < times; n += 1) for (const { pid } of await sort()) pids.add(pid)
    return [...pids]
  }
  const [pid] = await ask(20)
  const before = pageFaults(pid!)
  expect(await ask(100)).toEqual([pid])
  expect(pageFaults(pid!) - before).toBeLessThan(100)
})
