import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { storeGrants } from '../support/stored-grants.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
const ids: Record<string, string> = {}

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', {
    collectionName: 'category',
    schema: {
      fields: {
        name: { type: 'String', unique: true },
        rank: { type: 'Integer' },
        secret: { type: 'String', hidden: true },
      },
    },
  })
  await api.admin('POST', '/schemas', {
    collectionName: 'product',
    schema: {
      usertrack: true,
      fields: {
        name: { type: 'String', allowNull: false },
        price: { type: 'Decimal', values: { precision: 12, scale: 2 } },
        big: { type: 'BigInt' },
        ratio: { type: 'Double' },
        active: { type: 'Boolean', defaultValue: true },
        made: { type: 'DateTime' },
        day: { type: 'Date' },
        meta: { type: 'JSON' },
        ref: { type: 'UUID' },
        level: { type: 'ENUM', values: ['low', 'high'] },
        category: { relType: 'BelongsTo', target: 'category', foreignKey: 'category_id' },
      },
    },
  })
  for (const [name, rank] of [
    ['fruit', 1],
    ['tools', 2],
  ] as const)
    ids[name] = (await api.admin('POST', '/items/category', { name, rank, secret: 'canary' })).body.data.id
})

const q = (parameters: Record<string, unknown>) =>
  `?${new URLSearchParams(Object.fromEntries(Object.entries(parameters).map(([key, value]) => [key, typeof value === 'string' ? value : JSON.stringify(value)])))}`

describe('create', () => {
  it('answers the id, writes the row and its event with the actor', async () => {
    const before = await api.position()
    const answer = await api.admin('POST', '/items/product', {
      name: 'apple',
      price: '1.50',
      category_id: ids.fruit,
      unknown: 1,
    })
    expect(answer).toMatchObject({ status: 201, body: { data: { id: expect.any(String) } } })
    const [event, ...rest] = await api.log(before)
    expect(rest).toEqual([])
    expect(event).toMatchObject({
      entity: 'product',
      entityId: answer.body.data.id,
      action: 'create',
      changes: { after: { name: 'apple', price: 1.5, active: true, category_id: ids.fruit } },
    })
    const [user] = await api.sql(`select id from "svc_User" where email = 'admin@example.com'`)
    expect(event?.userId).toBe(user.id)
    expect(event?.changes.after.userCreated_Id).toBe(user.id)
    ids.apple = answer.body.data.id
  })

  it('keeps every type exact on the way in and out', async () => {
    const values = {
      name: 'exact',
      price: '1234567890.12',
      big: '9007199254740993',
      ratio: 0.1,
      made: '2024-02-29T23:30:00.123+02:00',
      day: '2024-02-29',
      meta: { a: [1, { b: null }], 'quote"': "it's", n: 12345678901234567890n.toString() },
      ref: '11111111-1111-4111-8111-111111111111',
      level: 'high',
    }
    const { body } = await api.admin('POST', '/items/product', values)
    const item = await api.admin('GET', `/items/product/${body.data.id}`)
    expect(item.body.data).toMatchObject({ ...values, made: '2024-02-29T21:30:00.123Z' })
    expect((await api.admin('POST', '/items/product', { name: 'small', big: 42 })).status).toBe(201)
    const small = await api.admin('GET', `/items/product${q({ filter: { name: 'small' }, fields: ['big'] })}`)
    expect(small.body.data).toEqual([{ big: 42 }])
  })

  it('accepts a payload without any column and one that names a relation by id', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'blank', schema: { fields: { note: { type: 'String' } } } })
    expect((await api.admin('POST', '/items/blank', {})).status).toBe(201)
    const { body } = await api.admin('POST', '/items/product', { name: 'hammer', category: ids.tools })
    expect((await api.admin('GET', `/items/product/${body.data.id}`)).body.data.category_id).toBe(ids.tools)
  })

  it.each([
    ['a missing required field', { price: 1 }, 'name'],
    ['text for a number', { name: 'x', big: 'many' }, 'big'],
    ['a fraction for a whole number', { name: 'x', big: 1.5 }, 'big'],
    ['an object for text', { name: { a: 1 } }, 'name'],
    ['a value that is not listed', { name: 'x', level: 'middle' }, 'level'],
    ['a bad date', { name: 'x', made: 'yesterday' }, 'made'],
    ['a day that does not exist', { name: 'x', day: '2023-02-30' }, 'day'],
    ['a malformed id', { name: 'x', ref: 'abc' }, 'ref'],
    ['NUL in text', { name: 'a\u0000b' }, 'name'],
    ['text for a boolean', { name: 'x', active: 'perhaps' }, 'active'],
  ])('refuses %s by its field and writes nothing', async (_what, payload, field) => {
    const before = await api.position()
    const answer = await api.admin('POST', '/items/product', payload)
    expect(answer.status).toBe(400)
    expect(answer.body.error.details.errors.map((problem: { field: string }) => problem.field)).toEqual([field])
    expect(await api.log(before)).toEqual([])
  })

  it('takes whole numbers within the range of their field, as numbers and as text', async () => {
    const before = await api.position()
    const beyond = await api.admin('POST', '/items/product', { name: 'x', big: 1e20 })
    expect(beyond.body.error.details.errors).toMatchObject([{ message: 'expected a whole number', rule: 'type' }])
    expect(await api.log(before)).toEqual([])
    for (const [big, shown] of [
      ['9007199254740993', '9007199254740993'],
      [2 ** 53, '9007199254740992'],
    ]) {
      const { body } = await api.admin('POST', '/items/product', { name: 'x', big })
      expect((await api.admin('GET', `/items/product/${body.data.id}`)).body.data.big).toBe(shown)
    }
  })

  it('maps broken constraints to 409', async () => {
    expect(await api.admin('POST', '/items/category', { name: 'fruit' })).toMatchObject({
      status: 409,
      body: { error: { message: 'Unique constraint violation' } },
    })
    expect(await api.admin('POST', '/items/product', { name: 'x', category_id: randomUUID() })).toMatchObject({
      status: 409,
      body: { error: { message: 'Foreign key constraint violation' } },
    })
  })
})

