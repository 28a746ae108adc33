import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { beforeAll, expect, it, onTestFinished } from 'vitest'
import { tools } from '../../src/features/operations/mcp/mcp.ts'
import { type Api, startApi } from '../support/api.ts'
import { bearer, connectMcp, type McpClient } from '../support/mcp.ts'
import { administrator } from '../support/prepare.ts'

let api: Api
let url: string
let token: string
const called = new Set<string>()

beforeAll(async () => {
  api = await startApi({
    MCP_ENABLED: 'true',
    MCP_LOGIN_TOOLS: 'true',
    SSRF_ALLOW_PRIVATE_URL_FETCH: 'true',
    PUBLIC_REGISTRATION: 'true',
  })
  url = `${await api.app.listen({ host: '127.0.0.1', port: 0 })}/mcp`
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
})

async function connect(credential = token, address = url): Promise<McpClient> {
  const mcp = await connectMcp(address, bearer(credential), '2026-07-28')
  const noted =
    <T>(call: (name: string, args?: Record<string, unknown>) => Promise<T>) =>
    (name: string, args?: Record<string, unknown>) => {
      called.add(name)
      return call(name, args)
    }
  return { client: mcp.client, call: noted(mcp.call), done: noted(mcp.done) }
}

/** What an event is about, with the tool that made it. */
const events = async (after: bigint) =>
  (
    await api.sql(
      `select entity, action, agent->>'tool' as tool from "svc_AuditLog" where position > $1 order by position`,
      [String(after)],
    )
  ).map(({ entity, action, tool }) => `${entity} ${action} ${tool}`)

it('makes, changes and deletes collections, their indexes and relationships', async () => {
  const { call, done } = await connect()
  const after = await api.position()
  await done('svc_create_schema', { collection: 'author', schema: { fields: { name: { type: 'String' } } } })
  const schema = { sortEnabled: true, fields: { title: { type: 'String' }, price: { type: 'Integer' } } }
  const dry = await done('svc_create_schema', { collection: 'book', schema, dryRun: true })
  expect(dry).toMatchObject({ dryRun: true })
  await done('svc_create_schema', { collection: 'book', schema })
  expect((await done('svc_list_schemas', { search: 'book', brief: true })).data[0]).toEqual({
    collectionName: 'book',
    schema: {},
  })
  expect((await done('svc_list_schemas', { search: 'book' })).data.map((one: any) => one.collectionName)).toEqual([
    'book',
  ])
  await done('svc_update_schema', { collection: 'book', schema: { fields: { pages: { type: 'Integer' } } } })
  const { data } = await done('svc_get_schema', { collection: 'book' })
  expect(Object.keys(data.schema.fields)).toEqual(expect.arrayContaining(['title', 'price', 'pages']))
  await done('svc_add_index', { collection: 'book', indexDefinition: { name: 'book_title', fields: ['title'] } })
  await done('svc_remove_index', { collection: 'book', indexName: 'book_title' })
  const relationshipData = { type: 'M2O', name: 'author', target: 'author', alias: 'books' }
  await done('svc_create_relationship', { sourceCollection: 'book', relationshipData })
  const change = { relationshipName: 'author', relationshipData: { description: 'Who wrote it' } }
  await done('svc_update_relationship', { sourceCollection: 'book', ...change })
  await done('svc_delete_relationship', { sourceCollection: 'book', fieldName: 'author' })
  const { schemas } = await done('svc_export_schemas')
  const book = schemas.find((one: any) => one.collectionName === 'book')
  const again = [{ collectionName: 'copy', schema: book.schema }]
  await done('svc_import_schemas', { schemas: again })
  await done('svc_create_item', { collection: 'copy', data: { title: 'Notes' } })
  const cut = { collection: 'copy', schema: { fields: { title: { type: 'String', values: { stringLength: 3 } } } } }
  const refused = await call('svc_update_schema', cut)
  expect([refused.isRefused, refused.value.error.code]).toEqual([true, 'WOULD_ALTER'])
  const altered = [{ collection: 'copy', field: 'title', values: 1 }]
  expect(await done('svc_update_schema', { ...cut, alter: true })).toMatchObject({ altered })
  await done('svc_delete_schema', { collection: 'copy' })
  const found = await events(after)
  for (const tool of [
    'create_schema',
    'update_schema',
    'add_index',
    'create_relationship',
    'import_schemas',
    'delete_schema',
  ])
    expect(found).toContainEqual(expect.stringMatching(new RegExp(`changed svc_${tool}$`)))
})

