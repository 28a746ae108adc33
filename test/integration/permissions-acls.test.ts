import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { runSetup } from '../../src/setup/setup.ts'
import { type Api, startApi } from '../support/api.ts'
import { silent } from '../support/log.ts'
import { testConfig } from '../support/prepare.ts'

/** Named rules (docs/permissions.md#named-rules). */

let api: Api
const ids: Record<string, string> = {}

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', {
    collectionName: 'page',
    schema: { usertrack: true, fields: { title: { type: 'String' }, stars: { type: 'Integer' } } },
  })
  await api.admin('POST', '/schemas', { collectionName: 'plain', schema: { fields: { title: { type: 'String' } } } })
  for (const { id, name } of await api.sql('select id, name from "svc_ACL"')) ids[name] = id
})

const q = (value: unknown) => encodeURIComponent(JSON.stringify(value))

describe('the rules of the system', () => {
  it('are there after setup, and setup may run again', async () => {
    await runSetup(testConfig(api.database.url), silent)
    const { body } = await api.admin('GET', '/acls?sort=name&fields=name,fields,conditions,system')
    const own = { userCreated_Id: { eq: '$CURRENT_USER' } }
    const rule = (name: string, conditions: object) => ({
      id: expect.any(String),
      name,
      fields: ['*'],
      conditions,
      system: true,
    })
    expect(body.data.map(({ id, ...rest }: any) => ({ id, ...rest }))).toEqual(
      [
        rule('Delete_Own', own),
        rule('Own_Tenant', { tenant_Id: { eq: '$CURRENT_TENANT' } }),
        rule('Read_All', {}),
        rule('Read_Own', own),
        rule('Update_Own', own),
      ].map(({ id, ...rest }) => expect.objectContaining(rest)),
    )
  })

  it('are changed and deleted by no caller, by no door', async () => {
    const before = await api.position()
    const id = ids.Read_Own!
    for (const [method, path, body] of [
      ['PATCH', `/acls/${id}`, { conditions: {} }],
      ['PATCH', `/acls/${id}`, { system: false }],
      ['PATCH', `/items/svc_ACL/${id}`, { conditions: {} }],
      ['PATCH', '/items/svc_ACL/bulk', [{ id, system: false }]],
      ['DELETE', `/acls/${id}`, undefined],
      ['DELETE', `/items/svc_ACL/${id}`, undefined],
      ['DELETE', '/items/svc_ACL/bulk', [id]],
    ] as const) {
      const answer = await api.admin(method, path, body)
      expect([path, answer.status, answer.body.error.message]).toEqual([path, 403, 'System rules cannot be changed'])
    }
    expect(await api.log(before)).toEqual([])
  })
})

describe('/acls', () => {
  it('answers like /permissions: lists wrapped, changes raw', async () => {
    const before = await api.position()
    const made = await api.admin('POST', '/acls', {
      name: 'Popular',
      description: 'Many stars',
      fields: ['title'],
      conditions: { stars: { gt: 3 } },
    })
    expect(made).toMatchObject({
      status: 201,
      body: { id: expect.any(String), name: 'Popular', system: false, relConditions: null, defaultValues: null },
    })
    const { id } = made.body
    expect((await api.admin('GET', `/acls/${id}`)).body).toEqual({ data: made.body })
    expect((await api.admin('GET', `/acls?filter=${q({ name: 'Popular' })}`)).body).toMatchObject({ totalCount: 1 })
    const changed = await api.admin('PATCH', `/acls/${id}`, { fields: 'title, stars' })
    expect(changed).toMatchObject({
      status: 200,
      body: { id, fields: 'title, stars', conditions: { stars: { gt: 3 } } },
    })
    expect((await api.admin('DELETE', `/acls/${id}`)).status).toBe(204)
    expect((await api.admin('PATCH', `/acls/${id}`, {})).status).toBe(404)
    expect((await api.log(before)).map(({ entity, action }) => `${entity} ${action}`)).toEqual([
      'svc_ACL create',
      'svc_ACL update',
      'svc_ACL delete',
    ])
  })

  it('is read with the permission on svc_ACL, written by administrators', async () => {
    const user = await api.user([
      { collection: 'svc_ACL', action: 'read', fields: ['name'], conditions: { name: 'Read_All' } },
    ])
    expect((await user.call('GET', '/acls')).body).toEqual({
      data: [{ id: ids.Read_All, name: 'Read_All' }],
      totalCount: 1,
    })
    expect((await user.call('GET', `/acls/${ids.Read_Own}`)).status).toBe(403)
    for (const [method, path] of [
      ['POST', '/acls'],
      ['PATCH', `/acls/${ids.Read_All}`],
      ['DELETE', `/acls/${ids.Read_All}`],
    ] as const)
      expect((await user.call(method, path, method === 'DELETE' ? undefined : {})).body.error.message).toBe(
        'Access denied. Administrators only.',
      )
    expect((await api.anonymous('GET', '/acls')).status).toBe(403)
    expect((await api.anonymous('POST', '/acls', {})).status).toBe(401)
  })

  it.each<[string, object]>([
    ['without a name', {}],
    ['an empty name', { name: ' ' }],
    ['the flag of the system', { name: 'x', system: true }],
    ['fields', { name: 'x', fields: { a: 1 } }],
    ['conditions', { name: 'x', conditions: 'all' }],
    ['a list of conditions', { name: 'x', conditions: [{ a: 1 }] }],
    ['an operator of its own in OR', { name: 'x', conditions: { OR: 'x' } }],
    ['a variable', { name: 'x', conditions: { a: '$CURRENT_USER.nope' } }],
    ['a hidden variable', { name: 'x', conditions: { a: '$CURRENT_USER.password' } }],
    ['defaults', { name: 'x', defaultValues: 'x' }],
    ['relConditions', { name: 'x', relConditions: 5 }],
  ])('refuses %s', async (_what, rule) => {
    const before = await api.position()
    for (const path of ['/acls', '/items/svc_ACL']) expect((await api.admin('POST', path, rule)).status).toBe(400)
    expect(await api.log(before)).toEqual([])
  })

  it('answers 409 for a name that is taken', async () => {
    expect((await api.admin('POST', '/acls', { name: 'Read_All' })).status).toBe(409)
  })
})

