import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'

/** The effects of permissions on users, asked about many at once: parts of a rule, who may see an item, what an edit would change. */

let api: Api
let ada: Awaited<ReturnType<Api['user']>>
let bo: Awaited<ReturnType<Api['user']>>
const roleOf = new Map<string, string>()

const own = { userCreated_Id: '$CURRENT_USER' }

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', {
    collectionName: 'shelf',
    schema: { fields: { name: { type: 'String' }, floor: { type: 'Integer' } } },
  })
  await api.admin('POST', '/schemas', {
    collectionName: 'book',
    schema: {
      usertrack: true,
      paranoid: true,
      fields: {
        title: { type: 'String' },
        stars: { type: 'Integer' },
        secret: { type: 'String', hidden: true },
        shelf: { relType: 'BelongsTo', target: 'shelf', foreignKey: 'shelf_id' },
      },
    },
  })
  await api.sql(`insert into shelf (name, floor) values ('low', 1), ('high', 2)`)
  const conditions = { OR: [own, { AND: [{ stars: { gte: 4 } }, { 'shelf.floor': 2 }] }] }
  ada = await api.user([
    { collection: 'book', action: 'read', fields: ['title', 'stars'], conditions },
    { collection: 'book', action: 'create', fields: ['title'], conditions: { title: { ne: 'forbidden' } } },
  ])
  bo = await api.user([{ collection: 'book', action: 'read', fields: '*' }])
  for (const [role, id] of [
    ['ada', ada.roleId],
    ['bo', bo.roleId],
  ] as const) {
    const [{ name }] = await api.sql('select name from "svc_Role" where id = $1', [id])
    roleOf.set(role, name)
  }
})

async function book(title: string, stars: number, floor: number, creator: string | null = null): Promise<string> {
  const [{ id }] = await api.sql(
    `insert into book (title, stars, shelf_id, "userCreated_Id") values ($1, $2, (select id from shelf where floor = $3), $4) returning id`,
    [title, stars, floor, creator],
  )
  return String(id)
}

const ask = (path: string, body: unknown, by = api.admin) => by('POST', `/permissions/${path}`, body)

describe('POST /permissions/explain', () => {
  const question = { collection: 'book', action: 'read' }

  it('answers each part of the rule, with what it compares and what the item has', async () => {
    const id = await book('high and good', 5, 2)
    const { status, body } = await ask('explain', { ...question, user: ada.id, id, fields: ['title', 'secret'] })
    expect({ status, allowed: body.allowed, decidedBy: body.decidedBy }).toEqual({
      status: 200,
      allowed: true,
      decidedBy: 'permission',
    })
    expect(body.terms).toEqual({
      kind: 'any',
      holds: true,
      terms: [
        {
          kind: 'test',
          path: 'userCreated_Id',
          stored: '$CURRENT_USER',
          resolved: ada.id,
          actual: [null],
          holds: false,
        },
        {
          kind: 'all',
          holds: true,
          terms: [
            { kind: 'test', path: 'stars', stored: { gte: 4 }, resolved: { gte: 4 }, actual: [5], holds: true },
            { kind: 'test', path: 'shelf.floor', stored: 2, resolved: 2, actual: [2], holds: true },
          ],
        },
      ],
    })
    expect(body.tenantRule).toEqual({ applies: false, holds: true })
    expect(body.asked).toEqual([
      { field: 'title', allowed: true, reason: null },
      { field: 'secret', allowed: false, reason: expect.any(String) },
    ])
    expect(body.fields).toContain('title')
    expect(body.dropped).toContainEqual({ field: 'secret', reason: 'The field is hidden from everybody' })
    // GET is the same function.
    const asked = await api.admin('GET', `/permissions/explain?collection=book&action=read&user=${ada.id}&id=${id}`)
    expect(asked.body).toEqual({ ...body, asked: [] })
  })

  it('agrees with what a request meets, part by part', async () => {
    for (const [stars, shelf, creator] of [
      [5, 1, null],
      [3, 2, null],
      [1, 1, ada.id],
      [4, 2, ada.id],
    ] as const) {
      const id = await book('one', stars, shelf, creator)
      const { body } = await ask('explain', { ...question, user: ada.id, id })
      const isSeen = (await ada.call('GET', `/items/book/${id}?fields=title`)).status === 200
      expect([stars, shelf, body.allowed, body.terms.holds]).toEqual([stars, shelf, isSeen, isSeen])
      expect(body.terms.terms.map(({ holds }: { holds: boolean }) => holds)).toEqual([
        creator === ada.id,
        stars >= 4 && shelf === 2,
      ])
    }
  })

  it('is also about a row that is not there', async () => {
    const create = { collection: 'book', action: 'create', user: ada.id }
    const good = await ask('explain', { ...create, record: { title: 'fine' } })
    expect(good.body).toMatchObject({ allowed: true, terms: { path: 'title', actual: ['fine'], holds: true } })
    const bad = await ask('explain', { ...create, record: { title: 'forbidden' } })
    expect(bad.body).toMatchObject({ allowed: false, decidedBy: 'rule', terms: { holds: false } })
    expect((await ada.call('POST', '/items/book', { title: 'forbidden' })).status).toBe(403)
    for (const record of [{ nothing: 1 }, { stars: 'many' }])
      expect((await ask('explain', { ...create, record })).status).toBe(400)
  })

  it('knows no item: nothing holds or fails', async () => {
    const { body } = await ask('explain', { ...question, role: roleOf.get('ada') })
    expect(body.terms).toMatchObject({
      kind: 'any',
      holds: null,
      terms: [{ resolved: null, holds: null }, { holds: null }],
    })
  })

  it('is for administrators, and refuses what makes no sense', async () => {
    expect((await ask('explain', { ...question, user: ada.id }, ada.call)).status).toBe(403)
    expect((await ask('explain', { ...question, user: ada.id }, api.anonymous)).status).toBe(401)
    for (const body of [
      {},
      { ...question },
      { ...question, user: ada.id, role: 'x' },
      { ...question, user: ada.id, record: 7 },
    ])
      expect((await ask('explain', body)).status).toBe(400)
    expect((await ask('explain', { ...question, collection: 'nothing', user: ada.id })).status).toBe(404)
  })
})

