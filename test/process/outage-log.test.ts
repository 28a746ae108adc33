import { beforeAll, expect, it } from 'vitest'
import { workerNames } from '../../src/workers/names.ts'
import { type PrivateServer, startPrivateServer } from '../support/postgres.ts'
import { testEnv } from '../support/prepare.ts'
import { type OutputLine, startProcess, type TestProcess, waitFor } from '../support/processes.ts'

let server: PrivateServer
let workers: TestProcess[]

beforeAll(async () => {
  server = await startPrivateServer()
  // Short, because the server ends before the processes.
  const env = { ...testEnv(server.url), TASK_SERVICE_ENABLED: 'true', TASK_SHUTDOWN_WAIT_TIME: '5', LOG_LEVEL: 'debug' }
  workers = workerNames.map((name) => startProcess('src/workers/main.ts', [name], env))
  await Promise.all(workers.map((worker) => worker.waitForLine(({ msg }) => msg === 'ready')))
})

/** What each worker tries again and again, all the time. */
const regular: Readonly<Record<(typeof workerNames)[number], RegExp>> = {
  mail: /^the job queue could not be looked after/,
  tasks: /^jobs could not be fetched/,
  'log-cleanup': /^the leases of consumers could not be renewed/,
  webhooks: /^due deliveries could not be read/,
  workflows: /^due executions of workflows could not be claimed/,
  'cache-invalidation': /^jobs could not be fetched/,
}

it('an outage of the database is a line for each thing that fails in it, and one for the end of it', async () => {
  await server.stop('immediate')
  for (const [i, name] of workerNames.entries())
    await waitFor(() =>
      workers[i]!.lines.some((line) => regular[name].test(String(line.msg)) && Number(line.failures) > 1),
    )
  await server.start()
  for (const [i, name] of workerNames.entries())
    if (name !== 'mail') await workers[i]!.waitForLine(({ msg }) => /^works again, after: /.test(String(msg)))
  for (const { lines } of workers) {
    const told = lines.filter(isTold).map(asText)
    expect(told.filter((one, i) => told.indexOf(one) < i)).toEqual([])
    expect(lines.filter(({ level }) => level === 'error')).toEqual([])
  }
  const all = workers.flatMap(({ lines }) => lines.filter(({ level }) => level === 'warn'))
  expect(all.filter(({ err }) => (err as { stack?: string } | undefined)?.stack !== undefined)).toEqual([])
  const ofTasks = workers.filter((_worker, i) => workerNames[i] !== 'tasks').flatMap(({ lines }) => lines)
  expect(ofTasks.filter(({ msg, level }) => level === 'warn' && /\btasks\b/.test(String(msg)))).toEqual([])
})

/** Of the connections of a pool each is told. */
const isTold = ({ level, msg }: OutputLine) => level === 'warn' && msg !== 'an idle database connection was lost'

const asText = ({ name, msg, err, queue, consumer, consumers }: OutputLine) => {
  const { message, code, cause } = (err ?? {}) as { message?: string; code?: string; cause?: string }
  return JSON.stringify([name, msg, cause ?? (message || code), queue, consumer, consumers])
}
