import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'
import { connect } from '../support/log.ts'
import { waitFor } from '../support/wait.ts'

let api: Api

beforeAll(async () => {
  api = await startApi()
  const schemas: [string, object, object?][] = [
    ['maker', { name: { type: 'String' } }],
    [
      'part',
      {
        sku: { type: 'String', unique: true },
        name: { type: 'String', allowNull: false },
        stock: { type: 'Integer', validate: { min: 0 } },
        secret: { type: 'String', hidden: true, unique: true },
        maker: { relType: 'BelongsTo', target: 'maker', foreignKey: 'maker_id' },
      },
      { usertrack: true },
    ],
    [
      'price',
      { country: { type: 'String' }, year: { type: 'Integer' }, amount: { type: 'Decimal' } },
      { paranoid: true, indexes: [{ name: 'price_key', fields: ['country', 'year'], unique: true }] },
    ],
    ['step', { name: { type: 'String' } }, { sortEnabled: true }],
    ['coded', { code: { type: 'String', primaryKey: true }, v: { type: 'String' } }],
    ['numbered', { code: { type: 'String', primaryKey: true }, id: { type: 'Integer' }, v: { type: 'String' } }],
  ]
  for (const [collectionName, fields, more] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { ...more, fields } })).text).toMatch(
      /success/,
    )
})

const grant = (collection: string, action: string, fields: unknown = '*', conditions?: object) => ({
  collection,
  action,
  fields,
  ...(conditions !== undefined && { conditions }),
})
const mine = { userCreated_Id: { eq: '$CURRENT_USER' } }
const created = async (collection: string, payload: object) =>
  (await api.admin('POST', `/items/${collection}`, payload)).body.data.id
/** The call refused, and neither a row nor an event of it. */
async function refused(attempt: () => Promise<Answer>, expected: object) {
  const before = await api.position()
  expect(await attempt()).toMatchObject(expected)
  expect(await api.log(before)).toEqual([])
}

describe('a new row that would be in the trash', () => {
  it('is refused by the name of the field, except of an administrator', async () => {
    const user = await api.user(['create', 'read', 'update', 'delete'].map((action) => grant('price', action)))
    const gone = { country: 'AT', year: 1999, deletedAt: '2026-03-14T09:26:53Z' }
    const denied = { status: 403, body: { error: { message: "You don't have permission to create field: deletedAt" } } }
    const attempts: [string, string, unknown][] = [
      ['POST', '/items/price', gone],
      ['POST', '/items/price?fields=country', gone],
      ['POST', '/items/price/bulk', [{ country: 'AT', year: 1998 }, gone]],
      ['PUT', '/items/price?key=country,year', gone],
    ]
    for (const [method, url, body] of attempts) await refused(() => user.call(method, url, body), denied)
    expect((await user.call('POST', '/items/price', { ...gone, deletedAt: null })).status).toBe(201)
    // A row that is there may be put into the trash so: that is a change.
    expect((await user.call('PUT', '/items/price?key=country,year', gone)).status).toBe(200)
    expect((await user.call('GET', '/items/price?filter[country]=AT')).body.totalCount).toBe(0)
    expect((await api.admin('POST', '/items/price', { ...gone, year: 1997 })).status).toBe(201)
  })
})

describe('an element of a list that is no object', () => {
  it('is named by its place', async () => {
    const says = (message: string) => ({ status: 400, body: { error: { message } } })
    for (const element of [null, 'x', 5, [{}]]) {
      const rows = [{ country: 'DE', year: 2001 }, element]
      await refused(() => api.admin('POST', '/items/price/bulk', rows), says('1 must be an object'))
      await refused(() => api.admin('PUT', '/items/price?key=country,year', rows), says('1 must be an object'))
    }
    await refused(() => api.admin('POST', '/items/maker', []), says('Request body must be an object'))
  })
})

