import fc from 'fast-check'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { AppError } from '../../src/errors.ts'
import type { Access } from '../../src/query/access.ts'
import {
  compileCondition,
  compileCount,
  compileList,
  compileListUpTo,
  compileOne,
  compileStream,
} from '../../src/query/compile.ts'
import { parseListQuery } from '../../src/query/parse.ts'
import { type Plan, resolveCondition, resolveOne } from '../../src/query/resolve.ts'
import { createParams, type Statement } from '../../src/query/sql.ts'
import { createEmptyDatabase } from '../support/postgres.ts'
import { admin, env, role, T1, T2, U1, U2 } from '../unit/query/support/access.ts'
import { catalog } from '../unit/query/support/catalog.ts'
import { type Asked, planOf } from '../unit/query/support/compiled.ts'
import { librarySql } from '../unit/query/support/library.ts'
import { hostileQueries } from '../unit/query/support/queries.ts'
import { representative } from '../unit/query/support/representative.ts'

let client: pg.Client

beforeAll(async () => {
  const { url } = await createEmptyDatabase()
  client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(librarySql)
})

afterAll(() => client.end())

type Row = Record<string, unknown>

const run = async ({ text, values }: Statement): Promise<Row[]> => (await client.query(text, [...values])).rows

async function readPlan(plan: Plan): Promise<{ data: Row[]; total: string | null }> {
  const [row] = (await run(compileList(plan))) as { data: string; total: string | null }[]
  return { data: JSON.parse(row!.data), total: row!.total }
}

const read = (asked: Asked) => readPlan(planOf(asked))

/** Ids of the notes that a filter finds. */
async function found(filter: unknown, more: Omit<Asked, 'query'> = {}): Promise<unknown[]> {
  const { data } = await read({ ...more, query: { fields: ['id'], filter } })
  return data.map(({ id }) => id)
}

describe('every representative plan', () => {
  const runnable = Object.entries(representative).filter(([, { collection }]) => collection !== 'places')

  it.each(runnable)('%s runs, and its stream and count agree with its list', async (_, asked) => {
    const plan = planOf(asked)
    const { data, total } = await readPlan(plan)
    const stream = await run(compileStream(plan))
    expect(stream.map((row) => JSON.parse(row.data as string))).toEqual(data)
    const [counted] = await run(compileCount(plan))
    if (total !== null) expect(counted!.total).toBe(total)
    const [upTo] = await run(compileListUpTo(plan, 1000))
    expect([JSON.parse(upTo!.data as string), upTo!.total]).toEqual([data, total])
    // Of groups all are counted, of rows only those that the page has.
    if (plan.limit === undefined && data.length > 0) {
      expect((await run(compileListUpTo(plan, data.length - 1)))[0]).toMatchObject({ data: null })
    }
  })
})

describe('the forms of values', () => {
  it('are those of docs/query-language.md', async () => {
    const { data } = await read({ query: { filter: { id: 1 } } })
    expect(data[0]).toMatchObject({
      id: 1,
      views: '9007199254740993',
      price: '10.50',
      rating: 1.5,
      weight: 0.1,
      pinned: true,
      due: '2024-05-01',
      published: '2024-05-01T21:30:00.123Z',
      local: '2024-05-01T10:00:00.000Z',
      alarm: '08:30:00',
      meta: { k: 1, s: 'x', n: null, list: [1, 2, 3], deep: { a: { b: 7 } } },
      tags: ['red', 'green'],
      amounts: ['1.10', '2.20'],
      moments: ['2024-01-01T00:00:00.000Z', '2024-01-02T00:00:00.500Z'],
      pages: { lower: 1, upper: 5, lowerInclusive: true, upperInclusive: false },
      prices: { lower: '1.10', upper: '2.20', lowerInclusive: true, upperInclusive: true },
      share: { lower: 0.5, upper: 1.5, lowerInclusive: true, upperInclusive: false },
      period: { lower: '2024-01-01T00:00:00.000Z', upper: '2024-02-01T00:00:00.000Z' },
      code: '00000000-0000-4000-8000-0000000000b1',
    })
    expect(data[0]).not.toHaveProperty('secret')
  })

  it('do not depend on the session', async () => {
    const expected = await read({})
    await client.query(`set timezone = 'Asia/Tokyo'; set datestyle = 'German, DMY'; set intervalstyle = 'iso_8601'`)
    const actual = await read({})
    await client.query('reset all')
    expect(actual).toEqual(expected)
  })

  it('are null, numbers and empty lists where there is nothing', async () => {
    const { data } = await read({ query: { fields: ['*', 'owner', 'comments', 'blocks'], filter: { id: 3 } } })
    expect(data[0]).toMatchObject({ views: null, amounts: null, period: null, owner: null, comments: [], blocks: [] })
    const [two] = (await read({ query: { fields: ['views', 'tags'], filter: { id: 2 } } })).data
    expect(two).toEqual({ views: 42, tags: [] })
  })

  it('of no columns are empty objects', async () => {
    expect((await read({ collection: 'labels', query: { fields: ['-id', '-name'] } })).data).toEqual([{}, {}])
  })
})

