import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { deleteUnusedVersions } from '../../src/db/unlogged/work.ts'
import { deleteOldExecutions } from '../../src/features/work/workflows/workflows.ts'
import { openWorkflows } from '../../src/workers/workflows.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { chain, node } from '../support/flows.ts'
import { administrator } from '../support/prepare.ts'
import { connect, type TestSocket } from '../support/socket.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { upload } from '../support/upload.ts'
import { waitFor } from '../support/wait.ts'

/** What is around executions: who watches them, what triggers them, how long they are kept, and what they may not become. */

let api: Api
let address: string
let adminToken: string
let service: Awaited<ReturnType<typeof openWorkflows>>
let directory: string

const text = { type: 'String', allowNull: true }
const id = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'daybook-workflows-'))
  await mkdir(join(directory, 'extensions', 'svc-module-tax'), { recursive: true })
  await writeFile(
    join(directory, 'extensions', 'svc-module-tax', 'index.js'),
    `export default ({ ItemsService }) => ({
      gross: (net, rate) => net * (1 + rate),
      noted: async (step) => (await new ItemsService('row', { accountability: null }).createOne({ step })),
      broken: () => { throw new Error('a secret of the installation') },
      large: () => 10n,
      circular: () => { const one = {}; one.own = one; return one },
      closed: () => { throw Object.assign(new Error('The year is closed'), { status: 409, code: 'YEAR_CLOSED' }) },
    })`,
  )
  api = await startApi({
    ...{ SOCKET_ENABLED: 'true', WORKFLOW_QUEUE_LIMIT: '20', EXTENSIONS_DIR: join(directory, 'extensions') },
    ...{
      STORAGE_SERVICES_ENABLED: 'local',
      LOCAL_STORAGE_DRIVER: 'LOCAL',
      LOCAL_STORAGE_PATH: join(directory, 'files'),
    },
  })
  address = await api.app.listen({ host: '127.0.0.1', port: 0 })
  adminToken = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const fields = { id, step: text }
  for (const [collectionName, more] of [
    ['row', {}],
    ['paper', { paranoid: true, timestamps: true }],
  ] as const)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields, ...more } })).status).toBe(201)
  service = await openWorkflows(api.runtime)
})

afterAll(async () => {
  await service?.stop(5000)
  await rm(directory, { recursive: true })
})

const saver =
  (own: Api) =>
  async (workflowId: string, flow_data: object, more: object = {}, call: Call = own.admin): Promise<string> => {
    const row = { id: workflowId, name: workflowId, status: 'active', flow_data, ...more }
    const { status, text: answer } = await call('POST', '/workflows', row)
    expect(status, answer).toBe(201)
    return workflowId
  }
const save: ReturnType<typeof saver> = (...args) => saver(api)(...args)
const execute = async (workflowId: string, data: unknown = {}, call: Call = api.admin): Promise<string> => {
  const { status, body, text: answer } = await call('POST', `/workflows/${workflowId}/execute`, data)
  expect(status, answer).toBe(200)
  return body.execution.id
}
/** In the order of what triggered them, also where one transaction has queued several. */
const of = (workflowId: string, own = api) =>
  own.sql(
    `select e.* from "svc_WorkflowExecution" e where e."workflow_Id" = $1
     order by e."createdAt", e.trigger_data->>'timestamp',
       (select min(l.position) from "svc_AuditLog" l where l.entity = 'svc_WorkflowExecution' and l."entityId" = e.id::text)`,
    [workflowId],
  )
const over = (execution: string, own = api) =>
  waitFor(
    async () => {
      const [found] = await own.sql('select * from "svc_WorkflowExecution" where id = $1', [execution])
      return ['completed', 'failed', 'cancelled'].includes(found.status) ? found : undefined
    },
    { what: `the end of ${execution}` },
  )
const one = (workflowId: string) =>
  waitFor(async () => {
    const found = await of(workflowId)
    return found.length > 0 ? found[0] : undefined
  })
const hook = (collection: string, action: string) => ({
  ...{ trigger_type: 'hook', trigger_hook_collection: collection, trigger_hook_action: `items.${action}` },
})
const writing = (step: string, more: object = {}) =>
  node('write', 'service', { operation: 'create', collection: 'row', data: { step }, ...more })
const rows = (where: string) => api.sql(`select * from row where ${where} order by id`)
const grants = (collection: string, ...actions: string[]) =>
  actions.map((action) => ({ collection, action, fields: ['*'] }))

