import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Api, type Call, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { connect } from '../support/socket.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { waitFor } from '../support/wait.ts'

/** What a role reads through relations that its permission for the parent names, without one for what is behind them. */

let api: Api
let address: string
let ids: Record<'ann' | 'bob' | 'apollo' | 'gemini' | 'account', string>

const asked = (query: object) =>
  new URLSearchParams(
    Object.entries(query).map(([name, value]): [string, string] => [
      name,
      typeof value === 'object' ? JSON.stringify(value) : `${value}`,
    ]),
  ).toString()
const made = async (call: Call, path: string, body: object): Promise<any> => {
  const answer = await call('POST', path, body)
  if (![200, 201].includes(answer.status)) throw new Error(answer.text)
  return answer.body?.data?.id ?? answer.body?.id
}
const text = { type: 'String' }
const to = (target: string, foreignKey: string) => ({ relType: 'BelongsTo', target, foreignKey })
const schemas = {
  team: { name: text, budget: { type: 'Integer' } },
  member: {
    name: text,
    email: text,
    age: { type: 'Integer' },
    pin: { ...text, hidden: true },
    project_Id: { type: 'UUID' },
    team: to('team', 'team_Id'),
  },
  tag: { name: text, color: text },
  image: { url: text, alt: text },
  project: {
    title: text,
    lead: to('member', 'lead_Id'),
    account: to('svc_User', 'account_Id'),
    session: to('svc_Sessions', 'session_Id'),
  },
}

async function declare(of: Api): Promise<void> {
  for (const [collectionName, fields] of Object.entries(schemas))
    await made(of.admin, '/schemas', { collectionName, schema: { usertrack: true, fields } })
  const { schema } = (await of.admin('GET', '/schemas/project')).body.data
  const members = { relType: 'HasMany', target: 'member', foreignKey: 'project_Id' }
  const patched = await of.admin('PATCH', '/schemas/project', {
    schema: { ...schema, fields: { ...schema.fields, members } },
  })
  expect(patched.status, patched.text).toBe(200)
  await made(of.admin, '/schemas/project/relationships', { type: 'M2M', name: 'tags', target: 'tag' })
  await made(of.admin, '/schemas/project/relationships', { type: 'M2A', name: 'blocks', tables: ['image'] })
}

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true', DATA_CACHE_STRATEGY: 'all' })
  address = await api.app.listen({ host: '127.0.0.1', port: 0 })
  await declare(api)
  const team = await made(api.admin, '/items/team', { name: 'red', budget: 7 })
  const member = (name: string) =>
    made(api.admin, '/items/member', { name, email: `${name}@x`, age: name.length, pin: 'p', team_Id: team })
  const [ann, bob] = [await member('ann'), await member('bobby')]
  const [{ id: account }] = await api.sql('select id from "svc_User" where email = $1', [administrator.email])
  const project = (title: string, lead: string) =>
    made(api.admin, '/items/project', { title, lead_Id: lead, account_Id: account })
  const [apollo, gemini] = [await project('apollo', ann), await project('gemini', bob)]
  await api.sql(`update member set "project_Id" = $1`, [apollo])
  const tag = await made(api.admin, '/items/tag', { name: 'moon', color: 'grey' })
  await made(api.admin, '/items/project_tag_tags_junction', { project_id: apollo, tag_id: tag })
  const image = await made(api.admin, '/items/image', { url: '/a.png', alt: 'a' })
  await made(api.admin, '/items/project_blocks_junction', { project_id: apollo, collection: 'image', item_id: image })
  ids = { ann, bob, apollo, gemini, account }
})

type Reader = Awaited<ReturnType<Api['user']>>
const reader = (fields: string[], ...more: object[]) =>
  api.user([{ collection: 'project', action: 'read', fields }, ...more])
const get = (call: Call, query: object, path = '/items/project') => call('GET', `${path}?${asked(query)}`)
const denied = (path: string) => `You don't have permission to read ${path}`

