import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type Api, type Call, startApi } from '../support/api.ts'
import { newCanary, type Watched, watch } from '../support/canary.ts'
import { createRole, createTenant, createUser, grant, type TenantUser } from '../support/tenants.ts'
import { waitFor } from '../support/wait.ts'

/** Callers see the rows of their own tenant only. */

const env = { MULTI_TENANT: 'true' }
const canary = newCanary('tenant')

let api: Api
let watched: Watched
let one: string
let two: string
let role: string
let ann: TenantUser
let bob: TenantUser
let call: Call

const collections = [
  'orders',
  'client',
  'svc_File',
  'svc_Tasks',
  'svc_Notification',
  'svc_Template',
  'svc_Settings',
  'svc_Invite',
  'svc_EmailLog',
  'svc_AuditLog',
  'svc_User',
  'svc_UserRole',
  'svc_Sessions',
  'svc_WorkflowExecution',
  'svc_WorkflowExecutionLog',
]

beforeAll(async () => {
  api = await startApi(env)
  watched = await watch(api, [canary], env)
  await api.admin('POST', '/schemas', {
    collectionName: 'client',
    schema: { fields: { name: { type: 'String' }, tenant_Id: { type: 'UUID' } } },
  })
  await api.admin('POST', '/schemas', {
    collectionName: 'orders',
    schema: {
      fields: {
        title: { type: 'String' },
        total: { type: 'Integer' },
        day: { type: 'DateTime' },
        tenant_Id: { type: 'UUID' },
        client: { relType: 'BelongsTo', target: 'client', foreignKey: 'client_id' },
      },
    },
  })
  one = await createTenant(api, 'one')
  two = await createTenant(api, 'two')
  role = await createRole(api)
  await grant(
    api,
    role,
    ...collections.map((collection) => ({ collection, action: 'read', fields: ['*', '*.*', '*.*.*'] })),
  )
  ann = await createUser(api, role, one)
  bob = await createUser(api, role, two)
  call = watched.as(ann.token)
  await rowsOf(one, ann.id, 'first')
  await rowsOf(two, bob.id, canary)
  await rowsOf(null, bob.id, 'shared')
})

afterEach(() => {
  expect(watched.leaks()).toEqual([])
})

/** One row of everything, which says whose it is in its text. */
async function rowsOf(tenant: string | null, userId: string, text: string): Promise<void> {
  const insert = async (table: string, columns: Record<string, unknown>) => {
    const names = Object.keys(columns).map((name) => `"${name}"`)
    const places = names.map((_, i) => `$${i + 1}`)
    const [row] = await api.sql(
      `insert into "${table}" (${names}) values (${places}) returning id`,
      Object.values(columns),
    )
    return row.id
  }
  const tenant_Id = tenant
  const client_id = await insert('client', { name: text, tenant_Id })
  await insert('orders', { title: text, total: 10, day: '2024-01-01T00:00:00Z', tenant_Id, client_id })
  const file = { originalFilename: text, type: 't', size: 1, storage: 'local', tenant_Id }
  await insert('svc_File', { ...file, filename: text })
  await insert('svc_Tasks', { type: text, tenant_Id })
  await insert('svc_Notification', { type: 'info', title: text, userId, tenant_Id })
  await insert('svc_Template', { type: `x ${text}`, subject: text, body: text, tenant_Id })
  if (tenant !== null) await insert('svc_Settings', { project_name: text, tenant_Id })
  await insert('svc_Invite', {
    email: text,
    role_Id: role,
    token: text,
    expiresAt: new Date(),
    invitedBy_Id: userId,
    tenant_Id,
  })
  await insert('svc_EmailLog', { email: text, subject: text, tenant_Id })
  const workflow_Id = await insert('svc_Workflow', { id: `w-${text}`, name: 'workflow' })
  const execution_Id = await insert('svc_WorkflowExecution', { workflow_Id, errorMessage: text, tenant_Id })
  await insert('svc_WorkflowExecutionLog', { execution_Id, nodeId: text, nodeType: 'x' })
  await api.sql('update "svc_User" set "firstName" = $1 where id = $2 and $3::uuid is not null', [text, userId, tenant])
}

const parameters = (values: object) =>
  new URLSearchParams(
    Object.entries(values).map(([key, value]): [string, string] => [
      key,
      typeof value === 'string' ? value : JSON.stringify(value),
    ]),
  )
const list = (who: Call, collection: string, query: object = {}) =>
  who('GET', `/items/${collection}?${parameters(query)}`)