describe('watchers of an execution', () => {
  const told = ({ notices }: TestSocket) =>
    notices
      .filter(({ name }) => name.startsWith('workflow:'))
      .map(({ name, body }) => ({ name: name.slice(9), ...body }))

  it('is told of every node, whenever it joins, and others are told nothing', async () => {
    const flow = chain(
      writing('watched'),
      node('wait', 'delay', { delay: 400 }),
      node('last', 'variable', { variables: { a: 1 } }),
    )
    await save('watched', flow, { allowed_roles: null })
    const user = await api.user(grants('row', 'create'))
    const stranger = await api.user()
    const sockets = await Promise.all([user.token, stranger.token, adminToken].map((token) => connect(address, token)))
    const [own, strange, admin] = sockets as [TestSocket, TestSocket, TestSocket]
    const execution = await execute('watched', {}, user.call)
    const began = performance.now()
    own.socket.emit('workflow:execution:join', { executionId: execution })
    strange.socket.emit('workflow:execution:join', { executionId: execution })
    await waitFor(() => told(strange).length > 0)
    expect(told(strange)).toEqual([
      { name: 'execution:error', executionId: execution, message: 'Not authorized to join this execution' },
    ])
    await waitFor(() => told(own).some(({ nodeId }) => nodeId === 'write'))
    // It waits for another to join, half a second at most.
    expect((await of('watched'))[0].startedAt.getTime() - (await of('watched'))[0].createdAt.getTime()).toBeLessThan(
      Math.max(450, performance.now() - began),
    )
    admin.socket.emit('workflow:execution:join', { executionId: execution })
    await waitFor(() => [own, admin].every((socket) => told(socket).some(({ name }) => name === 'execution:complete')))
    for (const socket of [own, admin]) {
      const states = told(socket).flatMap(({ nodeId, nodeStatus }) =>
        nodeId === undefined ? [] : [`${nodeId} ${nodeStatus}`],
      )
      expect(states).toEqual([
        ...['start running', 'start completed', 'write running', 'write completed'],
        ...['wait running', 'wait completed', 'last running', 'last completed'],
      ])
      const [{ id: row }] = await rows(`step = 'watched'`)
      expect(
        told(socket).find(({ nodeId, nodeStatus }) => nodeId === 'write' && nodeStatus === 'completed'),
      ).toMatchObject({
        ...{ executionId: execution, inputData: { data: { step: 'watched' } }, outputData: { id: row } },
        ...{ duration: expect.any(Number), timestamp: expect.any(String) },
      })
      expect(told(socket).at(-1)).toMatchObject({
        ...{ name: 'execution:complete', executionId: execution, status: 'completed', result: { write: { id: row } } },
      })
    }
    // A watcher that comes when it is over gets all of it, and bad messages are answered.
    const late = await connect(address, user.token)
    late.socket.emit('workflow:execution:join', { executionId: execution.toUpperCase() })
    await waitFor(() => told(late).at(-1)?.name === 'execution:complete')
    expect(told(late)).toHaveLength(9)
    for (const message of [{}, { executionId: 'x' }, null]) late.socket.emit('workflow:execution:join', message)
    const refusals = () => told(late).filter(({ name }) => name === 'execution:error')
    await waitFor(() => refusals().length === 3)
    expect(refusals().map(({ executionId, message }) => [executionId, message])).toEqual([
      [null, 'executionId is required'],
      ['x', 'executionId must be a UUID'],
      [null, 'executionId is required'],
    ])
    for (const socket of [...sockets, late]) socket.close()
  })

  it('is notified of failures where the workflow names them, once in a while', async () => {
    const user = await api.user()
    await save('failing', chain(node('gone', 'service', { operation: 'delete', collection: 'row', itemId: -1 })), {
      options: { notify: [user.id] },
    })
    for (let i = 0; i < 2; i += 1) await over(await execute('failing'))
    const { body } = await user.call('GET', '/notifications')
    expect(body.data).toMatchObject([
      { type: 'workflow', title: 'The workflow failing failed', message: expect.stringMatching(/^gone: /) },
    ])
    await api.sql(
      `update "svc_WorkflowUse" set "notifiedAt" = now() - interval '6 minutes' where "workflow_Id" = 'failing'`,
    )
    await over(await execute('failing'))
    expect((await user.call('GET', '/notifications')).body.data).toHaveLength(2)
  })

  it('is told when a workflow that was called fails, and at which of its nodes', async () => {
    await save('inner', chain(node('deep', 'service', { operation: 'delete', collection: 'row', itemId: -2 })))
    await save('outer', chain(node('call', 'workflow', { workflowId: 'inner' })))
    expect((await over(await execute('outer'))).errorMessage).toMatch(/^call: The workflow failed at deep: /)
  })
})

