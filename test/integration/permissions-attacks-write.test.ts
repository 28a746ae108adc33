import { randomUUID } from 'node:crypto'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Call } from '../support/api.ts'
import { type Attacked, startAttacked } from '../support/canary.ts'

/** Writing what one may not write. */

let on: Attacked
beforeAll(async () => {
  on = await startAttacked()
})

afterEach(() => {
  expect(on.watched.leaks()).toEqual([])
})

/** Somebody with these permissions, in the watched process. */
async function someone(permissions: readonly object[]): Promise<{ call: Call; id: string; roleId: string }> {
  const { token, id, roleId } = await on.api.user(permissions)
  return { call: on.watched.as(token), id, roleId }
}

const rowOf = async (table: string, id: string) => (await on.api.sql(`select * from "${table}" where id = $1`, [id]))[0]

/** Events since a position, without those of sessions being seen. */
const eventsAfter = async (position: bigint) =>
  (await on.api.log(position)).map(({ entity, action }) => `${entity} ${action}`)

describe('P-10 a grant of * does not reach', () => {
  const past = '2001-01-01T00:00:00.000Z'
  const everywhere = ['svc_User', 'note', 'svc_File'].flatMap((collection) =>
    ['create', 'update'].map((action) => ({ collection, action, fields: ['*'] })),
  )
  let wide: Awaited<ReturnType<typeof someone>>
  beforeAll(async () => {
    wide = await someone(everywhere)
  })

  const privileged: [string, string, unknown][] = [
    ['svc_User', 'emailVerified', true],
    ['svc_User', 'password', 'a password of another'],
    ['svc_User', 'role_Id', randomUUID()],
    ['svc_User', 'tenant_Id', randomUUID()],
    ['note', 'userCreated_Id', randomUUID()],
    ['note', 'userUpdated_Id', randomUUID()],
    ['note', 'secret', 'known to me'],
    ['note', 'createdAt', past],
    ['note', 'updatedAt', past],
    ['svc_File', 'tenant_Id', randomUUID()],
    ['svc_File', 'userCreated_Id', randomUUID()],
  ]

  const payloads: Record<string, object> = {
    svc_User: { firstName: 'New' },
    note: { title: 'new' },
    svc_File: { filename: 'a', originalFilename: 'a', type: 'text/plain', size: 1, storage: 'local' },
  }

  it.each(privileged)('%s.%s on create, alone and in bulk', async (collection, field, value) => {
    const email = `${randomUUID()}@example.com`
    const payload = { ...payloads[collection], ...(collection === 'svc_User' && { email }), [field]: value }
    const one = await wide.call('POST', `/items/${collection}`, payload)
    const bulk = await wide.call('POST', `/items/${collection}/bulk`, [payload])
    for (const { status, body } of [one, bulk]) {
      // Files are made by uploads only.
      expect(collection === 'svc_File' ? [400] : [200, 201, 403, 409]).toContain(status)
      if (status > 201) continue
      const id = Array.isArray(body.data) ? body.data[0] : body.data.id
      const written = await rowOf(collection, id)
      expect(JSON.stringify(written[field] ?? null)).not.toBe(JSON.stringify(value))
    }
  })

  it.each(privileged)('%s.%s on update, alone and in bulk', async (collection, field, value) => {
    const table = `"${collection}"`
    const names = Object.keys(payloads[collection]!)
    const [{ id }] = await on.api.sql(
      `insert into ${table} (${names.map((name) => `"${name}"`)}) values (${names.map((_, i) => `$${i + 1}`)}) returning id`,
      Object.values(payloads[collection]!),
    )
    const one = await wide.call('PATCH', `/items/${collection}/${id}`, { [field]: value })
    const bulk = await wide.call('PATCH', `/items/${collection}/bulk`, [{ id, [field]: value }])
    expect([200, 403]).toContain(one.status)
    expect([200, 403]).toContain(bulk.status)
    const after = await rowOf(collection, id)
    expect(JSON.stringify(after[field] ?? null)).not.toBe(JSON.stringify(value))
  })

  it('the primary key of an item that exists', async () => {
    const [{ id }] = await on.api.sql(`insert into note (title) values ('keep') returning id`)
    await wide.call('PATCH', `/items/note/${id}`, { id: randomUUID(), title: 'kept' })
    expect(await rowOf('note', id)).toBeDefined()
    const user = await on.api.user()
    await wide.call('PATCH', `/items/svc_User/${user.id}`, { id: randomUUID() })
    expect(await rowOf('svc_User', user.id)).toBeDefined()
  })

  it('fields that the grant excludes', async () => {
    const { call } = await someone([{ collection: 'comment', action: 'update', fields: ['*', '-aside'] }])
    const answer = await call('PATCH', `/items/comment/${on.ids.comment}`, { aside: 'changed' })
    expect(answer.status).toBe(403)
    expect((await rowOf('comment', on.ids.comment)).aside).toBe(on.canaries.ungranted)
  })

  it('passwords, even named, unless ALLOW_PASSWORD_WRITES says so', async () => {
    const { call } = await someone([{ collection: 'svc_User', action: 'update', fields: ['*', 'password'] }])
    const before = (await rowOf('svc_User', on.ids.otherUser)).password
    const answer = await call('PATCH', `/items/svc_User/${on.ids.otherUser}`, { password: 'a password of another' })
    expect(answer.body.error.message).toBe("You don't have permission to update field: password")
    expect((await rowOf('svc_User', on.ids.otherUser)).password).toBe(before)
  })

  it('is refused by name in the documented words', async () => {
    const { call } = await someone([{ collection: 'note', action: 'create', fields: 'title, stars' }])
    const answer = await call('POST', '/items/note', { title: 'x', diary: 'y' })
    expect([answer.status, answer.body.error.message]).toEqual([
      403,
      "You don't have permission to create field: diary",
    ])
  })

  it.each([['create'], ['update']])('anything, where no field is granted (%s)', async (action) => {
    for (const fields of [null, [], '']) {
      const { call } = await someone([{ collection: 'note', action, fields }])
      const answer =
        action === 'create'
          ? await call('POST', '/items/note', { title: 'x' })
          : await call('PATCH', `/items/note/${on.ids.other}`, { title: 'x' })
      expect([answer.status, answer.body.error.message]).toEqual([
        403,
        `You don't have permission to ${action} field: title`,
      ])
    }
  })
})

