import { setTimeout as delay } from 'node:timers/promises'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { type Edge, flowOf, node } from '../support/flows.ts'
import { seededRandom } from '../support/ledger.ts'
import { createDatabase, type PrivateServer, startPrivateServer } from '../support/postgres.ts'
import { type Received, startReceiver } from '../support/receiver.ts'
import { withClient } from '../support/server.ts'
import { waitFor } from '../support/wait.ts'
import type { Result } from './scenario.ts'

export type Size = {
  readonly executions: number
  readonly blows: number
  /** On a server of its own, which is struck, too. */
  readonly crashes: boolean
}

const patience = { timeout: 180_000 }
/** So that executions share transactions while all of it is struck. */
const askers = 8
const underWay = 120

/**
 * F-45: workers, web processes and PostgreSQL are killed, workers frozen for longer than their leases, and all connections cut,
 * while executions of a workflow with nodes of every kind run. Each that was accepted ends; each of its rows is there once, each of
 * its calls was made under one key.
 */
export async function runF45(seed: number, { executions, blows, crashes }: Size): Promise<Result> {
  const random = seededRandom('F-45', seed)
  const receiver = await startReceiver()
  const env = {
    ...{ SSRF_ALLOW_PRIVATE_URL_FETCH: 'true', WORKFLOW_MAIL_PER_HOUR: '100000' },
    ...{ DATABASE_MAX_RETRY: '1000', DATABASE_RETRY_INTERVAL: '50' },
  }
  // A crash of the server loses nothing that the operating system has.
  const server = crashes ? await startPrivateServer({ fsync: 'off', full_page_writes: 'off' }) : undefined
  const { url } = server ?? (await createDatabase())
  const cluster = await startCluster({ database: { url }, workers: ['workflows', 'workflows'], env })
  await prepare(cluster, receiver.url)
  const sql = (text: string) => withClient(url, async (client) => (await client.query(text)).rows)
  const accepted = new Map<string, string>()
  let unknown = 0
  const hits: Record<string, number> = {}
  /** Executions that are done with, more or less; each calls the address twice. */
  const progress = () => receiver.received.length / 2
  const ask = async (asker: number) => {
    for (let run = asker; run < executions; run += askers) {
      // Accepted while all of it is struck, not before.
      await waitFor(() => run < progress() + underWay, patience)
      for (let attempt = 1; ; attempt += 1) {
        const name = `${run}.${attempt}`
        // Answers that are lost with their process say nothing: whether it was accepted is asked of the rows.
        const answer = await cluster.web[0]!.call('POST', '/workflows/parent/execute', { run: name }).catch(
          () => undefined,
        )
        if (answer?.status === 200) {
          accepted.set(name, answer.body.execution.id)
          break
        }
        unknown += 1
        await delay(200)
      }
    }
  }
  const open = async () =>
    Number((await sql(`select count(*) as n from "svc_WorkflowExecution" where status in ('queued', 'running')`))[0].n)
  const strike = async () => {
    for (let blow = 1; blow <= blows; blow += 1) {
      await waitFor(() => progress() >= (executions * blow) / (blows + 2), patience)
      const kind = await hit({ cluster, server, sql }, random())
      hits[kind] = (hits[kind] ?? 0) + 1
    }
  }
  await Promise.all([...Array.from({ length: askers }, (_, asker) => ask(asker)), strike()])
  await waitFor(async () => (await open()) === 0, { ...patience, what: 'the end of every execution' })
  const faults = await faultsOf(sql, accepted, receiver.accepted)
  const figures = { executions, blows, accepted: accepted.size, unknown, calls: receiver.received.length, ...hits }
  await Promise.all([...cluster.workers, ...cluster.web].map((member) => member.kill('SIGKILL')))
  await receiver.close()
  await server?.stop('immediate')
  return { faults, figures }
}

type Sql = (text: string) => Promise<any[]>
type Struck = { readonly cluster: Cluster; readonly server: PrivateServer | undefined; readonly sql: Sql }