describe('update and delete', () => {
  it('changes the given fields, touches updatedAt, appends one event with what was', async () => {
    const { updatedAt } = (await api.admin('GET', `/items/product/${ids.apple}`)).body.data
    const before = await api.position()
    expect(await api.admin('PATCH', `/items/product/${ids.apple}`, { price: 2 })).toMatchObject({
      status: 200,
      body: { data: { id: ids.apple } },
    })
    const [event, ...rest] = await api.log(before)
    expect(rest).toEqual([])
    expect(event?.changes.after).toMatchObject({ name: 'apple', price: 2 })
    expect(Object.keys(event?.changes.before).sort()).toEqual(
      ['price', 'updatedAt', 'userUpdated_Id'].filter((key) => key in event!.changes.before),
    )
    expect(event?.changes.before.price).toBe(1.5)
    const after = (await api.admin('GET', `/items/product/${ids.apple}`)).body.data
    expect(after.price).toBe('2.00')
    expect(after.updatedAt > updatedAt).toBe(true)
  })

  it('leaves no trace of an update that changes nothing', async () => {
    const before = await api.position()
    expect((await api.admin('PATCH', `/items/product/${ids.apple}`, { price: '2.00' })).status).toBe(200)
    expect((await api.admin('PATCH', `/items/product/${ids.apple}`, {})).status).toBe(200)
    expect(await api.log(before)).toEqual([])
  })

  it('answers 403 for what is not there, 400 for what cannot be an id', async () => {
    const message = (action: string) => `Item not found or you don't have permission to ${action} it`
    expect(await api.admin('GET', `/items/product/${randomUUID()}`)).toMatchObject({
      status: 403,
      body: { error: { message: message('read') } },
    })
    expect(await api.admin('PATCH', `/items/product/${randomUUID()}`, { price: 1 })).toMatchObject({
      status: 403,
      body: { error: { message: message('update') } },
    })
    expect(await api.admin('DELETE', `/items/product/${randomUUID()}`)).toMatchObject({
      status: 403,
      body: { error: { message: message('delete') } },
    })
    for (const method of ['GET', 'PATCH', 'DELETE'])
      expect((await api.admin(method, '/items/product/abc', method === 'PATCH' ? {} : undefined)).status).toBe(400)
  })

  it('deletes with the row as it was in the log', async () => {
    const { body } = await api.admin('POST', '/items/product', { name: 'gone' })
    const before = await api.position()
    expect(await api.admin('DELETE', `/items/product/${body.data.id}`)).toMatchObject({
      status: 200,
      body: { data: { id: body.data.id } },
    })
    expect(await api.log(before)).toMatchObject([
      { action: 'delete', entityId: body.data.id, changes: { before: { name: 'gone' } } },
    ])
  })

  it('marks items of a paranoid collection as deleted, and restores them', async () => {
    await api.admin('POST', '/schemas', {
      collectionName: 'kept',
      schema: { paranoid: true, fields: { name: { type: 'String' } } },
    })
    const { id } = (await api.admin('POST', '/items/kept', { name: 'a' })).body.data
    expect((await api.admin('DELETE', `/items/kept/${id}`)).status).toBe(200)
    expect((await api.admin('GET', `/items/kept/${id}`)).status).toBe(403)
    expect((await api.admin('GET', '/items/kept')).body).toEqual({ data: [], totalCount: 0 })
    expect((await api.admin('GET', '/items/kept?paranoid=false')).body.totalCount).toBe(1)
    expect((await api.admin('PATCH', `/items/kept/${id}`, { deletedAt: null })).status).toBe(200)
    expect((await api.admin('GET', `/items/kept/${id}`)).body.data.name).toBe('a')
  })
})

