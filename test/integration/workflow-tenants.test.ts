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

describe('a node that bypasses permissions', () => {
  const raised = (name: string, data: object) => node(name, 'service', { ...data, bypassPermissions: true })
  const deals = { collection: 'deal', fields: ['step', 'tenant_Id'] }
  const nodes = [
    raised('make', { ...deals, operation: 'create', data: { step: 'made' } }),
    raised('read', { ...deals, operation: 'read', sort: 'id' }),
    raised('own', { ...deals, operation: 'read', filter: { tenant_Id: '$CURRENT_TENANT' }, sort: 'id' }),
    raised('tenants', { operation: 'read', collection: 'svc_Tenant', fields: ['name'] }),
    raised('people', { operation: 'read', collection: 'svc_User', fields: ['email'] }),
  ]
  const reading = chain(...nodes)
  const all = chain(...nodes, raised('none', { operation: 'read', collection: 'svc_Account' }))
  let tenant: string
  let limited: TenantUser

  beforeAll(async () => {
    ;[{ tenant_Id: tenant }] = await api.sql('select "tenant_Id" from "svc_UserRole" where "user_Id" = $1', [ada.id])
    // May execute, and nothing else.
    limited = await createUser(api, await createRole(api, { isTenantSpecific: true }), tenant)
    expect((await bo.call('POST', '/items/deal', { step: 'secret of bo' })).status).toBe(201)
  })

  const expectInside = ({ status, errorMessage, result_data }: Awaited<ReturnType<typeof run>>) => {
    expect([status, errorMessage]).toEqual(['completed', null])
    expect(result_data.make.data).toEqual({ step: 'made', tenant_Id: tenant })
    const rows: { step: string; tenant_Id: string }[] = result_data.read.data
    expect([...new Set(rows.map(({ tenant_Id }) => tenant_Id))]).toEqual([tenant])
    expect(result_data.own.data).toEqual(rows)
    expect(result_data.tenants.data).toEqual([{ name: 'Engines' }])
    const emails = result_data.people.data.map(({ email }: { email: string }) => email)
    expect(emails).toContain(ada.email)
    expect(emails).not.toContain(bo.email)
  }

  it('stays at the tenant of the workflow, whoever runs it', async () => {
    await save('bypass-ada', reading, { tenant_Id: tenant })
    for (const call of [limited.call, api.admin]) expectInside(await run('bypass-ada', call))
  })

  it('stays at the tenant of the user who runs a workflow without one', async () => {
    await save('bypass-any', reading)
    expectInside(await run('bypass-any', limited.call))
  })

  it('leaves alone what belongs to users', async () => {
    await save('bypass-people', all, { tenant_Id: tenant })
    expect((await run('bypass-people', limited.call)).errorMessage).toMatch(/^none: /)
  })

  it('changes rows of no other tenant, and moves none to it', async () => {
    const [{ id, tenant_Id }] = await api.sql(`select id, "tenant_Id" from deal where step = 'secret of bo'`)
    const changing = (name: string, data: object) => chain(raised(name, { collection: 'deal', ...data }))
    await save('bypass-change', changing('c', { operation: 'update', itemId: id, data: { step: 'x' } }), {
      tenant_Id: tenant,
    })
    await save('bypass-delete', changing('d', { operation: 'delete', itemId: id }), { tenant_Id: tenant })
    await save('bypass-move', changing('m', { operation: 'create', data: { step: 'moved', tenant_Id } }), {
      tenant_Id: tenant,
    })
    for (const name of ['change', 'delete', 'move'])
      expect((await run(`bypass-${name}`, limited.call)).status, name).toBe('failed')
    expect(await api.sql('select step from deal where id = $1', [id])).toEqual([{ step: 'secret of bo' }])
    expect(await api.sql(`select 1 from deal where step = 'moved'`)).toEqual([])
  })

  it('stays at the tenant of the change that a hook is about, before and after it', async () => {
    const hook = (event: string) => ({
      ...{ trigger_type: 'hook', trigger_hook_collection: 'deal', trigger_hook_action: event },
    })
    const counting = chain(raised('read', { ...deals, operation: 'read' }))
    const secrets = {
      collection: 'deal',
      operation: 'count',
      filter: { step: 'secret of bo' },
      bypassPermissions: true,
    }
    const mapping = { 'data.step': 'saw {{outputs.known.stats.result}}' }
    await save(
      'bypass-before',
      chain(node('known', 'stats', secrets), node('fill', 'transform', { transformType: 'mapping', mapping })),
      hook('items.create'),
    )
    await save('bypass-after', counting, hook('items.create.after'))
    expect((await ada.call('POST', '/items/deal?fields=step', { step: 'hooked' })).body.data.step).toBe('saw 0')
    const execution = await waitFor(async () => {
      const [found] = await api.sql(`select * from "svc_WorkflowExecution" where "workflow_Id" = 'bypass-after'`)
      return found?.status === 'completed' || found?.status === 'failed' ? found : undefined
    })
    expect(execution).toMatchObject({ status: 'completed', tenant_Id: tenant })
    const tenants = execution.result_data.read.data.map(({ tenant_Id }: { tenant_Id: string }) => tenant_Id)
    expect([...new Set(tenants)]).toEqual([tenant])
    for (const id of ['bypass-before', 'bypass-after'])
      expect((await api.admin('DELETE', `/workflows/${id}`)).status).toBe(200)
  })

  it('sees every tenant in an execution that has none', async () => {
    const { status, result_data } = await run('bypass-any', api.admin)
    expect(status).toBe('completed')
    expect(result_data.make.data).toEqual({ step: 'made', tenant_Id: null })
    expect(new Set(result_data.read.data.map(({ tenant_Id }: { tenant_Id: string }) => tenant_Id)).size).toBe(3)
  })
})