describe('an execution', () => {
  it('is kept for as long as it is said, with its nodes, and so is the version that it ran by', async () => {
    await save('kept', chain(node('v', 'variable', { variables: { n: 1 } })))
    const [old, young] = [await execute('kept'), await execute('kept')]
    await Promise.all([over(old), over(young)])
    await api.admin('PATCH', '/workflows/kept', { variables: { second: 'version' } })
    await api.sql(`update "svc_WorkflowExecution" set "completedAt" = now() - interval '31 days' where id = $1`, [old])
    await api.sql(
      `update "svc_WorkflowVersion" set "createdAt" = now() - interval '31 days' where "workflow_Id" = 'kept'`,
    )
    const versions = async () =>
      (await api.sql(`select version from "svc_WorkflowVersion" where "workflow_Id" = 'kept' order by 1`)).map(
        ({ version }) => version,
      )
    expect(await deleteOldExecutions(api.runtime, api.runtime.config.workflows.executionRetentionDays, 100)).toBe(1)
    expect(await deleteUnusedVersions(api.runtime, 30, 100)).toBe(0)
    expect((await of('kept')).map(({ id: left }) => left)).toEqual([young])
    expect(await api.sql('select 1 from "svc_WorkflowExecutionLog" where "execution_Id" = $1', [old])).toEqual([])
    expect(await versions()).toEqual([1, 2])
    // One that waits is older than anything is kept.
    await api.sql(
      `update "svc_WorkflowExecution" set status = 'running', "completedAt" = null, due_at = now() + interval '1 day', "createdAt" = now() - interval '60 days' where id = $1`,
      [young],
    )
    expect(await deleteOldExecutions(api.runtime, 30, 100)).toBe(0)
    await api.sql('delete from "svc_WorkflowExecution" where id = $1', [young])
    expect(await deleteUnusedVersions(api.runtime, 30, 100)).toBe(1)
    expect(await versions()).toEqual([2])
  })

  it('runs what a workflow says now that was deleted and made again under its name', async () => {
    for (const life of ['first life', 'second life']) {
      await save('again', chain(writing(life)))
      await over(await execute('again'))
      await api.sql(`delete from "svc_Workflow" where id = 'again'`)
    }
    expect((await rows(`step like '% life'`)).map(({ step }) => step)).toEqual(['first life', 'second life'])
  })

  it('goes on without one that it does not wait for', async () => {
    await save('slow', chain(node('wait', 'delay', { delay: 3_600_000 })))
    await save(
      'starting',
      chain(
        node('call', 'workflow', { workflowId: 'slow', dataMapping: { a: 'trigger.a' }, waitForCompletion: false }),
        writing('{{outputs.call.status}}'),
      ),
    )
    const { result_data, status } = await over(await execute('starting', { a: 7, b: 8 }))
    expect(status).toBe('completed')
    const { executionId } = result_data.call
    expect(result_data.call).toEqual({ success: true, executionId, status: 'queued', result: null })
    expect(await rows(`step = 'queued'`)).toHaveLength(1)
    const [started] = await api.sql('select * from "svc_WorkflowExecution" where id = $1', [executionId])
    expect(started).toMatchObject({ trigger_data: { a: 7 }, parent_Id: null, trigger: 'workflow' })
    const begun = await api.sql(
      `select "userId" from "svc_AuditLog" where entity = 'svc_WorkflowExecution' and action = 'create' and "entityId" = $1`,
      [executionId],
    )
    expect(begun).toEqual([{ userId: started.triggered_by_Id }])
    await api.admin('POST', `/workflows/slow/executions/${executionId}/cancel`)
  })

  it('finds, describes and deletes files with the rights of the user it acts for', async () => {
    const part = { name: 'file', filename: 'notes.txt', type: 'text/plain', content: 'of workflows' }
    const { status, body } = await upload(api, adminToken, '/files', [part])
    expect([200, 201]).toContain(status)
    const fileId = body.data
    await save(
      'filing',
      chain(
        node('list', 'file', { operation: 'list', filter: { id: '{{trigger.id}}' } }),
        node('info', 'file', { operation: 'info', fileId: '{{trigger.id}}' }),
        node('gone', 'file', { operation: 'delete', fileId: '{{trigger.id}}' }),
      ),
    )
    const stranger = await api.user()
    expect(await over(await execute('filing', { id: fileId }, stranger.call))).toMatchObject({ status: 'failed' })
    const before = await api.position()
    const { result_data } = await over(await execute('filing', { id: fileId }))
    expect(result_data.list).toMatchObject({ success: true, totalCount: 1, files: [{ id: fileId, size: 12 }] })
    expect(result_data.info).toMatchObject({ success: true, file: { id: fileId, type: 'text/plain' } })
    expect(result_data.gone).toEqual({ success: true, operation: 'delete', fileId })
    expect((await api.admin('GET', `/items/svc_File/${fileId}`)).status).toBe(403)
    const events = (await api.log(before)).filter(({ entity }) => entity === 'svc_File')
    expect(events.map(({ action }) => action)).toEqual(['delete'])
  })

  it('calls functions of extensions from its scripts; before a change they are part of it', async () => {
    const script = `const tax = require('tax'); return { gross: await tax.gross(100, 0.25) }`
    await save('taxing', chain(node('s', 'script', { script })))
    expect((await over(await execute('taxing'))).result_data.s.result).toEqual({ gross: 125 })
    for (const name of ['broken', 'large', 'circular']) {
      const hiding = await save(
        `hiding-${name}`,
        chain(node('s', 'script', { script: `await require('tax').${name}()` })),
      )
      expect((await over(await execute(hiding))).errorMessage).toMatch(/^s: This call has failed/)
    }
    const refusing = `return await require('tax').closed().catch(({ message, status, code }) => ({ message, status, code }))`
    await save('refusing', chain(node('s', 'script', { script: refusing })))
    expect((await over(await execute('refusing'))).result_data.s.result).toEqual({
      ...{ message: 'The year is closed', status: 409, code: 'YEAR_CLOSED' },
    })
    await save(
      'guarding',
      chain(
        node('s', 'script', {
          script: `await require('tax').noted('guarded ' + trigger.data.step)\nif (trigger.data.step === 'bad') throw Object.assign(new Error('No'), { status: 422 })`,
        }),
      ),
      hook('paper', 'create'),
    )
    expect((await api.admin('POST', '/items/paper', { step: 'good' })).status).toBe(201)
    expect((await api.admin('POST', '/items/paper', { step: 'bad' })).status).toBe(422)
    expect((await rows(`step like 'guarded %'`)).map(({ step }) => step)).toEqual(['guarded good'])
    await api.admin('DELETE', '/workflows/guarding')
  })
})