describe('bulk', () => {
  it('creates all in order, with different keys, as one statement', async () => {
    const before = await api.position()
    const rows = [
      { name: 'b1', big: '9007199254740993' },
      { name: 'b2', meta: { x: [1] } },
      { name: 'b3', big: 1 },
    ]
    const answer = await api.admin('POST', '/items/category/bulk', [
      { name: 'c1' },
      { name: 'c2', rank: 5 },
      { name: 'c3' },
    ])
    expect(answer.status).toBe(201)
    const names = await Promise.all(
      answer.body.data.map(async (id: string) => (await api.admin('GET', `/items/category/${id}`)).body.data.name),
    )
    expect(names).toEqual(['c1', 'c2', 'c3'])
    const products = await api.admin('POST', '/items/product/bulk', rows)
    const first = (await api.admin('GET', `/items/product/${products.body.data[0]}`)).body.data
    expect(first).toMatchObject({ name: 'b1', big: '9007199254740993', active: true })
    expect((await api.log(before)).length).toBe(6)
  })

  it('is all or nothing', async () => {
    const before = await api.position()
    expect((await api.admin('POST', '/items/category/bulk', [{ name: 'new' }, { name: 'fruit' }])).status).toBe(409)
    expect((await api.admin('POST', '/items/product/bulk', [{ name: 'ok' }, { price: 1 }])).status).toBe(400)
    const update = [
      { id: ids.apple, data: { price: 9 } },
      { id: randomUUID(), data: { price: 9 } },
    ]
    expect((await api.admin('PATCH', '/items/product/bulk', update)).status).toBe(403)
    expect((await api.admin('DELETE', '/items/product/bulk', [ids.apple, randomUUID()])).status).toBe(403)
    expect(await api.log(before)).toEqual([])
  })

  it('updates and deletes', async () => {
    const { body } = await api.admin('POST', '/items/product/bulk', [{ name: 'u1' }, { name: 'u2' }])
    const [first, second] = body.data
    const updated = await api.admin('PATCH', '/items/product/bulk', [
      { id: first, data: { price: 1 } },
      { id: second, price: 2 },
      { price: 3 },
    ])
    expect(updated).toMatchObject({ status: 200, body: { data: [first, second] } })
    const gone = await api.admin('DELETE', '/items/product/bulk', [first, second])
    expect(gone).toMatchObject({ status: 204, text: '' })
    expect(
      (await api.admin('GET', `/items/product${q({ filter: { name: { startsWith: 'u' } } })}`)).body.totalCount,
    ).toBe(0)
  })

  it('wants arrays, empty ones are fine', async () => {
    expect((await api.admin('POST', '/items/product/bulk', {})).body.error.message).toBe(
      'Request body must be an array',
    )
    expect((await api.admin('DELETE', '/items/product/bulk', {})).body.error.message).toBe(
      'Request body must be an array of IDs',
    )
    expect((await api.admin('POST', '/items/product/bulk', [])).body).toEqual({ data: [] })
    expect((await api.admin('DELETE', '/items/product/bulk', [])).status).toBe(204)
  })
})