describe('filters find', () => {
  it.each<[unknown, number[]]>([
    [{ title: { contains: '100%' } }, [1]],
    [{ title: { like: '_t' } }, [2]],
    [{ title: { startsWith: 'alp' } }, [1]],
    [{ title: { startsWiths: 'alp' } }, []],
    [{ title: { nendsWith: 'TWO' } }, [1, 3]],
    [{ title: { regex: '^(A|G)' } }, [1, 3]],
    [{ body: { ne: 'x' } }, [1, 2]],
    [{ body: { empty: true } }, [3]],
    [{ body: { empty: false } }, [1, 2]],
    [{ meta: { empty: true } }, [3]],
    [{ pages: { empty: true } }, [3]],
    [{ stars: { in: [5, null, 3] } }, [1, 2]],
    [{ stars: { in: [] } }, []],
    [{ stars: { in: 'x' } }, []],
    [{ stars: { notIn: [] } }, [1, 2, 3]],
    [{ stars: { notIn: [5] } }, [2]],
    [{ stars: { notBetween: [4, 9] } }, [2]],
    [{ views: '9007199254740993' }, [1]],
    [{ views: { lt: 43 } }, [2]],
    [{ price: 10.5 }, [1]],
    [{ weight: 0.1 }, [1]],
    [{ pinned: { is: null } }, [3]],
    [{ pinned: 'false' }, [2]],
    [{ due: { lt: '2024-05-02T05:00:00Z' } }, [1]],
    [{ published: { gte: '2024-05-01T21:30:00Z', lt: '2024-05-02' } }, [1]],
    [{ published: { lt: '$NOW-DAYS_8' } }, [1, 2]],
    [{ published: { eq: '2024-05-01', cast: 'date' } }, [1]],
    [{ alarm: { gt: '08:45' } }, [2]],
    [{ tags: { arraycontains: [] } }, [1, 2]],
    [{ tags: { arraycontains: 'red' } }, [1]],
    [{ tags: { arraycontained: ['red', 'green'] } }, [1, 2]],
    [{ tags: { overlaps: ['green', 'blue'] } }, [1]],
    [{ tags: { arraylength: { op: 'lt', value: 1 } } }, [2]],
    [{ tags: { arrayempty: true } }, [2, 3]],
    [{ moments: { arraycontains: '2024-01-02T00:00:00.5Z' } }, [1]],
    [{ pages: { arraycontains: 3 } }, [1, 2]],
    [{ pages: { overlaps: { lower: 7, upper: 8 } } }, [2]],
    [{ period: { arraycontained: { lower: '2023-01-01', upper: '2025-01-01' } } }, [1]],
    [{ meta: { jsonbContains: { list: [3] } } }, [1]],
    [{ meta: { jsonbHasAllKeys: ['k', 's'] } }, [1]],
    [{ meta: { jsonbPathExists: '$.list[*] ? (@ > 2)' } }, [1]],
    [{ meta: { jsonbPathMatch: '$.k == 2' } }, [2]],
    [{ meta: { jsonbKeyEquals: { key: 'n', value: null } } }, [1, 2, 3]],
    [{ meta: { jsonbKeyNotEquals: { key: 's', value: 'x' } } }, [2, 3]],
    [{ meta: { jsonbKeyGt: { key: 'k', value: 1 } } }, [2]],
    [{ meta: { jsonbKeyGt: { key: 's', value: 1 } } }, []],
    [{ meta: { jsonbKeyNotIn: { key: 'k', values: [2] } } }, [1, 3]],
    [{ meta: { jsonbKeyLike: { key: 's', pattern: 'X%' } } }, [1]],
    [{ meta: { jsonbArrayLength: { path: 'list', op: 'gte', value: 0 } } }, [1, 2]],
    [{ meta: { jsonbArrayLength: { value: 0 } } }, []],
    [{ meta: { jsonbTypeOf: { path: 'deep.a', type: 'object' } } }, [1]],
    [{ meta: { jsonbDeepValue: { path: ['deep', 'a', 'b'], op: 'gt', value: 6 } } }, [1]],
    [{ meta: { jsonbDeepValue: { path: ['list', 1], value: 2 } } }, [1]],
    [{ title: { ne: '$COL(owner.name)' } }, [1, 2]],
    [{ stars: { lt: '$COL(comments.likes)' } }, [1, 2]],
    [{ 'comments.likes': { gt: '$COL(stars)' } }, [1, 2]],
    [{ 'owner.team.name': 'red' }, [1]],
    [{ 'owner.name': { ne: 'Ann' } }, [2]],
    [{ NOT: { 'owner.name': 'Ann' } }, [2, 3]],
    [{ owner: null }, [3]],
    [{ 'owner.team.name': null }, [3]],
    [{ 'comments.id': null }, [3]],
    [{ 'comments.text': { empty: true } }, [3]],
    [{ 'comments.likes': { gt: 8 } }, [1]],
    [{ comments: { likes: { gte: 7 }, 'author.name': 'Ann' } }, [2]],
    [{ 'labels.name': 'later' }, [1, 2]],
    [{ 'blocks.images.url': { isNotNull: true } }, [1]],
    [{ 'blocks.quotes.words': 'Carpe diem' }, [1, 2]],
    [{ owner_Id: '$CURRENT_USER' }, [1]],
    [{ owner_Id: '$CURRENT_TENANT' }, []],
    [{ NOT: { owner_Id: '$CURRENT_TENANT' } }, []],
    [{ AND: [{ stars: 5 }], OR: [{ id: 1 }, { id: 2 }] }, [1]],
  ])('%j', async (filter, ids) => {
    expect(await found(filter)).toEqual(ids)
  })

  it('soft-deleted rows only when asked to', async () => {
    expect((await read({ query: { fields: ['id'], paranoid: false } })).data).toHaveLength(4)
    expect((await read({ query: { fields: ['id'], paranoid: false, filter: { 'comments.likes': 99 } } })).data).toEqual(
      [{ id: 2 }],
    )
  })
})

