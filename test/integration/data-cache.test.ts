import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { type Api, startApi } from '../support/api.ts'

/** The rules of the data cache in one process with memory: what is kept, for whom, and when it no longer counts. */

let api: Api
beforeAll(async () => {
  api = await startApi({ DATA_CACHE_STRATEGY: 'all' })
  const author = { name: { type: 'String' }, city: { type: 'String' } }
  const book = {
    title: { type: 'String' },
    price: { type: 'Integer' },
    author_Id: { type: 'UUID' },
    author: { relType: 'BelongsTo', target: 'author', foreignKey: 'author_Id', onDelete: 'CASCADE' },
  }
  const review = {
    text: { type: 'String' },
    book_Id: { type: 'UUID' },
    book: { relType: 'BelongsTo', target: 'book', foreignKey: 'book_Id', onDelete: 'SET NULL' },
  }
  for (const [collectionName, fields] of Object.entries({ author, book, review }))
    await create(collectionName, { fields })
})

async function create(collectionName: string, schema: object) {
  const made = await api.admin('POST', '/schemas', { collectionName, schema })
  expect(made.status, made.text).toBe(201)
}

const stateOf = async (path: string, call = api.admin) => (await call('GET', path)).headers['x-cache']
const add = async (collection: string, item: object) =>
  (await api.admin('POST', `/items/${collection}`, item)).body.data.id as string

/** Asks until the answer comes from the cache. */
async function warm(path: string, call = api.admin) {
  await call('GET', path)
  // A look that began before a write may drop what was read after it: once.
  for (let times = 1; ; times += 1) {
    const kept = await call('GET', path)
    if (times < 3 && kept.headers['x-cache'] === 'MISS') continue
    expect(kept.headers['x-cache'], path).toBe('HIT')
    return kept
  }
}

let n = 0
let city: string
let authorId: string
let bookId: string
beforeEach(async () => {
  n += 1
  city = `city ${n}`
  authorId = await add('author', { name: `author ${n}`, city })
  bookId = await add('book', { title: `book ${n}`, price: n, author_Id: authorId })
})

describe('an answer is kept', () => {
  it('byte for byte, with its entity tag, and counted', async () => {
    const before = api.runtime.dataCache.stats()
    const first = await api.admin('GET', '/items/book?sort=title')
    const second = await api.admin('GET', '/items/book?sort=title')
    expect([first.headers['x-cache'], second.headers['x-cache']]).toEqual(['MISS', 'HIT'])
    expect(second.text).toBe(first.text)
    expect(second.headers.etag).toBe(first.headers.etag)
    const fresh = await api.admin('GET', '/items/book?sort=title', undefined, {
      'if-none-match': String(first.headers.etag),
    })
    expect([fresh.status, fresh.text, fresh.headers['x-cache']]).toEqual([304, '', 'HIT'])
    const { hits, misses, entries, bytes } = api.runtime.dataCache.stats()
    expect([hits - before.hits, misses - before.misses]).toEqual([2, 1])
    expect(entries).toBeGreaterThan(0)
    expect(bytes).toBeGreaterThan(first.text.length)
  })

  it('of single items, reports and batches of reports', async () => {
    await warm(`/items/book/${bookId}?fields=*,author.name`)
    const report = { aggregate: { n: { function: 'count', field: '*' } }, groupBy: ['author_Id'] }
    const stats = { stats: [{ name: 'a', collection: 'book', query: report }] }
    for (const [path, body] of [
      ['/reports/book', report],
      ['/reports/stats', stats],
    ] as const) {
      const first = await api.admin('POST', path, body)
      const second = await api.admin('POST', path, body)
      expect([first.headers['x-cache'], second.headers['x-cache']], path).toEqual(['MISS', 'HIT'])
      expect(second.text).toBe(first.text)
    }
    const other = await api.admin('POST', '/reports/book', { ...report, groupBy: ['price'] })
    expect(other.headers['x-cache']).toBe('MISS')
  })

  it('no longer than the request, the schema and the configuration say', async () => {
    await warm('/items/book?limit=3&cache=60')
    await create('fleeting', { fields: { a: { type: 'Integer' } }, cache: { ttl: 2 } })
    const startedAt = Date.now()
    await warm('/items/fleeting')
    await expect.poll(() => stateOf('/items/fleeting')).toBe('MISS')
    expect(Date.now() - startedAt).toBeGreaterThanOrEqual(2000)
  })

  it('once for requests that come together', async () => {
    const before = api.runtime.dataCache.stats()
    const all = await Promise.all(Array.from({ length: 8 }, () => api.admin('GET', '/items/book?sort=-title,price')))
    expect(new Set(all.map(({ text }) => text)).size).toBe(1)
    expect(api.runtime.dataCache.stats().misses - before.misses).toBe(1)
  })
})

