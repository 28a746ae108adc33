import pino from 'pino'
import { beforeAll, describe, expect, it } from 'vitest'
import { contextFor, type ExtensionContext } from '../../src/extensions/context.ts'
import { type Api, startApi } from '../support/api.ts'

let api: Api
let extension: ExtensionContext
/** What the server logs, statements included. */
const lines: { msg: string; sql?: string; hook?: string; level: number; err?: { message: string } }[] = []

const text = { type: 'String' }
const belongsTo = (target: string, foreignKey: string) => ({ relType: 'BelongsTo', target, foreignKey })

beforeAll(async () => {
  const log = pino({ level: 'info' }, { write: (line) => void lines.push(JSON.parse(line)) })
  api = await startApi({ DATABASE_LOGGING: 'true', EXPOSE_ERROR_DETAILS: 'false' }, undefined, log)
  extension = contextFor(api.runtime, 'svc-hook-test')
  const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
  const schemas: [string, object, object?][] = [
    ['plain', { name: text, n: { type: 'Integer' } }],
    ['trace', { what: text }],
    ['post', { title: { ...text, allowNull: false }, slug: text, n: { type: 'Integer', validate: { max: 9 } } }],
    ['note', { name: text }],
    ['mark', { code: { ...text, unique: true }, name: text, n: { type: 'Integer' } }],
    ['shelf', { id: serial, name: text }],
    ['book', { id: serial, name: text, shelf: belongsTo('shelf', 'shelf_id') }],
    ['label', { id: serial, name: text }],
    [
      'book_label',
      {
        id: serial,
        book: { ...belongsTo('book', 'book_id'), allowNull: false },
        label: { ...belongsTo('label', 'label_id'), allowNull: false },
      },
      { isJunction: true },
    ],
    ['loop', { name: text }],
    ['holder', { name: text, data: { type: 'JSON' } }],
    [
      'moment',
      { at: { type: 'DateTime' }, day: { type: 'Date' }, plain: { type: 'DateTime_NO_TZ' }, data: { type: 'JSON' } },
    ],
  ]
  for (const [collectionName, fields, more] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { ...more, fields } })).text).toMatch(
      /success/,
    )
  const labels = { relType: 'BelongsToMany', target: 'label', through: 'book_label', foreignKey: 'book_id' }
  for (const [name, relations] of [
    ['shelf', { books: { relType: 'HasMany', target: 'book', foreignKey: 'shelf_id' } }],
    ['book', { labels: { ...labels, otherKey: 'label_id' } }],
  ] as const) {
    const { schema } = (await api.admin('GET', `/schemas/${name}`)).body.data
    const extended = { ...schema, fields: { ...schema.fields, ...relations } }
    expect((await api.admin('PATCH', `/schemas/${name}`, { schema: extended })).text).toMatch(/success/)
  }
})

const hook = (collection: string, event: string, run: (context: any) => unknown) =>
  api.runtime.hooks.register('svc-hook-test', collection, event, run)
const rows = (table: string) => api.sql(`select * from "${table}" order by 1`)
const created = async (collection: string, payload: object) =>
  (await api.admin('POST', `/items/${collection}`, payload)).body.data.id
/** The statements about a table that a call makes. */
async function statements(table: string, call: () => Promise<unknown>): Promise<(string | undefined)[]> {
  const from = lines.length
  await call()
  return lines.slice(from).flatMap(({ msg, sql }) => (msg === 'sql' && sql?.includes(`"${table}"`) ? [sql] : []))
}