describe('a relation that the permission names', () => {
  let role: Reader
  beforeAll(async () => {
    role = await reader([
      'title',
      'lead.name',
      'members.name',
      'members.team.name',
      'tags.tag.name',
      'blocks.collection',
      'blocks.item_id',
      'blocks.image.url',
    ])
  })

  const max = { function: 'max', field: 'lead.name' }
  it.each<[string, string, string, object?]>([
    ['a list', 'GET', `/items/project?${asked({ fields: 'title,lead.name,members.team.name', sort: 'title' })}`],
    ['a many-to-many relation', 'GET', `/items/project?${asked({ fields: 'title,tags.tag.name', sort: 'title' })}`],
    [
      'a relation to any',
      'GET',
      `/items/project?${asked({ fields: 'blocks.collection,blocks.image.url', sort: 'title' })}`,
    ],
    ['one item', 'GET', '/items/project/{apollo}?fields=title,lead.name'],
    ['a filter', 'GET', `/items/project?${asked({ fields: 'title', filter: { 'lead.name': 'ann' } })}`],
    [
      'a nested filter',
      'GET',
      `/items/project?${asked({ fields: 'title', filter: { members: { team: { name: 'red' } } } })}`,
    ],
    ['a filter for none', 'GET', `/items/project?${asked({ fields: 'title', filter: { members: null } })}`],
    [
      'a negated filter',
      'GET',
      `/items/project?${asked({ fields: 'title', filter: { NOT: { 'members.name': 'ann' } } })}`,
    ],
    ['a sort', 'GET', `/items/project?${asked({ fields: 'title', sort: '-lead.name' })}`],
    [
      'a sort over two relations',
      'GET',
      `/items/project?${asked({ fields: 'title', sort: 'members.team.name,title' })}`,
    ],
    [
      'a page by cursor',
      'GET',
      `/items/project?${asked({ fields: 'title,lead.name', sort: 'lead.name', limit: 1, cursor: '' })}`,
    ],
    [
      'conditions of nested rows',
      'GET',
      `/items/project?${asked({ fields: 'members.name', sort: 'title', relConditions: { members: { name: 'ann' } } })}`,
    ],
    [
      'groups',
      'GET',
      `/items/project?${asked({ groupBy: ['lead.name'], aggregate: { n: { function: 'count', field: '*' } } })}`,
    ],
    [
      'an aggregate',
      'GET',
      `/items/project?${asked({ aggregate: { n: { function: 'count', field: 'members.name' } } })}`,
    ],
    [
      'a report',
      'POST',
      '/reports/project',
      { aggregate: { max }, groupBy: ['title'], fields: ['title', 'lead.name'] },
    ],
    [
      'stats',
      'POST',
      '/reports/stats',
      { stats: [{ name: 'a', collection: 'project', query: { aggregate: { max } } }] },
    ],
    ['the past', 'GET', `/items/project?${asked({ fields: 'title,lead.name', sort: 'title', asOf: 'NOW' })}`],
    [
      'an export',
      'GET',
      `/items/project/export?${asked({ fields: 'title,lead.name', sort: 'title', format: 'json' })}`,
    ],
  ])('is read like by the administrator in %s, twice', async (_form, method, path, body) => {
    const now = (await api.admin('GET', '/history/now')).body.data.cursor
    const url = path.replace('{apollo}', ids.apollo).replace('NOW', now)
    const expected = await api.admin(method, url, body)
    expect(expected.status, expected.text).toBe(200)
    for (const _time of ['made', 'kept']) {
      const { status, text } = await role.call(method, url, body)
      expect([status, text]).toEqual([200, expected.text])
    }
  })

  it.each<[string, object]>([
    ['fields', { fields: 'lead.email' }],
    ['a filter', { filter: { 'lead.email': { startsWith: 'a' } } }],
    ['a nested filter', { filter: { members: { age: 3 } } }],
    ['a sort', { sort: 'lead.age' }],
    ['an aggregate', { aggregate: { n: { function: 'max', field: 'members.age' } } }],
    ['groups', { groupBy: ['lead.team.name'] }],
    ['conditions of nested rows', { fields: 'members.name', relConditions: { members: { email: 'x' } } }],
    ['the column it is compared with', { filter: { title: '$COL(lead.email)' } }],
    ['a hidden field', { fields: 'lead.pin' }],
    ['another column further away', { fields: 'members.team.budget' }],
    ['a relation further away', { fields: 'members.team.userCreated.email' }],
    ['what is behind the junction', { fields: 'tags.tag.color' }],
    ['what is behind a relation to any', { fields: 'blocks.image.alt' }],
    ['a column of the junction', { fields: 'tags.project_id' }],
  ])('shows nothing else in %s', async (_form, query) => {
    const answer = await get(role.call, query)
    expect([answer.status, answer.body.data]).toEqual([403, undefined])
    expect(answer.body.error.message).toContain("You don't have permission to read")
  })

  it('narrows every wildcard of a request to what is named', async () => {
    const { body } = await get(role.call, { fields: '*,*.*,members.team.*', filter: { title: 'apollo' } })
    const { id } = body.data[0]
    expect(body.data).toEqual([
      {
        id,
        title: 'apollo',
        lead: { id: ids.ann, name: 'ann' },
        members: expect.arrayContaining([{ id: ids.ann, name: 'ann', team: { id: expect.any(String), name: 'red' } }]),
        tags: [{ id: expect.anything() }],
        blocks: [{ id: expect.anything(), collection: 'image', item_id: expect.anything() }],
      },
    ])
  })

  it('is neither searched, nor written, nor a list of its own', async () => {
    expect((await get(role.call, { search: 'ann', searchFields: 'lead.name' })).body.error).toMatchObject({
      message: "You don't have permission to search field: lead.name",
      code: 'SEARCH_NOT_GRANTED',
    })
    expect((await get(role.call, { fields: 'name' }, '/items/member')).status).toBe(403)
    expect((await role.call('GET', `/items/member/${ids.ann}`)).status).toBe(403)
    const writer = await reader(
      ['title', 'lead.name'],
      { collection: 'project', action: 'update', fields: ['title', 'lead.*'] },
      { collection: 'project', action: 'create', fields: ['title', 'lead.*'] },
    )
    const before = await api.position()
    for (const body of [{ lead: { name: 'new' } }, { lead: { id: ids.ann, name: 'new' } }, { lead: ids.bob }]) {
      expect((await writer.call('PATCH', `/items/project/${ids.apollo}`, body)).status).toBe(403)
      expect((await writer.call('POST', '/items/project', { title: 'x', ...body })).status).toBe(403)
    }
    expect(await api.log(before)).toEqual([])
    expect((await role.call('GET', '/changes?collections=member')).status).toBe(403)
  })

  it('is read by live reports and in filters of subscriptions, until the permission is taken away', async () => {
    const user = await reader(['title', 'lead.name'])
    const client = await connect(address, user.token)
    const wish = { collection: 'project', filter: { 'lead.name': 'ann' } }
    expect(await client.emit('subscribe', wish)).toMatchObject({ status: 'success' })
    const report = await client.emit('report:subscribe', { collection: 'project', groupBy: ['lead.name'] })
    expect(report.data.map((row: any) => row['lead.name']).sort()).toEqual(['ann', 'bobby'])
    await made(api.admin, '/items/project', { title: 'skylab', lead_Id: ids.bob })
    const mir = await made(api.admin, '/items/project', { title: 'mir', lead_Id: ids.ann })
    await client.frame(({ data }) => data.title === 'mir')
    expect(client.frames.map(({ data }) => data.title)).toEqual(['mir'])
    // A rule of the related collection now decides which of them the filter sees.
    await made(api.admin, '/permissions', {
      role_Id: user.roleId,
      collection: 'member',
      action: 'read',
      fields: 'name',
      conditions: { name: 'bobby' },
    })
    await waitFor(() => client.notices.some(({ name, body }) => name === 'resync' && body.collection === 'project'))
    await api.sql(`update "svc_Permission" set fields = '"title"' where "role_Id" = $1 and collection = 'project'`, [
      user.roleId,
    ])
    await api.admin('POST', '/permissions/reload')
    await expect.poll(() => client.emit('subscribe', wish)).toMatchObject({ status: 'error' })
    await api.admin('DELETE', '/items/project/bulk', [
      mir,
      (await get(api.admin, { filter: { title: 'skylab' } })).body.data[0].id,
    ])
  })

  it('makes a client read again that goes on from before the rule behind its filter changed', async () => {
    const user = await reader(['title', 'lead.name'])
    const list = await get(user.call, { changesCursor: true })
    const since = list.body.changesCursor
    const wish = { collection: 'project', filter: { 'lead.name': 'ann' }, since }
    const early = await connect(address, user.token)
    expect(await early.emit('subscribe', wish)).toMatchObject({ status: 'success' })
    const rule = { collection: 'member', action: 'read', fields: 'name', conditions: { name: 'nobody' } }
    await made(api.admin, '/permissions', { role_Id: user.roleId, ...rule })
    const late = await connect(address, user.token)
    await late.emit('subscribe', wish)
    await waitFor(() => late.notices.some(({ name, body }) => name === 'resync' && body.collection === 'project'))
    expect(early.frames).toEqual([])
  })

  it('is shown of what has just been written', async () => {
    const writer = await reader(['title', 'lead.name'], { collection: 'project', action: 'update', fields: ['title'] })
    const path = `/items/project/${ids.apollo}`
    const { status, body } = await writer.call('PATCH', `${path}?fields=title,lead.name`, { title: 'apollo' })
    expect([status, body.data]).toEqual([200, { title: 'apollo', lead: { id: ids.ann, name: 'ann' } }])
    expect((await writer.call('PATCH', `${path}?fields=lead.email`, { title: 'other' })).status).toBe(403)
    expect((await get(api.admin, { filter: { title: 'other' } })).body.totalCount).toBe(0)
  })
})