describe('POST /permissions/who', () => {
  it('lists by role who may see an item, as their requests would tell', async () => {
    const id = await book('of Ada', 1, 1, ada.id)
    const { status, body } = await ask('who', { collection: 'book', id })
    expect(status).toBe(200)
    const of = (name: string) => body.data.roles.find(({ role }: { role: { name: string } }) => role.name === name)
    expect(of(roleOf.get('ada')!)).toMatchObject({
      reason: 'rule',
      users: 1,
      looked: 1,
      allowed: 1,
      people: [{ id: ada.id }],
    })
    expect(of(roleOf.get('bo')!)).toMatchObject({ reason: 'every row', users: 1, allowed: 1, people: [{ id: bo.id }] })
    expect(of('administrator')).toMatchObject({ reason: 'administrator', users: 1, allowed: 1 })
    expect(of('user')).toMatchObject({ reason: 'no permission', allowed: 0, people: [] })
    expect(body.data).toMatchObject({ complete: true, strangers: false })

    const other = await book('of nobody', 1, 1)
    const { body: second } = await ask('who', { collection: 'book', id: other })
    const names = second.data.roles
      .filter(({ allowed }: { allowed: number }) => allowed > 0)
      .map((one: any) => one.role.name)
    expect(names.sort()).toEqual(['administrator', roleOf.get('bo')].sort())
    expect((await ada.call('GET', `/items/book/${other}?fields=title`)).status).toBe(403)
  })

  it('asks many users of a role in few statements', async () => {
    await api.sql(
      `with made as (insert into "svc_User" ("firstName", "lastName", email)
         select 'Many', n::text, 'many' || n || '@example.com' from generate_series(1, 230) n returning id)
       insert into "svc_UserRole" ("user_Id", "role_Id") select id, $1 from made`,
      [ada.roleId],
    )
    const id = await book('of Ada', 1, 1, ada.id)
    const { body } = await ask('who', { collection: 'book', id })
    const answer = body.data.roles.find(({ role }: { role: { id: string } }) => role.id === ada.roleId)
    expect(answer).toMatchObject({ users: 231, looked: 200, allowed: 1 })
    expect(body.data.complete).toBe(false)
    await api.sql(`delete from "svc_User" where email like 'many%'`)
  })

  it('is for administrators, about what is there', async () => {
    expect((await ask('who', { collection: 'book', id: ada.id }, bo.call)).status).toBe(403)
    expect((await ask('who', { collection: 'nothing', id: ada.id })).status).toBe(404)
    expect((await ask('who', { collection: 'book', id: ada.id })).status).toBe(404)
    for (const body of [
      { collection: 'book' },
      { collection: 'book', id: 1, action: 'create' },
      { collection: 'book', id: 'x' },
    ])
      expect((await ask('who', body)).status).toBe(400)
  })
})

