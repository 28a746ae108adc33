import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, type Call, startApi } from '../support/api.ts'

/** Stored permissions: what is accepted, how it is answered, what it does (docs/permissions.md). */

let api: Api
let roleId: string

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', {
    collectionName: 'author',
    schema: { fields: { firstName: { type: 'String' }, lastName: { type: 'String' } } },
  })
  await api.admin('POST', '/schemas', {
    collectionName: 'review',
    schema: {
      fields: {
        stars: { type: 'Integer' },
        text: { type: 'String' },
        author: { relType: 'BelongsTo', target: 'author', foreignKey: 'author_id' },
      },
    },
  })
  await api.admin('POST', '/schemas', {
    collectionName: 'book',
    schema: {
      usertrack: true,
      fields: {
        title: { type: 'String' },
        price: { type: 'Decimal', values: { precision: 10, scale: 2 } },
        pages: { type: 'Integer', allowNull: false, defaultValue: 1 },
        at: { type: 'DateTime' },
        secret: { type: 'String', hidden: true },
        review: { relType: 'BelongsTo', target: 'review', foreignKey: 'review_id' },
      },
    },
  })
  roleId = (await api.admin('POST', '/items/svc_Role', { name: 'reader' })).body.data.id
})

const permission = (more: object = {}) => ({ role_Id: roleId, collection: 'book', action: 'read', ...more })
const create = (more: object) => api.admin('POST', '/permissions', permission(more))

/** Each test starts without permissions of the role. */
async function without(): Promise<void> {
  await api.sql('delete from "svc_Permission" where "role_Id" = $1', [roleId])
}

const problemsOf = (body: any) => body.error.details.errors.map(({ field, message }: any) => `${field}: ${message}`)

