import { runF05 } from './bad-tasks.ts'
import { runF41 } from './cleanup.ts'
import { type Result, runF10, runF31 } from './storm.ts'

export type Scenario = {
  readonly id: string
  readonly title: string
  run(seed: number): Promise<Result>
}

const writes = Number(process.env.FAULTS_WRITES ?? 100_000)
const tasks = Number(process.env.FAULTS_TASKS ?? 4000)
const rows = Number(process.env.FAULTS_ROWS ?? 1_000_000)

/** What `npm run faults` runs; a further one is a line here. */
export const scenarios: readonly Scenario[] = [
  {
    id: 'F-05',
    title: 'tasks that break their processes run beside healthy ones',
    run: (seed) => runF05(seed, { healthy: tasks }),
  },
  {
    id: 'F-10',
    title: 'web processes, feed, LISTEN and clients are struck while clients follow',
    run: (seed) => runF10(seed, { writes, blows: 40 }),
  },
  {
    id: 'F-31',
    title: 'PostgreSQL crashes too',
    run: (seed) => runF31(seed, { writes: Math.ceil(writes / 5), blows: 70 }),
  },
  {
    id: 'F-41',
    title: 'the cleanups of the log, the sessions and the mails are killed',
    run: (seed) => runF41(seed, { rows, kills: 5 }),
  },
]
