import pg from 'pg'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { systemActor } from '../../src/events/actor.ts'
import { commit } from '../../src/events/commit.ts'
import { dueSql, insertExecutions, type NewExecution } from '../../src/features/work/workflows/queries.ts'
import { openWorkflows } from '../../src/workers/workflows.ts'
import { type Api, startApi } from '../support/api.ts'
import { chain, node } from '../support/flows.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let service: Awaited<ReturnType<typeof openWorkflows>>
let adminId: string

beforeAll(async () => {
  api = await startApi()
  const text = { type: 'String', allowNull: true }
  const id = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
  const schema = { fields: { id, run: text, step: text } }
  expect((await api.admin('POST', '/schemas', { collectionName: 'ledger', schema })).status).toBe(201)
  adminId = (await api.sql('select id from "svc_User" limit 1'))[0].id
  service = await openWorkflows(api.runtime)
})

afterAll(() => service?.stop(5000))

const writing = (id: string, data: object) =>
  node(id, 'service', {
    operation: 'create',
    collection: 'ledger',
    data: { run: '{{trigger.run}}', step: id, ...data },
  })
const save = async (id: string, ...nodes: { readonly id: string }[]) => {
  const flow_data = chain(...nodes)
  const { status, text } = await api.admin('POST', '/workflows', { id, name: id, status: 'active', flow_data })
  expect(status, text).toBe(201)
}
/** All of them at once, so that they run together; gives their ids. */
const start = async (executions: readonly { workflow: string; data: object; as?: string }[]): Promise<string[]> => {
  const rows = executions.map(({ workflow, data, as = adminId }): NewExecution => {
    const who = { triggered_by_Id: as, caller_Id: as, tenant_Id: null, cause: null }
    return { id: api.runtime.newId(), workflow_Id: workflow, version: 1, trigger: 'manual', trigger_data: data, ...who }
  })
  await commit(api.runtime, systemActor, async (tx) => ({ result: await insertExecutions(tx, rows) }))
  return rows.map(({ id }) => id)
}
const statuses = async (ids: readonly string[]) =>
  new Map(
    (await api.sql('select id, status, "errorMessage" from "svc_WorkflowExecution" where id = any($1)', [ids])).map(
      (one) => [one.id, one],
    ),
  )
const over = (ids: readonly string[]) =>
  waitFor(
    async () => {
      const found = await statuses(ids)
      return [...found.values()].every(({ status }) => !['queued', 'running'].includes(status)) ? found : undefined
    },
    { what: 'the end of all' },
  )
const ledger = (where: string) => api.sql(`select id, run, step from ledger where ${where} order by id`)