it('reads items in all ways', async () => {
  const { done } = await connect()
  const made = async (title: string, price: number) =>
    (await done('svc_create_item', { collection: 'book', data: { title, price } })).data.id
  const first = await made('On the engine', 7)
  const { data: now } = (await api.admin('GET', '/history/now')).body
  const second = await made('On computing', 5)
  await done('svc_update_item', { collection: 'book', id: first, data: { price: 9 } })
  expect((await done('svc_get_item', { collection: 'book', id: first, fields: 'price' })).data).toEqual({ price: 9 })
  const then = await done('svc_as_of', { collection: 'book', asOf: now.cursor, fields: 'title,price' })
  expect(then.data).toEqual([{ title: 'On the engine', price: 7 }])
  expect((await done('svc_as_of', { collection: 'book', id: first, asOf: now.cursor })).data.price).toBe(7)
  const found = await done('svc_search', {
    search: 'computing',
    collections: ['book', 'author'],
    fields: ['title', 'name'],
  }).catch(() => done('svc_search', { search: 'computing', collections: ['book', 'author'] }))
  expect(found.data.map(({ collection, totalCount }: any) => [collection, totalCount])).toEqual([
    ['book', 1],
    ['author', 0],
  ])
  await done('svc_sort_items', { collection: 'book', item: second, to: first })
  const report = { aggregate: { total: { function: 'sum', field: 'price' } } }
  expect((await done('svc_generate_report', { collection: 'book', ...report })).data).toEqual([{ total: 14 }])
  const stats = await done('svc_collection_stats', { stats: [{ name: 'sum', collection: 'book', query: report }] })
  expect(stats.data.sum.data).toEqual([{ total: 14 }])
  const history = await done('svc_history', { collection: 'book', id: first })
  expect(history.data[0]).toMatchObject({ action: 'update' })
  const { meta } = await (await connect()).call('svc_delete_item', { collection: 'book', id: second })
  const dry = await done('svc_undo', { requestId: meta['daybook/requestIds'][0] })
  await done('svc_undo', { requestId: meta['daybook/requestIds'][0], plan: dry.data.plan })
  expect((await done('svc_list_items', { collection: 'book' })).totalCount).toBe(2)
})

it('shows the beginning of a large undo, and undoes all of it', async () => {
  const { call, done } = await connect()
  const names = Array.from({ length: 60 }, (_, n) => `a_field_with_a_long_name_${n}`)
  const fields = Object.fromEntries(names.map((name) => [name, { type: 'Integer', defaultValue: 0 }]))
  await done('svc_create_schema', { collection: 'wide', schema: { fields } })
  await api.sql('insert into wide select from generate_series(1, 1200)')
  const after = await api.position()
  await api.sql(`update wide set ${names.map((name) => `${name} = 1`)}`)
  const position = String(after + 1n)
  // All of it is more than a tool may answer.
  const { text, body } = await api.admin('POST', '/log/undo', { position, dryRun: true })
  expect([text.length > 1_000_000, body.data.rows.length, body.data.more]).toEqual([true, 1000, undefined])
  const { data } = await done('svc_undo', { position })
  expect(data).toEqual({
    plan: body.data.plan,
    counts: [{ collection: 'wide', create: 0, update: 1200, delete: 0, conflicts: 0 }],
    rows: body.data.rows.slice(0, 25),
    conflicts: [],
    notUndone: [],
    more: { rows: 1175, conflicts: 0, notUndone: 0 },
  })
  await api.sql(`update wide set "${names[0]}" = 2`)
  const { value, isRefused } = await call('svc_undo', { position, plan: data.plan, limit: 3 })
  expect([isRefused, value.error.code]).toEqual([true, 'PLAN_CHANGED'])
  const { plan } = (await done('svc_undo', { position, limit: 3 })).data
  const before = await api.position()
  const refused = await call('svc_undo', { position, plan, limit: 3 })
  const { conflicts, more } = refused.value.error.details
  expect([refused.value.error.code, conflicts.length, more]).toEqual([
    'UNDO_CONFLICT',
    3,
    { rows: 1197, conflicts: 1197, notUndone: 0 },
  ])
  expect(await api.log(before)).toEqual([])
  await api.sql(`update wide set "${names[0]}" = 0`)
  const last = (await done('svc_undo', { position })).data
  expect((await done('svc_undo', { position, plan: last.plan })).data.more.rows).toBe(1175)
  const sum = names.map((name) => `sum("${name}")`).join(' + ')
  expect(await api.sql(`select (${sum})::int as left from wide`)).toEqual([{ left: 0 }])
})