describe('triggers', () => {
  it('is a row that is marked as deleted, restored, and deleted for good', async () => {
    const flow = chain(node('v', 'variable', { variables: { seen: '{{trigger.document.step}}' } }))
    for (const action of ['create', 'update', 'delete'])
      await save(`paper-${action}`, flow, hook('paper', `${action}.after`))
    const ofLife = async (action: string) =>
      (await of(`paper-${action}`)).filter(({ trigger_data }) => trigger_data.document.step === 'of a life')
    const count = async () => {
      const found = ['create', 'update', 'delete'].map(async (action) => [action, (await ofLife(action)).length])
      return Object.fromEntries(await Promise.all(found))
    }
    const { body } = await api.admin('POST', '/items/paper', { step: 'of a life' })
    const paper = body.data.id
    await waitFor(async () => (await count()).create === 1)
    expect((await api.admin('DELETE', `/items/paper/${paper}`)).status).toBe(200)
    await waitFor(async () => (await count()).delete === 1)
    await api.sql(`update paper set "deletedAt" = null where id = $1`, [paper])
    await waitFor(async () => (await count()).create === 2)
    await api.sql('delete from paper where id = $1', [paper])
    await waitFor(async () => (await count()).delete === 2)
    expect(await count()).toEqual({ create: 2, update: 0, delete: 2 })
    for (const action of ['create', 'delete'])
      for (const { trigger_data } of await ofLife(action))
        expect(trigger_data).toMatchObject({
          event: `items.${action}.after`,
          id: paper,
          document: { step: 'of a life' },
        })
    for (const action of ['create', 'update', 'delete']) await api.admin('DELETE', `/workflows/paper-${action}`)
  })

  it('carries rows in the form in which reads and the changes show them', async () => {
    const fields = {
      ...{ id, step: text, at: { type: 'DateTime' }, amount: { type: 'Decimal', values: { precision: 20, scale: 2 } } },
      ...{ big: { type: 'BigInt' }, day: { type: 'Date' }, secret: { ...text, hidden: true } },
    }
    const schema = { fields, timestamps: true, paranoid: true }
    expect((await api.admin('POST', '/schemas', { collectionName: 'entry', schema })).status).toBe(201)
    const flow = chain(node('v', 'variable', { variables: { amount: '{{trigger.document.amount}}' } }))
    for (const action of ['create', 'update', 'delete'])
      await save(`entry-${action}`, flow, hook('entry', `${action}.after`))
    const { cursor } = (await api.admin('GET', '/changes?collections=entry')).body
    const entry = {
      ...{ step: 'one', at: '2026-03-01T10:00:13.530974+02:00', day: '2026-03-01', secret: 'hush' },
      ...{ amount: '1234567890123456.70', big: '9007199254740993' },
    }
    const created = (await api.admin('POST', '/items/entry', entry)).body.data.id
    const first = (await api.admin('GET', `/items/entry/${created}`)).body.data
    expect(first).toMatchObject({ amount: '1234567890123456.70', big: '9007199254740993', day: '2026-03-01' })
    expect(first.at).toMatch(/^2026-03-01T08:00:13\.53\dZ$/)
    expect((await api.admin('PATCH', `/items/entry/${created}`, { amount: '19.90' })).status).toBe(200)
    const second = (await api.admin('GET', `/items/entry/${created}`)).body.data
    expect((await api.admin('DELETE', `/items/entry/${created}`)).status).toBe(200)
    const [onCreate, onUpdate, onDelete] = [
      await one('entry-create'),
      await one('entry-update'),
      await one('entry-delete'),
    ]
    const changes = (await api.admin('GET', `/changes?collections=entry&since=${cursor}`)).body.data
    expect(onCreate.trigger_data).toMatchObject({ id: created, document: first, data: first, previousDocument: null })
    expect(onUpdate.trigger_data).toMatchObject({ document: second, previousDocument: first })
    expect(onDelete.trigger_data.document).toMatchObject({ amount: '19.90', big: '9007199254740993' })
    expect([onCreate, onUpdate].map(({ trigger_data }) => trigger_data.document)).toEqual(
      changes.slice(0, 2).map(({ data }: { data: unknown }) => data),
    )
    // The outputs of nodes are what the author's mail, notification or request says.
    const { id: execution } = onCreate
    expect((await over(execution)).result_data.v.variables).toEqual({ amount: '1234567890123456.70' })
    for (const action of ['create', 'update', 'delete']) await api.admin('DELETE', `/workflows/entry-${action}`)
  })

  it('is the reading of one row, of which it may narrow the query', async () => {
    const { body } = await api.admin('POST', '/items/paper', { step: 'read' })
    const path = `/items/paper/${body.data.id}`
    await save(
      'narrowing',
      chain(node('q', 'transform', { transformType: 'mapping', mapping: { 'query.fields': 'id' } })),
      hook('paper', 'read.one'),
    )
    await save(
      'noticing',
      chain(node('v', 'variable', { variables: { ids: '{{trigger.ids}}' } })),
      hook('paper', 'read.one.after'),
    )
    expect((await api.admin('GET', path)).body.data).toEqual({ id: body.data.id })
    const noticed = await over((await one('noticing')).id)
    expect(noticed).toMatchObject({
      status: 'completed',
      trigger: 'hook',
      context_data: { variables: { ids: [body.data.id] } },
    })
    expect(JSON.stringify(noticed.trigger_data)).not.toContain('"document"')
    for (const name of ['narrowing', 'noticing']) await api.admin('DELETE', `/workflows/${name}`)
    expect((await api.admin('GET', path)).body.data).toHaveProperty('step')
  })
})