describe('POST /permissions', () => {
  it('answers the stored row itself, with its dates in wire form, and appends its event', async () => {
    await without()
    const before = await api.position()
    const { status, body } = await create({ fields: '*', conditions: { title: 'x' }, unknown: 1 })
    expect(status).toBe(201)
    expect(body).toEqual({
      id: expect.any(String),
      ...permission(),
      fields: '*',
      conditions: { title: 'x' },
      relConditions: null,
      defaultValues: null,
      acl_Ids: null,
      createdAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      updatedAt: expect.any(String),
    })
    expect((await api.log(before)).map(({ entity, entityId, action }) => [entity, entityId, action])).toEqual([
      ['svc_Permission', body.id, 'create'],
    ])
    expect((await api.admin('GET', `/permissions/${body.id}`)).body).toEqual({ data: body })
    const list = await api.admin('GET', `/permissions?filter=${JSON.stringify({ role_Id: roleId })}`)
    expect(list.body).toEqual({ data: [body], totalCount: 1 })
  })

  it.each([
    ['*'],
    [['*']],
    ['title,review.*, review.author.firstName'],
    [['title', 'review.*', 'review.author.firstName']],
    [[]],
    [null],
    [''],
  ])('keeps fields %j as they came', async (fields) => {
    await without()
    const { status, body } = await create({ fields })
    expect([status, body.fields]).toEqual([201, fields])
    const [{ fields: stored }] = await api.sql('select fields from "svc_Permission" where id = $1', [body.id])
    expect(stored).toEqual(fields)
  })

  it('answers 409 for the same place twice and for a role that does not exist', async () => {
    await without()
    expect((await create({ fields: '*' })).status).toBe(201)
    const twice = await create({ fields: 'title' })
    expect([twice.status, twice.body.error.message]).toEqual([409, 'Unique constraint violation'])
    const nobody = await api.admin('POST', '/permissions', permission({ role_Id: randomUUID(), action: 'update' }))
    expect([nobody.status, nobody.body.error.message]).toEqual([409, 'Foreign key constraint violation'])
  })

  it.each(['Permission', 'ACL'])('an unknown %s is not found, whatever is asked of it', async (what) => {
    const path = `/${what === 'ACL' ? 'acls' : 'permissions'}/${randomUUID()}`
    for (const [method, body] of [['GET'], ['PATCH', { fields: '*' }], ['DELETE']] as const) {
      const answer = await api.admin(method, path, body)
      expect([answer.status, answer.body.error.message]).toEqual([404, `${what} not found`])
    }
    const user = await api.user()
    expect((await user.call('GET', path)).status).toBe(403)
  })

  it('is for administrators only', async () => {
    const user = await api.user()
    const answers = [
      [await user.call('POST', '/permissions', permission()), 403, 'Access denied. Administrators only.'],
      [await user.call('PATCH', `/permissions/${randomUUID()}`, {}), 403, 'Access denied. Administrators only.'],
      [await user.call('DELETE', `/permissions/${randomUUID()}`), 403, 'Access denied. Administrators only.'],
      [await user.call('POST', '/permissions/reload'), 403, 'Access denied. Administrators only.'],
      [await api.anonymous('POST', '/permissions', permission()), 401, 'Authentication required'],
    ] as const
    for (const [{ status, body }, expected, message] of answers)
      expect([status, body.error.message]).toEqual([expected, message])
  })

  it.each<[string, object, string[]]>([
    ['an action', { action: 'list' }, ['action: must be create, read, update or delete']],
    ['no collection', { collection: undefined }, ['collection: is required']],
    ...['svc_Nowhere', 'pg_class', 'no where', '1st', '', '__proto__', 'a'.repeat(64), 7].map(
      (collection): [string, object, string[]] => [
        `the collection ${collection}`,
        { collection },
        ['collection: is not a known collection, and cannot become one'],
      ],
    ),
    ['fields', { fields: { title: true } }, ['fields: must be text or a list of texts']],
    ['conditions of the wrong shape', { conditions: 'all' }, ['conditions: must be an object']],
    ['a field in conditions', { conditions: { nope: 1 } }, ['conditions: unknown field "nope"']],
    ['an operator', { conditions: { title: { nope: 1 } } }, ['conditions: title: unknown operator "nope"']],
    ['a value', { conditions: { pages: 'many' } }, ['conditions: pages.eq: expected an integer']],
    ['a path', { conditions: { 'review.nope': 1 } }, ['conditions: unknown field "review.nope"']],
    ['a hidden field', { conditions: { secret: 1 } }, ["conditions: You don't have permission to read field: secret"]],
    [
      'the type of a variable',
      { conditions: { pages: '$CURRENT_USER' } },
      ['conditions: pages.eq: expected an integer'],
    ],
    [
      'a variable',
      { conditions: { title: '$CURRENT_USER.nope' } },
      ['conditions: $CURRENT_USER.nope is not a known variable'],
    ],
    [
      'a variable over too many relations',
      { conditions: { title: `$CURRENT_USER${'.userRoles.user'.repeat(4)}.email` } },
      [`conditions: $CURRENT_USER${'.userRoles.user'.repeat(4)}.email is not a known variable`],
    ],
    [
      'a path from the settings',
      { conditions: { title: '$CURRENT_SETTINGS.project_icon.type' } },
      ['conditions: $CURRENT_SETTINGS.project_icon.type is not a known variable'],
    ],
    ['a relation', { relConditions: { nope: {} } }, ["relConditions: nope is not a relation of 'book'"]],
    ['conditions that are a list', { conditions: [] }, ['conditions: must be an object']],
    ['limits that are a list', { relConditions: [] }, ['relConditions: must be an object']],
    ['defaults that are a list', { defaultValues: [] }, ['defaultValues: must be an object']],
    ['named rules that are no list', { acl_Ids: {} }, ['acl_Ids: must be a list of at most 20 ids']],
    ['a limit of the wrong shape', { relConditions: { review: 'x' } }, ['relConditions: review: must be an object']],
    [
      'a field of a related collection',
      { relConditions: { review: { author: { nope: 1 } } } },
      ['relConditions: unknown field "nope"'],
    ],
    ['a default', { defaultValues: { nope: 1 } }, ['defaultValues: nope is not a field that can be written']],
    ['the type of a default', { defaultValues: { pages: 'x' } }, ['defaultValues: pages: expected an integer']],
    ['an empty default', { defaultValues: { pages: null } }, ['defaultValues: pages: is required']],
    [
      'a default of several values',
      { defaultValues: { review_id: '$CURRENT_USER.userRoles.id' } },
      ['defaultValues: review_id: expected a UUID'],
    ],
    ['rules', { acl_Ids: 'x' }, ['acl_Ids: must be a list of at most 20 ids']],
  ])('refuses %s that means nothing, and says what', async (_what, wrong, problems) => {
    await without()
    const before = await api.position()
    for (const path of ['/permissions', '/items/svc_Permission']) {
      const { status, body } = await api.admin('POST', path, permission(wrong))
      expect([path, status, problemsOf(body)]).toEqual([path, 400, problems])
      expect(body.error.message).toBe(`Validation failed: ${problems.join('; ')}`)
    }
    expect(await api.log(before)).toEqual([])
  })

  it('tells all that is wrong at once', async () => {
    const { body } = await create({
      conditions: { nope: 1 },
      relConditions: { nope: {} },
      defaultValues: { a: 1, b: 2 },
    })
    expect(problemsOf(body)).toHaveLength(4)
  })

  it('accepts what may come to mean something, or does for some callers', async () => {
    await without()
    for (const rule of [
      { fields: ['not yet', 'Review.*'] },
      { conditions: { title: '$CURRENT_USER.email', 'review.stars': { gt: 3 } } },
      { conditions: { OR: [{ userCreated_Id: '$CURRENT_USER' }, { at: { gt: '$NOW-DAYS_7' } }] } },
      { conditions: { title: { in: '$CURRENT_USER.userRoles.role.name' } } },
      { conditions: { review_id: { in: '$CURRENT_USER.userRoles.id' } } },
      { relConditions: { review: { stars: { gt: 3 }, author: { firstName: '$CURRENT_USER.firstName' } } } },
      { action: 'create', defaultValues: { title: '$CURRENT_USER.email', at: '$NOW', price: 7, pages: 3 } },
    ]) {
      const { status, body } = await create(rule)
      expect([status, rule, body.error?.message]).toEqual([201, rule, undefined])
      await without()
    }
  })

  it('knows a collection that another process has just made', async () => {
    await without()
    await api.sql(
      `insert into "svc_SchemaDefinition" ("collectionName", schema) values ('fresh', '{"fields": {"title": {"type": "String"}}}')`,
    )
    expect((await create({ collection: 'fresh', conditions: { title: 'x' } })).status).toBe(201)
    await without()
    await api.sql(`delete from "svc_SchemaDefinition" where "collectionName" = 'fresh'`)
    await api.runtime.catalog.reload()
  })
})

