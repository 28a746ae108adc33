import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, type Call, startApi } from '../support/api.ts'
import { storeGrants } from '../support/stored-grants.ts'

/** `GET /permissions/explain` says what a request would meet, because it asks the same functions. */

let api: Api
let user: Awaited<ReturnType<Api['user']>>

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', {
    collectionName: 'shelf',
    schema: { fields: { name: { type: 'String' }, floor: { type: 'Integer' } } },
  })
  await api.admin('POST', '/schemas', {
    collectionName: 'book',
    schema: {
      paranoid: true,
      usertrack: true,
      fields: {
        title: { type: 'String' },
        stars: { type: 'Integer' },
        secret: { type: 'String', hidden: true },
        shelf: { relType: 'BelongsTo', target: 'shelf', foreignKey: 'shelf_id' },
      },
    },
  })
  user = await api.user()
  await api.sql(`insert into shelf (name, floor) values ('low', 1), ('high', 2)`)
})

type Question = Record<string, string | undefined>

const ask = (question: Question) =>
  api.admin(
    'GET',
    `/permissions/explain?${new URLSearchParams(Object.entries(question).filter((entry): entry is [string, string] => entry[1] !== undefined))}`,
  )

async function explained(question: Question): Promise<any> {
  const { status, body } = await ask({ collection: 'book', action: 'read', user: user.id, ...question })
  expect(status).toBe(200)
  return body
}

/** Replaces everything the user's role may do. */
async function allow(...permissions: object[]): Promise<string[]> {
  await api.sql('delete from "svc_Permission" where "role_Id" = $1', [user.roleId])
  const ids: string[] = []
  for (const permission of permissions) {
    const { status, body, text } = await api.admin('POST', '/permissions', {
      role_Id: user.roleId,
      collection: 'book',
      ...permission,
    })
    if (status !== 201) throw new Error(text)
    ids.push(body.id)
  }
  await api.admin('POST', '/permissions/reload')
  return ids
}

async function book(columns: Record<string, unknown> = {}): Promise<string> {
  const names = ['title', ...Object.keys(columns)]
  const values = ['a book', ...Object.values(columns)]
  const [{ id }] = await api.sql(
    `insert into book (${names.map((name) => `"${name}"`)}) values (${values.map((_, i) => `$${i + 1}`)}) returning id`,
    values,
  )
  return id
}

