import { runF05 } from './bad-tasks.ts'
import { runF41 } from './cleanup.ts'
import { runF20 } from './crowd.ts'
import { runF42 } from './files.ts'
import { runF45 } from './flows.ts'
import { runF17, runF44 } from './followers.ts'
import { runF01 } from './kills.ts'
import { runF24 } from './mails.ts'
import { runOverload } from './overload.ts'
import { runPictures } from './pictures.ts'
import type { Scenario } from './scenario.ts'
import { runF43 } from './senders.ts'
import { runF26 } from './starts.ts'
import { runF10, runF31 } from './storm.ts'

const { FAULTS_WRITES, FAULTS_TASKS, FAULTS_ROWS, FAULTS_ROUNDS, FAULTS_SOCKETS } = process.env
const writes = Number(FAULTS_WRITES ?? 100_000)
const tasks = Number(FAULTS_TASKS ?? 4000)
const rows = Number(FAULTS_ROWS ?? 1_000_000)
const sockets = Number(FAULTS_SOCKETS ?? 2000)
/** How often it happens; of each scenario its own number when none is given. */
const rounds = (byDefault: number) => Number(FAULTS_ROUNDS || byDefault)

/** Those that nothing may keep from being answered are the light ones. */
const crowd = { rows: 200_000, heavy: 200, light: 20, loginsPerSecond: 500 }

/** What `npm run faults` runs; a further one is a line here. */
export const scenarios: readonly Scenario[] = [
  {
    id: 'F-01',
    title: 'web processes are killed while people register',
    run: (seed) => runF01(seed, { kills: rounds(30) }),
  },
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
    id: 'F-20',
    title: 'the web process of a crowd of sockets is killed, and both are restarted',
    run: (seed) => runF20(seed, { sockets, writes: 20 }),
  },
  {
    id: 'F-24',
    title: 'the mail worker is killed between the answer of the SMTP server and its record',
    run: (seed) => runF24(seed, { kills: rounds(50) }),
  },
  {
    id: 'F-26',
    title: 'web processes start at once, on any database',
    run: (seed) => runF26(seed, { rounds: rounds(50) }),
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
  {
    id: 'overload',
    title: 'two hundred clients ask for heavy reports, and others sign in',
    run: (seed) => runOverload(seed, { ...crowd, seconds: rounds(60), isTimed: true }),
  },
  {
    id: 'pictures',
    title: 'a hundred clients ask for a hundred sizes of one large picture',
    run: (seed) => runPictures(seed, { seconds: rounds(60), clients: 100, megapixels: 24, isTimed: true }),
  },
  {
    id: 'F-42',
    title: 'web processes and the worker are killed while files are uploaded, replaced, deleted and moved',
    run: (seed) => runF42(seed, { kills: rounds(50) }),
  },
  {
    id: 'F-17',
    title: 'one transaction writes half a million events, which all is followed',
    run: (seed) => runF17(seed, { rows: Math.min(rows, 500_000) }),
  },
  {
    id: 'F-44',
    title:
      'web processes and what follows the log are killed and frozen, and PostgreSQL crashes, while rows are changed',
    run: (seed) => runF44(seed, { writes: Math.min(writes, 20_000), kills: rounds(70), freezes: 10, crashes: 8 }),
  },
  {
    id: 'F-43',
    title: 'SMTP servers of tenants hang, are slow and cut lines while the installation sends',
    run: (seed) => runF43(seed, { healthy: 1200, others: 300 }),
  },
  {
    id: 'F-45',
    title: 'workers of workflows, web processes and PostgreSQL are killed, frozen and cut off while executions run',
    run: (seed) => runF45(seed, { executions: 1000, blows: rounds(30), crashes: true }),
  },
]