describe('PATCH and DELETE /permissions', () => {
  it('answer the changed row, and nothing', async () => {
    await without()
    const { id } = (await create({ fields: '*', conditions: { title: 'x' } })).body
    const changed = await api.admin('PATCH', `/permissions/${id}`, { fields: ['title'] })
    expect(changed).toMatchObject({ status: 200, body: { id, fields: ['title'], conditions: { title: 'x' } } })
    expect((await api.admin('PATCH', `/permissions/${id}`, { conditions: null })).body.conditions).toBeNull()
    const gone = await api.admin('DELETE', `/permissions/${id}`)
    expect([gone.status, gone.text]).toEqual([204, ''])
    for (const [method, status] of [
      ['GET', 404],
      ['PATCH', 404],
      ['DELETE', 404],
    ] as const)
      expect((await api.admin(method, `/permissions/${id}`, method === 'PATCH' ? {} : undefined)).status).toBe(status)
  })

  it('refuse a change after which the rule means nothing', async () => {
    await without()
    const { id } = (await create({ fields: '*', conditions: { title: 'x' } })).body
    const before = await api.position()
    for (const path of [`/permissions/${id}`, `/items/svc_Permission/${id}`]) {
      const { status, body } = await api.admin('PATCH', path, { collection: 'author' })
      expect([path, status, problemsOf(body)]).toEqual([path, 400, ['conditions: unknown field "title"']])
    }
    expect((await api.admin('PATCH', '/items/svc_Permission/bulk', [{ id, conditions: { nope: 1 } }])).status).toBe(400)
    expect((await api.admin('PATCH', `/permissions/${id}`, { action: 'x' })).status).toBe(400)
    expect((await api.admin('PATCH', `/permissions/${id}`, 'x')).status).toBeGreaterThanOrEqual(400)
    expect(await api.log(before)).toEqual([])
  })
})