describe('an answer counts no longer', () => {
  const list = '/items/book?fields=title,price,author.name&sort=title'
  const titles = async (path = list) => (await api.admin('GET', path)).body.data.map((book: any) => book.title)

  it('after a create, an update and a delete, bulk ones too', async () => {
    for (const change of [
      () => add('book', { title: `another ${n}` }),
      () => api.admin('PATCH', `/items/book/${bookId}`, { price: 1000 + n }),
      () => api.admin('POST', '/items/book/bulk', [{ title: 'x' }, { title: 'y' }]),
      () => api.admin('PATCH', '/items/book/bulk', [{ id: bookId, title: `renamed ${n}` }]),
      () => api.admin('PUT', '/items/book?key=id', { id: bookId, title: `put ${n}` }),
      () => api.admin('DELETE', `/items/book/${bookId}`),
    ]) {
      await warm(list)
      const changed = await change()
      if (typeof changed === 'object') expect(changed.status, changed.text).toBeLessThan(300)
      expect(await stateOf(list)).toBe('MISS')
    }
    expect(await titles()).not.toContain(`put ${n}`)
  })

  it('after a change of a row that it joined, and only then', async () => {
    await warm(list)
    await warm('/items/author?sort=name')
    await add('review', { text: 'elsewhere' })
    expect(await stateOf(list)).toBe('HIT')
    await api.admin('PATCH', `/items/author/${authorId}`, { name: `renamed ${n}` })
    const { body } = await api.admin('GET', list)
    expect(body.data.find((book: any) => book.title === `book ${n}`).author.name).toBe(`renamed ${n}`)
    expect(await stateOf('/items/author?sort=name')).toBe('MISS')
  })

  it('after a nested write', async () => {
    await warm('/items/author?sort=name')
    await api.admin('PATCH', `/items/book/${bookId}`, { author: { id: authorId, city: 'moved' } })
    const { body } = await api.admin('GET', `/items/author?filter={"id":"${authorId}"}`)
    expect(body.data[0].city).toBe('moved')
    expect(await stateOf('/items/author?sort=name')).toBe('MISS')
  })

  it('after a cascade to a collection that the request does not name', async () => {
    const reviewId = await add('review', { text: 'good', book_Id: bookId })
    await warm(list)
    await warm(`/items/review/${reviewId}`)
    await api.admin('DELETE', `/items/author/${authorId}`)
    expect(await titles()).not.toContain(`book ${n}`)
    expect((await api.admin('GET', `/items/review/${reviewId}`)).body.data.book_Id).toBeNull()
  })

  it('after a trigger that is not ours', async () => {
    await api.sql(`create or replace function echo() returns trigger language plpgsql as
      $$begin insert into review (id, text) values (gen_random_uuid(), 'by trigger'); return null; end$$`)
    await api.sql('create trigger echo after update on author for each row execute function echo()')
    onTestFinished(async () => void (await api.sql('drop trigger echo on author')))
    const reviews = '/items/review?filter={"text":"by trigger"}'
    expect((await warm(reviews)).body.data).toHaveLength(0)
    await api.admin('PATCH', `/items/author/${authorId}`, { name: 'triggers' })
    expect((await api.admin('GET', reviews)).body.data).toHaveLength(1)
  })

  it('after psql has written, within the time that a look lasts', async () => {
    await warm(list)
    await api.sql('update book set price = 77 where id = $1', [bookId])
    await expect.poll(async () => (await api.admin('GET', list)).text).toContain('77')
    await warm(list)
    await api.sql('truncate review, book')
    await expect.poll(async () => (await api.admin('GET', list)).body.data).toEqual([])
  })

  it('after a restoration', async () => {
    const item = `/items/book/${bookId}`
    const [created] = await api.sql(`select id from "svc_AuditLog" where "entityId" = $1`, [bookId])
    await api.admin('PATCH', item, { title: 'changed' })
    await warm(item)
    const restored = await api.admin('POST', `/items/book/${bookId}/restore`, { event: created.id })
    expect(restored.status, restored.text).toBe(200)
    expect((await api.admin('GET', item)).body.data.title).toBe(`book ${n}`)
  })

  it('when its collection has changed', async () => {
    await warm('/items/author')
    const schema = { fields: { name: { type: 'String' }, city: { type: 'String' }, born: { type: 'Integer' } } }
    const changed = await api.admin('PATCH', '/schemas/author', { schema })
    expect(changed.status, changed.text).toBe(200)
    expect((await api.admin('GET', '/items/author')).body.data[0]).toHaveProperty('born')
  })

  it('when a row was written as it was, which gives it another version', async () => {
    const item = `/items/book/${bookId}`
    const before = await warm(item)
    await api.sql('update book set title = title where id = $1', [bookId])
    const after = await api.admin('GET', item)
    expect(after.headers.etag).not.toBe(before.headers.etag)
    const patched = await api.admin('PATCH', item, { price: 3 }, { 'if-match': String(after.headers.etag) })
    expect(patched.status).toBe(200)
  })
})