describe('the answer to a write', () => {
  it('has the fields that were asked for, of the row as it is stored', async () => {
    const maker = await created('maker', { name: 'm' })
    const fields = 'fields=name,stock,maker.name'
    const post = await api.admin('POST', `/items/part?${fields}`, { name: 'a', stock: 1, maker })
    expect(post).toMatchObject({
      status: 201,
      body: { data: { name: 'a', stock: 1, maker: { id: maker, name: 'm' } } },
    })
    const id = await created('part', { name: 'b' })
    const patch = await api.admin('PATCH', `/items/part/${id}?${fields}`, { stock: 2 })
    expect(patch).toMatchObject({ status: 200, body: { data: { name: 'b', stock: 2, maker: null } } })
    const bulk = await api.admin('POST', '/items/part/bulk?fields=name', [{ name: 'c' }, { name: 'd' }])
    expect(bulk.body).toEqual({ data: [{ name: 'c' }, { name: 'd' }] })
    const changes = [{ id, data: { stock: 3 } }]
    expect((await api.admin('PATCH', '/items/part/bulk?fields=stock', changes)).body).toEqual({ data: [{ stock: 3 }] })
    expect((await api.admin('PATCH', `/items/part/${id}`, { stock: 4 })).body).toEqual({ data: { id } })
  })

  it('is checked as a read before anything is written', async () => {
    const { call } = await api.user([grant('part', 'create'), grant('part', 'read', ['name'], { stock: { lt: 5 } })])
    await refused(() => call('POST', '/items/part?fields=stock', { name: 'x' }), { status: 403 })
    await refused(() => call('POST', '/items/part?fields=nope', { name: 'x' }), { status: 400 })
    expect((await call('POST', '/items/part?fields=name', { name: 'x', stock: 1 })).body.data).toEqual({ name: 'x' })
    const unseen = await call('POST', '/items/part?fields=name', { name: 'x', stock: 9 })
    expect(unseen).toMatchObject({ status: 201, body: { data: { id: expect.any(String) } } })
    const writer = (await api.user([grant('part', 'create')])).call
    await refused(() => writer('POST', '/items/part?fields=name', { name: 'x' }), { status: 403 })
  })
})

describe.each<[string, (call: Call, query: string, payload: object) => Promise<Answer>]>([
  ['POST', (call, query, payload) => call('POST', `/items/part${query}`, payload)],
  ['PATCH', async (call, query, payload) => call('PATCH', `/items/part/${await spare()}${query}`, payload)],
  ['bulk POST', (call, query, payload) => call('POST', `/items/part/bulk${query}`, [payload])],
  [
    'bulk PATCH',
    async (call, query, payload) => call('PATCH', `/items/part/bulk${query}`, [{ id: await spare(), data: payload }]),
  ],
  ['PUT that creates', (call, query, payload) => call('PUT', put(query), { id: randomUUID(), ...payload })],
  ['PUT that changes', async (call, query, payload) => call('PUT', put(query), { id: await spare(), ...payload })],
  ['PUT of a list', (call, query, payload) => call('PUT', put(query), [{ id: randomUUID(), ...payload }])],
])('the answer to a %s with ?fields=', (_form, write) => {
  const rows = ({ body }: Answer) => [body.data].flat()

  it('is what a read of the item answers its writer, in every spelling', async () => {
    const { call } = await api.user([
      grant('part', 'create'),
      grant('part', 'update'),
      grant('part', 'read', ['name', 'stock', 'maker.name'], { stock: { lt: 5 } }),
      grant('maker', 'read', ['name']),
    ])
    const maker = await created('maker', { name: 'm' })
    for (const fields of [
      '?fields=*,maker.name,id',
      '?fields[]=name&fields[]=id',
      '?fields=["id","stock"]',
      '?fields=id,-name',
    ]) {
      const answer = await write(call, fields, { name: 'shown', stock: 1, maker_id: maker })
      expect(answer.status, answer.text).toBeLessThan(300)
      const [row] = rows(answer)
      expect(row).toEqual((await call('GET', `/items/part/${row.id}${fields}`)).body.data)
    }
    const unseen = await write(call, '?fields=name,stock', { name: 'unseen', stock: 9 })
    expect([unseen.status < 300, rows(unseen)]).toEqual([true, [{ id: expect.any(String) }]])
    expect((await api.sql('select stock from part where id = $1', [rows(unseen)[0].id]))[0].stock).toBe(9)
    const plain = await write(call, '', { name: 'plain', stock: 1 })
    expect(rows(plain).flatMap((one) => (typeof one === 'object' ? Object.keys(one) : 'id'))).toEqual(['id'])
  })

  it('is refused before anything is written where a read would be', async () => {
    const writing = [grant('part', 'create'), grant('part', 'update')]
    const blind = (await api.user(writing)).call
    const { call } = await api.user([...writing, grant('part', 'read', ['name'])])
    const names = async () => api.sql(`select count(*)::int as n from part where name = 'refused'`)
    const before = await names()
    for (const [by, fields, status] of [
      [blind, 'id', 403],
      [call, 'stock', 403],
      [call, 'maker.name', 403],
      [call, 'secret', 403],
      [api.admin, 'secret', 403],
      [call, 'nothing', 400],
    ] as const)
      expect([fields, (await write(by, `?fields=${fields}`, { name: 'refused' })).status]).toEqual([fields, status])
    expect(await names()).toEqual(before)
  })
})