describe('PUT /items/svc_Permission', () => {
  const put = (...rows: object[]) =>
    api.admin('PUT', '/items/svc_Permission?key=role_Id,collection,action', rows.map(permission))

  it('creates the rule of a place, or changes the one that is there', async () => {
    await without()
    const before = await api.position()
    const made = await put({ fields: ['title'], conditions: { title: 'x' } })
    expect(made.status, made.text).toBeLessThan(300)
    expect((await put({ fields: '*' }, { action: 'update', fields: '*' })).status).toBeLessThan(300)
    const rows = await api.sql(
      'select action, fields, conditions from "svc_Permission" where "role_Id" = $1 order by action',
      [roleId],
    )
    expect(rows).toEqual([
      { action: 'read', fields: '*', conditions: { title: 'x' } },
      { action: 'update', fields: '*', conditions: null },
    ])
    expect((await api.log(before)).map(({ action }) => action)).toEqual(['create', 'update', 'create'])
  })

  it('refuses what would mean nothing, of the row that is there or of a new one', async () => {
    await without()
    await create({ fields: '*', conditions: { title: 'x' } })
    const before = await api.position()
    for (const row of [{ conditions: { nope: 1 } }, { action: 'create', defaultValues: { nope: 1 } }, { action: 'x' }])
      expect([row, (await put(row)).status]).toEqual([row, 400])
    const { text } = await api.admin('PUT', '/items/svc_Permission?key=role_Id,collection', [permission()])
    expect(text).toContain('key: these fields are not unique together')
    expect(await api.log(before)).toEqual([])
  })
})

describe('reading permissions', () => {
  it('follows the permission on svc_Permission', async () => {
    await without()
    await create({ fields: '*' })
    const nobody = await api.user()
    for (const path of ['/permissions', `/permissions/${randomUUID()}`]) {
      const answer = await nobody.call('GET', path)
      expect([answer.status, answer.body.error.message]).toEqual([
        403,
        "You don't have permission to read items in 'svc_Permission'",
      ])
    }
    const own = await api.user([
      { collection: 'svc_Permission', action: 'read', fields: ['action'], conditions: { role_Id: '$CURRENT_ROLE' } },
    ])
    expect((await own.call('GET', '/permissions')).body).toEqual({
      data: [{ id: expect.any(String), action: 'read' }],
      totalCount: 1,
    })
  })

  it('reloads on demand', async () => {
    const answer = await api.admin('POST', '/permissions/reload')
    expect([answer.status, answer.body]).toEqual([200, { message: 'Permission cache reloaded successfully' }])
  })
})