/** `tenant_Id` of every row that a user sees; tests know what belongs to no tenant. */
async function tenantsSeen(who: Call, collection: string): Promise<Set<unknown>> {
  const { status, body } = await list(who, collection)
  expect([collection, status]).toEqual([collection, 200])
  return new Set(body.data.map((row: { tenant_Id: unknown }) => row.tenant_Id))
}

describe('a role of a tenant', () => {
  it.each([
    'orders',
    'client',
    'svc_File',
    'svc_Tasks',
    'svc_Notification',
    'svc_Invite',
    'svc_EmailLog',
    'svc_UserRole',
    'svc_Sessions',
    'svc_WorkflowExecution',
  ])('sees its own rows of %s', async (collection) => {
    expect(await tenantsSeen(call, collection)).toEqual(new Set([one]))
    expect(await tenantsSeen(api.admin, collection)).toEqual(new Set([one, two, null]))
  })

  it('sees notifications without a tenant that are its own, and those of nobody else', async () => {
    const own = `insert into "svc_Notification" (type, title, "userId") values ('info', 'to me', $1) returning id`
    const [{ id }] = (await api.sql(own, [ann.id])) as [{ id: string }]
    const titles = async (who: Call) =>
      (await list(who, 'svc_Notification', { filter: { tenant_Id: null }, fields: 'title' })).body.data
    expect(await titles(call)).toEqual([{ title: 'to me' }])
    expect(await titles(api.as(bob.token))).toEqual([{ title: 'shared' }])
    expect((await api.as(bob.token)('GET', `/items/svc_Notification/${id}`)).status).toBe(403)
    await api.sql('delete from "svc_Notification" where id = $1', [id])
  })

  it('sees its own part of the log', async () => {
    expect(await tenantsSeen(call, 'svc_AuditLog')).toEqual(new Set([one]))
    expect((await list(call, 'svc_AuditLog', { filter: { entity: 'orders' } })).body.totalCount).toBe(1)
  })

  it('sees the users that have a role there', async () => {
    const { body } = await list(call, 'svc_User', { fields: 'id' })
    expect(body).toEqual({ data: [{ id: ann.id }], totalCount: 1 })
  })

  it('sees the logs of its executions', async () => {
    const { body } = await list(call, 'svc_WorkflowExecutionLog', { fields: 'nodeId' })
    expect(body).toEqual({ data: [{ nodeId: 'first' }], totalCount: 1 })
  })

  it.each(['svc_Template', 'svc_Settings'])('sees the defaults of %s beside its own', async (collection) => {
    expect(await tenantsSeen(call, collection)).toEqual(new Set([one, null]))
  })

  it('sees public files of every tenant', async () => {
    await api.sql(
      `insert into "svc_File" (filename, "originalFilename", type, size, storage, "isPublic", "tenant_Id")
       values ('open', 'open', 't', 1, 'l', true, $1)`,
      [two],
    )
    const { body } = await list(call, 'svc_File', { fields: 'filename', sort: 'filename' })
    expect(body.data).toEqual([{ filename: 'first' }, { filename: 'open' }])
    await api.sql(`delete from "svc_File" where filename = 'open'`)
  })

  it('meets another tenant’s row as one that does not exist', async () => {
    for (const collection of collections.filter((name) => name !== 'svc_User')) {
      const [foreign] = await api.sql(
        collection === 'svc_WorkflowExecutionLog'
          ? `select l.id from "${collection}" l join "svc_WorkflowExecution" e on e.id = l."execution_Id" where e."tenant_Id" = $1 limit 1`
          : `select id from "${collection}" where "tenant_Id" = $1 limit 1`,
        [two],
      )
      const { status, body } = await call('GET', `/items/${collection}/${foreign.id}`)
      expect([collection, status, body.error.message]).toEqual([
        collection,
        403,
        "Item not found or you don't have permission to read it",
      ])
    }
    expect((await call('GET', `/items/svc_User/${bob.id}`)).status).toBe(403)
  })

  it('does not reach them over relations either', async () => {
    const [{ id }] = await api.sql('select id from client where "tenant_Id" = $1', [two])
    await api.sql(`update orders set client_id = $1 where title = 'first'`, [id])
    const { body } = await list(call, 'orders', { fields: 'title,client.name', sort: 'client.name' })
    expect(body.data).toEqual([{ title: 'first', client: null }])
    for (const filter of [{ 'client.name': canary }, { 'client.name': { startsWith: 'c' } }, { client: { id } }])
      expect((await list(call, 'orders', { filter })).body).toMatchObject({ data: [], totalCount: 0 })
    expect(
      (await list(call, 'orders', { search: canary, searchFields: ['client.name', 'title'] })).body.totalCount,
    ).toBe(0)
    await api.sql(`update orders set client_id = (select id from client where name = 'first') where title = 'first'`)
  })
})