describe('nested rows', () => {
  it('carry their id and only what is asked for', async () => {
    const fields = 'id,owner.name,owner.profile.motto,category.parent.name,comments.text,labels,blocks.*.*'
    const { data } = await read({ query: { fields, filter: { id: 1 } } })
    const image = { id: '00000000-0000-4000-8000-0000000000b1', url: '/one.png' }
    const quote = { id: '00000000-0000-4000-8000-0000000000c1', words: 'Carpe diem' }
    expect(data).toEqual([
      {
        id: 1,
        owner: { id: U1, name: 'Ann', profile: { id: 1, motto: 'Onward' } },
        category: { id: 2, parent: { id: 1, name: 'News' } },
        comments: [
          { id: 1, text: 'first' },
          { id: 2, text: 'second' },
        ],
        labels: [
          { id: 1, name: 'urgent' },
          { id: 2, name: 'later' },
        ],
        blocks: [
          { id: 1, notes_id: 1, item_id: image.id, collection: 'images', images: image, quotes: null },
          { id: 2, notes_id: 1, item_id: quote.id, collection: 'quotes', images: null, quotes: quote },
        ],
      },
    ])
  })

  it('are ordered by hand where they can be, and restricted where named', async () => {
    const [news] = (await read({ collection: 'categories', query: { fields: ['children.name'], filter: { id: 1 } } }))
      .data
    expect(news).toEqual({
      children: [
        { id: 2, name: 'Local' },
        { id: 3, name: 'Sports' },
      ],
    })
    const { data } = await read({ query: { fields: ['blocks.images.url'], filter: { id: { lte: 2 } } } })
    expect(data.map(({ blocks }) => (blocks as Row[]).length)).toEqual([1, 0])
  })

  it('are filtered by relConditions without touching their parents', async () => {
    const relConditions = { comments: { likes: { gt: 5 }, author: { name: 'Bob' } } }
    const { data } = await read({ query: { fields: 'id,comments.text,comments.author.name', relConditions } })
    expect(data).toEqual([
      { id: 1, comments: [{ id: 1, text: 'first', author: { id: U2, name: 'Bob' } }] },
      { id: 2, comments: [{ id: 3, text: 'third', author: null }] },
      { id: 3, comments: [] },
    ])
  })
})