describe('P-11 registration', () => {
  it('takes nothing but the documented members', async () => {
    const email = 'climber@example.com'
    const id = randomUUID()
    const extra = `"role_Id":"${id}","roleName":"administrator","emailVerified":true,"tenant_Id":"${id}","id":"${id}",
      "session_limits":{"web":99},"isAdmin":true,"createdAt":"2001-01-01T00:00:00Z","status":"pending",
      "userRoles":[{"role_Id":"${id}"}],"constructor":{"x":1}`
    const body = `{"email":"${email}","password":"a long password","firstName":"A","lastName":"B",${extra}}`
    const answer = await on.watched.as()('POST', '/auth/register', body, { 'content-type': 'application/json' })
    expect([200, 400]).toContain(answer.status)
    const accounts = await on.api.sql(
      `select u.id, u."emailVerified", u.session_limits, u.status, u."createdAt" > now() - interval '1 hour' as recent,
         r.name as role, ur."tenant_Id" from "svc_User" u
       join "svc_UserRole" ur on ur."user_Id" = u.id join "svc_Role" r on r.id = ur."role_Id" where u.email = $1`,
      [email],
    )
    for (const account of accounts) {
      expect(account.id).not.toBe(id)
      expect(account).toMatchObject({
        emailVerified: false,
        session_limits: null,
        status: 'active',
        recent: true,
        role: 'user',
        tenant_Id: null,
      })
    }
    expect(accounts).toHaveLength(answer.status === 200 ? 1 : 0)
  })

  it('does not take a prototype', async () => {
    const body =
      '{"email":"p@example.com","password":"a long password","firstName":"A","lastName":"B","__proto__":{"isAdmin":true}}'
    const answer = await on.watched.as()('POST', '/auth/register', body, { 'content-type': 'application/json' })
    expect(answer.status).toBe(400)
    expect((Object.prototype as Record<string, unknown>).isAdmin).toBeUndefined()
  })
})