describe('T-01 the tenant comes from the session alone', () => {
  it.each<[string, object, Record<string, string>]>([
    ['the query', { tenant_Id: 'TWO', tenant_id: 'TWO', tenant: 'TWO' }, {}],
    ['a header', {}, { 'x-tenant-id': 'TWO' }],
    ['a filter', { filter: { tenant_Id: 'TWO' } }, {}],
    ['a filter with OR', { filter: { OR: [{ tenant_Id: 'TWO' }, { id: { isNotNull: true } }] } }, {}],
    ['a filter through a relation', { filter: { 'client.tenant_Id': 'TWO' } }, {}],
  ])('not from %s', async (_where, query, headers) => {
    const filled = JSON.parse(JSON.stringify([query, headers]).replaceAll('TWO', two))
    const answer = await call('GET', `/items/orders?${parameters(filled[0])}`, undefined, filled[1])
    expect(answer.status).toBe(200)
    for (const row of answer.body.data) expect(row.tenant_Id).toBe(one)
    expect(answer.body.totalCount).toBe(answer.body.data.length)
  })

  it('not from an unknown parameter', async () => {
    const answer = await call('GET', `/items/orders?${parameters({ tenantId: two })}`)
    expect([answer.status, answer.body.error.code]).toEqual([400, 'UNKNOWN_PARAMETER'])
  })

  it('not from the claims of a token', async () => {
    const [head, claims, signature] = ann.token.split('.') as [string, string, string]
    const edited = { ...JSON.parse(Buffer.from(claims, 'base64url').toString()), tenant_Id: two }
    const forged = [head, Buffer.from(JSON.stringify(edited)).toString('base64url'), signature].join('.')
    expect((await watched.as(forged)('GET', '/items/orders')).status).toBe(401)
  })
})

describe('T-02 another tenant', () => {
  it('is entered by a role there, and left when that role is taken', async () => {
    const both = await createUser(api, role, one)
    await api.sql('insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)', [
      both.id,
      role,
      two,
    ])
    const login = (tenant_Id: string) =>
      api.anonymous('POST', '/auth/login', { email: both.email, password: 'password of a user', tenant_Id })
    const inTwo = api.as((await login(two)).body.token)
    expect(await tenantsSeen(both.call, 'orders')).toEqual(new Set([one]))
    expect(await tenantsSeen(inTwo, 'orders')).toEqual(new Set([two]))
    const other = await createTenant(api, 'nobody’s')
    expect((await login(other)).status).toBe(403)
    await api.sql('delete from "svc_UserRole" where "user_Id" = $1 and "tenant_Id" = $2', [both.id, one])
    await waitFor(async () => (await both.call('GET', '/items/orders')).status === 401)
    expect(await tenantsSeen(inTwo, 'orders')).toEqual(new Set([two]))
  })
})

describe('T-04 numbers', () => {
  const questions: [string, object][] = [
    ['a total', { limit: '0' }],
    [
      'aggregates',
      {
        aggregate: {
          n: { function: 'count', field: '*' },
          s: { function: 'sum', field: 'total' },
          m: { function: 'max', field: 'total' },
        },
      },
    ],
    ['groups', { aggregate: { n: { function: 'count', field: '*' } }, groupBy: ['title'] }],
    ['groups by date', { aggregate: { n: { function: 'count', field: '*' } }, groupBy: ['date:year:day'] }],
    ['groups by a relation', { aggregate: { n: { function: 'count', field: '*' } }, groupBy: ['client.name'] }],
    [
      'aggregates of a relation',
      {
        aggregate: {
          n: { function: 'distinct', field: 'client.id' },
          a: { function: 'array_agg', field: 'client.name' },
        },
      },
    ],
    ['a search', { search: 'canary order first', searchFields: ['title'] }],
    ['a search by relevance', { search: 'first', sortByRelevance: 'true' }],
    ['a list', { sort: '-total' }],
    ['a list of everything', { limit: '-1', fields: '*.*' }],
  ]

  it('do not move while another tenant’s data change', async () => {
    const numbers = async () => {
      const answers = []
      for (const [, query] of questions) answers.push((await list(call, 'orders', query)).text)
      for (const collection of collections.filter((name) => name !== 'orders'))
        answers.push((await list(call, collection, { limit: '0' })).text)
      answers.push((await call('GET', '/schemas?search=order')).text)
      return answers
    }
    const before = await numbers()
    const changes = [
      `insert into client (name, "tenant_Id") select 'first', $1 from generate_series(1, 50)`,
      `insert into orders (title, total, day, "tenant_Id", client_id)
       select 'first', 1000 + i, '2030-01-01', $1, (select id from client where "tenant_Id" = $1 limit 1) from generate_series(1, 200) i`,
      `update orders set total = total * 2, title = 'canary order first' where "tenant_Id" = $1`,
      `insert into "svc_Tasks" (type, "tenant_Id") select 'x', $1 from generate_series(1, 20)`,
      `update "svc_File" set "updatedAt" = now(), title = 'changed' where "tenant_Id" = $1`,
      `insert into "svc_EmailLog" (email, subject, "tenant_Id") select 'x', 'x', $1 from generate_series(1, 20)`,
      `delete from "svc_Notification" where "tenant_Id" = $1`,
      `delete from orders where "tenant_Id" = $1`,
    ]
    for (const change of changes) {
      await api.sql(change, [two])
      expect(await numbers()).toEqual(before)
    }
  })
})