describe('a collection without hooks', () => {
  it('is read and written by the very statements as before anybody hooked into another one', async () => {
    const id = await created('plain', { name: 'first' })
    const calls: Record<string, () => Promise<unknown>> = {
      create: () => api.admin('POST', '/items/plain', { name: 'a', n: 1 }),
      update: () => api.admin('PATCH', `/items/plain/${id}`, { n: 2 }),
      list: () => api.admin('GET', '/items/plain?filter={"n":2}&limit=5'),
      one: () => api.admin('GET', `/items/plain/${id}`),
      upsert: () => api.admin('PUT', '/items/plain?key=id', { id, name: 'b' }),
      delete: async () => api.admin('DELETE', `/items/plain/${await created('plain', { name: 'gone' })}`),
    }
    const before: Record<string, unknown> = {}
    for (const [name, call] of Object.entries(calls)) before[name] = await statements('plain', call)
    expect(before.create).toEqual([expect.stringMatching(/^insert into "plain" .* where set_config\('svc.actor', \$1/)])
    expect(before.list).toHaveLength(1)
    for (const event of ['read', 'read.one', 'create', 'update', 'delete'])
      for (const suffix of ['', '.after']) hook('trace', `items.${event}${suffix}`, () => undefined)
    for (const [name, call] of Object.entries(calls))
      expect(await statements('plain', call), name).toEqual(before[name])
  })
})

describe('before a change', () => {
  it('hooks of * come first, each sees what the one before left, and what they leave is stored', async () => {
    const seen: unknown[] = []
    hook('post', 'items.create', ({ data, ...more }) => {
      seen.push(data.slug, more.accountability.user.email, more.collection)
      data.slug += '!'
    })
    hook('*', 'items.create.before', ({ collection, data }) =>
      collection === 'post' ? { data: { ...data, slug: data.title.toLowerCase() }, collection: 'plain' } : undefined,
    )
    const { status, body } = await api.admin('POST', '/items/post?fields=title,slug', { title: 'Hello' })
    expect([status, body.data]).toEqual([201, { title: 'Hello', slug: 'hello!' }])
    expect(seen).toEqual(['hello', 'admin@example.com', 'post'])
    const bulk = await api.admin('POST', '/items/post/bulk', [{ title: 'A' }, { title: 'B' }])
    expect(bulk.status).toBe(201)
    expect((await rows('post')).map(({ slug }) => slug).sort()).toEqual(['a!', 'b!', 'hello!'])
  })

  it('a hook may set a Date', async () => {
    const at = new Date('2026-02-03T04:05:06.789Z')
    hook('moment', 'items.create', ({ data }) => void Object.assign(data, { at, day: at, plain: at, data: { at } }))
    const { status, body } = await api.admin('POST', '/items/moment?fields=at,day,plain,data', {})
    expect([status, body.data]).toEqual([
      201,
      { at: at.toISOString(), day: '2026-02-03', plain: at.toISOString(), data: { at: at.toISOString() } },
    ])
    hook('moment', 'items.update', ({ data }) => void Object.assign(data, { at: new Date(Number.NaN) }))
    const [{ id }] = await rows('moment')
    expect((await api.admin('PATCH', `/items/moment/${id}`, {})).status).toBe(400)
  })

  it('a value that is no JSON is a fault of the hook, which the log names with the field', async () => {
    class Money {
      readonly amount = 1
    }
    const circle: Record<string, unknown> = {}
    circle.again = { circle }
    let value: unknown
    hook('holder', 'items.create', ({ data }) => ({ data: { ...data, data: value } }))
    hook('holder', 'items.update', ({ data }) => void Object.assign(data, { data: value }))
    value = { fine: [1, null, undefined, { at: new Date(0) }, Object.create(null)] }
    const { body } = await api.admin('POST', '/items/holder?fields=id,data', {})
    expect(body.data.data).toEqual({ fine: [1, null, null, { at: '1970-01-01T00:00:00.000Z' }, {}] })
    const position = await api.position()
    for (const [wrong, place, what] of [
      [new Map([['a', 1]]), 'data.data', 'Map'],
      [{ list: [1, new Set([1])] }, 'data.data.list.1', 'Set'],
      [{ f: () => 1 }, 'data.data.f', 'function'],
      [[Symbol('s')], 'data.data.0', 'symbol'],
      [{ price: new Money() }, 'data.data.price', 'Money'],
      [{ big: 1n }, 'data.data.big', 'bigint'],
      [circle, 'data.data.again.circle', 'circular'],
    ] as const) {
      value = wrong
      for (const [method, path] of [
        ['POST', '/items/holder'],
        ['PATCH', `/items/holder/${body.data.id}`],
      ] as const) {
        const from = lines.length
        expect((await api.admin(method, path, {})).status, `${method} ${what}`).toBe(500)
        const failed = lines.slice(from).find((line) => line.msg === 'a hook failed')
        expect(failed).toMatchObject({ hook: 'svc-hook-test', err: { message: expect.stringContaining(`${place} `) } })
        expect(failed!.err!.message).toContain(what)
      }
    }
    value = 1n
    const { status, body: refused } = await api.admin('POST', '/items/holder', {})
    expect([status, refused.error.details.errors]).toMatchObject([400, [{ field: 'data' }]])
    value = undefined
    const items = new extension.ItemsService('holder')
    await expect(items.createOne({ data: new Map() })).rejects.toThrow('data.data is a Map')
    await expect(items.createMany([{}, { data: circle }])).rejects.toThrow('data.1.data.again.circle is circular')
    await expect(items.createOne(new Map() as never)).rejects.toThrow('data is a Map')
    await expect(items.updateMany([{ id: body.data.id, data: [() => 1] }])).rejects.toThrow(
      'changes.0.data.0 is a function',
    )
    await expect(items.updateOne(body.data.id, { data: { big: 1n } })).rejects.toThrow('data.data.big is a bigint')
    expect(await api.log(position)).toEqual([])
  })

  it('validates and permits the result of a hook as if the caller had sent it', async () => {
    hook('post', 'items.update', ({ data }) => ({ data: { ...data, ...(data.n === 1 && { n: 10 }) } }))
    const id = await created('post', { title: 'valid' })
    expect(await api.admin('PATCH', `/items/post/${id}`, { n: 1 })).toMatchObject({
      status: 400,
      body: { error: { details: { code: 'VALIDATION_ERROR', errors: [{ field: 'n' }] } } },
    })
    const { call } = await api.user([
      { collection: 'post', action: 'create', fields: ['title'] },
      { collection: 'post', action: 'update', fields: ['title'] },
    ])
    const position = await api.position()
    expect(await call('POST', '/items/post', { title: 'mine' })).toMatchObject({
      status: 403,
      body: { error: { message: "You don't have permission to create field: slug" } },
    })
    expect((await call('PATCH', `/items/post/${id}`, { title: 'changed', n: 1 })).status).toBe(403)
    expect(await api.log(position)).toEqual([])
  })

  it('a hook that throws refuses the change, and its own writes are undone with it', async () => {
    const { ItemsService, mailService, db } = extension
    hook('note', 'items.create', async ({ data, db: own, transaction }) => {
      expect(transaction).toBe(own)
      await own.query('insert into "trace" (id, what) values (gen_random_uuid(), $1)', ['by sql'])
      await new ItemsService('trace').createOne({ what: 'by service' })
      await mailService.sendMail({ to: 'ada@example.com', type: 'verification', context: { link: 'http://localhost' } })
      expect(await db.query('select what from "trace" order by 1')).toHaveLength(2)
      expect((await new ItemsService('trace').readByQuery()).data).toHaveLength(2)
      if (data.name === 'late') throw Object.assign(new Error('Too late'), { status: 409 })
      if (data.name === 'object') throw { status: 403, message: 'Not yours', code: 'NOT_YOURS' }
      if (data.name === 'statusCode') throw Object.assign(new TypeError('Too many'), { statusCode: 429 })
      if (data.name === 'bare') throw { status: 403 }
      if (data.name === 'field') throw { status: 422, details: { errors: [{ field: 'name', message: 'Not this' }] } }
      if (data.name === 'broken') data.name.missing.member = 1
      if (data.name === 'sql') await own.query('select * from "no such table"')
      if (data.name !== 'good') throw new Error('Not this name')
    })
    const position = await api.position()
    const attempt = (name: string) => api.admin('POST', '/items/note', { name })
    expect(await attempt('bad')).toMatchObject({
      status: 400,
      body: { error: { message: 'Not this name', code: 'HOOK_REFUSED' } },
    })
    expect(await attempt('late')).toMatchObject({ status: 409, body: { error: { message: 'Too late' } } })
    for (const [name, status, message, code] of [
      ['object', 403, 'Not yours', 'NOT_YOURS'],
      ['statusCode', 429, 'Too many', 'HOOK_REFUSED'],
      ['bare', 403, 'Forbidden', 'HOOK_REFUSED'],
    ] as const)
      expect(await attempt(name)).toMatchObject({ status, body: { error: { message, code } } })
    expect((await attempt('field')).body.error).toMatchObject({
      ...{ statusCode: 422, code: 'HOOK_REFUSED', details: { errors: [{ field: 'name', message: 'Not this' }] } },
    })
    for (const fault of ['broken', 'sql']) {
      const { status, text } = await attempt(fault)
      expect(status).toBe(500)
      expect(text).not.toMatch(/undefined|no such/)
    }
    expect(await rows('trace')).toEqual([])
    expect(await api.log(position)).toEqual([])
    expect(await api.jobs('mail')).toEqual([])
    expect((await attempt('good')).status).toBe(201)
    expect((await rows('trace')).map(({ what }) => what).sort()).toEqual(['by service', 'by sql'])
    expect(await api.jobs('mail')).toHaveLength(1)
    const { user } = (
      await api.anonymous('POST', '/auth/login', {
        email: 'admin@example.com',
        password: 'correct horse battery staple',
      })
    ).body
    const events = (await api.log(position)).filter(({ entity }) => ['note', 'trace'].includes(entity))
    expect(events.map(({ entity, userId }) => [entity, userId])).toEqual([
      ['trace', user.id],
      ['trace', user.id],
      ['note', user.id],
    ])
  })

  it('hooks hear of no row that the caller may not change', async () => {
    const heard: string[] = []
    for (const event of ['update', 'delete'])
      hook('plain', `items.${event}`, ({ id }) => void heard.push(`${event} ${id}`))
    const own = await created('plain', { name: 'own' })
    const other = await created('plain', { name: 'other' })
    const conditions = { name: { eq: 'own' } }
    const { call } = await api.user([
      { collection: 'plain', action: 'update', fields: ['n'], conditions },
      { collection: 'plain', action: 'delete', conditions },
    ])
    for (const method of ['PATCH', 'DELETE'])
      expect((await call(method, `/items/plain/${other}`, method === 'PATCH' ? { n: 1 } : undefined)).status).toBe(403)
    expect((await call('PATCH', '/items/post/1', { n: 1 })).status).toBe(403)
    expect(heard).toEqual([])
    expect((await call('PATCH', '/items/plain/bulk', [{ id: own, n: 3 }])).status).toBe(200)
    expect((await call('DELETE', '/items/plain/bulk', [own])).status).toBe(204)
    expect(heard).toEqual([`update ${own}`, `delete ${own}`])
  })

  it('hooks that cause each other come to an end', async () => {
    hook('loop', 'items.create', () => new extension.ItemsService('loop').createOne({ name: 'again' }))
    expect((await api.admin('POST', '/items/loop', { name: 'x' })).status).toBe(500)
    expect(await rows('loop')).toEqual([])
  })

  it('a transaction is of no more use when the change is over', async () => {
    let kept: any
    const late = Promise.withResolvers<unknown>()
    hook('label', 'items.create', (context) => {
      kept = context.db
      // Begun inside, but not awaited by it.
      void api
        .sql('select pg_sleep(0.2)')
        .then(() => new extension.ItemsService('trace').createOne({ what: 'late' }))
        .catch(late.resolve)
    })
    expect((await api.admin('POST', '/items/label', { name: 'x' })).status).toBe(201)
    await expect(kept.query('select 1')).rejects.toThrow(/is over/)
    expect(await late.promise).toMatchObject({ message: expect.stringMatching(/is over/) })
  })
})

describe('after a change', () => {
  it('hooks are told of the rows as they are and were, and cannot undo it', async () => {
    const told: any[] = []
    for (const event of ['create', 'update', 'delete'])
      hook('mark', `items.${event}.after`, async ({ id, document, previousDocument, db, accountability }) => {
        const [{ n }] = await db.query('select count(*)::int as n from "mark" where id = $1', [id])
        told.push([event, document.name, previousDocument?.name, n, accountability.role.name])
        if (event !== 'create') throw new Error('too late to object')
      })
    const id = await created('mark', { code: 'a', name: 'one' })
    const tag = String((await api.admin('GET', `/items/mark/${id}`)).headers.etag)
    expect((await api.admin('PATCH', `/items/mark/${id}`, { name: 'x' }, { 'if-match': '"1-x"' })).status).toBe(412)
    expect((await api.admin('PATCH', `/items/mark/${id}`, { name: 'two' }, { 'if-match': tag })).status).toBe(200)
    expect(
      (
        await api.admin('PUT', '/items/mark?key=code', [
          { code: 'a', name: 'three' },
          { code: 'b', name: 'new' },
        ])
      ).status,
    ).toBe(200)
    expect((await api.admin('DELETE', `/items/mark/${id}`)).status).toBe(200)
    expect((await api.admin('POST', '/items/mark', { code: 'b' })).status).toBe(409)
    expect(told).toEqual([
      ['create', 'one', undefined, 1, 'administrator'],
      ['update', 'two', 'one', 1, 'administrator'],
      ['update', 'three', 'two', 1, 'administrator'],
      ['create', 'new', undefined, 1, 'administrator'],
      ['delete', 'three', undefined, 0, 'administrator'],
    ])
    const failures = lines.filter(({ err }) => err?.message === 'too late to object')
    expect(failures.map((line) => line.hook)).toEqual(Array(3).fill('svc-hook-test'))
  })

  it('a repeated request is told once', async () => {
    let times = 0
    hook('book', 'items.create.after', () => {
      times += 1
    })
    const again = () => api.admin('POST', '/items/book', { name: 'once' }, { 'idempotency-key': 'once' })
    expect((await again()).body).toEqual((await again()).body)
    expect(times).toBe(1)
  })

  it('rows are in the form in which reads show them', async () => {
    const values = { precision: 20, scale: 2 }
    const fields = { amount: { type: 'Decimal', values }, big: { type: 'BigInt' }, at: { type: 'DateTime' } }
    await api.admin('POST', '/schemas', { collectionName: 'sum', schema: { fields } })
    const told: unknown[] = []
    for (const event of ['create', 'update', 'delete'])
      hook('sum', `items.${event}.after`, ({ document, previousDocument }) => {
        told.push(document, previousDocument)
      })
    const given = { amount: '1234567890123456.70', big: '9007199254740993', at: '2026-03-01T10:00:13.530974+02:00' }
    const id = await created('sum', given)
    const shown = async () => (await api.admin('GET', `/items/sum/${id}`)).body.data
    const first = await shown()
    expect(first).toMatchObject({ amount: '1234567890123456.70', big: '9007199254740993' })
    expect((await api.admin('PATCH', `/items/sum/${id}`, { amount: '19.90' })).status).toBe(200)
    const second = await shown()
    expect((await api.admin('DELETE', `/items/sum/${id}`)).status).toBe(200)
    expect(told).toEqual([first, undefined, second, first, second, undefined])
  })

  it('hidden fields are not shown', async () => {
    const shown: string[][] = []
    hook('svc_User', 'items.create.after', ({ document }) => void shown.push(Object.keys(document)))
    await api.user()
    expect(shown).toHaveLength(1)
    expect(shown[0]).toContain('email')
    expect(shown[0]).not.toContain('password')
  })
})

describe('an upsert', () => {
  it('asks the hooks of what it turns out to be; the key stays the request’s', async () => {
    const asked: string[] = []
    hook('mark', 'items.create', ({ data }) => {
      asked.push(`create ${data.code}`)
      return { data: { ...data, code: 'stolen', n: 1 } }
    })
    hook('mark', 'items.update', ({ data, previousDocument }) => {
      asked.push(`update ${previousDocument.code}`)
      return { data: { ...data, n: 2 } }
    })
    const put = () => api.admin('PUT', '/items/mark?key=code&fields=code,n', { code: 'k', name: 'x' })
    expect((await put()).body.data).toEqual({ code: 'k', n: 1 })
    expect((await put()).body.data).toEqual({ code: 'k', n: 2 })
    expect(asked).toEqual(['create k', 'update k'])
    expect((await api.admin('PUT', '/items/mark?key=code', { name: 'x' })).status).toBe(400)
    const race = await Promise.all(
      [1, 2, 3].map(() => api.admin('PUT', '/items/mark?key=code', { code: 'race', name: 'x' })),
    )
    expect(race.map(({ status }) => status).sort()).toEqual([200, 200, 201])
  })
})

describe('writes through relations', () => {
  it('meet the hooks of every collection whose rows they touch', async () => {
    const heard: string[] = []
    for (const collection of ['book', 'book_label'])
      for (const event of ['create', 'update', 'delete'])
        for (const suffix of ['', '.after'])
          hook(collection, `items.${event}${suffix}`, ({ data, document, previousDocument }) => {
            const row = data?.name ?? document?.name ?? previousDocument?.name ?? ''
            heard.push(`${event}${suffix} ${collection} ${row}`.trim())
            if (suffix === '' && data?.name === 'b') return { data: { ...data, name: 'B' } }
            return undefined
          })
    const label = await created('label', { name: 'l' })
    const loose = await created('book', { name: 'loose' })
    heard.length = 0
    const shelf = await created('shelf', { name: 's', books: [{ name: 'a', labels: [label] }, { name: 'b' }, loose] })
    expect(heard.sort()).toEqual(
      ['create book a', 'create book b', 'update book loose', 'create book_label']
        .flatMap((told) => [told])
        .concat(['create.after book a', 'create.after book B', 'update.after book loose', 'create.after book_label'])
        .sort(),
    )
    const books = await rows('book')
    expect(
      books
        .filter(({ shelf_id }) => shelf_id === shelf)
        .map(({ name }) => name)
        .sort(),
    ).toEqual(['B', 'a', 'loose'])
    heard.length = 0
    const first = books.find(({ name }) => name === 'a')!
    expect((await api.admin('PATCH', `/items/shelf/${shelf}`, { books: [{ id: first.id, labels: [] }] })).text).toMatch(
      /id/,
    )
    expect(heard.sort()).toEqual(
      [
        'update book a',
        'update.after book a',
        'delete book_label',
        'delete.after book_label',
        ...['B', 'loose'].flatMap((name) => [`update book ${name}`, `update.after book ${name}`]),
      ].sort(),
    )
    expect((await rows('book')).filter(({ shelf_id }) => shelf_id === shelf)).toHaveLength(1)
    expect(await rows('book_label')).toEqual([])
  })

  it('are undone as a whole when a hook of a nested row refuses', async () => {
    hook('book', 'items.create', ({ data }) => {
      if (data.name === 'refused') throw new Error('no such book')
    })
    const position = await api.position()
    const answer = await api.admin('POST', '/items/shelf', {
      name: 'x',
      books: [{ name: 'fine' }, { name: 'refused' }],
    })
    expect(answer).toMatchObject({ status: 400, body: { error: { message: 'no such book' } } })
    expect(await api.log(position)).toEqual([])
  })
})

describe('a read', () => {
  it('is asked with the query that the hook leaves, within what the caller may read', async () => {
    const results: unknown[] = []
    hook('shelf', 'items.read', ({ query }) => {
      expect(query).toEqual({ filter: { name: { startsWith: 'r' } }, fields: ['name'], limit: 2 })
      return { query: { sort: ['name'], fields: ['*'], filter: {} } }
    })
    hook('shelf', 'items.read.after', ({ result, query }) => void results.push([result.data.length, query.fields]))
    hook('shelf', 'items.read.one', ({ id, query }) => {
      if (query.fields?.[0] === 'id') throw new Error(`not ${id}`)
      return query.fields?.[0] === 'name' ? { query: { fields: ['*', 'books.*'] } } : undefined
    })
    const [r1, r2] = [
      { id: await created('shelf', { name: 'r1' }), name: 'r1' },
      { id: await created('shelf', { name: 'r2' }), name: 'r2' },
    ]
    const other = { id: await created('shelf', { name: 'other' }) }
    const conditions = { name: { startsWith: 'r' } }
    const { call } = await api.user([{ collection: 'shelf', action: 'read', fields: ['name'], conditions }])
    const asked = `/items/shelf?filter=${JSON.stringify({ name: { startsWith: 'r' } })}&fields=name&limit=2`
    expect((await call('GET', asked)).body).toEqual({ data: [r1, r2], totalCount: 2 })
    expect(results).toEqual([[2, ['*']]])
    expect((await call('GET', `/items/shelf/${r1.id}`)).body).toEqual({ data: r1 })
    expect((await call('GET', `/items/shelf/${r1.id}?fields=name`)).status).toBe(403)
    expect((await call('GET', `/items/shelf/${other.id}`)).status).toBe(403)
    expect((await call('GET', `/items/shelf/${r1.id}?fields=id`)).body.error.message).toBe(`not ${r1.id}`)
  })
})

it('a list is read page by page through its hooks', async () => {
  hook('label', 'items.read', () => undefined)
  for (const name of ['a', 'b', 'c']) await created('label', { name })
  const names: string[] = []
  let cursor: string | undefined = ''
  while (cursor !== undefined) {
    const { status, body, text } = await api.admin('GET', `/items/label?sort=name&limit=2&cursor=${cursor}`)
    expect(status, text).toBe(200)
    names.push(...body.data.map(({ name }: { name: string }) => name))
    cursor = body.nextCursor ?? undefined
  }
  const all = await api.sql('select name from label order by name')
  expect(names).toEqual(all.map(({ name }) => name))
  expect((await api.admin('GET', '/items/label?cursor=eyJ2IjoxfQ')).status).toBe(400)
})

it('a value of a hook that is no JSON is refused in words', async () => {
  hook('post', 'items.create', ({ data }) => (data.title === 'Large' ? { data: { ...data, n: 50n } } : undefined))
  const { status, body } = await api.admin('POST', '/items/post', { title: 'Large' })
  expect([status, body.error?.message]).toEqual([400, 'Validation failed: n: expected an integer'])
  expect(body.error.details.errors).toMatchObject([{ field: 'n', value: '50' }])
})

describe('ItemsService', () => {
  it('does what its accountability may, or everything without one', async () => {
    const accountabilities: any[] = []
    hook('plain', 'items.read', ({ accountability }) => void accountabilities.push(accountability))
    const { call, id: userId } = await api.user([
      { collection: 'plain', action: 'read', fields: ['name'], conditions: { name: { eq: 'seen' } } },
    ])
    const [seen, hidden] = [await created('plain', { name: 'seen' }), await created('plain', { name: 'unseen' })]
    await call('GET', '/items/plain')
    const [accountability] = accountabilities
    expect(accountability).toMatchObject({
      user: { id: userId },
      role: { name: expect.any(String) },
      permissions: [{ collection: 'plain', action: 'read' }],
      tenant: null,
      ipaddress: '127.0.0.1',
    })
    const { ItemsService, permissionService } = extension
    const theirs = new ItemsService('plain', { accountability })
    expect((await theirs.readByQuery()).data).toEqual([{ id: seen, name: 'seen' }])
    await expect(theirs.readOne(hidden)).rejects.toMatchObject({ status: 403 })
    await expect(theirs.updateOne(seen, { n: 1 })).rejects.toMatchObject({ status: 403 })
    // Neither the object handed out nor a copy of it is a way to more.
    accountability.role.name = 'administrator'
    expect((await theirs.readByQuery()).data).toEqual([{ id: seen, name: 'seen' }])
    expect(() => new ItemsService('plain', { accountability: { ...accountability } })).toThrow(TypeError)
    expect(permissionService.hasPermission(accountability, 'plain', 'read')).toBe(true)
    expect(permissionService.hasPermission(accountability, 'plain', 'update')).toBe(false)
    const all = new ItemsService('plain')
    const position = await api.position()
    const ids = await all.createMany([{ name: 's1' }, { name: 's2' }])
    expect(await all.updateMany([{ id: ids[0]!, n: 7 }])).toEqual([ids[0]])
    expect(await all.readOne(ids[0]!, { fields: ['name', 'n'] })).toEqual({ name: 's1', n: 7 })
    expect(await all.deleteMany(ids)).toHaveLength(2)
    expect((await api.log(position)).map(({ action, userId: by }) => [action, by])).toEqual(
      ['create', 'create', 'update', 'delete', 'delete'].map((action) => [action, null]),
    )
  })

  it('SQL of an extension can only read outside a transaction', async () => {
    const { db } = extension
    const insert = `insert into "trace" (id, what) values (gen_random_uuid(), 'x')`
    for (const several of [
      () => db.query('select 1; select 2'),
      () => db.transaction((tx) => tx.query('select 1; select 2')),
    ])
      await expect(several()).rejects.toThrow(/^the text holds several statements: send them one by one$/)
    await expect(db.query(insert)).rejects.toThrow(/read-only/)
    const position = await api.position()
    await expect(
      db.transaction(async (tx) => {
        await tx.query(insert)
        throw new Error('changed my mind')
      }),
    ).rejects.toThrow('changed my mind')
    expect(await api.log(position)).toEqual([])
    await db.transaction((tx) => tx.query(insert))
    expect(await api.log(position)).toMatchObject([{ entity: 'trace', action: 'create' }])
  })

  it('all that is done in a transaction of an extension is part of it', async () => {
    const { db, ItemsService } = extension
    const traces = new ItemsService('trace')
    const position = await api.position()
    const id = await traces.createOne({ what: 'first' })
    await expect(
      db.transaction(async (tx) => {
        // It would wait for itself on another connection.
        await tx.query('select from "trace" where id = $1 for update', [id])
        await traces.updateOne(id, { what: 'changed' })
        await traces.createOne({ what: 'second' })
        throw new Error('changed my mind')
      }),
    ).rejects.toThrow('changed my mind')
    expect((await api.log(position)).map(({ action }) => action)).toEqual(['create'])
    await db.transaction(() => traces.updateOne(id, { what: 'changed' }))
    const caller = await api.user(['read', 'update'].map((action) => ({ collection: 'trace', action, fields: ['*'] })))
    const given: any[] = []
    hook('trace', 'items.read', (asked) => void given.push(asked.accountability))
    await caller.call('GET', '/items/trace')
    const accountability = given.find(({ user }) => user?.id === caller.id)
    await db.transaction(async (tx) => {
      await new ItemsService('trace', { accountability }).updateOne(id, { what: 'by the caller' })
      await tx.query(`update "trace" set what = 'by the platform' where id = $1`, [id])
    })
    const ofTraces = (await api.log(position)).filter(({ entity }) => entity === 'trace')
    expect(ofTraces.map(({ action, userId: by }) => [action, by])).toEqual([
      ['create', null],
      ['update', null],
      ['update', caller.id],
      ['update', null],
    ])
  })
})