describe('the user as whom one acts', () => {
  const kinds = {
    manual: {},
    webhook: { trigger_type: 'webhook', trigger_webhook_method: 'POST' },
    hook: hook('push', 'create.after'),
    schedule: { trigger_type: 'schedule', trigger_cron: '0 3 1 1 *' },
  }
  const editing = [
    ...grants('svc_Workflow', 'create', 'read', 'update'),
    ...grants('push', 'read'),
    ...grants('act', 'create'),
  ]

  /** Authors with a workflow of each kind, of whom some may not act any more. */
  const madeBy = async () => {
    const roles = await api.sql(`select id from "svc_Role" where name = 'administrator'`)
    const [chief] = await api.sql('select id from "svc_User" order by "createdAt" limit 1')
    const editor = await api.user(editing)
    const authors = {
      administrator: { call: api.admin, id: String(chief.id) },
      editor,
      suspended: await api.user(editing),
      deleted: await api.user(editing),
      roleless: await api.user(editing),
      demoted: await createUser(api, roles[0].id, null),
    }
    for (const [author, { call }] of Object.entries(authors))
      for (const [kind, trigger] of Object.entries(kinds)) {
        const workflow = `${kind}-of-${author}`
        const act = node('act', 'service', { operation: 'create', collection: 'act', data: { step: workflow } })
        const path = kind === 'webhook' && { trigger_webhook_path: workflow }
        await save(workflow, chain(act), { ...trigger, ...path }, call)
      }
    const { suspended, deleted, roleless, demoted } = authors
    expect((await api.admin('PATCH', `/items/svc_User/${suspended.id}`, { status: 'suspended' })).status).toBe(200)
    expect((await api.admin('DELETE', `/items/svc_User/${deleted.id}`)).status).toBe(200)
    await api.sql('delete from "svc_UserRole" where "user_Id" = $1', [roleless.id])
    await api.sql('update "svc_UserRole" set "role_Id" = $1 where "user_Id" = $2', [editor.roleId, demoted.id])
    return authors
  }
  const names = (authors: object, kind: string) => Object.keys(authors).map((author) => `${kind}-of-${author}`)
  const trigger = async (authors: object, callers: readonly { call: Call }[]) => {
    for (const { call } of callers) {
      for (const workflow of names(authors, 'manual')) await execute(workflow, {}, call)
      expect((await call('POST', '/items/push', { step: 'a' })).status).toBe(201)
    }
    for (const call of [api.anonymous, ...callers.map((caller) => caller.call)])
      for (const workflow of names(authors, 'webhook'))
        expect((await call('POST', `/webhook/${workflow}`, {})).status).toBe(200)
    await api.sql(`insert into push (step) values ('by SQL')`)
    const due = await api.sql(
      `update "svc_WorkflowSchedule" set "nextAt" = now() - interval '1 second' where "workflow_Id" like 'schedule-of-%' returning 1`,
    )
    await api.sql('notify svc_workflows')
    return due.length
  }

  it('is the user who triggers it where an administrator saved it, else its author as they are now, or the public role', async () => {
    const fields = { id, step: text }
    for (const collectionName of ['act', 'push'])
      expect(
        (await api.admin('POST', '/schemas', { collectionName, schema: { fields, usertrack: true } })).status,
      ).toBe(201)
    const able = await api.user([...grants('push', 'create'), ...grants('act', 'create')])
    const powerless = await api.user(grants('push', 'create'))
    const authors = await madeBy()
    await waitFor(
      async () =>
        (await api.sql(`select 1 from "svc_WorkflowSchedule" where "workflow_Id" like 'schedule-of-%'`)).length === 6,
    )
    expect(await trigger(authors, [able, powerless])).toBe(6)
    const triggered = {
      manual: [able, powerless],
      webhook: [able, powerless, null],
      hook: [able, powerless, null],
      schedule: [null],
    }
    const all = await waitFor(async () => {
      const found = await api.sql(
        `select e.*, (select array_agg(l.changes->'after'->>'status' order by l.position) from "svc_AuditLog" l
            where l.entity = 'svc_WorkflowExecution' and l."entityId" = e.id::text) as events,
          (select count(*)::int from "svc_WorkflowExecutionLog" n where n."execution_Id" = e.id) as nodes
         from "svc_WorkflowExecution" e where e."workflow_Id" ~ '^(manual|webhook|hook|schedule)-of-' and e.status in ('completed', 'failed')`,
      )
      return found.length === 54 ? found : undefined
    })
    const acts = await api.sql(
      `select a.step, a."userCreated_Id" as "by", l."userId" as "triggeredBy", l.cause->'chain' as chain
       from act a join "svc_AuditLog" l on l.entity = 'act' and l."entityId" = a.id::text`,
    )
    const inactive = 'The author of the workflow is not active any more, or has no role: somebody else has to save it'
    const gone: Readonly<Record<string, string>> = {
      ...{ suspended: inactive, roleless: inactive, deleted: 'The workflow has no author: somebody has to save it' },
    }
    const denied = "act: You don't have permission to create items in 'act'"
    for (const [author, { id: authorId }] of Object.entries(authors))
      for (const [kind, by] of Object.entries(triggered)) {
        const workflow = `${kind}-of-${author}`
        const refusal = gone[author]
        const expected = by.map((caller) => {
          const acting = author === 'administrator' ? (caller?.id ?? null) : authorId
          const may = refusal === undefined && acting !== null && acting !== powerless.id
          const outcome =
            refusal !== undefined ? ['failed', refusal, 0] : may ? ['completed', null, 2] : ['failed', denied, 2]
          return { triggeredBy: caller?.id ?? null, acting: may ? acting : undefined, outcome }
        })
        const own = all.filter(({ workflow_Id }) => workflow_Id === workflow)
        const ofCaller = (user: string | null) => own.filter(({ triggered_by_Id }) => triggered_by_Id === user)
        expect(own, workflow).toHaveLength(expected.length)
        for (const { triggeredBy, acting, outcome } of expected) {
          const [found, ...more] = ofCaller(triggeredBy)
          expect(more).toEqual([])
          expect([workflow, triggeredBy, found.status, found.errorMessage, found.nodes]).toEqual([
            ...[workflow, triggeredBy, ...outcome],
          ])
          expect([workflow, found.trigger, found.events]).toEqual([workflow, kind, ['queued', 'running', found.status]])
          const written = acts.filter((act) => act.step === workflow && act.triggeredBy === triggeredBy)
          expect(written.map((act) => [act.by, act.chain[0].split(' on ')[0]])).toEqual(
            acting === undefined ? [] : [[acting, workflow]],
          )
        }
        const notices = await api.sql(
          `select "userId", title, message from "svc_Notification" where data->>'workflowId' = $1`,
          [workflow],
        )
        expect(notices).toEqual(
          refusal !== undefined
            ? [{ userId: authors.administrator.id, title: `The workflow ${workflow} failed`, message: refusal }]
            : [],
        )
      }
    for (const workflow of names(authors, 'hook')) await api.admin('DELETE', `/workflows/${workflow}`)
  })
})