it('stores, describes and deletes files', async () => {
  const { done, call } = await connect()
  const source = createServer((_request, response) => response.setHeader('content-type', 'text/plain').end('Ada'))
  await new Promise<void>((resolve) => source.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void source.close())
  const address = `http://127.0.0.1:${(source.address() as AddressInfo).port}/ada.txt`
  const after = await api.position()
  const { data: id } = await done('svc_upload_file_from_url', { url: address, title: 'Portrait' })
  expect((await done('svc_list_files', { filter: { id } })).data).toHaveLength(1)
  await done('svc_update_file', { id, description: 'At her desk' })
  expect((await done('svc_get_file_info', { id })).data).toMatchObject({ description: 'At her desk', size: 3 })
  const signed = await done('svc_get_file_url', { id })
  expect(JSON.stringify(signed)).toContain(`/assets/${id}?`)
  await done('svc_delete_file', { id })
  expect((await call('svc_get_file_info', { id })).isRefused).toBe(true)
  expect(await events(after)).toEqual([
    'svc_File create svc_upload_file_from_url',
    'svc_File update svc_update_file',
    'svc_File delete svc_delete_file',
  ])
})

it('grants, explains and takes back permissions', async () => {
  const { done, call } = await connect()
  const role_Id = (await api.admin('POST', '/items/svc_Role', { name: 'reader' })).body.data.id
  expect((await done('svc_list_roles')).data.map(({ name }: any) => name)).toContain('reader')
  const after = await api.position()
  const { id } = await done('svc_create_permission', { role_Id, collection: 'book', action: 'read', fields: ['title'] })
  expect((await done('svc_get_permission', { id })).data.fields).toEqual(['title'])
  await done('svc_update_permission', { id, fields: ['title', 'price'] })
  const permissions = [
    { collection: 'book', action: 'read', fields: ['*'] },
    { collection: 'book', action: 'create', fields: ['title'] },
  ]
  await done('svc_update_permissions', { role: 'reader', permissions })
  const held = await done('svc_get_permissions', { role: 'reader' })
  expect(held.data.map(({ action, fields }: any) => [action, fields])).toEqual([
    ['create', ['title']],
    ['read', ['*']],
  ])
  expect((await done('svc_get_permissions', { role: role_Id })).data).toEqual(held.data)
  expect((await done('svc_list_permissions', { filter: { role_Id } })).data).toHaveLength(2)
  expect(await done('svc_explain', { collection: 'book', action: 'delete', role: 'reader' })).toMatchObject({
    allowed: false,
  })
  const madeUp = { collection: 'book', action: 'create', role: 'reader', record: { title: 'Emma', price: 3 } }
  expect(await done('svc_explain', { ...madeUp, fields: ['title', 'price'] })).toMatchObject({
    allowed: true,
    asked: [
      { field: 'title', allowed: true, reason: null },
      { field: 'price', allowed: false, reason: expect.any(String) },
    ],
  })
  expect((await call('svc_update_permissions', { role: 'nobody', permissions })).value.error.statusCode).toBe(404)
  await done('svc_delete_permission', { id })
  await done('svc_reload_permissions')
  expect((await done('svc_get_permissions', { role: 'reader' })).data).toHaveLength(1)
  expect((await events(after)).filter((event) => event.startsWith('svc_Permission'))).toEqual([
    'svc_Permission create svc_create_permission',
    'svc_Permission update svc_update_permission',
    'svc_Permission update svc_update_permissions',
    'svc_Permission create svc_update_permissions',
    'svc_Permission delete svc_delete_permission',
  ])
})