const spare = () => created('part', { name: 'spare' })
const put = (query: string) => `/items/part${query === '' ? '?' : `${query}&`}key=id`

describe('columns that are not the payload’s', () => {
  it('are kept of a new item where an administrator names them, and a change names its caller', async () => {
    const { id: past } = await api.user()
    const then = { createdAt: '2001-01-01T00:00:00.000Z', updatedAt: '2002-01-01T00:00:00.000Z' }
    const tracked = { ...then, userCreated_Id: past, userUpdated_Id: past }
    const row = (name: string) => ({ name, ...tracked })
    const upserted = { id: randomUUID(), ...row('moved by put') }
    const answers = [
      await api.admin('POST', '/items/part', row('moved by post')),
      await api.admin('POST', '/items/part/bulk', [row('moved in bulk')]),
      await api.admin('PUT', '/items/part', upserted),
    ]
    for (const { status, text } of answers) expect(status, text).toBe(201)
    const stored = await api.sql(`select * from part where name like 'moved %' order by name`)
    expect(stored).toHaveLength(3)
    for (const one of stored) expect(JSON.parse(JSON.stringify(one))).toMatchObject(tracked)
    const [one] = stored
    const answer = await api.admin('PATCH', `/items/part/${one.id}?fields=userCreated_Id,userUpdated_Id`, {
      name: 'changed',
      userUpdated_Id: past,
    })
    expect(answer.body.data).toMatchObject({ userCreated_Id: past, userUpdated_Id: expect.not.stringMatching(past) })
  })

  it('of a grant of everything are refused or left as they are', async () => {
    const { call, id: user } = await api.user([grant('part', 'create'), grant('part', 'update', '*', mine)])
    for (const field of ['userCreated_Id', 'userUpdated_Id', 'secret'])
      await refused(() => call('POST', '/items/part', { name: 'x', [field]: randomUUID() }), { status: 403 })
    const past = '2001-01-01T00:00:00.000Z'
    const { body } = await call('POST', '/items/part', { name: 'x', createdAt: past, updatedAt: past })
    const { id } = body.data
    const row = async () => (await api.sql('select * from part where id = $1', [id]))[0]
    expect((await row()).createdAt.getFullYear()).toBeGreaterThan(2020)
    const other = randomUUID()
    expect((await call('PATCH', `/items/part/${id}`, { id: other, createdAt: past, name: 'y' })).status).toBe(200)
    expect(await row()).toMatchObject({ id, name: 'y', userCreated_Id: user, userUpdated_Id: user })
    await refused(() => call('PATCH', `/items/part/${id}`, { userCreated_Id: other }), { status: 403 })
    const self = (await api.user([grant('svc_User', 'update')])).call
    for (const field of ['emailVerified', 'password', 'session_limits'])
      await refused(
        () =>
          self('PATCH', `/items/svc_User/${user}`, { [field]: field === 'password' ? 'long enough password' : true }),
        {
          status: 403,
        },
      )
  })

  it('may be given by an administrator', async () => {
    const id = randomUUID()
    const past = '2001-01-01T00:00:00.000Z'
    expect(await created('part', { id, name: 'x', createdAt: past })).toBe(id)
    expect((await api.admin('GET', `/items/part/${id}`)).body.data.createdAt).toBe(past)
  })
})