describe('a file of workflows', () => {
  it('is imported by a form, over those that there are where it is asked', async () => {
    const flow_data = chain(writing('imported'))
    await save('carried', flow_data)
    const { body: file } = await api.admin('GET', '/workflows/carried/export')
    const changed = { ...file, workflows: [{ ...file.workflows[0], name: 'by form' }] }
    const part = (content: string) => [{ name: 'file', filename: 'workflows.json', type: 'application/json', content }]
    const sent = (query: string, content = JSON.stringify(changed), path = '/workflows/import') =>
      upload(api, adminToken, `${path}${query}`, part(content))
    expect((await sent('')).body).toMatchObject({ summary: { skipped: 1, updated: 0 } })
    expect((await sent('?overwrite=true', undefined, '/workflows/import/preview')).body.workflows).toMatchObject([
      { action: 'update' },
    ])
    const before = await api.position()
    expect((await sent('?overwrite=true')).body).toMatchObject({ summary: { skipped: 0, updated: 1 } })
    expect((await api.admin('GET', '/workflows/carried')).body.data.name).toBe('by form')
    expect(
      (await api.log(before)).filter(({ entity }) => entity === 'svc_Workflow').map(({ action }) => action),
    ).toEqual(['update'])
    const beside = [...part(JSON.stringify(file)), { name: 'overwrite', value: 'true' }]
    for (const parts of [beside, beside.toReversed()])
      expect((await upload(api, adminToken, '/workflows/import', parts)).body).toMatchObject({
        summary: { updated: 1 },
      })
    for (const content of ['{"workflows": 7}', 'no json', '[]']) expect((await sent('', content)).status).toBe(400)
    expect(
      (await upload(api, adminToken, '/workflows/import', [{ name: 'other', value: 'x' }])).body.error.message,
    ).toBe('Invalid import file format')
  })
})