describe('acl_Ids of a permission', () => {
  const read = { collection: 'page', action: 'read' }

  it.each([
    ['fields', { fields: ['*'] }],
    ['conditions', { conditions: { stars: 1 } }],
    ['relConditions', { relConditions: { userCreated: { id: randomUUID() } } }],
    ['defaultValues', { defaultValues: { stars: 1 } }],
  ])('stand alone, not beside %s', async (_what, inline) => {
    const { roleId } = await api.user()
    const row = { role_Id: roleId, ...read, acl_Ids: [ids.Read_All], ...inline }
    for (const path of ['/permissions', '/items/svc_Permission'])
      expect((await api.admin('POST', path, row)).status).toBe(400)
    const { body } = await api.admin('POST', '/permissions', { ...row, ...nulls })
    expect((await api.admin('PATCH', `/permissions/${body.id}`, inline)).status).toBe(400)
    expect((await api.admin('PATCH', `/permissions/${body.id}`, { acl_Ids: null, ...inline })).status).toBe(200)
  })

  const nulls = { fields: null, conditions: {}, relConditions: null, defaultValues: null }

  it('name rules that exist and fit the collection', async () => {
    const { roleId } = await api.user()
    for (const [collection, acl_Ids] of [
      ['page', [randomUUID()]],
      ['page', ['Read_All']],
      ['plain', [ids.Read_Own]],
      ['page', Array(21).fill(ids.Read_All)],
    ])
      expect((await api.admin('POST', '/permissions', { role_Id: roleId, ...read, collection, acl_Ids })).status).toBe(
        400,
      )
  })

  it('decide what is read and written: conditions of one, fields of all', async () => {
    const stars = (
      await api.admin('POST', '/acls', { name: 'Stars', fields: ['stars'], conditions: { stars: { gt: 8 } } })
    ).body.id
    const titled = (
      await api.admin('POST', '/acls', { name: 'Titled', fields: 'title', defaultValues: { title: 'none', stars: 1 } })
    ).body.id
    const later = (await api.admin('POST', '/acls', { name: 'Later', fields: 'title', defaultValues: { stars: 2 } }))
      .body.id
    const user = await api.user([
      { ...read, acl_Ids: [stars, ids.Read_Own] },
      { ...read, action: 'create', acl_Ids: [titled, later] },
      { ...read, action: 'delete', acl_Ids: [ids.Delete_Own] },
    ])
    await api.admin('POST', '/items/page/bulk', [
      { title: 'few', stars: 1 },
      { title: 'many', stars: 9 },
    ])
    const made = await user.call('POST', '/items/page', {})
    expect(made.status).toBe(201)
    expect((await user.call('POST', '/items/page', { stars: 5 })).status).toBe(403)
    const pages = (await user.call('GET', '/items/page?sort=stars&fields=title,stars')).body
    expect(pages).toEqual({
      data: [
        { title: 'none', stars: 2 },
        { title: 'many', stars: 9 },
      ],
      totalCount: 2,
    })
    const [{ id }] = await api.sql(`select id from page where title = 'many'`)
    expect((await user.call('DELETE', `/items/page/${id}`)).status).toBe(403)
    expect((await user.call('DELETE', `/items/page/${made.body.data.id}`)).status).toBe(200)
  })

  it('follow a change of the rule at once, and keep it from being deleted', async () => {
    const rule = (await api.admin('POST', '/acls', { name: 'Changing', conditions: { title: 'a' } })).body.id
    const user = await api.user([{ ...read, acl_Ids: [rule] }])
    await api.sql(`insert into page (title) values ('a'), ('b'), ('b')`)
    const count = async () => (await user.call('GET', '/items/page?limit=0')).body.totalCount
    expect(await count()).toBe(1)
    await api.admin('PATCH', `/acls/${rule}`, { conditions: { title: 'b' } })
    expect(await count()).toBe(2)
    const broken = await api.admin('PATCH', `/acls/${rule}`, { conditions: { nope: 1 } })
    expect([broken.status, broken.body.error.details.errors[0].message]).toEqual([400, 'unknown field "nope"'])
    for (const path of [`/acls/${rule}`, `/items/svc_ACL/${rule}`]) {
      const refused = await api.admin('DELETE', path)
      expect([path, refused.status, refused.body.error]).toMatchObject([
        path,
        409,
        { message: 'The rule is in use', details: { collections: ['page'] } },
      ])
    }
    expect((await api.admin('DELETE', `/acls/${ids.Read_Own}`)).status).toBe(409)
    await api.sql('delete from "svc_ACL" where id = $1', [rule])
    await api.admin('POST', '/permissions/reload')
    expect((await user.call('GET', '/items/page')).status).toBe(403)
  })
})
