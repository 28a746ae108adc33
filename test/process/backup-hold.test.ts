import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { commit } from '../../src/events/commit.ts'
import { systemActor } from '../../src/events/types.ts'
import { queueMail } from '../../src/features/messaging/mail/mail.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { chain, node } from '../support/flows.ts'
import { createDatabase, createEmptyDatabase } from '../support/postgres.ts'
import { testConfig, testEnv } from '../support/prepare.ts'
import { type OutputLine, startProcess, waitFor } from '../support/processes.ts'
import { type Receiver, startReceiver } from '../support/receiver.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'

/** A copy of production that is restored with --hold, with all its workers. */

const workers = ['mail', 'tasks', 'webhooks', 'workflows', 'log-cleanup'] as const
const held = workers.filter((name) => name !== 'log-cleanup')

let dir: string
let smtp: SmtpDouble
/** Of webhooks, and of the requests of workflows. */
let receiver: Receiver
let env: Record<string, string>

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'daybook-hold-'))
  smtp = await startSmtp()
  receiver = await startReceiver()
  const extensions = join(dir, 'extensions')
  await mkdir(join(extensions, 'svc-task-call'), { recursive: true })
  await writeFile(
    join(extensions, 'svc-task-call/index.js'),
    `export default { type: 'call', async handler(task) {
      await fetch('${receiver.url}', { method: 'POST', body: JSON.stringify({ by: 'task' }) })
      return { done: true }
    } }`,
  )
  await mkdir(join(extensions, 'svc-schedule-call'))
  await writeFile(
    join(extensions, 'svc-schedule-call/index.js'),
    `export default { id: 'call', schedule: '* * * * * *', async handler() {
      await fetch('${receiver.url}', { method: 'POST', body: JSON.stringify({ by: 'schedule' }) })
    } }`,
  )
  env = {
    ...smtp.env,
    SSRF_ALLOW_PRIVATE_URL_FETCH: 'true',
    TASK_SERVICE_ENABLED: 'true',
    EXTENSIONS_DIR: extensions,
  }
})

afterAll(async () => {
  await receiver?.close()
  await rm(dir, { recursive: true })
})

const daybook = async (args: readonly string[], url: string) => {
  const process = startProcess('src/cli/main.ts', args, { ...testEnv(url), ...env })
  const { code } = await process.exited
  return { code, text: process.lines.map(({ text }) => text).join('\n') }
}

/** Of each kind one thing that waits to be done. */
async function leaveWork({ web: [web], sql }: Cluster, url: string): Promise<void> {
  const fields = { id: { type: 'Integer', primaryKey: true } }
  expect((await web!.call('POST', '/schemas', { collectionName: 'thing', schema: { fields } })).status).toBe(201)
  const hook = { name: 'w', url: receiver.url, collections: ['thing'] }
  expect((await web!.call('POST', '/webhooks', hook)).status).toBe(201)
  const flow_data = chain(node('call', 'http', { method: 'POST', url: receiver.url, body: { by: 'workflow' } }))
  const workflow = { id: 'flow', name: 'flow', status: 'active', flow_data }
  const made = await web!.call('POST', '/workflows', workflow)
  expect([made.status, made.text]).toEqual([201, expect.anything()])
  expect((await web!.call('POST', '/workflows/flow/execute', {})).status).toBe(200)
  expect((await web!.call('POST', '/items/thing', { id: 1 })).status).toBe(201)
  await sql(`insert into "svc_Tasks" (type, status) values ('call', 'published')`)
  const runtime = await openRuntime({
    config: testConfig(url, env),
    log: pino({ level: 'silent' }),
    name: 'test',
    worker: false,
  })
  await commit(runtime, systemActor, async (tx) => {
    const { event } = await queueMail(tx, { type: 'test', to: 'somebody@mail.example', context: {} })
    return { result: undefined, events: [event] }
  })
  await runtime.close()
}

it('nothing leaves it, and nothing begins by itself, until it is released; then all of it is done', async () => {
  const source = await createDatabase()
  await leaveWork(await startCluster({ database: source, env }), source.url)
  const place = join(dir, 'production.daybook')
  expect(await daybook(['backup', place], source.url)).toMatchObject({ code: 0 })
  const copy = await createEmptyDatabase()
  expect(await daybook(['restore', place, '--hold'], copy.url)).toMatchObject({ code: 0 })
  const { web, sql } = await startCluster({ database: copy, env })
  const running = workers.map((name) => startProcess('src/workers/main.ts', [name], { ...testEnv(copy.url), ...env }))
  const waits = ({ msg }: OutputLine) => String(msg).includes('restored with --hold')
  await Promise.all(running.slice(0, held.length).map((worker) => worker.waitForLine(waits)))
  // Requests work as always, and what they would lead to waits too.
  expect((await web[0]!.call('POST', '/items/thing', { id: 2 })).status).toBe(201)
  const found = await daybook(['doctor', '--json'], copy.url)
  expect(found.text).toContain('restored with --hold')
  // They have looked again meanwhile.
  const states = async () => ({
    mails: (await sql(`select distinct status from "svc_EmailLog"`)).map(({ status }) => status),
    tasks: (await sql(`select distinct task_status from "svc_Tasks" where type = 'call'`)).map(
      (row) => row.task_status,
    ),
    executions: (await sql(`select distinct status from "svc_WorkflowExecution"`)).map(({ status }) => status),
    deliveries: (await sql(`select count(*)::int as n from "svc_WebhookDelivery" where attempts > 0`))[0].n,
  })
  expect(await states()).toEqual({ mails: ['queued'], tasks: ['Not started'], executions: ['queued'], deliveries: 0 })
  expect([smtp.received, receiver.received]).toEqual([[], []])
  expect(await daybook(['resume'], copy.url)).toMatchObject({ code: 0 })
  await waitFor(() => smtp.accepted.some(({ recipients }) => recipients.includes('somebody@mail.example')))
  const by = (what: string) => receiver.accepted.some(({ body }) => body.by === what)
  await waitFor(() => by('task') && by('workflow') && by('schedule'))
  const told = () => receiver.accepted.flatMap(({ body }) => (body.data?.id === undefined ? [] : [body.data.id]))
  await waitFor(() => told().includes(1) && told().includes(2))
  expect(smtp.accepted).toHaveLength(1)
})