describe('a hostile', () => {
  it('answer of a webhook is of no origin, and says nothing to browsers and proxies that is ours to say', async () => {
    const headers = {
      ...{ 'content-type': 'text/html', location: '/elsewhere', 'x-own': 'kept', 'cache-control': 'no-store' },
      ...{
        'set-cookie': 'a=b',
        'X-Accel-Redirect': '/etc/passwd',
        'x-sendfile': '/etc/passwd',
        'clear-site-data': '"*"',
      },
      ...{
        'Content-Security-Policy': 'default-src *',
        'x-content-type-options': 'off',
        'access-control-allow-origin': '*',
      },
      ...{ 'service-worker-allowed': '/', 'alt-svc': 'h3=":1"', 'x-frame-options': 'none', 'x-request-id': 'forged' },
    }
    const answer = node('r', 'respond', { body: '<script>alert(document.cookie)</script>', headers })
    await save('page', chain(answer), {
      trigger_type: 'webhook',
      trigger_webhook_path: 'page',
      trigger_webhook_method: 'GET',
    })
    const got = await api.anonymous('GET', '/webhook/page')
    expect(got.status).toBe(200)
    expect(got.headers).toMatchObject({
      ...{ 'content-type': expect.stringContaining('text/html'), 'x-own': 'kept', 'cache-control': 'no-store' },
      ...{ 'content-security-policy': 'sandbox allow-forms allow-scripts', 'x-content-type-options': 'nosniff' },
    })
    for (const name of [
      'set-cookie',
      'x-accel-redirect',
      'x-sendfile',
      'clear-site-data',
      'service-worker-allowed',
      'alt-svc',
      'x-frame-options',
    ])
      expect(got.headers, name).not.toHaveProperty(name)
    expect(got.headers['x-request-id']).not.toBe('forged')
    expect(got.headers['access-control-allow-origin']).not.toBe('*')
  })

  it('crowd of executions is bounded, whichever way they come', async () => {
    await save('crowded', chain(writing('crowded')))
    await api.sql(
      `insert into "svc_WorkflowExecution" ("workflow_Id", version, due_at) select 'crowded', 1, now() + interval '1 hour' from generate_series(1, 20)`,
    )
    const refused = await api.admin('POST', '/workflows/crowded/execute', {})
    expect([refused.status, refused.headers['retry-after']]).toEqual([503, '1'])
    await save('calling-crowded', chain(node('call', 'workflow', { workflowId: 'crowded', waitForCompletion: false })))
    expect((await over(await execute('calling-crowded'))).errorMessage).toBe(
      'call: 20 executions of crowded wait already (WORKFLOW_QUEUE_LIMIT)',
    )
    await api.admin('PATCH', '/workflows/crowded', { ...hook('paper', 'create.after') })
    await api.admin('POST', '/items/paper', { step: 'one too many' })
    await waitFor(async () => (await of('crowded')).length === 21)
    expect((await of('crowded')).at(-1)).toMatchObject({
      status: 'failed',
      errorMessage: expect.stringContaining('wait already'),
    })
    expect(await rows(`step = 'crowded'`)).toEqual([])
    await api.admin('DELETE', '/workflows/crowded')
  })

  it('editor opens nothing to others that is not theirs, and tries nothing that they may not write', async () => {
    const editor = await api.user(grants('svc_Workflow', 'create', 'read', 'update'))
    const managers = await createRole(api)
    const [{ id: adminId }] = await api.sql('select id from "svc_User" order by "createdAt" limit 1')
    await save('restricted', chain(writing('raised', { bypassPermissions: true })), { allowed_roles: [managers] })
    expect((await editor.call('POST', '/workflows/restricted/execute', {})).status).toBe(403)
    expect((await editor.call('PATCH', '/workflows/restricted', { name: 'renamed' })).status).toBe(200)
    // A user who lets others start it answers for what it does: with their own rights from then on.
    expect((await editor.call('PATCH', '/workflows/restricted', { allowed_roles: null })).status).toBe(200)
    const [saved] = await api.sql(`select * from "svc_Workflow" where id = 'restricted'`)
    expect(saved).toMatchObject({ authority_Id: editor.id })
    expect(saved.flow_data.nodes[1].data.bypassPermissions).toBe(false)
    expect(await over(await execute('restricted', {}, editor.call))).toMatchObject({
      ...{ status: 'failed', errorMessage: expect.stringContaining('permission') },
    })
    await save('scripted', chain(node('s', 'script', { script: 'return 1' })), { allowed_roles: [managers] })
    expect((await editor.call('PATCH', '/items/svc_Workflow/scripted', { allowed_roles: [] })).status).toBe(403)
    expect((await api.sql(`select "authority_Id" from "svc_Workflow" where id = 'scripted'`))[0].authority_Id).toBe(
      adminId,
    )
    // A node by itself is given what its caller makes up.
    await save('mailing', chain(node('mail', 'email', { to: '{{outputs.user.data.email}}', subject: 's', body: 'b' })))
    const user = await api.user()
    const forged = { inputData: { outputs: { user: { data: { email: 'victim@example.com' } } } } }
    expect((await user.call('POST', '/workflows/mailing/nodes/mail/execute', forged)).status).toBe(403)
    expect(await api.sql(`select 1 from "svc_EmailLog" where email = 'victim@example.com'`)).toEqual([])
  })

  it('editor is told by changes of no row or field that they may not read', async () => {
    const flow = chain(node('v', 'variable', { variables: { seen: '{{trigger.document}}' } }))
    const blind = await api.user(grants('svc_Workflow', 'create'))
    const refused = await blind.call('POST', '/workflows', {
      ...{ name: 'b', flow_data: flow, ...hook('paper', 'create.after') },
    })
    expect([refused.status, refused.body.error.details.errors]).toEqual([
      403,
      [{ code: 'unreadable', message: "You may not read 'paper': its changes cannot trigger your workflow" }],
    ])
    const sight = {
      collection: 'paper',
      action: 'read',
      fields: ['id', 'step'],
      conditions: { step: { startsWith: 'open' } },
    }
    const editor = await api.user([...grants('svc_Workflow', 'create', 'update'), sight])
    for (const action of ['create', 'update', 'delete'])
      await save(`seen-${action}`, flow, hook('paper', `${action}.after`), editor.call)
    const made = async (step: string) => (await api.admin('POST', '/items/paper', { step })).body.data.id
    const [closed, open, closing] = [await made('closed'), await made('open'), await made('open, then closed')]
    await api.admin('PATCH', `/items/paper/${closing}`, { step: 'closed' })
    await api.admin('PATCH', `/items/paper/${closed}`, { step: 'open now' })
    await api.admin('PATCH', `/items/paper/${open}`, { step: 'open still' })
    for (const id of [closing, closed, open]) await api.admin('DELETE', `/items/paper/${id}`)
    await waitFor(async () => (await of('seen-delete')).length === 2)
    // Those of changes that are followed together are made in one moment.
    const told = async (action: string) =>
      (await of(`seen-${action}`))
        .map(({ trigger_data: { document, previousDocument } }) => [document, previousDocument])
        .toSorted(([one], [other]) => one.step.localeCompare(other.step))
    const [opened, still] = [
      { id: closed, step: 'open now' },
      { id: open, step: 'open still' },
    ]
    expect(await told('create')).toEqual([
      [{ id: open, step: 'open' }, null],
      [{ id: closing, step: 'open, then closed' }, null],
    ])
    expect(await told('update')).toEqual([
      [opened, null],
      [still, { id: open, step: 'open' }],
    ])
    expect(await told('delete')).toEqual([
      [opened, opened],
      [still, still],
    ])
    // Of an author who is gone it says why, and nothing of the row; for a second after they were suspended the follower may not know.
    await api.sql(`update "svc_User" set status = 'suspended' where id = $1`, [editor.id])
    const failed = async () => (await of('seen-create')).filter(({ status }) => status === 'failed')
    const isOfNothing = ({ trigger_data }: { trigger_data: { document: unknown } }) => trigger_data.document === null
    await waitFor(async () => {
      await made('open')
      return (await failed()).some(isOfNothing)
    })
    for (const { errorMessage } of await failed()) expect(errorMessage).toMatch(/^The author/)
    expect((await failed()).find(isOfNothing)!.trigger_data).toMatchObject({ document: null, data: null })
    for (const action of ['create', 'update', 'delete']) await api.admin('DELETE', `/workflows/seen-${action}`)
  })

  it('graph before a change calls nothing by others that it could not call itself', async () => {
    await save('outside', chain(node('h', 'http', { url: 'https://example.com' })))
    await save('between', chain(node('c', 'workflow', { workflowId: 'outside' })))
    const row = {
      name: 'b',
      status: 'active',
      flow_data: chain(node('call', 'workflow', { workflowId: 'between' })),
      ...hook('paper', 'create'),
    }
    const { status, body } = await api.admin('POST', '/workflows', row)
    expect([status, body.error.details.errors]).toEqual([
      400,
      [
        {
          code: 'before_hook',
          nodeId: 'call',
          message: expect.stringMatching(/^outside calls http \(h\): .*use the \.after action/),
        },
      ],
    ])
    // One that changes afterwards is refused when it runs.
    await save('harmless', chain(node('v', 'variable', { variables: { a: 1 } })))
    await save('asking', chain(node('call', 'workflow', { workflowId: 'harmless' })), hook('paper', 'create'))
    await api.admin('PATCH', '/workflows/harmless', { flow_data: chain(node('wait', 'delay', { delay: 1 })) })
    const made = await api.admin('POST', '/items/paper', { step: 'refused' })
    expect([made.status, made.body.error.code]).toEqual([400, 'HOOK_REFUSED'])
    expect(made.body.error.message).toContain('the change cannot wait')
    await api.admin('DELETE', '/workflows/asking')
  })
})