describe('effects of permissions', () => {
  let call: Call
  let userId: string
  const grantAll = (...permissions: object[]) =>
    Promise.all(permissions.map((one) => api.admin('POST', '/permissions', one))).then((answers) =>
      expect(answers.map(({ status }) => status)).toEqual(permissions.map(() => 201)),
    )

  beforeAll(async () => {
    const user = await api.user()
    ;({ call, id: userId } = user)
    const of = (more: object) => ({ role_Id: user.roleId, collection: 'book', ...more })
    await grantAll(
      of({ action: 'read', fields: 'title, pages, review.text, review.author.firstName' }),
      of({ action: 'create', fields: ['title'], defaultValues: { pages: 7, title: 'Untitled' } }),
      of({ action: 'update', fields: ['title'], conditions: { userCreated_Id: '$CURRENT_USER' } }),
      {
        role_Id: user.roleId,
        collection: 'review',
        action: 'read',
        fields: ['text'],
        conditions: { stars: { gt: 2 } },
      },
      { role_Id: user.roleId, collection: 'author', action: 'read', fields: ['firstName'] },
    )
    await api.sql(`insert into author ("firstName", "lastName") values ('Ann', 'Other')`)
    await api.sql(
      `insert into review (stars, text, author_id) select stars, 'text ' || stars, (select id from author) from (values (1), (5)) v(stars)`,
    )
    await api.sql(`insert into book (title, pages, review_id) select 'book ' || stars, stars, id from review`)
  })

  it('an ungranted relation is refused by name and left out of wildcards', async () => {
    expect((await call('GET', '/items/book?fields=title,review.stars')).status).toBe(403)
    const { body } = await call('GET', '/items/book?fields=*,review.*&sort=title')
    expect(body.data).toEqual([
      { id: expect.any(String), title: 'book 1', pages: 1, review: null },
      { id: expect.any(String), title: 'book 5', pages: 5, review: { id: expect.any(String), text: 'text 5' } },
    ])
    const nested = await call('GET', '/items/book?fields=review.author.firstName&sort=-title&limit=1')
    expect(nested.body.data[0].review.author).toEqual({ id: expect.any(String), firstName: 'Ann' })
    expect((await call('GET', '/items/book?fields=review.author.lastName')).body.error.message).toBe(
      "You don't have permission to read field: review.author.lastName",
    )
  })

  it('create takes granted fields and fills in the defaults beneath them', async () => {
    const made = await call('POST', '/items/book', { title: 'Mine' })
    expect(made.status).toBe(201)
    const [book] = await api.sql('select * from book where id = $1', [made.body.data.id])
    expect(book).toMatchObject({ title: 'Mine', pages: 7, userCreated_Id: userId })
    const [untitled] = await api.sql('select title from book where id = $1', [
      (await call('POST', '/items/book', {})).body.data.id,
    ])
    expect(untitled.title).toBe('Untitled')
    const refused = await call('POST', '/items/book', { pages: 1 })
    expect([refused.status, refused.body.error.message]).toEqual([
      403,
      "You don't have permission to create field: pages",
    ])
  })

  it.each([[[]], [null], [''], [['-title']]])('with fields %j nothing is created or changed', async (fields) => {
    const grants = ['create', 'update'].map((action) => ({
      ...{ collection: 'book', action, fields },
      ...(fields?.length !== 1 && { defaultValues: { title: 'By default' } }),
    }))
    const other = await api.user(grants)
    const { id } = (await api.admin('POST', '/items/book', { title: 'a' })).body.data
    const before = await api.position()
    const denied = (action: string) => [403, `You don't have permission to ${action} items in 'book'`]
    const create = [
      ...[{}, { unknown: 1 }, { id: randomUUID() }].map((payload) => ['POST', '/items/book', payload] as const),
      ['POST', '/items/book/bulk', [{}]] as const,
    ]
    for (const [method, path, body] of create) {
      const answer = await other.call(method, path, body)
      expect([answer.status, answer.body.error.message]).toEqual(denied('create'))
    }
    for (const payload of [{}, { unknown: 1 }, { id }]) {
      const answer = await other.call('PATCH', `/items/book/${id}`, payload)
      expect([answer.status, answer.body.error.message]).toEqual(denied('update'))
    }
    expect(await api.log(before)).toEqual([])
    const question = `/permissions/explain?collection=book&action=create&user=${other.id}`
    expect((await api.admin('GET', question)).body).toMatchObject({ allowed: false, decidedBy: 'field' })
  })

  it('update takes granted fields of rows that pass', async () => {
    const [{ id }] = await api.sql('select id from book where "userCreated_Id" = $1 limit 1', [userId])
    const [{ id: foreign }] = await api.sql('select id from book where "userCreated_Id" is null limit 1')
    expect((await call('PATCH', `/items/book/${id}`, { title: 'Changed' })).status).toBe(200)
    for (const [target, payload, message] of [
      [id, { pages: 2 }, "You don't have permission to update field: pages"],
      [foreign, { title: 'x' }, "Item not found or you don't have permission to update it"],
    ] as const) {
      const { status, body } = await call('PATCH', `/items/book/${target}`, payload)
      expect([status, body.error.message]).toEqual([403, message])
    }
    const denied = await call('DELETE', `/items/book/${id}`)
    expect([denied.status, denied.body.error.message]).toEqual([
      403,
      "You don't have permission to delete items in 'book'",
    ])
  })

  it('a read permission without fields gives every own column and no relation', async () => {
    for (const fields of [null, []]) {
      const user = await api.user([{ collection: 'book', action: 'read', fields }])
      const { body } = await user.call('GET', '/items/book?limit=1')
      expect(Object.keys(body.data[0])).toEqual(expect.arrayContaining(['id', 'title', 'price', 'createdAt']))
      expect(Object.keys(body.data[0])).not.toContain('secret')
      expect((await user.call('GET', '/items/book?fields=review.text')).status).toBe(403)
    }
  })

  it('the administrator needs none and sees everything but hidden fields', async () => {
    const { body } = await api.admin('GET', '/items/book?fields=*,review.author.*&limit=1')
    expect(Object.keys(body.data[0])).toEqual(expect.arrayContaining(['price', 'review', 'userCreated_Id']))
    expect(Object.keys(body.data[0])).not.toContain('secret')
  })
})