describe('P-15 the row rule stands outside of what a request asks', () => {
  const rule = { OR: [{ userCreated_Id: '$CURRENT_USER' }, { title: 'everybody’s' }] }
  let owner: Awaited<ReturnType<typeof someone>>
  beforeAll(async () => {
    owner = await someone(
      ['read', 'update', 'delete'].map((action) => ({
        collection: 'note',
        action,
        fields: ['title'],
        conditions: rule,
      })),
    )
    await on.api.sql(`insert into note (title, "userCreated_Id") values ('own', $1), ('everybody’s', null)`, [owner.id])
  })

  it('on read, with OR true beside it', async () => {
    for (const filter of [
      { OR: [{ id: { isNotNull: true } }, { title: 'x' }] },
      { NOT: { id: null } },
      { OR: [{}, { title: 'x' }] },
      {},
    ]) {
      const { body } = await owner.call('GET', `/items/note?fields=title&sort=title&filter=${JSON.stringify(filter)}`)
      expect(body).toEqual({ data: [{ title: 'everybody’s' }, { title: 'own' }], totalCount: 2 })
    }
  })

  it('on update and delete, of one item and of many, whatever stands in the body or query', async () => {
    const position = await on.api.position()
    const filter = encodeURIComponent(JSON.stringify({ OR: [{ id: { isNotNull: true } }] }))
    const { other } = on.ids
    for (const [method, path, body] of [
      ['PATCH', `/items/note/${other}?filter=${filter}`, { title: 'taken' }],
      ['PATCH', '/items/note/bulk', [{ id: other, data: { title: 'taken' }, filter: {} }]],
      ['PATCH', '/items/note/bulk', { filter: { OR: [{}] }, data: { title: 'taken' } }],
      ['DELETE', `/items/note/${other}?filter=${filter}`, undefined],
      ['DELETE', '/items/note/bulk', [other]],
      ['DELETE', '/items/note/bulk', { filter: {} }],
      ['DELETE', '/items/note/bulk', [{ id: other }]],
      ['DELETE', '/items/note/bulk', [[other]]],
    ] as const) {
      const { status } = await owner.call(method, path, body)
      expect([path, [400, 403].includes(status)]).toEqual([path, true])
    }
    expect(await eventsAfter(position)).toEqual([])
  })

  it('on an empty list of ids, which changes nothing', async () => {
    const position = await on.api.position()
    expect((await owner.call('DELETE', '/items/note/bulk', [])).status).toBe(204)
    expect((await owner.call('PATCH', '/items/note/bulk', [])).body).toEqual({ data: [] })
    expect((await owner.call('PATCH', '/items/note/bulk', [{ title: 'of no item' }])).body).toEqual({ data: [] })
    expect(await eventsAfter(position)).toEqual([])
  })
})