describe('an explanation', () => {
  it('of a permission names it, its fields, and what its variables stand for', async () => {
    const [id] = await allow({
      action: 'read',
      fields: 'title, shelf.name',
      conditions: { userCreated_Id: '$CURRENT_USER', stars: { gt: 1 } },
      relConditions: { shelf: { name: '$CURRENT_ROLE.name' } },
    })
    const [{ name }] = await api.sql('select name from "svc_Role" where id = $1', [user.roleId])
    expect(await explained({})).toMatchObject({
      allowed: true,
      decidedBy: 'permission',
      reason: 'The permission allows it on the items that pass its conditions',
      collection: 'book',
      action: 'read',
      role: { id: user.roleId, name },
      user: { id: user.id, status: 'active' },
      tenant: null,
      permission: { id, acls: [], fields: ['title', 'shelf.name'], problems: [] },
      fields: ['id', 'title'],
      relations: [{ relation: 'shelf', collection: 'shelf', fields: ['id', 'name'] }],
      through: [],
      conditions: {
        stored: { userCreated_Id: '$CURRENT_USER', stars: { gt: 1 } },
        resolved: { userCreated_Id: user.id, stars: { gt: 1 } },
        problem: null,
      },
      relConditions: {
        stored: { shelf: { name: '$CURRENT_ROLE.name' } },
        resolved: { shelf: { name } },
        problem: null,
      },
      defaultValues: { stored: null, resolved: null, problem: null },
      row: null,
    })
  })

  it('of a role is about a user of whom nothing more is known', async () => {
    await allow({ action: 'read', fields: '*', conditions: { userCreated_Id: '$CURRENT_USER' } })
    const id = await book({ userCreated_Id: user.id })
    for (const role of [
      user.roleId,
      (await api.sql('select name from "svc_Role" where id = $1', [user.roleId]))[0].name,
    ]) {
      const answer = await explained({ user: undefined, role, id })
      expect(answer).toMatchObject({
        allowed: false,
        decidedBy: 'rule',
        user: null,
        conditions: { resolved: { userCreated_Id: null } },
      })
    }
    expect(await explained({ id })).toMatchObject({ allowed: true, row: { exists: true, matches: true } })
    expect(await explained({ user: undefined, role: 'public' })).toMatchObject({
      allowed: false,
      decidedBy: 'permission',
    })
    expect(await explained({ user: undefined, role: 'administrator', id, field: 'secret' })).toMatchObject({
      allowed: false,
      decidedBy: 'field',
      reason: "You don't have permission to read field: secret",
    })
    expect(await explained({ user: undefined, role: 'administrator', id })).toMatchObject({
      allowed: true,
      decidedBy: 'administrator',
      permission: null,
      row: { matches: true },
    })
  })

  it('of named rules names them, too', async () => {
    const [{ id }] = await api.sql(`select id from "svc_ACL" where name = 'Update_Own'`)
    await allow({ action: 'update', acl_Ids: [id] })
    expect(await explained({ action: 'update' })).toMatchObject({
      allowed: true,
      permission: { acls: [{ id, name: 'Update_Own' }], fields: ['*'] },
      conditions: { resolved: { userCreated_Id: { eq: user.id } } },
      fields: expect.arrayContaining(['title', 'stars', 'shelf_id']),
    })
    expect((await explained({ action: 'update' })).fields).not.toContain('secret')
  })

  it('says which part of the rule an item fails', async () => {
    await allow(
      ...['read', 'update', 'delete'].map((action) => ({ action, fields: ['*'], conditions: { stars: { gt: 1 } } })),
    )
    const [good, bad, gone] = [
      await book({ stars: 5 }),
      await book({ stars: 1 }),
      await book({ stars: 5, deletedAt: new Date() }),
    ]
    for (const action of ['read', 'update', 'delete']) {
      const at = async (id: string) => {
        const { allowed, decidedBy, reason, row } = await explained({ action, id })
        return { allowed, decidedBy, reason, row }
      }
      const refused = `Item not found or you don't have permission to ${action} it`
      const row = { exists: true, matches: true, conditions: true, tenant: true, deleted: false }
      expect(await at(good)).toEqual({
        allowed: true,
        decidedBy: 'permission',
        reason: 'The permission allows it',
        row,
      })
      expect(await at(bad)).toEqual({
        allowed: false,
        decidedBy: 'rule',
        reason: refused,
        row: { ...row, matches: false, conditions: false },
      })
      expect(await at(gone)).toMatchObject({ allowed: false, row: { ...row, matches: false, deleted: true } })
      expect(await at(randomUUID())).toMatchObject({
        allowed: false,
        decidedBy: 'row',
        reason: refused,
        row: { exists: false },
      })
    }
    const restored = await explained({ action: 'update', id: gone, field: 'deletedAt' })
    expect(restored).toMatchObject({ allowed: true, row: { matches: true, deleted: true } })
  })

  it('of a rule that no longer means anything says so', async () => {
    await allow({ action: 'read', fields: '*', conditions: { stars: 1 } })
    await api.sql(`update "svc_Permission" set conditions = '{"gone": 1}' where "role_Id" = $1`, [user.roleId])
    await api.admin('POST', '/permissions/reload')
    expect(await explained({})).toMatchObject({
      allowed: false,
      decidedBy: 'rule',
      conditions: { stored: { gone: 1 }, problem: expect.stringContaining('gone') },
    })
    expect((await user.call('GET', '/items/book')).body).toEqual({ data: [], totalCount: 0 })
  })

  it('of an account that cannot sign in says so', async () => {
    const other = await api.user([{ collection: 'book', action: 'read', fields: '*' }])
    await api.sql(`update "svc_User" set status = 'suspended' where id = $1`, [other.id])
    expect(await explained({ user: other.id })).toMatchObject({
      allowed: false,
      decidedBy: 'account',
      reason: 'Account is suspended',
    })
    await api.sql('delete from "svc_UserRole" where "user_Id" = $1', [other.id])
    expect(await explained({ user: other.id })).toMatchObject({ allowed: false, decidedBy: 'account', role: null })
  })

  it('of what only administrators may write says so', async () => {
    await allow()
    const actions = ['create', 'update', 'delete']
    const granted = actions.map((action) => ({ collection: 'svc_Role', action, fields: ['*'] }))
    await storeGrants(api, user.roleId, granted)
    for (const action of ['create', 'update', 'delete'])
      expect(await explained({ collection: 'svc_Role', action })).toMatchObject({
        allowed: false,
        decidedBy: 'collection',
      })
    const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'public'`)
    const admin = { user: undefined, role: 'administrator' }
    expect(await explained({ ...admin, collection: 'svc_AuditLog', action: 'create' })).toMatchObject({
      allowed: false,
      decidedBy: 'collection',
    })
    expect(await explained({ ...admin, collection: 'svc_Role', action: 'delete', id })).toMatchObject({
      allowed: false,
      reason: 'System roles cannot be deleted',
    })
    expect((await api.sql('select 1 from "svc_Role" where id = $1', [id])).length).toBe(1)
  })

  it('of an account says whose it would have to be', async () => {
    await allow(...['update', 'delete'].map((action) => ({ collection: 'svc_User', action, fields: ['*'] })))
    const [{ id }] = await api.sql(`select id from "svc_User" where email = 'admin@example.com'`)
    const ask = (more: object) => explained({ collection: 'svc_User', action: 'update', id, ...more })
    expect(await ask({ field: 'firstName' })).toMatchObject({ allowed: true })
    for (const more of [{ field: 'status' }, { field: 'email' }, { action: 'delete' }])
      expect(await ask(more)).toMatchObject({
        allowed: false,
        decidedBy: 'row',
        reason: expect.stringContaining('an administrator may'),
      })
    expect(await ask({ id: user.id, field: 'email' })).toMatchObject({
      allowed: false,
      reason: expect.stringContaining('POST /auth/email/change'),
    })
    expect(await ask({ id: user.id, field: 'status' })).toMatchObject({ allowed: true })
  })

  it('changes nothing', async () => {
    await allow({ action: 'delete' }, { action: 'update', fields: '*' }, { action: 'create', fields: '*' })
    const id = await book()
    const before = await api.position()
    for (const action of ['create', 'read', 'update', 'delete']) await explained({ action, id, field: 'title' })
    expect(await api.log(before)).toEqual([])
  })
})

describe('a question', () => {
  it.each<[number, Question]>([
    [400, { collection: undefined }],
    [400, { action: undefined }],
    [400, { action: 'list' }],
    [400, { user: undefined }],
    [400, { role: 'public' }],
    [400, { id: 'x' }],
    [400, { action: 'create', field: 'nope' }],
    [404, { collection: 'nope' }],
    [404, { user: randomUUID() }],
    [404, { user: 'x' }],
    [404, { user: undefined, role: 'nobody' }],
  ])('answers %i for %j', async (status, question) => {
    await allow({ action: 'read', fields: '*' }, { action: 'create', fields: '*' })
    expect((await ask({ collection: 'book', action: 'read', user: user.id, ...question })).status).toBe(status)
  })

  it('is the administrator’s to ask', async () => {
    const path = `/permissions/explain?collection=book&action=read&user=${user.id}`
    expect((await user.call('GET', path)).body.error.message).toBe('Access denied. Administrators only.')
    expect((await api.anonymous('GET', path)).status).toBe(401)
    expect((await api.admin('GET', `${path}&id=1&id=2`)).status).toBe(400)
  })
})

describe('explanation and request', () => {
  const columns = ['title', 'stars', 'secret', 'shelf_id', 'userCreated_Id', 'createdAt']
  const fieldSpec = fc.oneof(
    fc.constant(null),
    fc.constant('*'),
    fc.uniqueArray(fc.constantFrom(...columns, '*', '*.*', '-title', '-stars', 'shelf.name', 'shelf.*', 'shelf'), {
      maxLength: 4,
    }),
  )
  const test = fc.constantFrom<object>(
    { stars: 1 },
    { stars: { gt: 1 } },
    { stars: null },
    { userCreated_Id: '$CURRENT_USER' },
    { userCreated_Id: { ne: '$CURRENT_USER' } },
    { 'shelf.floor': { lt: 2 } },
    { shelf: { name: 'high' } },
    { shelf: null },
    { title: '$CURRENT_USER.avatar.title' },
    { shelf_id: { in: '$CURRENT_USER.userRoles.tenant_Id' } },
    { createdAt: { gt: '$NOW-DAYS_1' } },
  )
  const conditions = fc.oneof(
    fc.constant(null),
    test,
    fc.array(test, { maxLength: 3 }).map((OR) => ({ OR })),
    fc.tuple(test, test).map(([a, b]) => ({ AND: [a, { NOT: b }] })),
  )
  const actions = ['create', 'read', 'update', 'delete'] as const
  const permissions = fc
    .subarray([...actions])
    .chain((chosen) =>
      fc.tuple(...chosen.map((action) => fc.record({ action: fc.constant(action), fields: fieldSpec, conditions }))),
    )
  const rows = fc.array(
    fc.record({
      stars: fc.constantFrom(null, 1, 2),
      mine: fc.boolean(),
      shelf: fc.constantFrom(null, 'low', 'high'),
      deleted: fc.boolean(),
    }),
    { minLength: 1, maxLength: 3 },
  )
  const scenario = fc.record({
    permissions,
    rows,
    fields: fc.uniqueArray(fc.constantFrom(...columns), { minLength: 1, maxLength: 2 }),
  })

  /** What a request of the user is refused with, if it is; no request changes anything but the last. */
  async function refusal(
    call: Call,
    action: string,
    id: string,
    fields: readonly string[],
  ): Promise<string | undefined> {
    const payload = Object.fromEntries(fields.map((field) => [field, null]))
    const answer =
      action === 'read'
        ? await call('GET', `/items/book/${id}?fields=${fields}`)
        : action === 'update'
          ? await call('PATCH', `/items/book/${id}`, {})
          : await call('DELETE', `/items/book/${id}`, payload)
    expect([200, 403]).toContain(answer.status)
    return answer.status === 403 ? answer.body.error.message : undefined
  }

  it('agree, for whatever role and row', async () => {
    const shelves = Object.fromEntries((await api.sql('select name, id from shelf')).map(({ name, id }) => [name, id]))
    let [allowed, refused] = [0, 0]
    const property = fc.asyncProperty(scenario, async (given) => {
      await allow(...given.permissions)
      await api.sql('delete from book')
      for (const { stars, mine, shelf, deleted } of given.rows) {
        const id = await book({
          stars,
          userCreated_Id: mine ? user.id : null,
          shelf_id: shelf && shelves[shelf],
          deletedAt: deleted ? new Date() : null,
        })
        for (const action of ['read', 'update', 'delete'] as const) {
          const field = action === 'read' ? given.fields[0]! : undefined
          const answer = await explained({ action, id, field })
          const actual = await refusal(user.call, action, id, field === undefined ? [] : [field])
          expect([action, given, answer.allowed ? undefined : answer.reason]).toEqual([action, given, actual])
          if (actual === undefined) allowed += 1
          else refused += 1
        }
      }
      await listAgrees()
      await writesAgree(given.fields)
    })
    await fc.assert(property, { numRuns: 25, endOnFailure: true })
    // A property that only ever meets one side proves little.
    expect(Math.min(allowed, refused)).toBeGreaterThan(0)
  })

  /** The list shows exactly the items that are explained as visible, and the fields. */
  async function listAgrees(): Promise<void> {
    const list = await user.call('GET', '/items/book')
    const about = await explained({})
    expect(list.status).toBe(about.allowed ? 200 : 403)
    const all = await api.sql('select id from book')
    const visible: string[] = []
    for (const { id } of all) if ((await explained({ id })).allowed) visible.push(id)
    const shown = list.status === 200 ? list.body.data : []
    expect(shown.map(({ id }: { id: string }) => id).sort()).toEqual(visible.sort())
    for (const row of shown) expect(Object.keys(row).sort()).toEqual([...about.fields].sort())
  }

  /** A field of a payload is refused where it is explained as not writable. */
  async function writesAgree(fields: readonly string[]): Promise<void> {
    for (const action of ['create', 'update'] as const)
      for (const field of fields) {
        const about = await explained({ action, field })
        const path = `/items/book${action === 'update' ? `/${randomUUID()}` : ''}`
        const answer = await user.call(action === 'create' ? 'POST' : 'PATCH', path, { [field]: null })
        const message = answer.body.error?.message as string | undefined
        const isFieldRefusal = /permission to (create|update) field/.test(message ?? '')
        const isDropped = about.reason === `The field ${field} is set by the server alone`
        if (about.decidedBy === 'permission' && !about.allowed) expect(message).toBe(about.reason)
        else if (isDropped) expect([field, isFieldRefusal]).toEqual(['createdAt', false])
        else {
          const expected = about.decidedBy === 'field' ? about.reason : undefined
          expect([action, field, isFieldRefusal || expected !== undefined ? message : undefined]).toEqual([
            action,
            field,
            expected,
          ])
        }
        if (about.fields !== null) expect(about.fields.includes(field)).toBe(about.decidedBy !== 'field')
        if (answer.status === 201) await api.sql('delete from book where id = $1', [answer.body.data.id])
      }
  }
})