describe('sort and search', () => {
  it.each<[unknown, number[]]>([
    ['-stars', [3, 1, 2]],
    [{ 'owner.name': 'desc' }, [3, 2, 1]],
    ['comments.likes', [1, 2, 3]],
    ['-comments.likes', [3, 1, 2]],
    ['labels.name,-id', [2, 1, 3]],
  ])('by %j', async (sort, ids) => {
    const { data } = await read({ query: { fields: ['id'], sort } })
    expect(data.map(({ id }) => id)).toEqual(ids)
  })

  it.each<[string, string | undefined, number[]]>([
    ['quick fox', undefined, [1]],
    ['dog', undefined, [2]],
    ['la', undefined, [2]],
    ['ANN', 'owner.name', [1]],
    ['sec', 'comments.text', [1]],
    ['removed', 'comments.text', []],
    ['canary', undefined, [1, 2]],
    ['hidden', undefined, []],
    ['!!', undefined, []],
    [`'`, undefined, []],
  ])('for %j', async (search, searchFields, ids) => {
    const { data, total } = await read({
      query: { fields: ['id'], search, searchFields, sortByRelevance: true, sort: 'id' },
    })
    expect([data.map(({ id }) => id), total]).toEqual([ids, String(ids.length)])
  })

  it('ask PostgreSQL for no stem of a stop word, which it would answer by a notice for each row', async () => {
    const notices: unknown[] = []
    const note = (notice: unknown) => notices.push(notice)
    client.on('notice', note)
    for (const search of ['the', 'the quick', `don't AT&T`, `it's quick`])
      await read({ query: { fields: ['id'], search, sortByRelevance: true } })
    client.off('notice', note)
    expect(notices).toEqual([])
  })

  it('survive a text that is too long to index', async () => {
    const words = Array.from({ length: 200_000 }, (_, i) => `word${i}`).join(' ')
    await client.query('begin')
    await client.query('update notes set body = $1 where id = 3', [words])
    const { data } = await read({ query: { fields: ['id'], search: 'word7' } })
    await client.query('rollback')
    expect(data).toEqual([{ id: 3 }])
  })

  it('pages never overlap', async () => {
    const ids: unknown[] = []
    for (const page of [1, 2, 3, 4]) {
      const { data, total } = await read({ query: { fields: ['id'], sort: 'status', limit: 1, page } })
      ids.push(...data.map(({ id }) => id))
      expect(total).toBe('3')
    }
    expect(ids.sort()).toEqual([1, 2, 3])
  })
})