describe('entity tags', () => {
  it('let a client keep what has not changed', async () => {
    const id = await created('part', { name: 'tagged' })
    for (const path of [`/items/part/${id}`, '/items/part?limit=3', `/items/part/${id}?fields=name`]) {
      const first = await api.admin('GET', path)
      const etag = first.headers.etag as string
      expect(etag).toMatch(/^"[\w-]+"$/)
      const again = await api.admin('GET', path, undefined, { 'if-none-match': `"other", W/${etag}` })
      expect(again).toMatchObject({ status: 304, text: '' })
      expect(again.headers.etag).toBe(etag)
      expect((await api.admin('GET', path, undefined, { 'if-none-match': '"other"' })).status).toBe(200)
    }
    const { headers } = await api.admin('GET', `/items/part/${id}`)
    await api.admin('PATCH', `/items/part/${id}`, { name: 'changed' })
    const etag = headers.etag as string
    expect((await api.admin('GET', `/items/part/${id}`, undefined, { 'if-none-match': etag })).status).toBe(200)
  })

  const tagOf = async (id: string, fields = '*') =>
    (await api.admin('GET', `/items/part/${id}?fields=${fields}`)).headers.etag as string

  it('keep a write from losing another one', async () => {
    const id = await created('part', { name: 'v1' })
    const old = await tagOf(id, 'name')
    const write = (name: string, tag: string) => api.admin('PATCH', `/items/part/${id}`, { name }, { 'if-match': tag })
    expect((await write('v2', old)).status).toBe(200)
    await refused(() => write('v3', old), { status: 412, body: { error: { code: 'PRECONDITION_FAILED' } } })
    await refused(() => write('v3', '"something else"'), { status: 412 })
    expect((await write('v3', `"x", ${await tagOf(id)}`)).status).toBe(200)
    expect((await write('v4', '*')).status).toBe(200)
    const nested = { maker: { name: 'nested' } }
    const stale = await tagOf(id)
    await write('v5', stale)
    await refused(() => api.admin('PATCH', `/items/part/${id}?fields=name`, { name: 'v6' }, { 'if-match': stale }), {
      status: 412,
    })
    await refused(() => api.admin('PATCH', `/items/part/${id}`, nested, { 'if-match': stale }), { status: 412 })
    await refused(() => api.admin('PATCH', `/items/part/${id}`, {}, { 'if-match': stale }), { status: 412 })
    await refused(() => api.admin('DELETE', `/items/part/${id}`, undefined, { 'if-match': stale }), { status: 412 })
    expect((await api.admin('PATCH', `/items/part/${id}`, nested, { 'if-match': await tagOf(id) })).status).toBe(200)
    expect((await api.admin('DELETE', `/items/part/${id}`, undefined, { 'if-match': await tagOf(id) })).status).toBe(
      200,
    )
    for (const send of [
      () => api.admin('PUT', '/items/part?key=name', { name: 'v1' }, { 'if-match': old }),
      () => api.admin('PATCH', '/items/part/bulk', [{ id, name: 'v6' }], { 'if-match': old }),
      () => api.admin('DELETE', '/items/part/bulk', [id], { 'if-match': old }),
    ])
      await refused(send, {
        status: 400,
        body: { error: { message: expect.stringMatching(/^If-Match is for one item/) } },
      })
    await refused(() => write('gone', old), { status: 403 })
    await refused(() => api.admin('DELETE', `/items/part/${id}`, undefined, { 'if-match': old }), { status: 403 })
  })

  it('let exactly one of many writers through', async () => {
    const id = await created('part', { name: 'raced' })
    const tag = await tagOf(id)
    const before = await api.position()
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        api.admin('PATCH', `/items/part/${id}`, { stock: i + 1 }, { 'if-match': tag }),
      ),
    )
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array.from({ length: 19 }, () => 412)])
    expect(await api.log(before)).toHaveLength(1)
  })
})

