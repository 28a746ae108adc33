import { readFileSync } from 'node:fs'
import type { TSchema } from 'typebox'
import { expect, it } from 'vitest'
import { exampleOf } from '../../scripts/reference/example.ts'
import { platformRoutes } from '../../scripts/reference/routes.ts'
import { parseConfig } from '../../src/config/config.ts'
import { clientLines } from '../../src/doctor/configuration.ts'
import type { AppError } from '../../src/errors.ts'
import { describeTool, readArguments, type Tool, tools } from '../../src/features/operations/mcp/mcp.ts'

const routes = await platformRoutes()
const named = (name: string) => tools.find((tool) => tool.name === name)!
const argumentsOf = ({ input }: Tool) => Object.keys(input.properties)

/** The tools that clients know by name, with the names of their arguments. */
const known: Readonly<Record<string, string>> = {
  svc_list_schemas: 'search brief page limit sort',
  svc_get_schema: 'collection',
  svc_delete_schema: 'collection',
  svc_create_schema: 'collection schema',
  svc_update_schema: 'collection schema',
  svc_add_index: 'collection indexDefinition',
  svc_remove_index: 'collection indexName',
  svc_create_relationship: 'sourceCollection relationshipData',
  svc_update_relationship: 'sourceCollection relationshipName relationshipData',
  svc_delete_relationship: 'sourceCollection fieldName',
  svc_export_schemas: '',
  svc_import_schemas: 'schemas',
  svc_list_items: 'collection filter fields sort page limit search searchFields aggregate groupBy relConditions',
  svc_get_item: 'collection id fields',
  svc_create_item: 'collection data',
  svc_update_item: 'collection id data',
  svc_delete_item: 'collection id',
  svc_list_files: 'filter page limit',
  svc_get_file_info: 'id',
  svc_delete_file: 'id',
  svc_list_roles: '',
  svc_list_permissions: 'filter sort page limit',
  svc_get_permission: 'id',
  svc_get_permissions: 'role',
  svc_create_permission: 'role_Id collection action fields conditions defaultValues relConditions',
  svc_update_permission: 'id',
  svc_delete_permission: 'id',
  svc_update_permissions: 'role permissions',
  svc_reload_permissions: '',
  svc_get_settings: 'key',
  svc_update_settings: 'settings',
  svc_list_templates: 'filter page limit',
  svc_get_template: 'id',
  svc_update_template: 'id subject description body isActive',
  svc_list_notifications: 'page limit seen',
  svc_mark_notification_seen: 'id',
  svc_send_notification: 'recipients title message type',
  svc_server_info: '',
  svc_auth_status: '',
  svc_get_current_user: 'fields',
  svc_get_user_tenants: '',
  svc_sort_items: 'collection item to mode',
  svc_generate_report: 'collection',
  svc_collection_stats: 'stats',
  svc_register_user: 'email password firstName lastName roleName',
  svc_login: 'email password',
  svc_logout: '',
  svc_refresh_auth: 'refreshToken',
  svc_send_invite: 'email role_Id tenant_Id link',
  svc_verify_invite: 'token link',
  svc_send_magic_link: 'email link mode',
  svc_switch_tenant: 'tenant_Id',
  svc_history: 'collection id',
  svc_as_of: 'collection asOf',
  svc_undo: 'requestId plan',
  svc_explain: 'collection action',
  svc_search: 'search collections',
  svc_list_tasks: 'filter page limit',
  svc_list_workflows: 'filter page limit',
  svc_get_workflow: 'id',
  svc_validate_workflow: 'flow_data',
  svc_create_workflow: 'workflow',
  svc_update_workflow: 'id workflow',
  svc_delete_workflow: 'id',
  svc_execute_workflow: 'id data',
  svc_list_workflow_executions: 'id filter page limit',
  svc_get_workflow_execution: 'id execution',
  svc_cancel_workflow_execution: 'id execution',
  svc_retry_workflow_execution: 'id execution version',
}

it('has every tool that clients know, with its arguments', () => {
  for (const [name, args] of Object.entries(known)) {
    const wanted = args === '' ? [] : args.split(' ')
    expect([name, argumentsOf(named(name))]).toEqual([name, expect.arrayContaining(wanted)])
  }
  expect(new Set(tools.map(({ name }) => name)).size).toBe(tools.length)
})

it('has the defaults that clients rely on', () => {
  const { page, limit } = named('svc_list_items').input.properties as Record<string, { default: unknown }>
  expect([page!.default, limit!.default]).toEqual([1, 10])
  const defaultOf = (name: string, argument: string) =>
    (named(name).input.properties[argument] as { default?: unknown }).default
  expect(defaultOf('svc_list_schemas', 'sort')).toBe('collectionName:asc')
  expect(defaultOf('svc_sort_items', 'mode')).toBe('before')
  expect(defaultOf('svc_send_notification', 'type')).toBe('info')
  expect(defaultOf('svc_send_magic_link', 'mode')).toBe('link')
})

