import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { compilePage } from '../../src/query/compile.ts'
import { parseListQuery } from '../../src/query/parse.ts'
import { resolveEnv, resolveList } from '../../src/query/resolve.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { admin as adminAccess } from '../unit/query/support/access.ts'

/** Pages by cursor: `cursor` and `nextCursor` (docs/query-language.md). */

let api: Api
let member: Call

const rows = 60

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', {
    collectionName: 'shelf',
    schema: { fields: { name: { type: 'String' }, rank: { type: 'Integer' } } },
  })
  await api.admin('POST', '/schemas', {
    collectionName: 'book',
    schema: {
      fields: {
        id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } },
        title: { type: 'String' },
        rank: { type: 'Integer' },
        weight: { type: 'Double' },
        price: { type: 'Decimal', values: { precision: 12, scale: 2 } },
        lent: { type: 'Boolean' },
        bought: { type: 'DateTime' },
        code: { type: 'UUID', allowNull: false, defaultValue: { type: 'UUIDV4' } },
        tags: { type: 'Array_String' },
        kept: { type: 'Boolean', defaultValue: true },
        shelf: { relType: 'BelongsTo', target: 'shelf', foreignKey: 'shelf_Id' },
      },
      indexes: [{ fields: ['rank', 'id'] }, { fields: ['title'] }],
    },
  })
  await api.sql(`insert into shelf (name, rank) values ('left', 1), ('middle', null), ('right', 3)`)
  // Few values each, so that there are many ties, and nulls in all; microseconds, which no answer shows.
  await api.sql(
    `insert into book (title, rank, weight, price, lent, bought, tags, kept, "shelf_Id")
     select nullif(chr(97 + n % 4), 'd'), nullif(n % 5, 0), nullif(n % 3, 0) / 3.0, nullif(n % 7, 0) * 1.1, nullif(n % 3, 0) = 1,
            case when n % 4 > 0 then timestamptz '2024-01-01' + (n % 4) * interval '1 microsecond' end,
            case when n % 3 > 0 then array[chr(97 + n % 5), null] end, n % 10 <> 0,
            (select id from shelf where name = (array['left', 'middle', 'right'])[n % 4])
     from generate_series(1, $1) n`,
    [rows],
  )
  const { call } = await api.user([
    {
      collection: 'book',
      action: 'read',
      fields: ['id', 'title', 'rank', 'shelf', 'shelf.name'],
      conditions: { kept: true },
    },
    { collection: 'shelf', action: 'read', fields: ['name'], conditions: { name: { ne: 'right' } } },
  ])
  member = call
})

type Page = Parameters<typeof compilePage>[0]
type Asked = Readonly<Record<string, unknown>>

const path = (collection: string, parameters: Asked) =>
  `/items/${collection}?${new URLSearchParams(
    Object.entries(parameters).map(([key, value]): [string, string] => [
      key,
      typeof value === 'string' ? value : JSON.stringify(value),
    ]),
  )}`

/** The ids of every page, one after the other. `between` runs after each page. */
async function walk(call: Call, parameters: Asked, between: () => Promise<unknown> = async () => {}) {
  const ids: number[] = []
  for (let cursor: string | null = ''; cursor !== null; ) {
    const { status, body, text } = await call('GET', path('book', { ...parameters, fields: 'id', cursor }))
    if (status !== 200) throw new Error(text)
    ids.push(...body.data.map((row: { id: number }) => row.id))
    if (body.nextCursor !== null) expect(body.data).toHaveLength(Number(parameters.limit))
    cursor = body.nextCursor
    await between()
  }
  return ids
}

const whole = async (call: Call, parameters: Asked): Promise<number[]> => {
  const { body } = await call('GET', path('book', { ...parameters, fields: 'id', limit: 1000 }))
  return body.data.map((row: { id: number }) => row.id)
}

const keys = ['id', 'title', 'rank', 'weight', 'price', 'lent', 'bought', 'code', 'tags', 'shelf.name', 'shelf.rank']
const sorts = fc
  .uniqueArray(fc.record({ key: fc.constantFrom(...keys), sign: fc.constantFrom('', '-') }), {
    maxLength: 3,
    selector: ({ key }) => key,
  })
  .map((terms) => terms.map(({ key, sign }) => sign + key).join(','))

