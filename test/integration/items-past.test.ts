import fc from 'fast-check'
import pg from 'pg'
import { beforeAll, describe, expect, it } from 'vitest'
import { cursorAt, encodeCursor, momentSql, parseCursor } from '../../src/events/cursor.ts'
import { expireEvents } from '../../src/events/retention.ts'
import { compileOne } from '../../src/query/compile.ts'
import { parseListQuery } from '../../src/query/parse.ts'
import { resolveEnv, resolveOne } from '../../src/query/resolve.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { waitFor } from '../support/wait.ts'
import { admin as adminAccess } from '../unit/query/support/access.ts'

/** `asOf`: reads of the past (docs/history.md). */

let api: Api
let member: Call

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', {
    collectionName: 'shelf',
    schema: { fields: { name: { type: 'String' }, secret: { type: 'String', hidden: true } } },
  })
  await api.admin('POST', '/schemas', {
    collectionName: 'book',
    schema: {
      paranoid: true,
      fields: {
        id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } },
        title: { type: 'String' },
        price: { type: 'Decimal', values: { precision: 12, scale: 2 } },
        bought: { type: 'DateTime' },
        tags: { type: 'Array_String' },
        facts: { type: 'JSON' },
        shelf: { relType: 'BelongsTo', target: 'shelf', foreignKey: 'shelf_Id' },
      },
    },
  })
  await api.sql(`insert into shelf (name, secret) values ('left', 'canary'), ('right', 'canary')`)
  const { call } = await api.user([
    { collection: 'book', action: 'read', fields: ['id', 'title', 'shelf.name'], conditions: { price: { lt: 50 } } },
    { collection: 'shelf', action: 'read', fields: ['name'], conditions: { name: { ne: 'right' } } },
  ])
  member = call
})

const cursor = async () => encodeCursor(cursorAt((await api.sql(`select ${momentSql} as s`))[0].s))

const time = async () =>
  (await api.sql(`select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as t`))[0].t

const path = (at: string, parameters: Readonly<Record<string, unknown>>, asOf?: string) =>
  `/items/${at}?${new URLSearchParams([
    ...Object.entries(parameters).map(([key, value]): [string, string] => [
      key,
      typeof value === 'string' ? value : JSON.stringify(value),
    ]),
    ...(asOf === undefined ? [] : [['asOf', asOf] satisfies [string, string]]),
  ])}`

const reads: readonly Readonly<Record<string, unknown>>[] = [
  { fields: ['*', 'shelf.*'], sort: 'id' },
  { fields: ['id', 'title'], filter: { 'shelf.name': 'left' }, sort: '-title,id', limit: 3, page: 2 },
  { fields: ['id'], sort: 'shelf.name,id', cursor: '', limit: 4, paranoid: 'false' },
  {
    groupBy: 'shelf.name',
    aggregate: { n: { function: 'count', field: '*' }, sum: { function: 'sum', field: 'price' } },
  },
  { search: 'a', fields: 'id', sort: 'id', limit: -1 },
]

const reports = [
  { groupBy: ['shelf.name'], aggregate: { sum: { function: 'sum', field: 'price' } }, sort: ['-sum'], limit: 1 },
  { groupBy: ['title'], aggregate: { shelves: { function: 'array_agg', field: 'shelf.name' } } },
  { fields: ['id', 'shelf.name'], filter: { price: { gt: 2 } } },
]

const edits = fc.array(
  fc.record({
    kind: fc.constantFrom('create', 'update', 'delete', 'purge', 'rekey', 'shelf', 'unshelve'),
    pick: fc.nat(30),
    title: fc.option(fc.constantFrom('a', 'b"\\', 'ab c')),
    price: fc.constantFrom('1.10', '49.9', '70'),
  }),
  { minLength: 1, maxLength: 12 },
)

type Edit = typeof edits extends fc.Arbitrary<(infer E)[]> ? E : never

const some = (pick: number, table = 'book') =>
  `(select id from ${table} order by md5(id::text) offset ${pick} % greatest(1, (select count(*) from ${table})) limit 1)`