it('keeps settings, templates, notifications and tasks', async () => {
  const { done } = await connect()
  const after = await api.position()
  await done('svc_update_settings', { settings: { title: 'Acme shop' } })
  expect(await done('svc_get_settings', { key: 'title' })).toEqual({ data: { title: 'Acme shop' } })
  expect((await done('svc_get_settings')).data).toHaveProperty('project_name')
  const { data: templates } = await done('svc_list_templates', { limit: 1 })
  const templateId = templates[0].id
  await done('svc_update_template', { id: templateId, subject: 'Welcome' })
  expect((await done('svc_get_template', { id: templateId })).data.subject).toBe('Welcome')
  const { user } = await done('svc_get_current_user', { fields: 'id,email' })
  expect(Object.keys(user).sort()).toEqual(['email', 'id'])
  const { notificationIds } = await done('svc_send_notification', {
    recipients: [user.id],
    title: 'Done',
    message: 'All of it',
  })
  const unseen = async () => (await done('svc_list_notifications', { seen: false })).data.map(({ id }: any) => id)
  expect(await unseen()).toEqual(notificationIds)
  await done('svc_mark_notification_seen', { id: notificationIds[0] })
  expect(await unseen()).toEqual([])
  const { data: task } = await done('svc_create_task', { type: 'report', task_data: { year: 2026 } })
  await done('svc_cancel_task', { id: task.id })
  expect((await done('svc_get_task', { id: task.id })).data).toMatchObject({
    status: 'archived',
    task_data: { year: 2026 },
  })
  expect((await done('svc_list_tasks')).totalCount).toBe(1)
  expect(await events(after)).toEqual([
    'svc_Settings update svc_update_settings',
    'svc_Settings settings svc_update_settings',
    'svc_Template update svc_update_template',
    'svc_Notification create svc_send_notification',
    'svc_Notification update svc_mark_notification_seen',
    'svc_Tasks create svc_create_task',
    'svc_Tasks update svc_cancel_task',
  ])
})