describe('the roles of a webhook', () => {
  const webhook = (path: string, allowed_roles: readonly string[]) => ({
    ...{ trigger_type: 'webhook', trigger_webhook_path: path, trigger_webhook_method: 'POST', allowed_roles },
  })
  const answering = chain(node('answer', 'respond', { status: 201, body: { said: 'yes' } }))

  it('are those at the tenant of the workflow', async () => {
    await save('in-bo', answering, webhook('bo/inner', [role]), bo.call)
    const asked = await ada.call('POST', '/webhook/bo/inner', {})
    const unknown = await ada.call('POST', '/webhook/none', {})
    expect([asked.status, asked.body.error.message.replace('bo/inner', 'none')]).toEqual([
      404,
      unknown.body.error.message,
    ])
    expect((await api.anonymous('POST', '/webhook/bo/inner', {})).status).toBe(401)
    expect(await executionsOf('in-bo')).toBe(0)
    expect((await bo.call('POST', '/webhook/bo/inner', {})).body).toEqual({ said: 'yes' })
    expect((await api.admin('POST', '/webhook/bo/inner', {})).status).toBe(201)
    expect(await executionsOf('in-bo')).toBe(2)
  })

  it('are those at any tenant for a workflow without one', async () => {
    await save('in-all', answering, webhook('all', [role]))
    for (const { call } of [ada, bo]) expect((await call('POST', '/webhook/all', {})).body).toEqual({ said: 'yes' })
  })

  it('that are not named leave it open to everybody', async () => {
    await save('in-open', answering, webhook('bo/open', []), bo.call)
    for (const call of [ada.call, bo.call, api.anonymous])
      expect((await call('POST', '/webhook/bo/open', {})).body).toEqual({ said: 'yes' })
  })

  it('that are not named let a user of another tenant in as nobody', async () => {
    const [{ tenant_Id }] = await api.sql('select "tenant_Id" from "svc_UserRole" where "user_Id" = $1', [bo.id])
    const [{ id: everybody }] = await api.sql(`select id from "svc_Role" where name = 'public'`)
    await grant(api, everybody, ...grants('deal', 'create'))
    await save('in-admin', writing('by webhook'), { ...webhook('bo/admin', []), tenant_Id })
    for (const [call, userId] of [
      [ada.call, null],
      [api.anonymous, null],
      [bo.call, bo.id],
    ] as const) {
      const { status, body } = await call('POST', '/webhook/bo/admin', {})
      expect(status).toBe(200)
      const execution = await waitFor(async () => {
        const [found] = await api.sql('select * from "svc_WorkflowExecution" where id = $1', [body.execution.id])
        return ['completed', 'failed'].includes(found.status) ? found : undefined
      })
      expect(execution).toMatchObject({ status: 'completed', errorMessage: null, triggered_by_Id: userId, tenant_Id })
    }
    expect(await api.sql(`select distinct "tenant_Id" from deal where step = 'by webhook'`)).toEqual([{ tenant_Id }])
  })

  it('may be the one of everybody', async () => {
    const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'public'`)
    await save('in-public', answering, webhook('bo/public', [id]), bo.call)
    expect((await api.anonymous('POST', '/webhook/bo/public', {})).body).toEqual({ said: 'yes' })
  })
})

describe('a permission with conditions', () => {
  const own = { conditions: { authority_Id: '$CURRENT_USER' } }
  const mayNot = 'You do not have permission to execute this workflow'
  let editor: TenantUser

  beforeAll(async () => {
    const limited = await createRole(api, { isTenantSpecific: true })
    await grant(
      api,
      limited,
      { ...grants('svc_Workflow', 'create')[0] },
      ...grants('svc_Workflow', 'read', 'update').map((one) => ({ ...one, ...own })),
      { ...grants('svc_WorkflowExecution', 'read')[0], conditions: { triggered_by_Id: '$CURRENT_USER' } },
    )
    const [{ tenant_Id }] = await api.sql('select "tenant_Id" from "svc_UserRole" where "user_Id" = $1', [ada.id])
    editor = await createUser(api, limited, tenant_Id)
  })

  it.each(['draft', 'inactive', 'active'])(
    'opens no %s workflow to tests that it does not open to changes',
    async (status) => {
      const id = `${status}-of-ada`
      await save(id, writing(id), { status }, ada.call)
      expect((await editor.call('PATCH', `/workflows/${id}`, { name: 'mine' })).status).toBe(403)
      for (const path of ['test', 'nodes/write/execute']) {
        const { status: answered, body } = await editor.call('POST', `/workflows/${id}/${path}`, {})
        expect([path, answered, body.error?.message]).toEqual([path, 403, mayNot])
      }
      expect([await executionsOf(id), await api.sql('select 1 from deal where step = $1', [id])]).toEqual([0, []])
      expect((await ada.call('POST', `/workflows/${id}/test`, {})).body).toMatchObject({ result: { write: {} } })
    },
  )

  it('opens to tests what it opens to changes', async () => {
    await save('of-editor', chain(node('v', 'variable', { variables: { a: 1 } })), { status: 'draft' }, editor.call)
    expect((await editor.call('POST', '/workflows/of-editor/test', {})).body.result.v.success).toBe(true)
    expect((await editor.call('POST', '/workflows/of-editor/nodes/v/execute', {})).status).toBe(200)
  })

  it('opens no execution of others', async () => {
    await save('long', chain(node('wait', 'delay', { delay: 600_000 })), {}, ada.call)
    const start = async (call: Call) => (await call('POST', '/workflows/long/execute', {})).body.execution.id
    const [ofAda, ofEditor] = [await start(ada.call), await start(editor.call)]
    const act = async (call: Call, execution: string, what: string) =>
      (await call('POST', `/workflows/long/executions/${execution}/${what}`)).status
    expect([await act(editor.call, ofAda, 'cancel'), await act(editor.call, ofAda, 'retry')]).toEqual([404, 404])
    expect(
      await api.sql('select status from "svc_WorkflowExecution" where id = $1 and status = \'cancelled\'', [ofAda]),
    ).toEqual([])
    expect(await act(editor.call, ofEditor, 'cancel')).toBe(200)
    expect(await act(ada.call, ofAda, 'cancel')).toBe(200)
    expect([await act(editor.call, ofAda, 'retry'), await act(ada.call, ofAda, 'retry')]).toEqual([404, 200])
  })

  it('limits statistics to the executions that it shows', async () => {
    await save('counted', writing('counted'), {}, ada.call)
    for (const call of [ada.call, ada.call, editor.call]) await run('counted', call)
    const [shown, all] = [
      await editor.call('GET', '/workflows/counted/stats'),
      await ada.call('GET', '/workflows/counted/stats'),
    ]
    expect([shown.body.total, shown.body.byStatus.completed, all.body.total]).toEqual([1, 1, 3])
    expect((await editor.call('GET', '/workflows/counted/executions')).body.totalCount).toBe(1)
    expect([all.body.avgDuration, all.body.totalDuration]).toEqual([expect.any(Number), expect.any(Number)])
    const [{ last }] = await api.sql(
      `select max("createdAt") as last from "svc_WorkflowExecution" where "workflow_Id" = 'counted'`,
    )
    expect(all.body.lastExecution).toBe(new Date(last).toISOString())
  })
})