describe('T-05 roles that are of no tenant', () => {
  let general: string
  let carl: TenantUser

  beforeAll(async () => {
    general = await createRole(api, { isTenantSpecific: false })
    await grant(api, general, ...collections.map((collection) => ({ collection, action: 'read', fields: ['*'] })))
    carl = await createUser(api, general, one)
  })

  const loose = { ...env, STRICT_TENANT_ISOLATION: 'false' }

  it('see the tenant of their session with STRICT_TENANT_ISOLATION, all without', async () => {
    const relaxed = await watch(api, [], loose)
    for (const collection of ['client', 'svc_Tasks', 'svc_UserRole']) {
      expect([collection, await tenantsSeen(carl.call, collection)]).toEqual([collection, new Set([one])])
      expect([collection, await tenantsSeen(relaxed.as(carl.token), collection)]).toEqual([
        collection,
        new Set([one, two, null]),
      ])
      expect(await tenantsSeen(relaxed.as(ann.token), collection)).toEqual(new Set([one]))
    }
  })

  it('without a tenant see what is of none, and roles of a tenant are refused', async () => {
    const nowhere = await createUser(api, general, null)
    expect(await tenantsSeen(nowhere.call, 'client')).toEqual(new Set([null]))
    const lost = await createUser(api, role, null)
    for (const collection of ['client', 'orders', 'svc_Tasks', 'svc_User']) {
      const { status, body } = await list(lost.call, collection)
      expect([collection, status, body.error.message]).toEqual([
        collection,
        403,
        'Tenant context required but not provided',
      ])
    }
    const relaxed = await watch(api, [], loose)
    expect((await list(relaxed.as(lost.token), 'client')).status).toBe(403)
    expect(await tenantsSeen(relaxed.as(nowhere.token), 'client')).toEqual(new Set([one, two, null]))
  })

  it('as the role public see what is of no tenant, and public files', async () => {
    const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'public'`)
    await grant(api, id, ...['client', 'svc_File'].map((collection) => ({ collection, action: 'read', fields: ['*'] })))
    await api.sql(`update "svc_File" set "isPublic" = true where filename = 'first'`)
    const fresh = await watch(api, [canary], env)
    expect(await tenantsSeen(fresh.as(), 'client')).toEqual(new Set([null]))
    expect(await tenantsSeen(fresh.as(), 'svc_File')).toEqual(new Set([one, null]))
    expect(fresh.leaks()).toEqual([])
    const relaxed = await watch(api, [], loose)
    expect(await tenantsSeen(relaxed.as(), 'client')).toEqual(new Set([one, two, null]))
    await api.sql(`delete from "svc_Permission" where "role_Id" = $1`, [id])
    await api.sql(`update "svc_File" set "isPublic" = false where filename = 'first'`)
  })

  it('give a user with several the oldest one, wherever its row lies', async () => {
    const user = await createUser(api, role, two)
    await api.sql(
      `insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id", "createdAt") values ($1, $2, $3, now() - interval '1 day')`,
      [user.id, role, one],
    )
    const tenantAtSignIn = async () =>
      (await api.anonymous('POST', '/auth/login', { email: user.email, password: 'password of a user' })).body.tenant.id
    expect(await tenantAtSignIn()).toBe(one)
    await api.sql(`update "svc_UserRole" set "updatedAt" = now() where "user_Id" = $1 and "tenant_Id" = $2`, [
      user.id,
      one,
    ])
    expect(await tenantAtSignIn()).toBe(one)
  })
})