describe('grants that open a relation', () => {
  it.each<[string[], string, unknown]>([
    [['title', 'lead.*'], 'lead.*', 200],
    [['title', 'lead'], 'lead.email', 200],
    [['title', 'lead.*'], 'lead.pin', denied('field: lead.pin')],
    [['title', 'lead.*'], 'lead.team.name', denied('relation: lead.team.name')],
    [['*.*'], 'lead.name', denied('relation: lead.name')],
    [['*.*.*', '*.name', '*.team.name'], 'lead.name', denied('relation: lead.name')],
    [['*.*'], 'tags.tag_id', denied('relation: tags.tag_id')],
    [['title', 'tags.*'], 'tags.tag_id', 200],
    [['title', 'tags.*'], 'tags.tag.name', denied('relation: tags.tag.name')],
    [['title', 'account.firstName'], 'account.firstName', 200],
    [['title', 'account.*'], 'account.firstName', denied('relation: account.firstName')],
    [['title', 'account'], 'account.firstName', denied('relation: account.firstName')],
    [['title', 'account.*.*'], 'account.id', denied('relation: account.id')],
    [['title', 'account.password'], 'account.password', denied('relation: account.password')],
    [['title', 'account.userRoles.role.name'], 'account.userRoles.role.name', 200],
    [
      ['title', 'session.expiresAt', 'session.id', 'session.*'],
      'session.expiresAt',
      denied('relation: session.expiresAt'),
    ],
    [['title', 'session.user.email'], 'session.user.email', denied('relation: session.user.email')],
    [['lead.name', '-lead'], 'lead.name', denied('relation: lead.name')],
    [['lead.name', '-lead.name'], 'lead.name', denied('relation: lead.name')],
  ])('of %j, asked for %s', async (fields, path, expected) => {
    const { call } = await reader(fields)
    for (const query of [
      { fields: path },
      { filter: { [path.replace('.*', '.name')]: { isNotNull: true } } },
      { sort: path.replace('.*', '.name') },
    ]) {
      const { status, body } = await get(call, query)
      expect([query, status === 200 ? 200 : body.error.message]).toEqual([
        query,
        typeof expected === 'string' ? expected.replace(path, path.replace('.*', '.name')) : expected,
      ])
    }
  })

  it('an own permission shows identity collections no further than it goes', async () => {
    const own = { collection: 'svc_Sessions', action: 'read', fields: ['expiresAt'] }
    const { call } = await reader(['title', 'session.ipAddress', 'session.expiresAt', 'session.*'], own)
    expect((await get(call, { fields: 'session.expiresAt' })).status).toBe(200)
    for (const name of ['ipAddress', 'userAgent'])
      expect((await get(call, { fields: `session.${name}` })).body.error.message).toBe(denied(`field: session.${name}`))
  })

  it('never is the public role’s wildcard', async () => {
    const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'public'`)
    const permission = await made(api.admin, '/permissions', {
      role_Id: id,
      collection: 'project',
      action: 'read',
      fields: ['*.*'],
    })
    const { status, body } = await get(api.anonymous, { fields: '*,*.*' })
    expect([
      status,
      Object.keys(body.data[0]).filter((key) => /lead$|members|account$|tags|session$/.test(key)),
    ]).toEqual([200, []])
    for (const fields of ['lead.name', 'account.email', 'userCreated.email', 'tags.tag_id', 'members.name'])
      expect((await get(api.anonymous, { fields })).status).toBe(403)
    expect((await api.admin('DELETE', `/permissions/${permission}`)).status).toBe(204)
  })
})

describe('the rows behind it', () => {
  let role: Reader
  let rule: string
  beforeEach(async () => {
    role = await reader(['title', 'lead.name', 'members.*'])
    rule = await made(api.admin, '/permissions', {
      role_Id: role.roleId,
      collection: 'member',
      action: 'read',
      fields: ['age'],
      conditions: { name: 'ann' },
    })
  })
  const names = async () => {
    const { body } = await get(role.call, { fields: 'lead.name,members.name', sort: 'title' })
    return body.data.map(({ lead, members }: any) => [lead?.name ?? null, members.map(({ name }: any) => name).sort()])
  }
  const everything = [
    ['ann', ['ann', 'bobby']],
    ['bobby', []],
  ]
  const patch = (changes: object) => api.admin('PATCH', `/permissions/${rule}`, changes)

  it('are those of the role’s own rule, whatever it is, in kept answers too', async () => {
    for (let time = 0; time < 2; time++)
      expect(await names()).toEqual([
        ['ann', ['ann']],
        [null, []],
      ])
    expect((await get(role.call, { filter: { 'lead.name': 'bobby' } })).body.totalCount).toBe(0)
    const count = { n: { function: 'count', field: 'members.id' } }
    expect((await get(role.call, { aggregate: count })).body.data).toEqual([{ n: 1 }])
    await patch({ conditions: { name: 'bobby' } })
    expect(await names()).toEqual([
      [null, ['bobby']],
      ['bobby', []],
    ])
    await patch({ conditions: { age: -1 } })
    for (let time = 0; time < 2; time++)
      expect(await names()).toEqual([
        [null, []],
        [null, []],
      ])
    await patch({ conditions: null })
    expect(await names()).toEqual(everything)
  })

  it('show no other columns when the role’s own permission is taken away', async () => {
    const fields = { fields: '*,*.*', filter: { title: 'apollo' } }
    const keys = async () => {
      const [{ lead, members }] = (await get(role.call, fields)).body.data
      return [...Object.keys(lead), ...Object.keys(members[0])]
    }
    const before = await keys()
    expect((await api.admin('DELETE', `/permissions/${rule}`)).status).toBe(204)
    expect(before).toEqual(expect.arrayContaining(await keys()))
    expect(await names()).toEqual(everything)
  })

  it.each([
    ['its rule names what is gone', `conditions = '{"gone": 1}'`],
    ['its rule is no filter', `conditions = '"text"'`],
  ])('are none where %s', async (_why, change) => {
    await api.sql(`update "svc_Permission" set ${change} where id = $1`, [rule])
    await api.admin('POST', '/permissions/reload')
    expect(await names()).toEqual([
      [null, []],
      [null, []],
    ])
  })

  it.each([
    ['is malformed', `fields = '{"a": 1}'`],
    ['limits what is no relation', `"relConditions" = '{"gone": {"name": "x"}}'`],
    [
      'names rules that are gone',
      `fields = null, conditions = null, "acl_Ids" = '["00000000-0000-4000-8000-000000000000"]'`,
    ],
  ])('are closed where the role’s own permission %s', async (_why, change) => {
    await api.sql(`update "svc_Permission" set ${change} where id = $1`, [rule])
    await api.admin('POST', '/permissions/reload')
    expect((await get(role.call, { fields: 'lead.name' })).body.error.message).toBe(denied('relation: lead.name'))
    expect((await get(role.call, { filter: { 'members.name': 'ann' } })).status).toBe(403)
    expect((await get(role.call, { fields: '*.*' })).text).not.toMatch(/lead"|members/)
  })
})

describe('an explanation', () => {
  const explain = async (query: object) => {
    const { status, body, text } = await api.admin('GET', `/permissions/explain?${asked({ action: 'read', ...query })}`)
    expect(status, text).toBe(200)
    return body
  }

  it('tells through which permission a relation is read', async () => {
    const user = await reader(['title', 'lead.name', 'account.email'], {
      collection: 'tag',
      action: 'read',
      fields: '*',
    })
    const [{ id }] = await api.sql(`select id from "svc_Permission" where "role_Id" = $1 and collection = 'project'`, [
      user.roleId,
    ])
    expect(await explain({ collection: 'project', user: user.id, field: 'lead.name' })).toMatchObject({
      allowed: true,
      reason: expect.stringMatching(/opens the relation lead by naming it/),
      relations: [
        { relation: 'lead', collection: 'member', fields: ['id', 'name'] },
        { relation: 'account', collection: 'svc_User', fields: ['id', 'email'] },
      ],
      through: [],
    })
    expect(await explain({ collection: 'member', user: user.id })).toMatchObject({
      allowed: false,
      decidedBy: 'permission',
      through: [{ collection: 'project', permission: id, relation: 'lead', fields: ['id', 'name'] }],
    })
    expect(await explain({ collection: 'tag', user: user.id })).toMatchObject({
      allowed: true,
      through: [],
      relations: [],
    })
  })

  it('names only what a wildcard adds to the other permission', async () => {
    const own = { collection: 'member', action: 'read', fields: ['name', 'age'] }
    const user = await reader(['title', 'lead.*', 'members.age', '*.*'], own)
    const { relations } = await explain({ collection: 'project', role: user.roleId })
    expect(relations.map(({ relation }: any) => relation)).toEqual(['lead'])
    expect(relations[0].fields).toContain('email')
    expect(relations[0].fields).not.toContain('age')
  })
})

describe.each([
  ['with strict isolation', 'true', ['a']],
  ['without strict isolation, for a role of no tenant', 'false', ['a', 'b']],
])('of tenants, %s', (_how, strict, expected) => {
  it('only the caller’s own rows are behind a relation', async () => {
    const tenants = await startApi({ MULTI_TENANT: 'true', STRICT_TENANT_ISOLATION: strict })
    await made(tenants.admin, '/schemas', { collectionName: 'guild', schema: { fields: { name: text } } })
    await made(tenants.admin, '/schemas', {
      collectionName: 'person',
      schema: { usertrack: true, fields: { name: text, guild: to('guild', 'guild_Id') } },
    })
    const [one, two] = [await createTenant(tenants, 'one'), await createTenant(tenants, 'two')]
    const role = await createRole(tenants, { isTenantSpecific: strict === 'true' })
    await grant(tenants, role, {
      collection: 'person',
      action: 'read',
      fields: ['name', 'guild.name', 'userCreated.email'],
    })
    const user = await createUser(tenants, role, one)
    const other = await createUser(tenants, role, two)
    const guild = async (name: string, tenant: string, by: string) => {
      const [{ id }] = await tenants.sql('insert into guild (name, "tenant_Id") values ($1, $2) returning id', [
        name,
        tenant,
      ])
      // A row of the caller's tenant that points at one of another, as no request can write it.
      await tenants.sql(
        'insert into person (name, "guild_Id", "tenant_Id", "userCreated_Id") values ($1, $2, $3, $4)',
        [name, id, one, by],
      )
    }
    await guild('a', one, user.id)
    await guild('b', two, other.id)
    const { body } = await get(
      user.call,
      { fields: 'name,guild.name,userCreated.email', sort: 'name' },
      '/items/person',
    )
    expect(body.data.map(({ guild }: any) => guild?.name).filter(Boolean)).toEqual(expected)
    expect(body.data.filter(({ userCreated }: any) => userCreated !== null)).toHaveLength(expected.length)
    const found = await get(user.call, { filter: { 'guild.name': { isNotNull: true } } }, '/items/person')
    expect(found.body.totalCount).toBe(expected.length)
  })
})