it('is never older than what its caller was told, with 5 % writes among the reads', async () => {
  const ids = await Promise.all(Array.from({ length: 4 }, () => add('book', { title: 'counter', price: 0 })))
  const told = ids.map(() => 0)
  const before = api.runtime.dataCache.stats()
  const path = '/items/book?filter={"title":"counter"}&fields=id,price'
  const caller = async (own: number) => {
    for (let i = 1; i <= 60; i += 1) {
      if (i % 20 === 0) {
        await api.admin('PATCH', `/items/book/${ids[own]}`, { price: i })
        told[own] = i
      } else {
        const least = [...told]
        const { body } = await api.admin('GET', path)
        const prices = new Map(body.data.map((book: any) => [book.id, book.price]))
        for (const [place, id] of ids.entries()) expect(prices.get(id)).toBeGreaterThanOrEqual(least[place]!)
      }
    }
  }
  await Promise.all(ids.map((_, own) => caller(own)))
  const { hits, misses } = api.runtime.dataCache.stats()
  process.stdout.write(`5 % writes: ${hits - before.hits} hits, ${misses - before.misses} misses\n`)
  expect(hits).toBeGreaterThan(before.hits)
})

describe('an answer belongs to the caller it was made for', () => {
  const readBooks = (more: object = {}) => [{ collection: 'book', action: 'read', fields: '*', ...more }]

  it('by role and rules, and shared within a role', async () => {
    const all = await api.user(readBooks())
    const cheap = await api.user(readBooks({ conditions: { price: { lt: 0 } } }))
    await warm('/items/book', all.call)
    expect(await stateOf('/items/book', api.admin)).toBe('MISS')
    expect(await stateOf('/items/book', cheap.call)).toBe('MISS')
    expect((await warm('/items/book', cheap.call)).body.data).toEqual([])
    expect((await warm('/items/book', all.call)).body.data).not.toEqual([])
  })

  it('by user, where a rule or the request names one', async () => {
    const own = readBooks({ conditions: { title: '$CURRENT_USER.email' } })
    const mine = await api.user(own)
    await add('book', { title: mine.email })
    expect((await warm('/items/book?fields=title', mine.call)).body.data).toHaveLength(1)
    const created = await api.admin('POST', '/items/svc_User', {
      firstName: 'O',
      email: `other${n}@example.com`,
      password: 'password of a user',
      emailVerified: true,
    })
    await api.admin('POST', '/items/svc_UserRole', { user_Id: created.body.data.id, role_Id: mine.roleId })
    const credentials = { email: `other${n}@example.com`, password: 'password of a user' }
    const other = api.as((await api.anonymous('POST', '/auth/login', credentials)).body.token)
    expect((await other('GET', '/items/book?fields=title')).body.data).toEqual([])
    for (const [spelling, owner] of [
      ['$CURRENT_USER.email', mine],
      ['\\u0024CURRENT_USER.email', mine],
    ] as const) {
      const path = `/items/author?filter=${encodeURIComponent(`{"name":"${spelling}"}`)}`
      expect(owner.email).toBeDefined()
      await api.admin('GET', path)
      expect((await other('GET', path)).status, spelling).toBe(403)
    }
  })

  it('by what a variable stands for at the moment', async () => {
    const { call, id } = await api.user(readBooks({ conditions: { title: '$CURRENT_USER.lastName' } }))
    await add('book', { title: `name ${n}` })
    expect((await warm('/items/book', call)).body.data).toEqual([])
    await api.admin('PATCH', `/items/svc_User/${id}`, { lastName: `name ${n}` })
    expect((await call('GET', '/items/book')).body.data).toHaveLength(1)
  })

  it('and gone with the permission, and with the rule that it was made by', async () => {
    const { call, roleId } = await api.user(readBooks())
    await warm('/items/book', call)
    const [row] = (await api.admin('GET', `/permissions?filter={"role_Id":"${roleId}"}`)).body.data
    await api.admin('PATCH', `/permissions/${row.id}`, { fields: 'title' })
    expect((await call('GET', '/items/book')).body.data[0]).not.toHaveProperty('price')
    await api.admin('DELETE', `/permissions/${row.id}`)
    expect((await call('GET', '/items/book')).status).toBe(403)
  })

  it('by the settings that a rule names', async () => {
    const { call } = await api.user(readBooks({ conditions: { title: '$CURRENT_SETTINGS.project_name' } }))
    await add('book', { title: `project ${n}` })
    await warm('/items/book', call)
    await api.admin('PATCH', '/settings', { project_name: `project ${n}` })
    expect((await call('GET', '/items/book')).body.data).toHaveLength(1)
  })
})