describe('list', () => {
  beforeAll(async () => {
    await api.admin('POST', '/schemas', {
      collectionName: 'city',
      schema: {
        fields: {
          name: { type: 'String' },
          people: { type: 'Integer' },
          founded: { type: 'Date' },
          category: { relType: 'BelongsTo', target: 'category', foreignKey: 'category_id' },
        },
      },
    })
    const cities = ['Bern', 'Oslo', 'Rome', 'Riga', 'Bonn'].map((name, i) => ({
      name,
      people: i * 100,
      category_id: i < 2 ? ids.fruit : null,
    }))
    await api.admin('POST', '/items/city/bulk', [...cities, { name: null, people: null }])
  })
  const names = async (parameters: Record<string, unknown>) =>
    (await api.admin('GET', `/items/city${q({ fields: ['name'], sort: 'name', ...parameters })}`)).body.data.map(
      (row: { name: string }) => row.name,
    )

  it.each([
    [{ name: 'Rome' }, ['Rome']],
    [{ name: { ne: 'Rome' } }, ['Bern', 'Bonn', 'Oslo', 'Riga']],
    [{ name: null }, [null]],
    [{ name: { isNotNull: true }, people: { gte: 300 } }, ['Bonn', 'Riga']],
    [{ people: { between: [100, 200] } }, ['Oslo', 'Rome']],
    [{ name: { in: ['Rome', 'Bern', 'None'] } }, ['Bern', 'Rome']],
    [{ name: { in: [] } }, []],
    [{ name: { notIn: ['Rome', 'Bern'] } }, ['Bonn', 'Oslo', 'Riga']],
    [{ name: { like: 'O' } }, ['Oslo']],
    [{ name: { iLike: 'O' } }, ['Bonn', 'Oslo', 'Rome']],
    [{ name: { startsWith: 'b' } }, ['Bern', 'Bonn']],
    [{ name: { like: '%' } }, []],
    [{ OR: [{ name: 'Rome' }, { AND: [{ people: { lt: 100 } }, { name: 'Bern' }] }] }, ['Bern', 'Rome']],
    [{ NOT: { name: { startsWith: 'B' } }, name: { isNotNull: true } }, ['Oslo', 'Riga', 'Rome']],
    [{ 'category.name': 'fruit' }, ['Bern', 'Oslo']],
    [{ category: { rank: { lt: 2 } } }, ['Bern', 'Oslo']],
  ])('filter %j', async (filter, expected) => {
    expect(await names({ filter })).toEqual(expected)
  })

  it('sorts, pages and counts', async () => {
    expect(await names({ sort: '-people', limit: 2, page: 2, filter: { people: { isNotNull: true } } })).toEqual([
      'Rome',
      'Oslo',
    ])
    expect((await api.admin('GET', `/items/city${q({ limit: 0 })}`)).body).toEqual({ data: [], totalCount: 6 })
    expect((await api.admin('GET', `/items/city${q({ limit: 1, count: 'false' })}`)).body).toEqual({
      data: [expect.any(Object)],
    })
    expect((await api.admin('GET', '/items/city?page=1')).body.data).toHaveLength(6)
    expect(await names({ sort: { 'category.rank': 'asc', name: 'asc' }, limit: 2 })).toEqual(['Bern', 'Oslo'])
  })

  it('nests a related row in one statement, null where there is none', async () => {
    const { body } = await api.admin(
      'GET',
      `/items/city${q({ fields: ['name', 'category.name'], sort: 'name', limit: 3, filter: { name: { in: ['Bern', 'Rome'] } } })}`,
    )
    expect(body).toEqual({
      data: [
        { name: 'Bern', category: { id: ids.fruit, name: 'fruit' } },
        { name: 'Rome', category: null },
      ],
      totalCount: 2,
    })
  })

  it('streams lists of any size as the same JSON', async () => {
    await api.sql(`insert into city (name, people) select 'bulk', i from generate_series(1, 3000) i`)
    const { body } = await api.admin(
      'GET',
      `/items/city${q({ filter: { name: 'bulk' }, fields: ['people'], sort: 'people' })}`,
    )
    expect(body.totalCount).toBe(3000)
    expect(body.data[2999]).toEqual({ people: 3000 })
    const limited = await api.admin('GET', `/items/city${q({ filter: { name: 'bulk' }, limit: 1500 })}`)
    expect([limited.body.data.length, limited.body.totalCount]).toEqual([1500, 3000])
    await api.sql(`delete from city where name = 'bulk'`)
  })

  it.each([
    ['malformed JSON', 'filter={"a"'],
    ['an unknown field', 'filter={"nope":1}'],
    ['an unknown operator', 'filter={"name":{"nope":1}}'],
    ['a value of the wrong type', 'filter={"people":"abc"}'],
    ['SQL in a name', `filter=${encodeURIComponent('{"name\\"=1) OR (SELECT 1)--":1}')}`],
    ['SQL in sort', `sort=${encodeURIComponent('name; drop table city')}`],
    ['a limit that is no number', 'limit=10;drop'],
    ['a negative page', 'page=-1'],
    ['NUL', 'filter={"name":"a%00b"}'],
    ['a field that is not there', 'fields=name,nope'],
  ])('answers 400 to %s', async (_what, query) => {
    const answer = await api.admin('GET', `/items/city?${query}`)
    expect(answer.status).toBe(400)
    expect(answer.body.error.message).toBe('Invalid query parameters')
    expect(answer.text).not.toMatch(/syntax error|pg_|"stack"/i)
  })

  it.each([
    ['filter={"nam":1}', 'filter: unknown field "nam": did you mean name?'],
    ['fields=id,Name', 'fields: unknown field "Name": did you mean name?'],
    ['fields=-peopel', 'fields: unknown field "peopel": did you mean people?'],
    ['sort=peple', 'sort: unknown field "peple": did you mean people?'],
    ['groupBy=pepole', 'groupBy: unknown field "pepole": did you mean people?'],
    ['filter={"name":{"starts_with":"a"}}', 'filter.name: unknown operator "starts_with": did you mean startsWith?'],
    ['filter={"name":{"$eq":"a"}}', 'filter.name: unknown operator "$eq": did you mean eq?'],
    ['aggregate={"n":{"function":"cuont","field":"*"}}', 'aggregate: unknown function "cuont": did you mean count?'],
    [`filter={"${'n'.repeat(200)}":1}`, `filter: unknown field "${'n'.repeat(64)}…"`],
  ])('says of a name that nobody knows which one was meant: %s', async (query, details) => {
    const { status, body } = await api.admin('GET', `/items/city?${query}`)
    expect([status, body.error]).toEqual([
      400,
      { message: 'Invalid query parameters', code: 'BAD_QUERY', details, statusCode: 400 },
    ])
  })

  it('names only fields that may be read as the ones that were meant', async () => {
    const { status, body } = await api.admin('GET', '/items/svc_User?filter={"passwrod":"x"}')
    expect([status, body.error.details]).toEqual([400, 'filter: unknown field "passwrod"'])
    const key = await api.admin('PUT', '/items/city?key=nam', { name: 'x' })
    expect([key.status, key.body.error.details]).toEqual([400, 'key: unknown field "nam": did you mean name?'])
  })

  it('answers 404 with the collection in an unknown one', async () => {
    for (const name of ['nowhere', 'pg_class', 'information_schema.tables', 'svc_user'])
      expect(await api.admin('GET', `/items/${name}`)).toMatchObject({
        status: 404,
        body: { error: { message: `Model ${name} not found` } },
      })
  })
})