describe('upsert', () => {
  it('creates what is new and changes what is there, by one unique field', async () => {
    const before = await api.position()
    const put = (payload: object, key = 'sku') => api.admin('PUT', `/items/part?key=${key}`, payload)
    const first = await put({ sku: 'S1', name: 'one', stock: 1 })
    expect(first).toMatchObject({ status: 201, body: { data: { id: expect.any(String) } } })
    const { id } = first.body.data
    expect(await put({ sku: 'S1', name: 'one', stock: 2 })).toMatchObject({ status: 200, body: { data: { id } } })
    expect(await put({ id, name: 'renamed' }, 'id')).toMatchObject({ status: 200, body: { data: { id } } })
    const events = await api.log(before)
    expect(events.map(({ action }) => action)).toEqual(['create', 'update', 'update'])
    expect(events[1]!.changes).toMatchObject({ after: { stock: 2 }, before: { stock: 1 } })
    expect(events.every(({ userId }) => userId !== null)).toBe(true)
    const quiet = await api.position()
    expect((await put({ sku: 'S1', name: 'renamed', stock: 2 })).status).toBe(200)
    expect(await api.log(quiet)).toEqual([])
    expect((await put({ sku: 'S1', name: 'r', stock: 3 }, 'sku&fields=name,stock')).body.data).toEqual({
      name: 'r',
      stock: 3,
    })
  })

  it('takes of an item that is there the key and what changes, and all that is required of a new one', async () => {
    const fields = {
      id: { type: 'String', primaryKey: true },
      slug: { type: 'String', unique: true, allowNull: false },
      title: { type: 'String', allowNull: false },
      rank: { type: 'Integer', allowNull: false, defaultValue: { type: 'SQL', value: 'null::integer' } },
      note: { type: 'String' },
    }
    expect((await api.admin('POST', '/schemas', { collectionName: 'page', schema: { fields } })).status).toBe(201)
    await api.admin('POST', '/items/page', { id: 'P-1', slug: 'home', title: 'Home', rank: 1 })
    const put = (payload: unknown, call = api.admin) => call('PUT', '/items/page?key=slug', payload)
    const row = async () => (await api.sql(`select id, slug, title, rank, note from page`))[0]
    const before = await api.position()
    expect(await put({ slug: 'home', note: 'n' })).toMatchObject({ status: 200, body: { data: { id: 'P-1' } } })
    expect(await put([{ slug: 'home', title: 'Start' }])).toMatchObject({ status: 200, body: { data: ['P-1'] } })
    expect((await put({ id: 'P-1', slug: 'home', rank: 2 })).status).toBe(200)
    expect((await api.admin('PUT', '/items/page', { id: 'P-1', note: 'm' })).status).toBe(200)
    expect(await row()).toEqual({ id: 'P-1', slug: 'home', title: 'Start', rank: 2, note: 'm' })
    const events = await api.log(before)
    expect(events.map(({ action, changes }) => [action, changes.before])).toEqual([
      ['update', expect.objectContaining({ note: null })],
      ['update', expect.objectContaining({ title: 'Home' })],
      ['update', expect.objectContaining({ rank: 1 })],
      ['update', expect.objectContaining({ note: 'n' })],
    ])
    await refused(() => put({ id: 'P-2', slug: 'home', title: 'x', rank: 3 }), {
      status: 409,
      body: { error: { message: 'The item that slug finds has another id' } },
    })
    await refused(() => put({ id: 'P-2', slug: 'home' }), { status: 409 })
    await refused(() => put({ slug: 'home', title: null }), { status: 400 })
    const missing = 'Validation failed: id: is required; title: is required'
    await refused(() => put({ slug: 'other' }), { status: 400, body: { error: { message: missing } } })
    const { call } = await api.user([
      grant('page', 'create'),
      grant('page', 'update', ['note', 'slug'], { slug: { ne: 'home' } }),
    ])
    await refused(() => put({ slug: 'home', note: 'seen?' }, call), {
      status: 400,
      body: { error: { message: missing } },
    })
  })

  it('asks all that is required of an item whose row another transaction is deleting', async () => {
    const title = { type: 'String', allowNull: false }
    const fields = { slug: { type: 'String', unique: true }, title, note: { type: 'String' } }
    expect((await api.admin('POST', '/schemas', { collectionName: 'leaf', schema: { fields } })).status).toBe(201)
    await created('leaf', { slug: 'last', title: 'Last' })
    const before = await api.position()
    const client = await connect(api.database.url)
    await client.query(`begin; delete from leaf`)
    const answer = api.admin('PUT', '/items/leaf?key=slug', { slug: 'last', note: 'n' })
    const blocked = `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
    await waitFor(async () => (await client.query(blocked)).rowCount)
    await client.query('commit')
    await client.end()
    expect((await answer).status).toBe(400)
    expect(await api.sql('select from leaf')).toEqual([])
    expect((await api.log(before)).map(({ action }) => action)).toEqual(['delete'])
  })

  it('takes several fields as key, lists, and brings deleted items back', async () => {
    const put = (payload: unknown) => api.admin('PUT', '/items/price?key=country,year', payload)
    const rows = [
      { country: 'CH', year: 1, amount: '1.50' },
      { country: 'AT', year: 1, amount: '2.50' },
      { country: 'CH', year: 1, amount: '3.50' },
    ]
    const answer = await put(rows)
    expect(answer.status).toBe(200)
    const [ch, at, again] = answer.body.data
    expect([ch === again, ch === at]).toEqual([true, false])
    expect(await api.sql('select amount::text from price where id = $1', [ch])).toEqual([{ amount: '3.50' }])
    await api.admin('DELETE', `/items/price/${ch}`)
    expect((await put({ country: 'CH', year: 1, amount: 4 })).body.data.id).toBe(ch)
    expect((await api.admin('GET', `/items/price/${ch}`)).body.data.deletedAt).toBeNull()
    expect((await put([])).body).toEqual({ data: [] })
    await refused(() => put([{ country: 'DE', year: 1 }, { country: 'DE' }]), { status: 400 })
    await refused(
      () =>
        put([
          { country: 'DE', year: 1 },
          { country: 'FR', year: 'x' },
        ]),
      { status: 400 },
    )
  })

  it('makes one item of many at the same moment', async () => {
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => api.admin('PUT', '/items/part?key=sku', { sku: 'RACE', name: `n${i}` })),
    )
    expect(answers.map(({ status }) => status).sort()).toEqual([...Array.from({ length: 19 }, () => 200), 201])
    expect(new Set(answers.map(({ body }) => body.data.id)).size).toBe(1)
  })

  it.each(['', 'name', 'secret', 'nope', 'sku,name'])('refuses the key "%s"', async (key) => {
    await refused(() => api.admin('PUT', `/items/part?key=${key}`, { sku: 'K', name: 'x', secret: 's' }), {
      status: 400,
    })
  })

  it('needs both permissions, and keeps each row within its rule', async () => {
    const put = (payload: unknown) => ['PUT', '/items/part?key=sku', payload] as const
    const few = { stock: { lte: 5 } }
    const half = (await api.user([grant('part', 'create')])).call
    await refused(() => half(...put({ sku: 'P', name: 'x' })), { status: 403 })
    const { call } = await api.user([
      grant('part', 'create', ['sku', 'name', 'stock'], few),
      grant('part', 'update', ['name', 'stock'], { AND: [mine, few] }),
    ])
    expect((await call(...put({ sku: 'P1', name: 'x', stock: 1 }))).status).toBe(201)
    expect((await call(...put({ sku: 'P1', name: 'y', stock: 2 }))).status).toBe(200)
    await refused(() => call(...put({ sku: 'P1', name: 'y', stock: 6 })), { status: 403 })
    await refused(() => call(...put({ sku: 'P2', name: 'y', stock: 6 })), { status: 403 })
    await api.admin(...put({ sku: 'P3', name: 'foreign', stock: 1 }))
    await refused(() => call(...put({ sku: 'P3', name: 'stolen', stock: 1 })), { status: 403 })
    await refused(
      () =>
        call(
          ...put([
            { sku: 'P4', name: 'new', stock: 1 },
            { sku: 'P3', name: 'stolen' },
          ]),
        ),
      { status: 403 },
    )
    await refused(() => call(...put({ sku: 'P1', name: 'y', maker_id: null })), { status: 403 })
    await refused(() => call(...put({ sku: 'P1', name: 'y', userCreated_Id: randomUUID() })), { status: 403 })
  })

  it('names relations by id', async () => {
    const maker = await created('maker', { name: 'm' })
    const put = (payload: object) => api.admin('PUT', '/items/part?key=sku', payload)
    expect((await put({ sku: 'R', name: 'x', maker })).status).toBe(201)
    await refused(() => put({ sku: 'R', name: 'x', maker: randomUUID() }), { status: 400 })
    await refused(() => put({ sku: 'R', name: 'x', maker: { name: 'new' } }), { status: 400 })
    await refused(() => put([1]), { status: 400 })
  })
})

describe('manual order', () => {
  const order = async () => (await api.sql('select name from step order by sort')).map(({ name }) => name).join('')
  const sort = (body: unknown, call = api.admin) => call('POST', '/utils/sort/step', body)
  const ids: Record<string, string> = {}

  it('puts new items at the end', async () => {
    ids.a = await created('step', { name: 'a' })
    const { body } = await api.admin('POST', '/items/step/bulk', [
      { name: 'b' },
      { name: 'c', sort: null },
      { name: 'd' },
    ])
    ;[ids.b, ids.c, ids.d] = body.data
    expect(await order()).toBe('abcd')
    expect(await api.sql('select sort from step order by sort')).toEqual([1, 2, 3, 4].map((n) => ({ sort: n })))
    expect(
      (await api.admin('GET', `/items/step/${await created('step', { name: 'x', sort: 99 })}`)).body.data.sort,
    ).toBe(99)
    await api.sql(`delete from step where name = 'x'`)
  })

  it('moves an item before or after another, with an event for every row that moved', async () => {
    const before = await api.position()
    expect((await sort({ item: ids.d, to: ids.b })).body).toEqual({
      data: { item: ids.d, collection: 'step', newSort: 2 },
    })
    expect(await order()).toBe('adbc')
    expect((await api.log(before)).map(({ changes }) => `${changes.after.name}${changes.after.sort}`).sort()).toEqual([
      'b3',
      'c4',
      'd2',
    ])
    expect((await sort({ item: ids.a, to: ids.c, mode: 'after' })).body.data.newSort).toBe(5)
    expect(await order()).toBe('dbca')
    await sort({ item: ids.b, to: ids.b })
    expect(await order()).toBe('dbca')
  })

  it('numbers items that have no place yet', async () => {
    await api.sql(`update step set sort = null where name in ('c', 'a')`)
    expect((await sort({ item: ids.d, to: ids.a, mode: 'after' })).status).toBe(200)
    const names = await order()
    expect(names.indexOf('d')).toBe(names.indexOf('a') + 1)
    expect((await api.sql('select count(distinct sort)::int as n from step'))[0].n).toBe(4)
  })

  it('keeps one order under many moves at once', async () => {
    const all = [ids.a, ids.b, ids.c, ids.d]
    const moves = all.flatMap((item) => all.map((to) => sort({ item, to })))
    expect((await Promise.all(moves)).map(({ status }) => status)).toEqual(moves.map(() => 200))
    expect((await api.sql('select count(distinct sort)::int as n from step'))[0].n).toBe(4)
  })

  it('answers in the documented words', async () => {
    const error = (status: number, message: string) => ({ status, body: { error: { message } } })
    const nobody = randomUUID()
    await refused(() => sort({ item: ids.a, to: ids.b }, api.anonymous), error(401, 'Authentication required'))
    await refused(() => sort({ to: ids.b }), error(400, 'Missing item ID to sort'))
    await refused(() => sort({ item: ids.a }), error(400, 'Missing target ID to sort to'))
    await refused(() => sort({ item: ids.a, to: ids.b, mode: 'over' }), { status: 400 })
    await refused(() => sort({ item: nobody, to: ids.b }), error(404, `Item with ID ${nobody} not found`))
    await refused(() => sort({ item: ids.a, to: 'nowhere' }), error(404, 'Target item with ID nowhere not found'))
    await refused(() => api.admin('POST', '/utils/sort/nowhere', {}), error(404, `Collection 'nowhere' does not exist`))
    await refused(
      () => api.admin('POST', '/utils/sort/part', { item: nobody, to: nobody }),
      error(400, `Collection 'part' does not have a sort field`),
    )
    const denied = error(403, `You don't have permission to sort items in 'step'`)
    for (const permissions of [[], [grant('step', 'update', ['name'])]]) {
      const { call } = await api.user(permissions)
      await refused(() => sort({ item: ids.a, to: ids.b }, call), denied)
    }
    const { call } = await api.user([grant('step', 'update', ['sort'], { name: { ne: 'a' } })])
    await refused(() => sort({ item: ids.a, to: ids.b }, call), { status: 404 })
    expect((await sort({ item: ids.c, to: ids.b }, call)).status).toBe(200)
  })

  it('goes on after the last place that there is', async () => {
    await api.sql('delete from step')
    for (const name of 'abc') ids[name] = await created('step', { name })
    const last = 2_147_483_647
    expect((await api.admin('PATCH', `/items/step/${ids.b}`, { sort: last })).status).toBe(200)
    ids.d = await created('step', { name: 'd' })
    const { status, body } = await api.admin('POST', '/items/step/bulk', [{ name: 'e' }, { name: 'f' }])
    expect(status).toBe(201)
    ;[ids.e, ids.f] = body.data
    const places = await api.sql('select name, sort from step order by name')
    expect(places.map(({ sort }) => sort)).toEqual([1, last, 3, last, last, last])
    // A move numbers them again, so each has a place of its own.
    expect((await sort({ item: ids.a, to: ids.b, mode: 'after' })).status).toBe(200)
    const numbered = await api.sql('select name, sort from step order by sort')
    expect(new Set(numbered.map(({ sort }) => sort)).size).toBe(6)
    const at = (name: string) => numbered.findIndex((row) => row.name === name)
    expect(at('a')).toBe(at('b') + 1)
    expect(numbered[0].name).toBe('c')
    await api.admin('PATCH', `/items/step/${ids.c}`, { sort: last })
    expect((await sort({ item: ids.f, to: ids.c, mode: 'before' })).status).toBe(200)
    expect((await order()).endsWith('fc')).toBe(true)
  })
})