it('share transactions, each kept whole or not at all, under the name of who triggered it', async () => {
  await save('two', writing('one', {}), writing('two', {}))
  await save('numbered', writing('before', {}), writing('numbered', { id: '{{trigger.id}}' }))
  const user = await api.user([{ collection: 'ledger', action: 'create', fields: ['*'] }])
  const fine = Array.from({ length: 60 }, (_, i) => ({
    workflow: 'two',
    data: { run: `fine ${i}` },
    as: i % 2 === 0 ? adminId : user.id,
  }))
  const numbered = [5000, 5000, 9000].map((id, i) => ({ workflow: 'numbered', data: { run: `numbered ${i}`, id } }))
  const after = await api.position()
  const ids = await start([...fine.slice(0, 30), ...numbered, ...fine.slice(30)])
  const ended = await over(ids)
  const failed = ids.map((id) => ended.get(id)).filter(({ status }) => status !== 'completed')
  expect(failed).toMatchObject([
    { status: 'failed', errorMessage: expect.stringMatching(/^numbered: .*already exists/) },
  ])
  // The results before the failed node are kept, once; so are all of the others.
  expect(await ledger(`run like 'fine %'`)).toHaveLength(120)
  expect(await ledger(`step = 'before'`)).toHaveLength(3)
  expect((await ledger(`step = 'numbered'`)).map(({ id }) => id)).toEqual([5000, 9000])
  const events = await api.sql(
    `select changes->'after'->>'run' as run, "userId", xid::text, cause from "svc_AuditLog" where entity = 'ledger' and position > $1`,
    [String(after)],
  )
  expect(events).toHaveLength(125)
  for (const { run, userId, cause } of events) {
    const wanted = fine.find(({ data }) => data.run === run)?.as ?? adminId
    expect([run, userId]).toEqual([run, wanted])
    expect(cause).toBeNull()
  }
  expect(new Set(events.map(({ xid }) => xid)).size).toBeLessThan(40)
  const told = await api.sql(
    `select distinct "userId", "userAgent" from "svc_AuditLog" where entity = 'svc_WorkflowExecution' and action = 'update' and position > $1`,
    [String(after)],
  )
  expect(told).toEqual([{ userId: null, userAgent: 'daybook workflows' }])
  const nodes = await api.sql(
    `select "nodeId", status, count(*)::int as n from "svc_WorkflowExecutionLog" where "execution_Id" = any($1) group by 1, 2 order by 1, 2`,
    [ids],
  )
  expect(nodes.map(({ nodeId, status, n }) => `${nodeId} ${status} ${n}`)).toEqual([
    ...['before success 3', 'numbered failed 1', 'numbered success 2'],
    ...['one success 60', 'start success 63', 'two success 60'],
  ])
})

it('do not wait for one that waits for a lock, which keeps nothing once it is cancelled', async () => {
  await save(
    'locked',
    node('change', 'service', {
      operation: 'update',
      collection: 'ledger',
      itemId: '{{trigger.id}}',
      data: { step: 'changed' },
    }),
  )
  const [{ id }] = await api.sql(`insert into ledger (run, step) values ('row', 'as it was') returning id`)
  const holder = new pg.Client({ connectionString: api.database.url })
  await holder.connect()
  await holder.query('begin')
  await holder.query('select from ledger where id = $1 for update', [id])
  const [locked, ...others] = await start([
    { workflow: 'locked', data: { id } },
    ...Array.from({ length: 20 }, (_, i) => ({ workflow: 'two', data: { run: `beside ${i}` } })),
  ])
  expect(new Set([...(await over(others)).values()].map(({ status }) => status))).toEqual(new Set(['completed']))
  const answer = await api.admin('POST', `/workflows/locked/executions/${locked}/cancel`)
  expect(answer.status).toBe(200)
  await holder.query('rollback')
  await holder.end()
  // An execution that came to it meanwhile has nothing left to keep; the next one may change it again.
  const [again] = await start([{ workflow: 'locked', data: { id } }])
  await over([again!])
  expect((await statuses([locked!])).get(locked)).toMatchObject({ status: 'cancelled' })
  const changes = await api.sql(
    `select count(*)::int as n from "svc_AuditLog" where entity = 'ledger' and action = 'update' and "entityId" = $1`,
    [String(id)],
  )
  expect(changes).toEqual([{ n: 1 }])
})

it('cost nothing while they wait: what is due is found by its index alone', async () => {
  await save('sleeper', node('wait', 'delay', { delay: 86_400_000 }))
  await api.sql(
    `insert into "svc_WorkflowExecution" ("workflow_Id", version, status, due_at)
     select 'sleeper', 1, 'running', now() + n * interval '1 minute' from generate_series(1, 10000) n`,
  )
  await api.sql('analyze "svc_WorkflowExecution"')
  const plan = await api.sql(`explain (analyze, buffers off, timing off) ${dueSql('100')}`)
  const text = plan.map((row) => row['QUERY PLAN']).join('\n')
  expect(text).toContain('svc_WorkflowExecution_due_idx')
  expect(text).not.toMatch(/Seq Scan|Sort|Rows Removed by Filter: [1-9]/)
})