const statements: Readonly<Record<Edit['kind'], (edit: Edit) => string>> = {
  create: ({ pick }) =>
    `insert into book (title, price, bought, tags, facts, "shelf_Id") values ($1, $2, now() - interval '${pick} days 1 microsecond', array['x', null], '{"a": [1, 2.50]}', ${some(pick, 'shelf')})`,
  update: ({ pick }) => `update book set title = $1, price = $2 where id = ${some(pick)}`,
  delete: ({ pick }) => `update book set title = $1, price = $2, "deletedAt" = now() where id = ${some(pick)}`,
  purge: ({ pick }) =>
    `delete from book where id = ${some(pick)} and title is distinct from $1 and price <> $2::numeric`,
  rekey: ({ pick }) => `update book set id = 1000 + id, title = $1, price = $2 where id = ${some(pick)}`,
  shelf: ({ pick }) => `update shelf set name = coalesce($1, name) || left($2, 0) where id = ${some(pick, 'shelf')}`,
  unshelve: ({ pick }) => `update book set "shelf_Id" = null, title = $1, price = $2 where id = ${some(pick)}`,
}

const edit = (each: Edit) => api.sql(statements[each.kind](each), [each.title, each.price])

describe('asOf', () => {
  it('answers what was answered then, byte for byte, whatever has happened since', async () => {
    await fc.assert(
      fc.asyncProperty(edits, edits, async (before, after) => {
        for (const each of before) await edit(each)
        const points = [await cursor(), await time()]
        // One after the other: all at once are more heavy work than a slow machine lets wait.
        const ask = async (asOf?: string) => {
          const answers: { status: number; text: string }[] = []
          const note = ({ status, text }: Awaited<ReturnType<typeof member>>) => answers.push({ status, text })
          for (const call of [api.admin, member])
            for (const read of reads) note(await call('GET', path('book', read, asOf)))
          for (const report of reports) note(await api.admin('POST', '/reports/book', { ...report, asOf }))
          return answers
        }
        const then = await ask()
        expect(then.filter(({ status }) => status === 200).length).toBeGreaterThan(6)
        for (const each of after) await edit(each)
        for (const point of points) expect(await ask(point)).toEqual(then)
      }),
      { numRuns: 12 },
    )
  })

  it('sees neither what was uncommitted then nor what a transaction did twice', async () => {
    const [{ id }] = await api.sql(`insert into book (title) values ('first') returning id`)
    const client = new pg.Client({ connectionString: api.database.url })
    await client.connect()
    await client.query('begin')
    await client.query(`update book set title = 'second' where id = $1`, [id])
    const open = await cursor()
    await client.query(`update book set title = 'third' where id = $1`, [id])
    await client.query('commit')
    await client.end()
    const title = async (asOf?: string) =>
      (await api.admin('GET', path(`book/${id}`, { fields: 'title' }, asOf))).body.data.title
    expect([await title(open), await title(await cursor()), await title()]).toEqual(['first', 'third', 'third'])
  })

  it('reads one item: as it was, not before it was there, and after it was deleted', async () => {
    const none = await cursor()
    const { id } = (await api.admin('POST', '/items/book', { title: 'a', price: '10' })).body.data
    const made = await time()
    await api.sql('delete from book where id = $1', [id])
    const at = (asOf: string, call = api.admin) => call('GET', path(`book/${id}`, { fields: 'title' }, asOf))
    expect((await at(none)).status).toBe(403)
    expect((await at(await cursor())).status).toBe(403)
    expect((await at(made)).body).toEqual({ data: { title: 'a' } })
    expect((await at(made)).headers.etag).toMatch(/^"[\w-]+"$/)
    expect((await at(made, member)).body).toEqual({ data: { title: 'a' } })
  })

  it('applies today’s grants to the rows of then', async () => {
    const [{ id }] = await api.sql(`insert into book (title, price) values ('dear', 70) returning id`)
    const dear = await cursor()
    await api.sql('update book set price = 1 where id = $1', [id])
    expect((await member('GET', `/items/book/${id}?fields=id`)).status).toBe(200)
    expect((await member('GET', path(`book/${id}`, { fields: 'id' }, dear))).status).toBe(403)
    expect((await member('GET', path('book', { fields: 'price' }, dear))).status).toBe(403)
    expect((await api.admin('GET', path('shelf', { fields: 'secret' }, dear))).status).toBe(403)
    expect((await api.admin('GET', path('shelf', {}, dear))).text).not.toContain('canary')
  })

  it.each([
    ['yesterday', 400],
    ['2024-13-01', 400],
    ['2024-02-30', 400],
    ['2024-02-10T25:00:00Z', 400],
    ['3000-01-01T00:00:00Z', 400],
    [encodeCursor({ kind: 'event', snapshot: '900:900:', upTo: '901:901:', position: '1' }), 400],
    [encodeCursor({ kind: 'snapshot', snapshot: '900:900:', upTo: '901:901:', position: '1' }), 400],
    [encodeCursor(cursorAt('900:900:')), 410],
    [`' or true --`, 400],
  ])('refuses %s', async (asOf, status) => {
    expect((await api.admin('GET', path('book', {}, asOf))).status).toBe(status)
  })

  it('refuses a moment that has yet to come', async () => {
    const future = encodeCursor({ ...parseCursor(await cursor()), snapshot: '99999999999:99999999999:' })
    expect((await api.admin('GET', path('book', {}, future))).status).toBe(400)
  })

  it('refuses collections that keep no history', async () => {
    const { status, body } = await api.admin('GET', path('svc_AuditLog', {}, await time()))
    expect({ status, details: body.error.details }).toEqual({
      status: 400,
      details: 'asOf: svc_AuditLog has no history',
    })
  })

  it('takes as long as what has changed since: the newer events by index, the rest of the table by its own', async () => {
    await api.sql(
      `insert into book (id, title, price) select (select max(id) from book) + n, 'n' || n, 1 from generate_series(1, 5000) n`,
    )
    await api.sql('analyze book')
    await api.sql('analyze "svc_AuditLog"')
    const point = await cursor()
    const [{ id }] = await api.sql(`update book set title = 'x' where title = 'n77' returning id`)
    const plan = resolveOne(
      api.runtime.catalog.current(),
      adminAccess,
      'book',
      String(id),
      parseListQuery({ asOf: point }),
      resolveEnv(api.runtime),
    )
    const { text, values } = compileOne(plan)
    const explained = (await api.sql(`explain (format json, analyze) ${text}`, [...values]))[0]['QUERY PLAN']
    const read = JSON.stringify(explained)
    expect(read).toMatch(/"Index Name":"book_pkey"/)
    expect(read).toMatch(/"Index Name":"svc_AuditLog\w*_xid_idx"/)
    expect(read).not.toMatch(/"Seq Scan"[^}]*"Relation Name":"book"/)
  })

  it('answers 410 with the oldest moment for what the log no longer holds', async () => {
    const early = { cursor: await cursor(), time: await time() }
    await api.sql(`insert into book (title) values ('kept')`)
    // In whole milliseconds, and after the event even where both fall into one.
    const boundary = new Date(Date.parse(await time()) + 1)
    const expired = await expireEvents(
      { query: async (text, values) => ({ rows: await api.sql(text, values) }) },
      boundary,
    )
    expect(expired.deleted).toBeGreaterThan(0)
    for (const asOf of [early.cursor, early.time]) {
      const { status, body } = await api.admin('GET', path('book', {}, asOf))
      expect({ status, code: body.error.code }).toEqual({ status: 410, code: 'HISTORY_GONE' })
      const { oldest } = body.error.details
      expect(oldest > early.time && oldest <= boundary.toISOString()).toBe(true)
      expect((await api.admin('GET', path('book', {}, oldest))).status).toBe(200)
    }
    // A transaction of another database of the server may be older than what was removed: until it ends, so is every cursor.
    await waitFor(async () => (await api.admin('GET', path('book', {}, await cursor()))).status === 200)
  })
})