it('checks, saves, executes and cancels workflows', async () => {
  const { client, done, call } = await connect()
  const flow = (type: string, data: object) => ({
    nodes: [
      { id: 'start', type: 'trigger', data: {} },
      { id: 'next', type, data },
    ],
    edges: [{ id: 'e', source: 'start', target: 'next' }],
  })
  const waiting = flow('delay', { delay: 3_600_000 })
  expect((await done('svc_validate_workflow', { flow_data: flow('delay', {}) })).errors).toEqual([
    { code: 'config', nodeId: 'next', message: 'delay is missing' },
  ])
  const after = await api.position()
  await done('svc_create_workflow', { workflow: { id: 'later', name: 'Later', flow_data: waiting } })
  expect((await call('svc_execute_workflow', { id: 'later' })).value.error.message).toBe('Workflow is not active')
  await done('svc_update_workflow', { id: 'later', workflow: { status: 'active' } })
  const { execution } = await done('svc_execute_workflow', { id: 'later', data: { orderId: 42 } })
  expect((await done('svc_list_workflow_executions', { id: 'later' })).data).toMatchObject([
    { id: execution.id, status: 'queued', trigger_data: { orderId: 42 } },
  ])
  const args = { id: 'later', execution: execution.id }
  await done('svc_cancel_workflow_execution', args)
  expect((await done('svc_get_workflow_execution', args)).data).toMatchObject({ status: 'cancelled', logs: [] })
  expect((await done('svc_retry_workflow_execution', args)).execution).toMatchObject({ status: 'queued' })
  expect((await done('svc_list_workflows')).data).toMatchObject([{ id: 'later', status: 'active', version: 1 }])
  expect((await done('svc_get_workflow', { id: 'later' })).data.flow_data).toMatchObject(waiting)
  await done('svc_delete_workflow', { id: 'later' })
  expect(await events(after)).toEqual([
    'svc_Workflow create svc_create_workflow',
    'svc_Workflow update svc_update_workflow',
    'svc_WorkflowExecution create svc_execute_workflow',
    'svc_WorkflowExecution update svc_cancel_workflow_execution',
    'svc_WorkflowExecution create svc_retry_workflow_execution',
    'svc_Workflow update svc_delete_workflow',
    // The execution that it was still to begin is cancelled with it.
    'svc_WorkflowExecution update svc_delete_workflow',
  ])
  const { tools: offered } = await client.listTools()
  const isDestructive = (name: string) => offered.find((tool) => tool.name === name)!.annotations!.destructiveHint
  expect(isDestructive('svc_execute_workflow')).toBe(true)
  expect(isDestructive('svc_create_workflow')).toBe(false)
  // A user who may start some workflow, and see none, is offered tools to start it, and none to save.
  const user = await api.user()
  const ofUser = (await (await connect(user.token)).client.listTools()).tools.map(({ name }) => name)
  expect(ofUser.filter((name) => name.includes('workflow'))).toEqual([
    ...['svc_validate_workflow', 'svc_execute_workflow'],
    ...['svc_cancel_workflow_execution', 'svc_retry_workflow_execution'],
  ])
})

it('signs in, out and others in', async () => {
  const { done, call } = await connect()
  expect(await done('svc_server_info')).toHaveProperty('version')
  expect(await done('svc_auth_status')).toMatchObject({ valid: true })
  const { client } = await connect()
  expect((await client.listTools()).tools.filter(({ name }) => /tenant|invite/.test(name))).toEqual([])
  const person = { email: 'grace@example.com', password: 'correct horse battery', firstName: 'Grace', lastName: 'H' }
  await call('svc_register_user', person)
  const own = (await done('svc_login', administrator)).token
  const { token: renewed } = await done('svc_refresh_auth', { refreshToken: own })
  const another = await connect(renewed)
  await call('svc_send_magic_link', { email: 'nobody@example.com' })
  const after = await api.position()
  await another.done('svc_logout')
  expect((await api.log(after)).map(({ type }) => type)).toEqual(['auth'])
  await expect(another.call('svc_auth_status')).rejects.toThrow()
})

it('invites and switches where there are tenants', async () => {
  const tenanted = await startApi({ MCP_ENABLED: 'true', MCP_LOGIN_TOOLS: 'true', MULTI_TENANT: 'true' })
  const address = `${await tenanted.app.listen({ host: '127.0.0.1', port: 0 })}/mcp`
  const { token: own } = (await tenanted.anonymous('POST', '/auth/login', administrator)).body
  const { call, done } = await connect(own, address)
  expect(await done('svc_get_user_tenants')).toEqual({ tenants: [] })
  const invite = {
    email: 'a@example.com',
    role_Id: '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44',
    link: 'https://app.example.com',
  }
  expect((await call('svc_send_invite', invite)).isRefused).toBe(true)
  expect((await call('svc_verify_invite', { token: 'none' })).isRefused).toBe(true)
  const tenant_Id = '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'
  expect((await call('svc_switch_tenant', { tenant_Id })).isRefused).toBe(true)
})

it('has tried every tool', () => {
  expect(tools.map(({ name }) => name).filter((name) => !called.has(name))).toEqual([])
})