describe('an answer that names the time is kept until a row crosses it', () => {
  /** Rows that are shown from a moment on and until another. */
  const show = (name: string, from: number, until = from + 86_400_000) =>
    add('notice', { name, shows: new Date(from).toISOString(), ends: new Date(until).toISOString() })
  const now = () => api.runtime.clock().getTime()
  const named = async (ask: () => ReturnType<typeof api.admin>) => {
    const began = now()
    const { status, text, body, headers } = await ask()
    expect(status, text).toBe(200)
    return { began, ended: now(), names: body.data.map((row: any) => row.name), state: headers['x-cache'] }
  }

  beforeAll(() =>
    create('notice', {
      fields: {
        name: { type: 'String' },
        ...{
          shows: { type: 'DateTime' },
          ends: { type: 'DateTime' },
          day: { type: 'Date' },
          local: { type: 'DateTime_NO_TZ' },
        },
        about_Id: { type: 'UUID' },
        about: { relType: 'BelongsTo', target: 'notice', foreignKey: 'about_Id' },
        replies: { relType: 'HasMany', target: 'notice', foreignKey: 'about_Id' },
      },
      indexes: [{ fields: ['shows'] }],
    }),
  )
  beforeEach(() => api.sql('delete from notice'))

  it('by filter, rule, relation and report, and not a moment longer', async () => {
    const start = now()
    const first = start + 1000
    const last = start + 1600
    const from = (moment: number) => new Date(moment).toISOString()
    const always = await show('always', start - 5000)
    await show('from first', first)
    await show('until last', start - 5000, last)
    await api.admin('PATCH', `/items/notice/${always}`, { about_Id: always })
    const { call: reader } = await api.user([
      {
        ...{ collection: 'notice', action: 'read', fields: '*,replies.*' },
        conditions: { shows: { lte: '$NOW' }, ends: { gt: '$NOW' } },
      },
    ])
    const filter = encodeURIComponent('{"shows":{"lte":"$NOW"},"ends":{"gt":"$NOW"}}')
    const report = { aggregate: { n: { function: 'count', field: '*' } }, groupBy: ['name'], sort: ['name'] }
    const ways = [
      () => api.admin('GET', `/items/notice?sort=name&fields=name&filter=${filter}`),
      () => reader('GET', '/items/notice?sort=name&fields=name'),
      () => reader('POST', '/reports/notice', report),
      () => api.admin('GET', `/items/notice?sort=name&fields=name&limit=10&cursor=&filter=${filter}`),
    ]
    const seen = new Set<string>()
    const states = ways.map(() => [] as unknown[])
    while (now() <= last) {
      for (const [way, ask] of ways.entries()) {
        const { began, ended, names, state } = await named(ask)
        states[way]!.push(state)
        const expected = (at: number) => [
          'always',
          ...(at >= first ? ['from first'] : []),
          ...(at < last ? ['until last'] : []),
        ]
        // What a read of any moment between would answer.
        expect([expected(began), expected(ended)], `${way} at ${from(began)}`).toContainEqual(names)
        seen.add(names.join())
      }
    }
    for (const ask of ways) expect((await named(ask)).names).toEqual(['always', 'from first'])
    expect(seen.size).toBeGreaterThanOrEqual(2)
    for (const of of states) expect(of).toContain('HIT')
  })

  it('also when a row of others, by psql, crosses earlier', async () => {
    const path = `/items/notice?sort=name&fields=name&filter=${encodeURIComponent('{"shows":{"lt":"$NOW"}}')}`
    await show('old', now() - 5000)
    await show('far', now() + 3_600_000)
    await warm(path)
    const soon = now() + 400
    await api.sql(
      `insert into notice (id, name, shows) values (gen_random_uuid(), 'soon', to_timestamp(${soon / 1000}))`,
    )
    const ask = () => named(() => api.admin('GET', path))
    for (;;) {
      const { began, ended, names } = await ask()
      if (ended <= soon) expect(names).toEqual(['old'])
      if (began <= soon) continue
      expect(names).toEqual(['old', 'soon'])
      break
    }
    await warm(path)
  })

  it('of related rows where an index finds the next, and of days', async () => {
    const parent = await show('parent', now() - 5000)
    const soon = now() + 2000
    const child = await show('child', soon)
    await api.admin('PATCH', `/items/notice/${child}`, {
      ...{ about_Id: parent, day: '2020-01-01' },
      local: new Date(soon).toISOString(),
    })
    const related = `/items/notice?fields=name&filter=${encodeURIComponent('{"replies.shows":{"lt":"$NOW"}}')}`
    const local = `/items/notice?fields=name&filter=${encodeURIComponent('{"local":{"gte":"$NOW"}}')}`
    expect((await warm(related)).body.data).toEqual([])
    expect((await warm(local)).body.data).toEqual([{ name: 'child' }])
    await expect.poll(async () => (await api.admin('GET', related)).body.data).toEqual([{ name: 'parent' }])
    await expect.poll(async () => (await api.admin('GET', local)).body.data).toEqual([])
    const days = `/items/notice?fields=name&filter=${encodeURIComponent('{"day":{"lt":"$NOW"}}')}`
    expect((await warm(days)).body.data).toMatchObject([{ name: 'child' }])
    const item = `/items/notice/${parent}?filter=${encodeURIComponent('{"shows":{"lt":"$NOW"}}')}`
    await warm(item)
  })
})