describe('aggregates', () => {
  const fn = (name: string, field: string) => ({ function: name, field })

  it('give numbers, and the usual forms for everything else', async () => {
    const aggregate = {
      n: fn('count', 'stars'),
      rows: fn('count', '*'),
      sum: fn('sum', 'price'),
      mean: fn('avg', 'price'),
      most: fn('max', 'price'),
      last: fn('max', 'published'),
      first: fn('min', 'due'),
      kinds: fn('distinct', 'status'),
      all: fn('array_agg', 'published'),
    }
    expect(await read({ query: { aggregate } })).toEqual({
      total: '1',
      data: [
        {
          n: 2,
          rows: 3,
          sum: 30.5,
          mean: 15.25,
          most: 20,
          last: '2024-05-02T10:00:00.000Z',
          first: '2024-05-01',
          kinds: 2,
          all: ['2024-05-01T21:30:00.123Z', '2024-05-02T10:00:00.000Z', null],
        },
      ],
    })
  })

  it('keep every digit: as a number where a double has them, else as a string', async () => {
    const aggregate = {
      sumOfViews: fn('sum', 'views'),
      mostViews: fn('max', 'views'),
      sumOfStars: fn('sum', 'stars'),
      sumOfPrices: fn('sum', 'price'),
      leastPrice: fn('min', 'price'),
      sumOfRatings: fn('sum', 'rating'),
    }
    const of = async (filter: unknown) => (await read({ query: { aggregate, filter } })).data[0]
    expect(await of({ id: 1 })).toMatchObject({
      sumOfViews: '9007199254740993',
      mostViews: '9007199254740993',
      sumOfPrices: 10.5,
    })
    expect(Object.values((await of({ id: 2 }))!)).toEqual([42, 42, 3, 20, 20, 2.5])
    expect(Object.values((await of({ id: 3 }))!)).toEqual([null, null, null, null, null, null])
    await client.query('begin; alter table notes alter price type numeric')
    for (const [price, told] of [
      ['999999999999.999', 999999999999.999],
      ['-999999999999.999', -999999999999.999],
      ['9999999999999.999', '9999999999999.999'],
      ['123456789012345678901234567890.12', '123456789012345678901234567890.12'],
      ['0.1234567890123456', '0.1234567890123456'],
      ['0.000000000000000000001', 1e-21],
      ['NaN', 'NaN'],
    ] as const) {
      await client.query('update notes set price = $1 where id = 2', [price])
      expect(await of({ id: 2 })).toMatchObject({ sumOfPrices: told, leastPrice: told })
    }
    await client.query('rollback')
  })

  it('count groups, sort and cut them', async () => {
    const query = { aggregate: { n: fn('count', '*') }, groupBy: ['status'] }
    expect(await read({ query: { ...query, sort: '-n', limit: 1 } })).toEqual({
      total: '2',
      data: [{ status: 'draft', n: 2 }],
    })
    expect(await read({ query: { ...query, having: { n: { lt: 2 } } } })).toEqual({
      total: '1',
      data: [{ status: 'published', n: 1 }],
    })
    expect(await read({ query: { ...query, limit: 0 } })).toEqual({ total: '2', data: [] })
  })

  it('show the related record of each group', async () => {
    const query = {
      aggregate: { likes: fn('sum', 'comments.likes') },
      groupBy: ['category_Id'],
      fields: ['category_Id', 'category.name'],
      sort: { likes: 'desc' },
      filter: { category_Id: { isNotNull: true } },
    }
    expect((await read({ query })).data).toEqual([
      { category_Id: 2, likes: 10, category: { id: 2, name: 'Local' } },
      { category_Id: 3, likes: 7, category: { id: 3, name: 'Sports' } },
    ])
    expect((await read({ query: { groupBy: ['owner.name'], filter: { id: 1 } } })).data).toEqual([
      { 'owner.name': 'Ann', owner_name: 'Ann', owner: { id: U1, name: 'Ann' } },
    ])
  })

  it('cut dates in UTC, or where they are asked to', async () => {
    const groupBy = ['date:hour:published']
    const hours = async (timezone?: string) =>
      (await read({ query: { groupBy, timezone, filter: { id: { lte: 2 } } } })).data.map((row) => row.hour_published)
    expect(await hours()).toEqual([10, 21])
    expect(await hours('Asia/Tokyo')).toEqual([6, 19])
    await client.query(`set timezone = 'Asia/Tokyo'`)
    expect(await hours()).toEqual([10, 21])
    await client.query('reset timezone')
  })
})