describe('permissions', () => {
  it('gives the public role and a fresh role nothing', async () => {
    const user = await api.user()
    for (const call of [api.anonymous, user.call]) {
      expect((await call('GET', '/items/product')).body.error.message).toBe(
        `You don't have permission to read items in 'product'`,
      )
      expect((await call('POST', '/items/product', { name: 'x' })).status).toBe(403)
      expect((await call('DELETE', `/items/product/${ids.apple}`)).status).toBe(403)
    }
  })

  it('reads granted fields and rows only, whichever way one asks', async () => {
    const user = await api.user([
      {
        collection: 'product',
        action: 'read',
        fields: ['name', 'category.name'],
        conditions: { name: { startsWith: 'a' } },
      },
      { collection: 'category', action: 'read', fields: '*' },
    ])
    const list = await user.call('GET', '/items/product')
    expect(list.body).toEqual({ data: [{ id: ids.apple, name: 'apple' }], totalCount: 1 })
    expect((await user.call('GET', `/items/product/${ids.apple}?fields=name,category.name`)).body.data).toEqual({
      name: 'apple',
      category: { id: ids.fruit, name: 'fruit' },
    })
    for (const query of ['fields=price', `filter={"price":{"gt":0}}`, 'sort=price', 'fields=category.rank'])
      expect((await user.call('GET', `/items/product?${query}`)).status).toBe(403)
    const other = (await api.admin('GET', `/items/product${q({ filter: { name: 'hammer' } })}`)).body.data[0].id
    expect((await user.call('GET', `/items/product/${other}`)).status).toBe(403)
  })

  it('never shows a hidden field to anybody', async () => {
    const answers = [
      await api.admin('GET', '/items/category'),
      await api.admin('GET', '/items/product?fields=*,category.*'),
      await api.admin('GET', '/items/svc_User'),
      await api.admin('GET', '/items/svc_AuditLog'),
    ]
    for (const { status, text } of answers) {
      expect(status).toBe(200)
      expect(text).not.toMatch(/canary|b1:\$2/)
    }
    for (const query of [
      'fields=secret',
      'filter={"secret":"canary"}',
      'sort=secret',
      'fields=name&filter={"secret":{"startsWith":"c"}}',
    ])
      expect((await api.admin('GET', `/items/category?${query}`)).status).toBe(403)
  })

  it('writes granted fields only, and no row into or out of its scope', async () => {
    const mine = { userCreated_Id: { eq: '$CURRENT_USER' } }
    const user = await api.user([
      {
        collection: 'product',
        action: 'create',
        fields: ['name', 'level'],
        defaultValues: { price: 7 },
        conditions: { level: 'low' },
      },
      { collection: 'product', action: 'update', fields: ['*'], conditions: mine },
      { collection: 'product', action: 'read', fields: '*', conditions: mine },
      { collection: 'product', action: 'delete', conditions: mine },
    ])
    expect((await user.call('POST', '/items/product', { name: 'x', level: 'low', price: 1 })).body.error.message).toBe(
      `You don't have permission to create field: price`,
    )
    const before = await api.position()
    expect((await user.call('POST', '/items/product', { name: 'x', level: 'high' })).status).toBe(403)
    expect(
      (
        await user.call('POST', '/items/product/bulk', [
          { name: 'x', level: 'low' },
          { name: 'y', level: 'high' },
        ])
      ).status,
    ).toBe(403)
    expect(await api.log(before)).toEqual([])
    const { body } = await user.call('POST', '/items/product', { name: 'x', level: 'low' })
    const id = body.data.id
    expect((await user.call('GET', `/items/product/${id}`)).body.data).toMatchObject({
      price: '7.00',
      userCreated_Id: user.id,
    })
    expect((await user.call('PATCH', `/items/product/${id}`, { userCreated_Id: randomUUID() })).status).toBe(403)
    expect((await user.call('PATCH', `/items/product/${ids.apple}`, { name: 'stolen' })).status).toBe(403)
    expect((await user.call('DELETE', '/items/product/bulk', [id, ids.apple])).status).toBe(403)
    expect((await user.call('PATCH', `/items/product/${id}`, { level: 'high' })).status).toBe(200)
    expect((await user.call('DELETE', `/items/product/${id}`)).status).toBe(200)
  })

  it('keeps the privileged parts of the system to administrators', async () => {
    const everything = [
      'svc_Role',
      'svc_Permission',
      'svc_UserRole',
      'svc_AuditLog',
      'svc_SchemaDefinition',
      'svc_Migration',
      'svc_Sessions',
    ].flatMap((collection) =>
      ['create', 'update'].map((action) => ({ collection, action, fields: ['*', 'role_Id', 'user_Id'] })),
    )
    const user = await api.user([{ collection: 'svc_User', action: 'update', fields: '*' }])
    await storeGrants(api, user.roleId, everything)
    const [admin] = await api.sql(`select id from "svc_Role" where name = 'administrator'`)
    expect((await user.call('POST', '/items/svc_UserRole', { user_Id: user.id, role_Id: admin.id })).status).toBe(403)
    expect((await user.call('POST', '/items/svc_Role', { name: 'mine' })).status).toBe(403)
    expect(
      (
        await user.call('POST', '/permissions', {
          role_Id: user.roleId,
          collection: 'product',
          action: 'read',
          fields: '*',
        })
      ).status,
    ).toBe(403)
    for (const field of ['password', 'emailVerified']) {
      const answer = await user.call('PATCH', `/items/svc_User/${user.id}`, {
        [field]: field === 'password' ? 'another password' : true,
      })
      expect(answer.body.error.message).toBe(`You don't have permission to update field: ${field}`)
    }
    for (const collection of ['svc_AuditLog', 'svc_SchemaDefinition', 'svc_Migration'])
      expect((await api.admin('POST', `/items/${collection}`, { entity: 'x' })).status).toBe(403)
    for (const name of ['administrator', 'Administrator', 'ａdministrator', 'PUBLIC'])
      expect((await api.admin('POST', '/items/svc_Role', { name })).status).toBe(403)
    expect((await api.admin('PATCH', `/items/svc_Role/${admin.id}`, { name: 'boss' })).body.error.message).toBe(
      'System role names cannot be changed',
    )
    expect((await api.admin('DELETE', `/items/svc_Role/${admin.id}`)).body.error.message).toBe(
      'System roles cannot be deleted',
    )
  })

  it('a permission row answers unwrapped, counts at once, and is refused when it means nothing', async () => {
    const user = await api.user()
    const made = await api.admin('POST', '/permissions', {
      role_Id: user.roleId,
      collection: 'city',
      action: 'read',
      fields: 'name, people',
    })
    expect(made).toMatchObject({ status: 201, body: { id: expect.any(String), fields: 'name, people' } })
    expect((await user.call('GET', '/items/city?limit=1&sort=name')).body.data[0]).toMatchObject({
      name: 'Bern',
      people: 0,
    })
    expect((await api.admin('PATCH', `/permissions/${made.body.id}`, { fields: ['name'] })).body.fields).toEqual([
      'name',
    ])
    expect((await user.call('GET', '/items/city?fields=people')).status).toBe(403)
    expect((await api.admin('DELETE', `/permissions/${made.body.id}`)).status).toBe(204)
    expect((await user.call('GET', '/items/city')).status).toBe(403)
    const twice = { role_Id: user.roleId, collection: 'city', action: 'read', fields: '*' }
    expect((await api.admin('POST', '/permissions', twice)).status).toBe(201)
    expect((await api.admin('POST', '/permissions', twice)).status).toBe(409)
    expect(
      (await api.admin('POST', '/permissions', { ...twice, role_Id: randomUUID(), action: 'update' })).status,
    ).toBe(409)
    for (const wrong of [{ action: 'everything' }, { collection: 'no where' }, { fields: 3 }, { conditions: 'all' }])
      expect((await api.admin('POST', '/permissions', { ...twice, ...wrong })).status).toBe(400)
  })
})

describe('streamed lists', () => {
  it('give their connection back when the client leaves early', async () => {
    await api.sql(`insert into category (name) select 'many ' || i from generate_series(1, 20000) i`)
    const address = await api.app.listen({ port: 0, host: '127.0.0.1' })
    const token = (
      await api.anonymous('POST', '/auth/login', {
        email: 'admin@example.com',
        password: 'correct horse battery staple',
      })
    ).body.token
    for (let i = 0; i < 30; i += 1) {
      const leaving = new AbortController()
      const response = await fetch(`${address}/items/category`, {
        headers: { authorization: `Bearer ${token}` },
        signal: leaving.signal,
      })
      expect(response.status).toBe(200)
      leaving.abort()
    }
    await waitFor(async () => {
      const { totalCount, idleCount } = api.runtime.db.pool
      return totalCount === idleCount
    })
    expect((await api.admin('GET', '/items/category?limit=1')).status).toBe(200)
  })
})