describe('the role public', () => {
  it('has nothing until it is granted, by name and nothing more', async () => {
    const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'public'`)
    const { status, body: refusal } = await api.anonymous('GET', '/items/book')
    expect([status, refusal.error.message]).toEqual([403, "You don't have permission to read items in 'book'"])
    expect((await api.anonymous('POST', '/items/book', {})).status).toBe(403)
    const made = await api.admin('POST', '/permissions', {
      role_Id: id,
      collection: 'book',
      action: 'read',
      fields: 'title',
      conditions: { OR: [{ pages: { gt: 2 } }, { userCreated_Id: '$CURRENT_USER' }] },
    })
    const before = await api.position()
    const { body } = await api.anonymous('GET', '/items/book?filter={"title":{"startsWith":"book"}}')
    expect(body).toEqual({ data: [{ id: expect.any(String), title: 'book 5' }], totalCount: 1 })
    for (const token of ['nonsense', 'a.b.c'])
      expect((await api.as(token)('GET', '/items/book')).body.error.code).toBe('INVALID_TOKEN')
    expect(await api.log(before)).toEqual([])
    await api.admin('DELETE', `/permissions/${made.body.id}`)
    expect((await api.anonymous('GET', '/items/book')).status).toBe(403)
  })

  it('knows its own role in rules, and no user', async () => {
    const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'public'`)
    const made = await api.admin('POST', '/permissions', {
      role_Id: id,
      collection: 'svc_Role',
      action: 'read',
      fields: 'name',
      conditions: { OR: [{ name: '$CURRENT_ROLE.name' }, { id: { in: '$CURRENT_USER.userRoles.role_Id' } }] },
    })
    expect((await api.anonymous('GET', '/items/svc_Role')).body.data).toEqual([{ id, name: 'public' }])
    await api.admin('DELETE', `/permissions/${made.body.id}`)
  })
})