describe('a caller', () => {
  const everything = { fields: ['*', '*.*'] }

  it('sees the rows of the rule, counts them and nothing else', async () => {
    const access = role({ userId: U2, grants: { notes: { conditions: { owner_Id: '$CURRENT_USER' } } } })
    expect(await read({ access, query: { fields: ['id'], limit: 10 } })).toEqual({ total: '1', data: [{ id: 2 }] })
    expect(await found({ OR: [{ id: 1 }, { id: 2 }] }, { access })).toEqual([2])
    const nobody: Access = { ...access, variable: () => undefined }
    expect(await found({}, { access: nobody })).toEqual([])
  })

  it('learns nothing about rows behind a relation that the rules keep from it', async () => {
    const access = role({
      grants: {
        notes: { fields: ['id', 'comments.*', 'owner.*'] },
        comments: { conditions: { likes: { lt: 8 } } },
        users: { conditions: { age: { gt: 35 } } },
      },
    })
    const { data } = await read({ access, query: { fields: ['id', 'comments.id', 'owner.name'] } })
    expect(data).toEqual([
      { id: 1, comments: [{ id: 2 }], owner: null },
      { id: 2, comments: [{ id: 3 }], owner: { id: U2, name: 'Bob' } },
      { id: 3, comments: [], owner: null },
    ])
    expect(await found({ 'comments.likes': 10 }, { access })).toEqual([])
    expect(await found({ 'owner.name': 'Ann' }, { access })).toEqual([])
    const sum = { aggregate: { n: { function: 'sum', field: 'comments.likes' } } }
    expect((await read({ access, query: sum })).data).toEqual([{ n: 7 }])
    expect((await read({ access, query: { groupBy: ['owner.name'] } })).data.map((row) => row['owner.name'])).toEqual([
      'Bob',
      null,
    ])
  })

  it('of a tenant sees its own rows and no other tenant through any of them', async () => {
    const grants = Object.fromEntries([...catalog.collections.keys()].map((name) => [name, everything]))
    const multiTenant = { enabled: true, strict: true, ignored: new Set<string>() }
    const as = (tenantId: string | undefined, tenantSpecific = true) => ({
      access: role({ grants, tenantId, tenantSpecific }),
      env: { multiTenant },
    })
    const orders = async (tenantId: string) =>
      (await read({ ...as(tenantId), collection: 'orders', query: { fields: ['id', 'client.name'] } })).data
    expect(await orders(T1)).toEqual([
      { id: 1, client: { id: 1, name: 'Mine' } },
      { id: 3, client: null },
    ])
    expect(await orders(T2)).toEqual([{ id: 2, client: { id: 2, name: 'Theirs' } }])
    const files = async (who: ReturnType<typeof as>) =>
      (await read({ ...who, collection: 'svc_File', query: { fields: ['filename'], sort: 'filename' } })).data.map(
        (row) => row.filename,
      )
    expect(await files(as(T1))).toEqual(['mine', 'theirs-public'])
    expect(await files(as(undefined, false))).toEqual(['theirs-public'])
    expect((await read({ ...as(T2), collection: 'svc_User', query: { fields: ['email'] } })).data).toEqual([
      { email: 'bob@example.com' },
    ])
  })

  it('is checked by the same condition on a single row', async () => {
    const access = role({ userId: U1, grants: { 'notes:update': { conditions: { 'owner.team.name': 'red' } } } })
    const params = createParams()
    const condition = compileCondition(resolveCondition(catalog, access, 'notes', 'update', env)!, 'n', params)
    const { rows } = await client.query(`select n.id from notes n where ${condition} order by 1`, [...params.values])
    expect(rows).toEqual([{ id: 1 }])
  })

  it('reads one item, or none', async () => {
    const one = async (id: string) =>
      run(compileOne(resolveOne(catalog, admin, 'notes', id, parseListQuery({ fields: 'title,owner.name' }), env)))
    expect(await one('1')).toEqual([{ data: JSON.stringify({ title: 'Alpha 100%', owner: { id: U1, name: 'Ann' } }) }])
    expect(await one('4')).toEqual([])
    expect(await one('99')).toEqual([])
  })
})