describe('pages by cursor', () => {
  it('are the whole list in its order, for every sort', async () => {
    const limits = fc.integer({ min: 7, max: 40 })
    await fc.assert(
      fc.asyncProperty(sorts, limits, async (sort, limit) => {
        const list = await whole(api.admin, { sort })
        expect(list).toHaveLength(rows)
        expect(await walk(api.admin, { sort, limit })).toEqual(list)
      }),
      { numRuns: 40 },
    )
  })

  it.each(['rank,title', '-rank,title', 'rank', '-rank', 'shelf.rank,-title', '-shelf.rank,bought', '-shelf.name'])(
    'one row at a time by %s',
    async (sort) => {
      expect(await walk(api.admin, { sort, limit: 1 })).toEqual(await whole(api.admin, { sort }))
    },
  )

  it.each(['comments', 'search'])('keep filter and search (%s)', async (kind) => {
    const more = kind === 'search' ? { search: 'b', searchFields: 'title' } : { filter: { 'shelf.name': 'left' } }
    const list = await whole(api.admin, { sort: '-rank', ...more })
    expect(list).toHaveLength(15)
    expect(await walk(api.admin, { sort: '-rank', limit: 4, ...more })).toEqual(list)
  })

  it('show what the caller may read, also by what relations hide', async () => {
    const list = await whole(member, { sort: 'shelf.name,-rank' })
    expect(list).toHaveLength(54)
    expect(await walk(member, { sort: 'shelf.name,-rank', limit: 5 })).toEqual(list)
  })

  it('neither skip nor repeat a row while others come and go', async () => {
    const before = await whole(api.admin, { sort: 'title,-rank' })
    const added: number[] = []
    const ids = await walk(api.admin, { sort: 'title,-rank', limit: 6 }, async () => {
      if (added.length > 0) await api.sql('delete from book where id = $1', [added.shift()])
      for (const title of ['a', null]) {
        const [row] = await api.sql('insert into book (title, rank) values ($1, 2) returning id', [title])
        added.push(row.id)
      }
      if (added.length > 40) throw new Error('the pages do not end')
    })
    const old = new Set(before)
    expect(ids.filter((id) => old.has(id))).toEqual(before)
    expect(new Set(ids).size).toBe(ids.length)
    await api.sql('delete from book where id > $1', [rows])
  })

  it('are filtered, counted or not', async () => {
    for (const count of ['true', 'false']) {
      const filter = encodeURIComponent(JSON.stringify({ rank: 1, title: 'a' }))
      const { status, body } = await api.admin('GET', `/items/book?filter=${filter}&count=${count}&limit=2&cursor=`)
      expect(status).toBe(200)
      expect(body.data.every(({ rank, title }: { rank: number; title: string }) => rank === 1 && title === 'a')).toBe(
        true,
      )
      expect(typeof body.totalCount).toBe(count === 'true' ? 'number' : 'undefined')
    }
  })

  it('come with the total, ten at a time where no limit is given, and end with null', async () => {
    const { body } = await api.admin('GET', '/items/book?cursor=&fields=id')
    expect(body).toEqual({ data: expect.any(Array), totalCount: rows, nextCursor: expect.any(String) })
    expect(body.data).toHaveLength(10)
    const end = await api.admin('GET', '/items/book?cursor=&limit=60&count=false')
    expect(end.body).toEqual({ data: expect.any(Array), nextCursor: null })
    const none = await api.admin('GET', path('book', { cursor: '', filter: { title: 'zzz' } }))
    expect(none.body).toEqual({ data: [], totalCount: 0, nextCursor: null })
    expect((await api.admin('GET', '/items/book?limit=2')).body).not.toHaveProperty('nextCursor')
  })
})