describe('P-16 bulk is all or nothing', () => {
  let owner: Awaited<ReturnType<typeof someone>>
  let own: string[]
  beforeAll(async () => {
    const mine = { userCreated_Id: '$CURRENT_USER' }
    owner = await someone([
      ...['read', 'update', 'delete'].map((action) => ({
        collection: 'note',
        action,
        fields: ['title'],
        conditions: mine,
      })),
      { collection: 'note', action: 'create', fields: ['title', 'stars'], conditions: { stars: { lt: 10 } } },
    ])
    const rows = await on.api.sql(
      `insert into note (title, "userCreated_Id") select 'n' || i, $1 from generate_series(1, 9) i returning id`,
      [owner.id],
    )
    own = rows.map(({ id }) => id)
  })

  const atEveryPlace = () => [0, 4, 9].map((place) => own.toSpliced(place, 0, on.ids.other))

  it('with one foreign id among ten, wherever it stands', async () => {
    const position = await on.api.position()
    for (const ids of atEveryPlace()) {
      expect((await owner.call('DELETE', '/items/note/bulk', ids)).status).toBe(403)
      const changes = ids.map((id) => ({ id, data: { title: 'changed' } }))
      expect((await owner.call('PATCH', '/items/note/bulk', changes)).status).toBe(403)
    }
    expect(await eventsAfter(position)).toEqual([])
  })

  it('with an id that does not exist, and one that is no id', async () => {
    const position = await on.api.position()
    for (const [id, status] of [
      [randomUUID(), 403],
      ['x', 400],
      ["' or true --", 400],
    ] as const) {
      expect((await owner.call('DELETE', '/items/note/bulk', [...own, id])).status).toBe(status)
      expect(
        (
          await owner.call('PATCH', '/items/note/bulk', [
            { id: own[0], title: 'x' },
            { id, title: 'x' },
          ])
        ).status,
      ).toBe(status)
    }
    expect(await eventsAfter(position)).toEqual([])
  })

  it('with one row outside the rule among those created', async () => {
    const position = await on.api.position()
    const rows = [...Array(9).keys(), 99].map((stars) => ({ title: 'new', stars }))
    expect((await owner.call('POST', '/items/note/bulk', rows)).status).toBe(403)
    expect(await eventsAfter(position)).toEqual([])
  })

  it('with an existing foreign id among those created, which is not updated', async () => {
    const { call } = await someone([{ collection: 'note', action: 'create', fields: ['id', 'title'] }])
    const position = await on.api.position()
    expect((await call('POST', '/items/note/bulk', [{ title: 'a' }, { id: on.ids.other, title: 'b' }])).status).toBe(
      409,
    )
    expect(await eventsAfter(position)).toEqual([])
  })

  it('counts an id that is listed twice once', async () => {
    const [first, second] = own
    const position = await on.api.position()
    expect((await owner.call('DELETE', '/items/note/bulk', [first, first, second])).status).toBe(204)
    expect(await eventsAfter(position)).toEqual(['note delete', 'note delete'])
  })
})

describe('P-17 the row as written satisfies the rule, too', () => {
  const mine = { userCreated_Id: '$CURRENT_USER', owner_Id: '$CURRENT_USER' }
  let owner: Awaited<ReturnType<typeof someone>>
  let id: string
  beforeAll(async () => {
    const notes = ['create', 'read', 'update'].map((action) => ({
      collection: 'note',
      action,
      fields: ['title', 'owner_Id', 'userCreated_Id'],
      conditions: mine,
    }))
    // A caller that may not read a user may not point at one either, under any rule of the note.
    owner = await someone([...notes, { collection: 'svc_User', action: 'read', fields: ['id'] }])
    ;({ id } = (await owner.call('POST', '/items/note', { title: 'own', owner_Id: owner.id })).body.data)
  })

  it.each(['owner_Id', 'userCreated_Id'])('when %s is given away by an update', async (field) => {
    const position = await on.api.position()
    for (const value of [on.ids.otherUser, null]) {
      const answer = await owner.call('PATCH', `/items/note/${id}`, { [field]: value })
      expect([answer.status, answer.body.error.message]).toEqual([
        403,
        "Item not found or you don't have permission to update it",
      ])
      const bulk = await owner.call('PATCH', '/items/note/bulk', [{ id, data: { [field]: value } }])
      expect(bulk.status).toBe(403)
    }
    expect(await eventsAfter(position)).toEqual([])
  })

  it('when it is created for another user', async () => {
    const position = await on.api.position()
    for (const payload of [
      { title: 'x', owner_Id: on.ids.otherUser },
      { title: 'x' },
      { title: 'x', owner_Id: null },
    ]) {
      const answer = await owner.call('POST', '/items/note', payload)
      expect([answer.status, answer.body.error.message]).toEqual([
        403,
        "You don't have permission to create items in 'note'",
      ])
      expect((await owner.call('POST', '/items/note/bulk', [payload])).status).toBe(403)
    }
    expect(await eventsAfter(position)).toEqual([])
  })

  it('with the values that the rule itself puts there', async () => {
    const { call, id: self } = await someone([
      {
        collection: 'note',
        action: 'create',
        fields: ['title'],
        conditions: mine,
        defaultValues: { owner_Id: '$CURRENT_USER' },
      },
    ])
    const { status, body } = await call('POST', '/items/note', { title: 'x' })
    expect(status).toBe(201)
    expect(await rowOf('note', body.data.id)).toMatchObject({ owner_Id: self, userCreated_Id: self })
  })
})