describe('tenants', () => {
  it('have their own workflows and executions, and share those without a tenant', async () => {
    const multi = await startApi({ MULTI_TENANT: 'true' })
    const saveMulti = saver(multi)
    const worker = await openWorkflows(multi.runtime)
    onTestFinished(() => worker.stop(5000))
    const fields = { id, step: text, tenant_Id: { type: 'UUID' } }
    expect((await multi.admin('POST', '/schemas', { collectionName: 'deal', schema: { fields } })).status).toBe(201)
    const [a, b] = (await Promise.all(['a', 'b'].map((name) => createTenant(multi, name)))) as [string, string]
    const role = await createRole(multi, { isTenantSpecific: true })
    await grant(
      multi,
      role,
      ...grants('deal', 'create', 'read'),
      ...grants('svc_Workflow', 'create', 'read', 'update'),
      ...grants('svc_WorkflowExecution', 'read'),
    )
    const [userA, userB] = [await createUser(multi, role, a), await createUser(multi, role, b)]
    const deal = (step: string) =>
      chain(node('write', 'service', { operation: 'create', collection: 'deal', data: { step } }))
    await saveMulti('of-a', deal('of a'), {}, userA.call)
    expect((await multi.sql(`select "tenant_Id" from "svc_Workflow" where id = 'of-a'`))[0].tenant_Id).toBe(a)
    await saveMulti('of-all', deal('of all'))
    const started = async (workflow: string, call: Call) => {
      const { body } = await call('POST', `/workflows/${workflow}/execute`, {})
      return over(body.execution.id, multi)
    }
    expect(await started('of-a', userA.call)).toMatchObject({ status: 'completed', tenant_Id: a })
    expect(await started('of-all', userB.call)).toMatchObject({ status: 'completed', tenant_Id: b })
    expect((await multi.sql('select step, "tenant_Id" from deal order by id')).map(Object.values)).toEqual([
      ['of a', a],
      ['of all', b],
    ])
    const [{ id: ofA }] = await of('of-a', multi)
    for (const [method, path, sent] of [
      ['GET', '/workflows/of-a', undefined],
      ['PATCH', '/workflows/of-a', { name: 'taken' }],
      ['POST', '/workflows/of-a/execute', {}],
      ['POST', '/workflows/of-a/test', {}],
      ['GET', '/workflows/of-a/executions', undefined],
      ['GET', `/workflows/of-a/executions/${ofA}`, undefined],
      ['GET', '/workflows/of-a/stats', undefined],
      ['POST', `/workflows/of-a/executions/${ofA}/cancel`, undefined],
      ['POST', `/workflows/of-a/executions/${ofA}/retry`, undefined],
      ['GET', `/workflows/of-all/executions/${ofA}`, undefined],
    ] as const)
      expect([path, [403, 404].includes((await userB.call(method, path, sent)).status)]).toEqual([path, true])
    // Of a workflow of all each sees their own executions.
    await started('of-all', userA.call)
    for (const [user, tenant] of [
      [userA, a],
      [userB, b],
    ] as const) {
      const { body } = await user.call('GET', '/workflows/of-all/executions')
      expect([body.totalCount, body.data[0].tenant_Id]).toEqual([1, tenant])
      expect((await user.call('GET', '/workflows/of-all/stats')).body.total).toBe(1)
    }
    // Changes trigger what is their own tenant's, and what is of all.
    const noting = chain(node('v', 'variable', { variables: { step: '{{trigger.document.step}}' } }))
    await saveMulti('after-a', noting, hook('deal', 'create.after'), userA.call)
    await saveMulti('after-all', noting, hook('deal', 'create.after'))
    for (const user of [userA, userB])
      expect((await user.call('POST', '/items/deal', { step: 'new' })).status).toBe(201)
    await waitFor(async () => (await of('after-all', multi)).length === 2)
    expect((await of('after-all', multi)).map(({ tenant_Id }) => tenant_Id).sort()).toEqual([a, b].sort())
    expect((await of('after-a', multi)).map(({ tenant_Id }) => tenant_Id)).toEqual([a])
    const webhook = { trigger_type: 'webhook', trigger_webhook_path: 'in', trigger_webhook_method: 'POST' }
    await saveMulti('in-a', noting, webhook, userA.call)
    expect(
      (await userB.call('POST', '/workflows', { name: 'in', status: 'active', flow_data: noting, ...webhook })).status,
    ).toBe(409)
  })
})