describe('a cursor is refused', () => {
  const cursorOf = async (parameters: Asked, collection = 'book'): Promise<string> =>
    (await api.admin('GET', path(collection, { limit: 2, cursor: '', ...parameters }))).body.nextCursor
  const forged = (content: unknown) => Buffer.from(JSON.stringify(content)).toString('base64url')
  const refused = async (parameters: Asked, words: string) =>
    expect(await api.admin('GET', path('book', parameters))).toMatchObject({
      status: 400,
      body: { error: { message: 'Invalid query parameters', details: expect.stringContaining(words) } },
    })

  it('of another sort, direction or collection', async () => {
    const cursor = await cursorOf({ sort: 'rank' })
    for (const sort of ['-rank', 'title', 'rank,-id', 'shelf.rank'])
      await refused({ sort, cursor }, 'cursor: belongs to another')
    await refused({ cursor: await cursorOf({}, 'shelf') }, 'cursor: belongs to another')
  })

  it('with page, offset, groups, distance or a limit that is no page', async () => {
    await refused({ cursor: '', page: 2 }, 'page or offset')
    await refused({ cursor: '', offset: 0 }, 'page or offset')
    await refused({ cursor: '', aggregate: { n: { function: 'count' } }, groupBy: 'title' }, 'sorted by fields')
    await refused({ cursor: '', search: 'a', sortByRelevance: 'true' }, 'sorted by fields')
    for (const limit of [-1, 0, 1001]) await refused({ cursor: '', limit }, 'limit must be 1 to 1000')
  })

  it('made up: harmless where it has the form, 400 where it has not', async () => {
    const of = 'book: rank asc, id asc'
    const made = (after: unknown, more = {}) => ({ sort: 'rank', cursor: forged({ v: 1, of, after, ...more }) })
    const malformed = [
      { sort: 'rank', cursor: 'nonsense' },
      { sort: 'rank', cursor: 'x'.repeat(7000) },
      made(['1', '1'], { v: 2 }),
      made(['1']),
      made([1, 1]),
      made([{ value: 1 }, '1']),
      made(['\0', '1']),
    ]
    for (const parameters of malformed) await refused(parameters, 'cursor: malformed')
    for (const after of [
      ['1) or (1=1', '1'],
      ['1e99', '1'],
      ['', '1'],
    ])
      expect((await api.admin('GET', path('book', made(after)))).status).toBe(400)
    const list = await whole(api.admin, { sort: 'rank' })
    const behind = async (after: unknown) =>
      (await api.admin('GET', path('book', { ...made(after), fields: 'id', limit: 1000 }))).body.data
    expect(await behind(['-7', '0'])).toHaveLength(list.length)
    expect(await behind([null, '0'])).toHaveLength(12)
    expect(await behind([null, null])).toEqual([])
  })

  it('where a sort value would not fit a query string', async () => {
    const [{ id }] = await api.sql('insert into book (title) values ($1) returning id', [`A${'x'.repeat(5000)}`])
    await refused({ sort: 'title', cursor: '', limit: 1 }, 'too long for a cursor')
    expect((await api.admin('GET', path('book', { sort: 'title', limit: 1 }))).status).toBe(200)
    await api.sql('delete from book where id = $1', [id])
  })

  it('nowhere else: a single item ignores it', async () => {
    expect((await api.admin('GET', '/items/book/1?cursor=nonsense&fields=id')).body).toEqual({ data: { id: 1 } })
  })
})

describe('the plan of a page', () => {
  /** Rows that the scans of a plan touch. */
  const touched = (node: any): number =>
    (node['Relation Name'] === 'big'
      ? (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops']
      : 0) + (node.Plans ?? []).reduce((sum: number, child: unknown) => sum + touched(child), 0)

  beforeAll(async () => {
    await api.admin('POST', '/schemas', {
      collectionName: 'big',
      schema: {
        fields: {
          id: { type: 'Integer', primaryKey: true },
          rank: { type: 'Integer' },
          place: { type: 'Integer', allowNull: false },
        },
        indexes: [{ fields: ['rank', 'id'] }, { fields: ['place', 'id'] }],
      },
    })
    await api.sql(
      'insert into big (id, rank, place) select n, case when n % 4 > 0 then n / 4 end, n / 3 from generate_series(1, 20000) n',
    )
    await api.sql('analyze big')
  })

  it.each(['rank', '-rank', 'place', '-place', '-place,id', 'id'])(
    'by %s reads its rows from an index',
    async (sort) => {
      for (let page = 0, cursor = ''; page < 3; page += 1) {
        const query = parseListQuery({ sort, limit: 20, cursor, count: 'false' })
        const plan = resolveList(api.runtime.catalog.current(), adminAccess, 'big', query, resolveEnv(api.runtime))
        const { text, values } = compilePage(plan as Page)
        const [row] = await api.sql(`explain (analyze, format json) ${text}`, [...values])
        expect(touched(row['QUERY PLAN'][0].Plan)).toBeLessThan(150)
        const far = { id: '15000', place: '5000', rank: page === 1 ? '3700' : null }
        const terms = [...new Set([...sort.split(',').map((term) => term.replace('-', '')), 'id'])]
        const direction = (i: number) =>
          sort.split(',')[Math.min(i, sort.split(',').length - 1)]!.startsWith('-') ? 'desc' : 'asc'
        const of = `big: ${terms.map((term, i) => `${term} ${direction(i)}`).join(', ')}`
        const after = terms.map((term) => far[term as keyof typeof far])
        cursor = Buffer.from(JSON.stringify({ v: 1, of, after })).toString('base64url')
      }
    },
  )
})