describe('P-10 deletedAt of a collection with soft delete', () => {
  const now = '2026-01-02T03:04:05.000Z'
  let keeper: Awaited<ReturnType<typeof someone>>
  let remover: Awaited<ReturnType<typeof someone>>
  beforeAll(async () => {
    const fields = { name: { type: 'String', unique: true }, own: { type: 'Boolean', defaultValue: true } }
    const schema = { paranoid: true, fields }
    expect((await on.api.admin('POST', '/schemas', { collectionName: 'kept', schema })).status).toBe(201)
    const may = (action: string, more = {}) => ({ collection: 'kept', action, fields: ['*'], ...more })
    const all = [may('create'), may('read'), may('update')]
    keeper = await someone(all)
    remover = await someone([...all, may('delete', { conditions: { own: true } })])
  })

  const made = async (own = true): Promise<{ id: string; name: string }> => {
    const name = randomUUID()
    const { status, body } = await on.api.admin('POST', '/items/kept', { name, own })
    expect(status).toBe(201)
    return { id: body.data.id, name }
  }
  const isDeleted = async (id: string) => (await rowOf('kept', id)).deletedAt !== null

  it.each<[string, (row: { id: string; name: string }) => [string, string, unknown]]>([
    ['by a change', ({ id }) => ['PATCH', `/items/kept/${id}`, { deletedAt: now }]],
    ['by a change of many', ({ id }) => ['PATCH', '/items/kept/bulk', [{ id, data: { deletedAt: now } }]]],
    ['by an upsert', ({ name }) => ['PUT', '/items/kept?key=name', [{ name, deletedAt: now }]]],
  ])('needs the permission to delete, and its rule: %s', async (_how, requestOf) => {
    const mine = await made()
    const position = await on.api.position()
    const refused = await keeper.call(...requestOf(mine))
    expect(refused).toMatchObject({ status: 403 })
    expect(refused.text).toContain("You don't have permission to delete items in 'kept'")
    const others = await made(false)
    expect(await remover.call(...requestOf(others))).toMatchObject({ status: 403 })
    expect([await isDeleted(mine.id), await isDeleted(others.id)]).toEqual([false, false])
    expect(await eventsAfter(position)).toEqual(['kept create'])
    expect((await remover.call(...requestOf(mine))).status).toBeLessThan(300)
    expect(await isDeleted(mine.id)).toBe(true)
  })

  it('is null again by whoever may change the row', async () => {
    const { id } = await made()
    expect((await remover.call('DELETE', `/items/kept/${id}`)).status).toBe(200)
    expect((await keeper.call('PATCH', `/items/kept/${id}`, { deletedAt: null })).status).toBe(200)
    expect(await isDeleted(id)).toBe(false)
  })

  it('keeps a row in the trash from other changes', async () => {
    const { id, name } = await made()
    expect((await on.api.admin('DELETE', `/items/kept/${id}`)).status).toBe(200)
    const position = await on.api.position()
    for (const call of [keeper.call, on.api.admin]) {
      expect((await call('PATCH', `/items/kept/${id}`, { own: false })).status).toBe(403)
      expect((await call('PATCH', '/items/kept/bulk', [{ id, data: { own: false } }])).status).toBe(403)
      expect((await call('PATCH', `/items/kept/${id}`, {})).status).toBe(403)
    }
    expect(await eventsAfter(position)).toEqual([])
    const back = await keeper.call('PATCH', `/items/kept/${id}`, { own: false, deletedAt: null })
    expect(back.status).toBe(200)
    expect(await rowOf('kept', id)).toMatchObject({ name, own: false, deletedAt: null })
  })
})
