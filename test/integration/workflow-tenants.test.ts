import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openWorkflows } from '../../src/workers/workflows.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { chain, node } from '../support/flows.ts'
import { createRole, createTenant, createUser, grant, type TenantUser } from '../support/tenants.ts'
import { waitFor } from '../support/wait.ts'

/** What workflows and executions of one tenant, or of one user, are to others. */

let api: Api
let service: Awaited<ReturnType<typeof openWorkflows>>
let role: string
let ada: TenantUser
let bo: TenantUser

const grants = (collection: string, ...actions: string[]) =>
  actions.map((action) => ({ collection, action, fields: ['*'] }))

beforeAll(async () => {
  api = await startApi({ MULTI_TENANT: 'true' })
  const fields = {
    id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } },
    step: { type: 'String', allowNull: true },
    tenant_Id: { type: 'UUID' },
  }
  expect((await api.admin('POST', '/schemas', { collectionName: 'deal', schema: { fields } })).status).toBe(201)
  role = await createRole(api, { isTenantSpecific: true })
  await grant(
    api,
    role,
    ...grants('deal', 'create', 'read'),
    ...grants('svc_Workflow', 'create', 'read', 'update'),
    ...grants('svc_WorkflowExecution', 'read'),
  )
  ada = await createUser(api, role, await createTenant(api, 'Engines'))
  bo = await createUser(api, role, await createTenant(api, 'Bakery'))
  service = await openWorkflows(api.runtime)
})

afterAll(() => service?.stop(5000))

async function save(id: string, flow_data: object, more: object = {}, call: Call = api.admin): Promise<void> {
  const { status, text } = await call('POST', '/workflows', { id, name: id, status: 'active', flow_data, ...more })
  expect(status, text).toBe(201)
}

/** The execution that the call starts, when it is over. */
async function run(workflow: string, call: Call, data: object = {}) {
  const { status, body, text } = await call('POST', `/workflows/${workflow}/execute`, data)
  expect(status, text).toBe(200)
  return waitFor(async () => {
    const [found] = await api.sql('select * from "svc_WorkflowExecution" where id = $1', [body.execution.id])
    return ['completed', 'failed', 'cancelled'].includes(found.status) ? found : undefined
  })
}

const executionsOf = async (workflow: string): Promise<number> =>
  (await api.sql('select count(*)::int as n from "svc_WorkflowExecution" where "workflow_Id" = $1', [workflow]))[0].n

const writing = (step: string) =>
  chain(node('write', 'service', { operation: 'create', collection: 'deal', data: { step } }))
const calling = (workflowId: string, more: object = {}) => chain(node('call', 'workflow', { workflowId, ...more }))

describe('a node that calls a workflow', () => {
  const notThere = (id: string) => `call: Workflow ${id} is not there, or not active`

  it('finds those of its own tenant and those of none, and no more of others than of what does not exist', async () => {
    await save('of-bo', writing('of bo'), {}, bo.call)
    await save('of-all', writing('of all'))
    for (const [id, how] of [
      ['waits', {}],
      ['goes-on', { waitForCompletion: false }],
    ] as const) {
      await save(`ada-${id}`, calling('{{trigger.id}}', how), {}, ada.call)
      expect(await run(`ada-${id}`, ada.call, { id: 'of-bo' })).toMatchObject({
        ...{ status: 'failed', errorMessage: notThere('of-bo') },
      })
      expect((await run(`ada-${id}`, ada.call, { id: 'none' })).errorMessage).toBe(notThere('none'))
      expect(await run(`ada-${id}`, ada.call, { id: 'of-all' })).toMatchObject({ status: 'completed' })
    }
    expect(await executionsOf('of-bo')).toBe(0)
    expect(await api.sql(`select 1 from deal where step = 'of bo'`)).toEqual([])
    await save('bo-calls', calling('of-bo'), {}, bo.call)
    expect(await run('bo-calls', bo.call)).toMatchObject({ status: 'completed' })
    expect(await executionsOf('of-bo')).toBe(1)
  })

  it('finds in an administrator’s workflow what the user who runs it may find', async () => {
    await save('bo-own', writing('own'), {}, bo.call)
    await save('shared', calling('bo-own'))
    expect((await run('shared', ada.call)).errorMessage).toBe(notThere('bo-own'))
    expect(await executionsOf('bo-own')).toBe(0)
    expect(await run('shared', bo.call)).toMatchObject({ status: 'completed' })
    expect(await run('shared', api.admin)).toMatchObject({ status: 'completed' })
  })

  it('finds before a change what its maker may find', async () => {
    await save('bo-before', writing('as bo'), {}, bo.call)
    const hook = { trigger_type: 'hook', trigger_hook_collection: 'deal', trigger_hook_action: 'items.read' }
    await save('before', calling('bo-before'), hook)
    const refused = await ada.call('GET', '/items/deal')
    expect([refused.status, refused.body.error.message]).toEqual([400, notThere('bo-before').slice('call: '.length)])
    expect(await api.sql(`select 1 from deal where step = 'as bo'`)).toEqual([])
    expect((await bo.call('GET', '/items/deal')).status).toBe(200)
    expect(await api.sql(`select 1 from deal where step = 'as bo'`)).toHaveLength(1)
    expect((await api.admin('DELETE', '/workflows/before')).status).toBe(200)
  })
})