describe('an explanation', () => {
  const explain = async (question: object) =>
    (await api.admin('GET', `/permissions/explain?${parameters({ action: 'read', ...question })}`)).body

  it('says that it is the tenant', async () => {
    const [theirs] = await api.sql('select id from client where "tenant_Id" = $1 limit 1', [two])
    const [own] = await api.sql('select id from client where "tenant_Id" = $1 limit 1', [one])
    const about = { collection: 'client', user: ann.id }
    expect(await explain({ ...about, id: theirs.id })).toMatchObject({
      allowed: false,
      decidedBy: 'tenant',
      tenant: one,
      row: { exists: true, matches: false, conditions: true, tenant: false },
    })
    expect(await explain({ ...about, id: own.id })).toMatchObject({ allowed: true, row: { matches: true } })
    expect(await explain({ ...about, tenant: two })).toMatchObject({ allowed: false, decidedBy: 'account' })
  })

  it('of a role of a tenant without one has the words of the request', async () => {
    const lost = await createUser(api, role, null)
    await grant(api, role, { collection: 'client', action: 'create', fields: ['name'] })
    for (const [action, request] of [
      ['read', () => list(lost.call, 'client')],
      ['create', () => lost.call('POST', '/items/client', { name: 'x' })],
    ] as const) {
      const { status, body } = await request()
      expect(await explain({ collection: 'client', user: lost.id, action })).toMatchObject({
        allowed: false,
        decidedBy: 'tenant',
        reason: body.error.message,
      })
      expect(status).toBe(403)
    }
  })
})

describe('TENANT_IGNORED_TABLES', () => {
  it('are not scoped, the others are', async () => {
    const ignoring = await watch(api, [], { ...env, TENANT_IGNORED_TABLES: 'client, svc_Tasks' })
    const who = ignoring.as(ann.token)
    for (const collection of ['client', 'svc_Tasks']) expect((await tenantsSeen(who, collection)).size).toBe(3)
    for (const collection of ['svc_File', 'svc_UserRole'])
      expect(await tenantsSeen(who, collection)).toEqual(new Set([one]))
    const { body } = await list(who, 'orders', { fields: 'title,client.name' })
    expect(body.data).toEqual([{ title: 'first', client: { id: expect.any(String), name: 'first' } }])
  })
})

describe('without MULTI_TENANT', () => {
  it('nothing is scoped', async () => {
    const single = await watch(api, [], {})
    expect((await tenantsSeen(single.as(bob.token), 'svc_Tasks')).size).toBe(3)
  })
})

describe('a subscription', () => {
  it('hears of the own tenant’s rows alone', async () => {
    const socket = await watched.socket(ann.token, 'orders')
    const [{ id }] = await api.sql(`insert into orders (title, "tenant_Id") values ($1, $2) returning id`, [
      canary,
      two,
    ])
    await api.sql('update orders set total = 5 where id = $1', [id])
    await api.sql('delete from orders where id = $1', [id])
    await api.sql(`insert into orders (title, "tenant_Id") values ('heard', $1)`, [one])
    await socket.frame((frame) => frame.data.title === 'heard')
    expect(socket.frames).toHaveLength(1)
    await api.sql(`delete from orders where title = 'heard'`)
  })
})

describe('undo', () => {
  it('refuses a request that concerned another tenant as a whole, without a word of it', async () => {
    const editor = await createRole(api)
    await grant(
      api,
      editor,
      ...['create', 'read', 'update', 'delete'].map((action) => ({ collection: 'client', action, fields: ['*'] })),
    )
    const eve = await createUser(api, editor, one)
    const as = watched.as(eve.token)
    // Somebody of the installation writes for two tenants at once.
    const both = await api.admin('POST', '/items/client/bulk', [
      { name: 'of one', tenant_Id: one },
      { name: canary, tenant_Id: two },
    ])
    expect(both.status, both.text).toBe(201)
    const own = await as('POST', '/items/client', { name: 'own' })
    const position = await api.position()
    for (const dryRun of [true, false]) {
      const { status, body } = await as('POST', '/log/undo', { requestId: both.headers['x-request-id'], dryRun })
      expect([status, body.error.message]).toEqual([403, 'These changes concern another tenant'])
    }
    expect(await api.position()).toBe(position)
    const undone = await as('POST', '/log/undo', { requestId: own.headers['x-request-id'] })
    expect(undone.status, undone.text).toBe(200)
    expect((await as('GET', '/items/client?filter={"name":"own"}')).body.data).toEqual([])
  })
})