/** What was struck. */
async function hit({ cluster: { workers, web }, server, sql }: Struck, chance: number): Promise<string> {
  const worker = workers[Math.floor(chance * 1000) % 2]!
  if (chance < 0.15) {
    await web[0]!.kill('SIGKILL')
    await web[0]!.restart()
    return 'web'
  }
  if (chance < 0.25 && server !== undefined) {
    await server.stop('immediate')
    await server.start()
    return 'PostgreSQL'
  }
  if (chance < 0.3) {
    await sql(
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`,
    )
    return 'connections'
  }
  if (chance < 0.4) {
    worker.freeze()
    // Its executions are succeeded; what it does when it goes on counts for nothing.
    await waitFor(
      async () =>
        (
          await sql(`select 1 from "svc_WorkflowExecution" where attempts > 0 or not exists (
          select from "svc_WorkflowExecution" where claim_token is not null and heartbeat_at < now() - interval '15 seconds') limit 1`)
        ).length > 0,
      patience,
    )
    worker.thaw()
    return 'frozen'
  }
  await worker.kill('SIGKILL')
  await worker.restart()
  return 'worker'
}

const writing = (id: string, step: string) =>
  node(id, 'service', { operation: 'create', collection: 'ledger', data: { run: '{{trigger.run}}', step } })

async function prepare(cluster: Cluster, url: string): Promise<void> {
  const [web] = cluster.web
  const ask = async (path: string, body: object) => {
    const { status, text } = await web!.call('POST', path, body)
    if (status !== 201) throw new Error(`${path}: ${text}`)
  }
  const text = { type: 'String', allowNull: true }
  const id = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
  await ask('/schemas', { collectionName: 'ledger', schema: { fields: { id, run: text, step: text } } })
  const save = (name: string, nodes: readonly object[], edges: readonly Edge[]) =>
    ask('/workflows', { id: name, name, status: 'active', flow_data: flowOf(nodes, edges) })
  await save('child', [writing('inner', 'child {{trigger.index}}')], [['start', 'inner']])
  const told = {
    url,
    method: 'POST',
    body: { run: '{{trigger.run}}', i: '{{loop.index}}' },
    retries: 8,
    retryDelay: 100,
  }
  await save(
    'parent',
    [
      writing('first', 'first'),
      node('each', 'loop', { loopType: 'count', endIndex: 2 }),
      node('tell', 'http', told),
      writing('body', 'body {{loop.index}}'),
      node('call', 'workflow', { workflowId: 'child', passData: true, dataMapping: { index: 'loop.index' } }),
      node('try', 'try'),
      node('bad', 'service', { operation: 'delete', collection: 'ledger', itemId: -1 }),
      writing('caught', 'caught'),
      node('wait', 'delay', { delay: 150 }),
      node('script', 'script', { script: 'return { n: trigger.run.length }' }),
      node('mail', 'email', { to: 'a@example.com', subject: '{{trigger.run}}', body: '{{trigger.run}}' }),
      writing('last', 'last'),
    ],
    [
      ['start', 'first'],
      ['first', 'each'],
      ['each', 'tell', 'loop'],
      ['tell', 'body'],
      ['body', 'call'],
      ['call', 'each', undefined, 'loop-end'],
      ['each', 'try', 'done'],
      ['try', 'bad', 'try'],
      ['try', 'caught', 'catch'],
      ['try', 'wait', 'done'],
      ['wait', 'script'],
      ['script', 'mail'],
      ['mail', 'last'],
    ],
  )
}

const steps = ['body 0', 'body 1', 'caught', 'child 0', 'child 1', 'first', 'last']

async function faultsOf(
  sql: Sql,
  accepted: ReadonlyMap<string, string>,
  calls: readonly Received[],
): Promise<string[]> {
  const faults: string[] = []
  const ended = await sql(
    `select id, status, "errorMessage", trigger_data->>'run' as run from "svc_WorkflowExecution" where "workflow_Id" = 'parent'`,
  )
  for (const [run, id] of accepted)
    if (!ended.some((one) => one.id === id)) faults.push(`execution ${id} of run ${run} was accepted and is not there`)
  for (const { id, status, errorMessage } of ended)
    if (status !== 'completed') faults.push(`execution ${id} is ${status}: ${errorMessage}`)
  const rows = await sql(`select run, json_agg(step order by step) as steps from ledger group by run`)
  const runs = new Set(ended.map(({ run }) => run))
  if (rows.length !== runs.size) faults.push(`${rows.length} runs in the ledger of ${runs.size}`)
  for (const { run, steps: found } of rows)
    if (JSON.stringify(found) !== JSON.stringify(steps)) faults.push(`run ${run} has the rows ${found}`)
  const [{ n }] = await sql(`select count(*)::int as n from "svc_AuditLog" where entity = 'ledger'`)
  if (n !== runs.size * steps.length) faults.push(`${n} events of ${runs.size * steps.length} rows`)
  const mails = await sql(
    `select context->'variables'->>'mail_body' as run, count(*)::int as n from "svc_EmailLog" group by 1`,
  )
  if (mails.length !== runs.size || mails.some((one) => one.n !== 1))
    faults.push(`mails: ${JSON.stringify(mails.filter((one) => one.n !== 1))}`)
  const keys = Map.groupBy(calls, ({ body }) => `${body.run} ${body.i}`)
  if (keys.size !== runs.size * 2) faults.push(`${keys.size} places were called of ${runs.size * 2}`)
  for (const [place, made] of keys)
    if (new Set(made.map(({ headers }) => headers['idempotency-key'])).size !== 1)
      faults.push(`${place} was called under several keys`)
  return faults
}