describe('POST /permissions/impact', () => {
  beforeAll(async () => {
    await api.sql('delete from book')
    for (let i = 0; i < 10; i += 1) await book(`${i}`, i % 5, 1 + (i % 2), i < 3 ? ada.id : null)
  })
  const impact = async (change: object) => {
    const { status, body, text } = await ask('impact', { changes: [{ collection: 'book', action: 'read', ...change }] })
    if (status !== 200) throw new Error(text)
    return body.data[0]
  }

  it('counts rows and users that an edit would gain and lose, and stores nothing', async () => {
    const before = await api.position()
    expect(await impact({ role: bo.roleId, permission: { conditions: { stars: { gte: 3 } } } })).toEqual({
      role: { id: bo.roleId, name: roleOf.get('bo') },
      collection: 'book',
      action: 'read',
      kind: 'changed',
      users: { total: 1, looked: 1, gaining: 0, losing: 1 },
      rows: { total: 10, gained: 0, lost: 6, exact: true },
      fields: { gained: [], lost: [] },
      complete: true,
    })
    expect(await impact({ role: roleOf.get('bo'), permission: null })).toMatchObject({
      kind: 'deleted',
      rows: { gained: 0, lost: 10 },
      fields: { lost: expect.arrayContaining(['title', 'stars']) },
    })
    expect(await impact({ role: ada.roleId, permission: { conditions: own, fields: ['title'] } })).toMatchObject({
      rows: { gained: 0, lost: 1 },
      users: { losing: 1 },
      fields: { gained: [], lost: ['stars'] },
    })
    expect(await impact({ role: 'user', permission: { fields: '*' } })).toMatchObject({
      kind: 'created',
      users: { total: 0, gaining: 0 },
    })
    expect(await impact({ role: bo.roleId, permission: { fields: ['*', 'shelf.floor'] } })).toMatchObject({
      fields: { gained: ['shelf.id', 'shelf.floor'], lost: [] },
    })
    expect(await impact({ role: bo.roleId, action: 'create', permission: { fields: ['title'] } })).toMatchObject({
      kind: 'created',
      rows: null,
      fields: { gained: ['id', 'title'] },
    })
    expect(await api.log(before)).toEqual([])
    expect((await bo.call('GET', '/items/book?limit=1')).body.totalCount).toBe(10)
  })

  it('tells what then happens', async () => {
    const permission = { conditions: { OR: [own, { title: '7' }] } }
    const told = await impact({ role: ada.roleId, permission })
    const seen = async () => (await ada.call('GET', '/items/book?fields=title')).body.totalCount
    const before = await seen()
    const { body } = await api.admin('GET', `/permissions?filter={"role_Id":"${ada.roleId}","action":"read"}`)
    const [row] = body.data
    await api.admin('PATCH', `/permissions/${row.id}`, permission)
    expect((await seen()) - before).toBe(told.rows.gained - told.rows.lost)
    await api.admin('PATCH', `/permissions/${row.id}`, { conditions: row.conditions })
    expect(await seen()).toBe(before)
  })

  it('tells what an edit of a named rule changes for the permissions that use it', async () => {
    const rule = { name: 'Good ones', fields: ['title', 'stars'], conditions: { stars: { gte: 3 } } }
    const { id } = (await api.admin('POST', '/acls', rule)).body
    const user = await api.user([{ collection: 'book', action: 'read', acl_Ids: [id] }])
    const change = { role: user.roleId, collection: 'book', action: 'read', permission: {} }
    const edit = (acl: object) => ask('impact', { changes: [change], acls: [acl] })
    const before = await api.position()
    expect((await edit({ id, conditions: { stars: 4 }, fields: ['title'] })).body.data).toMatchObject([
      { kind: 'changed', users: { losing: 1 }, rows: { total: 10, gained: 0, lost: 2 }, fields: { lost: ['stars'] } },
    ])
    // Only with the edit does the rule name the caller.
    expect((await edit({ id, conditions: own })).body.data).toMatchObject([
      { users: { looked: 1, losing: 1 }, rows: { gained: 0, lost: 4 } },
    ])
    expect((await edit({ id })).body.data).toMatchObject([{ rows: { gained: 0, lost: 0 } }])
    const [system] = await api.sql(`select id from "svc_ACL" where name = 'Read_Own'`)
    for (const [acl, status] of [
      [{ id, conditions: { nothing: 1 } }, 400],
      [{ id, conditions: 'all' }, 400],
      [{ id, relConditions: 5 }, 400],
      [{ id: system.id, conditions: {} }, 403],
      [{ id: ada.id }, 404],
      [{ conditions: {} }, 400],
    ] as const)
      expect([acl, (await edit(acl)).status]).toEqual([acl, status])
    expect(await api.log(before)).toEqual([])
    expect((await user.call('GET', '/items/book')).body.totalCount).toBe(4)
  })

  it('refuses what could not be stored, and others than administrators', async () => {
    const changes = [
      { role: bo.roleId, collection: 'book', action: 'read', permission: { conditions: { nothing: 1 } } },
    ]
    expect(await ask('impact', { changes })).toMatchObject({
      status: 400,
      body: { error: { code: 'VALIDATION_ERROR' } },
    })
    expect((await ask('impact', { changes }, bo.call)).status).toBe(403)
    const good = { role: bo.roleId, collection: 'book', action: 'read', permission: null }
    for (const [change, status] of [
      [{ ...good, role: 'nothing' }, 404],
      [{ ...good, collection: 'nothing' }, 404],
      [{ ...good, action: 'look' }, 400],
      [{ ...good, role: 'administrator' }, 400],
    ] as const)
      expect([change, (await ask('impact', { changes: [change] })).status]).toEqual([change, status])
    for (const body of [{}, { changes: [] }, { changes: 'x' }, { changes: Array(21).fill(good) }])
      expect((await ask('impact', body)).status).toBe(400)
  })
})