/** An argument as an example has it. */
const exampleIn = (shape: TSchema & { default?: unknown; minimum?: number }) =>
  shape.default ?? ('type' in shape && shape.type === 'integer' ? (shape.minimum ?? 1) : exampleOf(shape))

it.each(tools.map((tool) => [tool.name, tool] as const))(
  '%s calls the routes that it names, whole',
  async (_name, tool) => {
    const args = Object.fromEntries(
      Object.entries(tool.input.properties).map(([name, shape]) => [name, exampleIn(shape)]),
    )
    const called: string[] = []
    const read = readArguments(tool.input, args)
    await tool.run(read, async (route, { params = {}, body }) => {
      called.push(route)
      const [method, url] = route.split(' ') as [string, string]
      expect([...url.matchAll(/:(\w+)/g)].map(([, name]) => name).sort()).toEqual(Object.keys(params).sort())
      expect(body === undefined || method !== 'GET').toBe(true)
      return { data: [{ id: 'an id' }], user: {} }
    })
    expect(called.length).toBeGreaterThan(0)
    for (const route of called) expect(tool.routes).toContain(route)
    for (const route of tool.routes) expect(routes.map(({ method, url }) => `${method} ${url}`)).toContain(route)
  },
)

it('reads by tools that read, and nothing else', () => {
  const questions = [
    'POST /permissions/explain',
    'POST /reports/:collection',
    'POST /reports/stats',
    'POST /files/:id/signed-url',
    'POST /workflows/validate',
  ]
  for (const { name, group, routes: called } of tools) {
    const reads = called.every((route) => route.startsWith('GET ') || questions.includes(route))
    expect([name, group === 'read']).toEqual([name, reads])
  }
})

it('needs the scopes of its routes: a token to read runs nothing that writes', () => {
  for (const { name, group, routes: called } of tools) {
    const scopes = routes.filter(({ method, url }) => called.includes(`${method} ${url}`)).map(({ scope }) => scope)
    const opensToRead = scopes.every((scope) => scope === 'read' || scope === 'none')
    // Those anybody may call, or a session alone: no token of a program opens these.
    const isOfAuth = called.every((route) => route.includes(' /auth/'))
    if (group !== 'read') expect([name, opensToRead]).toEqual([name, isOfAuth])
  }
})

it('says which tools reach outside: they mail somebody or call another server', () => {
  const outside = tools.filter((tool) => describeTool(tool, routes).annotations.openWorldHint).map(({ name }) => name)
  expect(outside.sort()).toEqual([
    ...['svc_execute_workflow', 'svc_register_user', 'svc_retry_workflow_execution', 'svc_send_invite'],
    ...['svc_send_magic_link', 'svc_upload_file_from_url'],
  ])
})

it('deletes by an explicit id or name alone', () => {
  for (const { name, input, isDestructive, group } of tools.filter((tool) => tool.group === 'delete')) {
    const required = (input as { required?: readonly string[] }).required ?? []
    expect([name, isDestructive, required.length > 0, group]).toEqual([name, true, true, 'delete'])
    for (const argument of required) expect(() => readArguments(input, { [argument]: '' })).toThrow('Invalid arguments')
  }
})

it('refuses arguments in the words in which routes refuse bodies', () => {
  const refusalOf = (name: string, args: unknown) => {
    try {
      return readArguments(named(name).input, args)
    } catch (error) {
      return (error as AppError).details
    }
  }
  const execution = { id: 'w', execution: 'e' }
  expect(refusalOf('svc_list_items', [])).toEqual([{ argument: 'arguments', message: 'expected an object' }])
  expect(refusalOf('svc_retry_workflow_execution', { ...execution, version: 'latest' })).toEqual([
    { argument: 'version', message: 'expected one of "failed", "current"' },
  ])
  expect(refusalOf('svc_send_notification', { recipients: ['a', 7], title: '', message: 'm' })).toEqual([
    { argument: 'recipients.1', message: 'expected text' },
    { argument: 'title', message: 'expected at least 1 character' },
  ])
})

it('has no path at which another part of the API begins', () => {
  const env = { DATABASE_URL: 'postgres://nobody@127.0.0.1/none', SECRET_KEY: 'of no worth: nothing is signed by it' }
  const firsts = new Set(routes.map(({ url }) => url.split('/')[1]!).filter((first) => first !== 'mcp'))
  for (const first of firsts)
    expect(() => parseConfig({ ...env, MCP_ENABLED: 'true', MCP_PATH: `/${first}` }), first).toThrow('MCP_PATH')
})

it('shows in docs/mcp.md the lines that the doctor shows', () => {
  const page = readFileSync(new URL('../../docs/mcp.md', import.meta.url), 'utf8')
  const url = 'https://api.example.com/mcp'
  for (const [client, line] of [...clientLines(url, 'OAuth'), ...clientLines(url, 'key')]) {
    expect(page).toContain(`**${client}`)
    const [, command = line] = /^in [^:]+: (.*)$/.exec(line) ?? []
    if (client !== 'ChatGPT') expect(page).toContain(`\n${command}\n`)
  }
})