it('an answer that names the time is of its times only, also for a process whose clock is behind or ahead', async () => {
  const answer = { body: '{}', tag: '', version: undefined }
  const lookup = { key: `window ${n}`, ttlMs: 60_000, maxAgeMs: 60_000, reload: false }
  const at = async (now: number, window = { from: 100, until: 200 }) =>
    (await api.runtime.dataCache.read({ ...lookup, now }, async () => ({ answer, tables: ['book'], window }))).state
  expect([await at(100), await at(100), await at(199)]).toEqual(['MISS', 'HIT', 'HIT'])
  expect([await at(99, { from: 90, until: 100 }), await at(98)]).toEqual(['MISS', 'HIT'])
  expect([await at(100), await at(200, { from: 200, until: 300 }), await at(299)]).toEqual(['MISS', 'MISS', 'HIT'])
  // A moment that is over as soon as it was made is none.
  expect([await at(300, { from: 300, until: 300 }), await at(300, { from: 300, until: 300 })]).toEqual(['MISS', 'MISS'])
})

describe('an answer is never kept', () => {
  const never = async (path: string, call = api.admin) => {
    const states = [await stateOf(path, call), await stateOf(path, call)]
    expect(states, path).toEqual(['BYPASS', 'BYPASS'])
  }

  it('of the past, with a place in the log, or of a moment that no statement can tell', async () => {
    await never(`/items/book?asOf=${new Date().toISOString().slice(0, 19)}Z`)
    await never('/items/book?changesCursor=true')
    for (const filter of [
      { createdAt: '$NOW' },
      { createdAt: { in: ['$NOW'] } },
      { createdAt: { '\\u0065q': '$NOW' } },
      { title: '$NOW-DAY_1' },
      { 'author.createdAt': { lt: '$NOW' } },
    ]) {
      const text = JSON.stringify(filter).replace('\\\\u', '\\u')
      await never(`/items/book?filter=${encodeURIComponent(text)}`)
      await never(`/items/book?filter=${encodeURIComponent(text.replace('$', '\\u0024'))}`)
    }
    const { call } = await api.user([
      { collection: 'book', action: 'read', fields: '*', conditions: { createdAt: { ne: '$NOW' } } },
    ])
    await never('/items/book', call)
  })

  it('of fields and collections whose changes are no events', async () => {
    await never('/items/svc_User')
    await warm('/items/svc_User?fields=email')
    await never('/items/svc_AuditLog?limit=1')
  })

  it('where a hook takes part', async () => {
    await create('hooked', { fields: { a: { type: 'Integer' } } })
    const id = await add('hooked', { a: 1 })
    await warm('/items/hooked')
    await warm(`/items/hooked/${id}`)
    api.runtime.hooks.register('test', 'hooked', 'items.read', () => undefined)
    api.runtime.hooks.register('test', 'hooked', 'items.read.one.after', () => undefined)
    await never('/items/hooked')
    await never(`/items/hooked/${id}`)
  })

  it('when it is an error', async () => {
    expect(await stateOf('/items/book?filter={"nope":1}')).toBeUndefined()
    expect((await api.admin('GET', '/items/book?filter={"nope":1}')).status).toBe(400)
  })

  it('when it is too large to be held', async () => {
    await create('big', { fields: { a: { type: 'Integer' } } })
    await api.sql('insert into big (id, a) select gen_random_uuid(), i from generate_series(1, 1100) i')
    await never('/items/big')
    await warm('/items/big?limit=1000')
  })
})