describe('any query at all', () => {
  /** Errors of data (class 22), which are answered with 400: an invalid regular expression, for one. */
  const isDataError = (error: unknown) =>
    error instanceof pg.DatabaseError && (error.code?.startsWith('22') || isJsonPathError(error))

  const isJsonPathError = ({ code, message }: pg.DatabaseError) => code === '42601' && message.includes('jsonpath')

  async function outcome(collection: string, query: Row): Promise<'refused' | 'answered'> {
    try {
      const plan = planOf({ collection, query })
      const { data, total } = await readPlan(plan)
      const [counted] = await run(compileCount(plan))
      if (total !== null) expect(counted!.total).toBe(total)
      const [upTo] = await run(compileListUpTo(plan, 1000))
      expect([JSON.parse(upTo!.data as string), upTo!.total]).toEqual([data, total])
      // Of groups all are counted, of rows only those that the page has.
      if (plan.limit === undefined && data.length > 0) {
        expect((await run(compileListUpTo(plan, data.length - 1)))[0]).toMatchObject({ data: null })
      }
      expect(await run(compileStream(plan))).toHaveLength(data.length)
      return 'answered'
    } catch (error) {
      if ((error instanceof AppError && error.status < 500) || isDataError(error)) return 'refused'
      throw error
    }
  }

  it('is answered or refused, never broken', async () => {
    const outcomes = new Set<string>()
    await fc.assert(
      fc.asyncProperty(hostileQueries, async ({ collection, query }) => {
        outcomes.add(await outcome(collection, query))
      }),
      { numRuns: 150 },
    )
    expect([...outcomes].sort()).toEqual(['answered', 'refused'])
  })

  it('can search for any text', async () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 20 }),
      fc.string({
        unit: fc.constantFrom(`'`, '\\', ':', '*', '&', '|', '!', '(', ')', '<', '>', '-', 'a', ' ', '/', '@', '.'),
      }),
    )
    await fc.assert(
      fc.asyncProperty(text, async (search) => {
        await outcome('notes', { fields: ['id'], search, sortByRelevance: true })
      }),
      { numRuns: 150 },
    )
  })
})

describe('indexes', () => {
  it.each([
    ['stars', { stars: 5 }],
    ['stars', { stars: { in: [1, 2] } }],
    ['title', { title: 'Alpha' }],
    ['status', { status: 'draft' }],
    ['owner_Id', { owner_Id: U1 }],
    ['published', { published: { gte: '2024-01-01', lt: '2024-02-01' } }],
    ['price', { price: 10.5 }],
    ['views', { views: 42 }],
  ])('on %s serve %j', async (column, filter) => {
    await client.query('begin')
    await client.query(
      `create index probe on notes ("${column}"); set local enable_seqscan = off; set local enable_bitmapscan = off`,
    )
    await client.query('set local enable_sort = off')
    const { text, values } = compileCount(planOf({ query: { filter } }))
    const { rows } = await client.query(`explain ${text}`, [...values])
    await client.query('rollback')
    expect(JSON.stringify(rows)).toContain('probe')
    expect(JSON.stringify(rows)).toContain('Index Cond')
  })
})