describe('a bulk update of rows whose key has a name of its own', () => {
  it('takes the key by it and by id, and skips elements without one', async () => {
    await api.admin('POST', '/items/coded/bulk', [{ code: 'c1' }, { code: 'c2' }, { code: 'c3' }])
    const before = await api.position()
    const elements = [
      { code: 'c1', v: 'new' },
      { v: 'nobody' },
      { id: 'c2', v: 'by id' },
      { code: 'c3', data: { v: 'in data' } },
    ]
    expect(await api.admin('PATCH', '/items/coded/bulk', elements)).toMatchObject({
      status: 200,
      body: { data: ['c1', 'c2', 'c3'] },
    })
    expect((await api.log(before)).map(({ action, entity }) => `${action} ${entity}`)).toEqual(
      Array(3).fill('update coded'),
    )
    const { data } = (await api.admin('GET', '/items/coded?fields=code,v&sort=code')).body
    expect(data).toEqual([
      { code: 'c1', v: 'new' },
      { code: 'c2', v: 'by id' },
      { code: 'c3', v: 'in data' },
    ])
  })

  it('takes a field id for a field', async () => {
    await api.admin('POST', '/items/numbered', { code: 'n1', id: 1 })
    await api.admin('PATCH', '/items/numbered/bulk', [{ code: 'n1', id: 2, v: 'new' }])
    const { data } = (await api.admin('GET', '/items/numbered?fields=code,id,v')).body
    expect(data).toEqual([{ code: 'n1', id: 2, v: 'new' }])
  })
})