describe('?cache=', () => {
  it('false reads past the cache, reload renews what it holds', async () => {
    const first = await warm('/items/book?fields=title')
    expect(await stateOf('/items/book?fields=title&cache=false')).toBe('BYPASS')
    const renewed = await api.admin('GET', '/items/book?cache=reload&fields=title')
    expect([renewed.headers['x-cache'], renewed.text]).toEqual(['MISS', first.text])
    expect(await stateOf('/items/book?fields=title')).toBe('HIT')
  })

  it('refuses what makes no sense', async () => {
    for (const value of ['maybe', '0', '-1', '1.5', 'true&cache=false', '99999999999']) {
      const { status, body } = await api.admin('GET', `/items/book?cache=${value}`)
      expect([status, body.error.message], value).toEqual([400, 'Invalid query parameters'])
    }
  })

  it('cannot ask for what the schema refuses', async () => {
    await create('private', { fields: { a: { type: 'Integer' } }, cache: false })
    for (const path of ['/items/private', '/items/private?cache=true']) expect(await stateOf(path)).toBe('BYPASS')
    for (const cache of ['yes', { ttl: 0 }, { ttl: '5' }, 5, null]) {
      const made = await api.admin('POST', '/schemas', { collectionName: 'bad', schema: { fields: {}, cache } })
      expect([made.status, made.text.includes('cache')], JSON.stringify(cache)).toEqual([400, true])
    }
  })
})