describe('a collection that is made again under the name of a dropped one', () => {
  const define = async (fields: object) => {
    const made = await api.admin('POST', '/schemas', {
      collectionName: 'phoenix',
      schema: { fields: { id: { type: 'Integer', primaryKey: true }, ...fields } },
    })
    expect(made.status, made.text).toBe(201)
  }
  const events = async () =>
    (await api.sql(`select count(*)::int as n from "svc_AuditLog" where entity = 'phoenix'`))[0].n
  const requestOf = ({ headers }: { headers: Record<string, unknown> }) =>
    headers['x-log-request-id'] ?? headers['x-request-id']

  it('begins with an empty past, and the log keeps the old one', async () => {
    await define({ secret: { type: 'String' }, n: { type: 'Text' } })
    for (const id of [1, 2, 3]) await api.admin('POST', '/items/phoenix', { id, secret: 'canary', n: 'abc' })
    const before = await cursor()
    const { body: since } = await api.admin('GET', '/changes')
    const deletion = await api.admin('DELETE', '/items/phoenix/1')
    await api.admin('PATCH', '/items/phoenix/2', { secret: 'canary 2' })
    const old = await api.sql(
      `select id::text, action, "entityId" as item from "svc_AuditLog" where entity = 'phoenix' order by position`,
    )
    const dropped = await api.admin('DELETE', '/schemas/phoenix')
    expect(dropped.status, dropped.text).toBe(200)
    await define({ secret: { type: 'String' }, n: { type: 'Integer' } })
    const [empty, emptyAt] = [await cursor(), await time()]

    const everywhere = async () => {
      const answers = [
        await api.admin('GET', path('phoenix', { sort: 'id' }, before)),
        await api.admin('GET', '/items/phoenix/deleted'),
        await api.admin('GET', path('phoenix', { sort: 'id' }, empty)),
        await api.admin('GET', path('phoenix', { sort: 'id' }, emptyAt)),
      ]
      expect(answers.map(({ status, text }) => (status === 200 ? 200 : text))).toEqual([200, 200, 200, 200])
      return answers.map(({ body }) => body.data)
    }
    expect(await everywhere()).toEqual([[], [], [], []])
    expect((await api.admin('GET', '/items/phoenix/1/history')).status).toBe(403)
    for (const id of [1, 2]) {
      const event = old.findLast(({ item }) => item === String(id))!.id
      expect((await api.admin('POST', `/items/phoenix/${id}/restore`, { before: event })).status).toBe(403)
    }
    const undone = await api.admin('POST', '/log/undo', { requestId: requestOf(deletion), dryRun: true })
    expect(undone.body.data, undone.text).toMatchObject({
      rows: [],
      notUndone: [{ collection: 'phoenix', rows: 1, reason: 'dropped' }],
    })
    const refused = await api.admin('POST', '/log/undo', { requestId: requestOf(deletion) })
    expect(refused.body.error.code, refused.text).toBe('NOTHING_TO_UNDO')

    // An old key again: its past is that of the new row.
    await api.admin('POST', '/items/phoenix', { id: 1, n: 5 })
    const made = await cursor()
    const changed = await api.admin('PATCH', '/schemas/phoenix', { schema: { fields: { more: { type: 'String' } } } })
    expect(changed.status, changed.text).toBe(200)
    const deleted = await api.admin('DELETE', '/items/phoenix/1')
    expect(await everywhere()).toMatchObject([[], [{ id: 1, item: { id: 1, n: 5 } }], [], []])
    expect((await api.admin('GET', path('phoenix', {}, made))).body.data).toMatchObject([{ id: 1, n: 5 }])
    const { body: history } = await api.admin('GET', '/items/phoenix/1/history')
    expect(history.data.map(({ action }: { action: string }) => action)).toEqual(['delete', 'create'])
    expect((await api.admin('POST', '/log/undo', { requestId: requestOf(deleted) })).status).toBe(200)
    expect(await api.sql('select id, n, secret from phoenix')).toEqual([{ id: 1, n: 5, secret: null }])

    expect(await events()).toBe(old.length + 3)
    const log = await api.admin('GET', `/items/svc_AuditLog?filter=${JSON.stringify({ entity: 'phoenix' })}&count=true`)
    expect(log.body.totalCount).toBe(old.length + 3)
    const { body: changes } = await api.admin(
      'GET',
      `/changes?collections=phoenix&since=${encodeURIComponent(since.cursor)}`,
    )
    expect(changes.data.map(({ action, id }: { action: string; id: number }) => [action, id])).toEqual([
      ['create', 1],
      ['delete', 1],
      ['create', 1],
    ])
    expect(changes.resync).toContain('phoenix')
  })
})
