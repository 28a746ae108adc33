import { beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'
import { brokenCollection, whileLocked } from '../support/failing.ts'

/** `/reports/{collection}`: its rules, its error table, and refused requests (docs/reports.md). */

let api: Api
let clerk: Call

const n = { function: 'count', field: '*' }
const of = (fn: string, field: string) => ({ function: fn, field })

beforeAll(async () => {
  api = await startApi({ TRANSACTION_TIMEOUT_MS: '1500', EXPOSE_ERROR_DETAILS: 'false' })
  const declare = async (collectionName: string, fields: object) =>
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).status).toBe(201)
  await declare('category', { name: { type: 'String' }, code: { type: 'String', hidden: true } })
  await declare('sale', {
    status: { type: 'String' },
    amount: { type: 'Decimal', values: { precision: 20, scale: 2 } },
    units: { type: 'BigInt' },
    weight: { type: 'Double' },
    soldAt: { type: 'DateTime' },
    day: { type: 'Date' },
    margin: { type: 'Integer' },
    category: { relType: 'BelongsTo', target: 'category', foreignKey: 'category_id' },
  })
  await api.sql(`
    insert into category (id, name, code) values
      ('00000000-0000-4000-8000-000000000001', 'Books', 'canary'), ('00000000-0000-4000-8000-000000000002', 'Toys', 'canary');
    insert into sale (status, amount, units, weight, "soldAt", day, margin, category_id) values
      ('paid', 10.10, 1, 0.5, '2024-01-01 00:30Z', '2024-01-01', 1, '00000000-0000-4000-8000-000000000001'),
      ('paid', 20.20, 2, 1.5, '2024-03-31 00:30Z', '2024-03-31', 2, '00000000-0000-4000-8000-000000000001'),
      ('open', 5, 3, null, '2024-03-31 01:30Z', '2024-03-31', 3, '00000000-0000-4000-8000-000000000002'),
      ('open', null, 9007199254740993, 2, '2024-10-27 00:30Z', '2024-10-27', 4, '00000000-0000-4000-8000-000000000002'),
      (null, 7.7, null, null, '2024-12-29 23:30Z', '2024-12-29', 5, null);`)
  clerk = (
    await api.user([
      {
        collection: 'sale',
        action: 'read',
        fields: ['id', 'status', 'amount', 'soldAt', 'category_id', 'category.name'],
        conditions: { status: 'paid' },
      },
      { collection: 'category', action: 'read', fields: ['name'] },
    ])
  ).call
})

const report = (body?: unknown, collection = 'sale', call = api.admin) => call('POST', `/reports/${collection}`, body)

const parameters = (values: Record<string, unknown>) =>
  new URLSearchParams(
    Object.entries(values).map(([key, value]): [string, string] => [
      key,
      typeof value === 'string' ? value : JSON.stringify(value),
    ]),
  )

const byGet = (query: Record<string, unknown>, call = api.admin) => call('GET', `/reports/sale?${parameters(query)}`)

async function rows(query: object): Promise<Record<string, unknown>[]> {
  const { status, body, text } = await report(query)
  expect([status, status === 200 ? '' : text]).toEqual([200, ''])
  return body.data
}

const refusal = ({ status, body }: Answer) => [status, body?.error?.message]

describe('the name of an aggregate', () => {
  const query = {
    ...{ aggregate: { amount: of('sum', 'amount'), margin: of('count', 'margin') }, groupBy: ['status'] },
    ...{ sort: ['-amount'], having: { amount: { gt: 6 }, margin: { gte: 1 } } },
  }
  const expected = [
    { status: 'paid', amount: 30.3, margin: 2 },
    { status: null, amount: 7.7, margin: 1 },
  ]

  it('may be that of a field, in every form of the question', async () => {
    expect(await rows(query)).toEqual(expected)
    expect((await byGet(query)).body.data).toEqual(expected)
    expect((await api.admin('GET', `/items/sale?${parameters(query)}`)).body.data).toEqual(expected)
    const stats = await api.admin('POST', '/reports/stats', { stats: [{ name: 'one', collection: 'sale', query }] })
    expect(stats.body.data.one).toMatchObject({ data: expected })
    const csv = await api.admin('GET', `/items/sale/export?format=csv&${parameters(query)}`)
    expect(csv.text.trim().split(/\r?\n/)).toEqual(['status,amount,margin', 'paid,30.3,2', ',7.7,1'])
    expect(await rows({ aggregate: query.aggregate })).toEqual([{ amount: 43, margin: 5 }])
    const beside = { ...query, groupBy: ['category_id'], fields: ['*', 'category.name'], having: {} }
    expect((await rows(beside))[0]).toMatchObject({ amount: 30.3, margin: 2, category: { name: 'Books' } })
  })

  it('stays good when the collection gets a field of that name', async () => {
    const asked = { aggregate: { profit: of('sum', 'margin') }, groupBy: ['status'], sort: ['profit'] }
    const before = await rows(asked)
    const { schema } = (await api.admin('GET', '/schemas/sale')).body.data
    const fields = { ...schema.fields, profit: { type: 'String' } }
    expect((await api.admin('PATCH', '/schemas/sale', { schema: { ...schema, fields } })).status).toBe(200)
    expect(await rows(asked)).toEqual(before)
    expect(await rows({ ...asked, having: { profit: 3 } })).toEqual([{ status: 'paid', profit: 3 }])
  })

  it('is not that of a group', async () => {
    expect(refusal(await report({ ...query, groupBy: ['amount'] }))).toEqual([400, 'Invalid query parameters'])
  })
})

describe('rule 1: the aggregates', () => {
  const aggregate = {
    rows: n,
    amounts: of('count', 'amount'),
    kinds: of('distinct', 'status'),
    sum: of('sum', 'amount'),
    mean: of('avg', 'amount'),
    least: of('min', 'amount'),
    last: of('max', 'soldAt'),
    unitsSold: of('sum', 'units'),
    weights: of('array_agg', 'weight'),
  }

  it('of everything are one row', async () => {
    expect((await report({ aggregate })).body).toEqual({
      data: [
        {
          rows: 5,
          amounts: 4,
          kinds: 2,
          sum: 43,
          mean: 10.75,
          least: 5,
          last: '2024-12-29T23:30:00.000Z',
          unitsSold: '9007199254740999',
          weights: expect.arrayContaining([0.5, 1.5, 2, null, null]),
        },
      ],
      totalCount: 1,
    })
  })

  it('of nothing are zero, empty or null', async () => {
    const empty = { rows: 0, amounts: 0, kinds: 0, sum: null, mean: null, least: null, last: null, unitsSold: null }
    expect(await rows({ aggregate, filter: { status: 'lost' } })).toEqual([{ ...empty, weights: [] }])
    const grouped = await report({ aggregate, groupBy: ['status'], filter: { status: 'lost' } })
    expect(grouped.body).toEqual({ data: [], totalCount: 0 })
  })

  it('list related values in the order of the keys, however they are stored', async () => {
    const id = { type: 'Integer', primaryKey: true }
    const name = { type: 'String' }
    const declare = async (collectionName: string, fields: object) =>
      expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).status).toBe(201)
    await declare('tag', { id, name })
    await declare('part', { id, name, toy_Id: { type: 'Integer' } })
    await declare('toy', {
      id,
      name,
      box_Id: { type: 'Integer' },
      parts: { relType: 'HasMany', target: 'part', foreignKey: 'toy_Id' },
    })
    await declare('box', {
      id,
      name,
      toys: { relType: 'HasMany', target: 'toy', foreignKey: 'box_Id' },
      tags: { relType: 'BelongsToMany', target: 'tag', through: 'box_tag' },
    })
    await api.sql(`
      insert into box (id, name) values (2, 'b'), (1, 'a');
      insert into toy (id, name, "box_Id") values (5, 'e', 1), (4, 'd', 2), (3, 'c', 1), (2, null, 2), (1, 'z', 1);
      insert into part (id, name, "toy_Id") values (4, 'p4', 1), (3, 'p3', 5), (2, 'p2', 1), (1, 'p1', 5);
      insert into tag (id, name) values (3, 't3'), (2, 't2'), (1, 't1');
      insert into box_tag ("box_Id", "tag_Id") values (2, 3), (2, 1), (1, 3), (1, 2), (1, 1);`)
    const listed = async (field: string) =>
      (await report({ aggregate: { x: of('array_agg', field) } }, 'box')).body.data[0].x
    expect(await listed('name')).toEqual(['a', 'b'])
    expect(await listed('toys.name')).toEqual(['z', 'c', 'e', null, 'd'])
    expect(await listed('toys.parts.name')).toEqual(['p2', 'p4', null, 'p1', 'p3', null, null])
    expect(await listed('tags.name')).toEqual(['t1', 't2', 't3', 't1', 't3'])
  })

  it('leave nulls out, also of a group that has nothing else', async () => {
    expect(
      await rows({ aggregate: { sum: of('sum', 'units'), count: of('count', 'units') }, groupBy: ['status'] }),
    ).toEqual([
      { status: 'open', sum: '9007199254740996', count: 2 },
      { status: 'paid', sum: 3, count: 2 },
      { status: null, sum: null, count: 0 },
    ])
  })
})

describe('rule 2: date buckets', () => {
  it.each([
    ['year', [2024]],
    ['month', [1, 3, 10, 12]],
    ['day', [1, 27, 29, 31]],
    ['hour', [0, 1, 23]],
    ['minute', [30]],
    ['week', [1, 13, 43, 52]],
    ['dow', [0, 1]],
    ['isodow', [1, 7]],
    ['yearmonth', ['2024-01', '2024-03', '2024-10', '2024-12']],
    ['yearweek', ['2024-W01', '2024-W13', '2024-W43', '2024-W52']],
  ])('%s, in UTC', async (part, values) => {
    const groups = await rows({ groupBy: [`date:${part}:soldAt`], aggregate: { n } })
    expect(groups.map((row) => row[`${part}_soldAt`])).toEqual(values)
    expect(groups.map((row) => row[`date:${part}:soldAt`])).toEqual(values)
  })

  it.each([
    // Where clocks go from 2 to 3 there is no hour 2, where they go back there are two of them.
    ['Europe/Vienna', [0, 1, 1, 2, 3]],
    ['America/New_York', [18, 19, 20, 20, 21]],
    ['Asia/Kolkata', [5, 6, 6, 6, 7]],
  ])('hours in %s', async (timezone, hours) => {
    const groups = await rows({ groupBy: ['id', 'date:hour:soldAt'], timezone })
    expect(groups.map((row) => row.hour_soldAt).toSorted((a, b) => Number(a) - Number(b))).toEqual(hours)
  })

  it('fall on the day, year and week that the zone has, a Date on its own', async () => {
    const groupBy = ['date:year:soldAt', 'date:day:soldAt', 'date:isodow:soldAt', 'date:day:day']
    const [last] = await rows({ groupBy, filter: { margin: 5 }, timezone: 'Pacific/Auckland' })
    expect(last).toMatchObject({ year_soldAt: 2024, day_soldAt: 30, isodow_soldAt: 1, day_day: 29 })
    const [first] = await rows({ groupBy, filter: { margin: 1 }, timezone: 'Pacific/Honolulu' })
    expect(first).toMatchObject({ year_soldAt: 2023, day_soldAt: 31, isodow_soldAt: 7, day_day: 1 })
  })

  it('of a year and month are text that is sorted, filtered and zoned as time is', async () => {
    const groupBy = ['date:yearmonth:soldAt']
    const last = { groupBy, aggregate: { n }, sort: '-yearmonth_soldAt', limit: 1 }
    expect(await rows(last)).toMatchObject([{ yearmonth_soldAt: '2024-12', 'date:yearmonth:soldAt': '2024-12' }])
    const having = { yearmonth_soldAt: { gte: '2024-10' } }
    expect((await rows({ groupBy, aggregate: { n }, having })).map((row) => row.yearmonth_soldAt)).toEqual([
      '2024-10',
      '2024-12',
    ])
    const [first] = await rows({ groupBy, filter: { margin: 1 }, timezone: 'Pacific/Honolulu' })
    expect(first).toMatchObject({ yearmonth_soldAt: '2023-12' })
    const refused = await report({ groupBy: ['date:month-year:soldAt'] })
    expect(refused.body.error.details).toContain('did you mean yearmonth?')
  })

  it('of a year and week belong to the year of the week', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'task', schema: { fields: { dueAt: { type: 'DateTime' } } } })
    // The second last is already Monday in Auckland: week 1 of 2027 begins on January 4th.
    await api.sql(`insert into task ("dueAt") values ('2025-01-01 12:00Z'), ('2025-12-31 12:00Z'), ('2026-12-31 12:00Z'),
      ('2027-01-01 12:00Z'), ('2027-01-03 12:00Z'), ('2027-01-04 12:00Z')`)
    const groupBy = ['date:yearweek:dueAt']
    const weeks = async (more = {}) => {
      const { body } = await report({ groupBy, aggregate: { n }, ...more }, 'task')
      return body.data.map((row: Record<string, unknown>) => [row.yearweek_dueAt, row.n])
    }
    expect(await weeks()).toEqual([
      ['2025-W01', 1],
      ['2026-W01', 1],
      ['2026-W53', 3],
      ['2027-W01', 1],
    ])
    expect(await weeks({ timezone: 'Pacific/Auckland', sort: '-yearweek_dueAt', limit: 2 })).toEqual([
      ['2027-W01', 2],
      ['2026-W53', 2],
    ])
    expect(await weeks({ having: { yearweek_dueAt: { between: ['2025-W52', '2026-W52'] } } })).toEqual([
      ['2026-W01', 1],
    ])
    const byYearAndWeek = await report({ groupBy: ['date:year:dueAt', 'date:week:dueAt'], aggregate: { n } }, 'task')
    expect(byYearAndWeek.body.data[0]).toMatchObject({ year_dueAt: 2025, week_dueAt: 1, n: 2 })
  })

  it('of infinity are null, as of no time', async () => {
    const fields = { at: { type: 'DateTime' }, local: { type: 'DateTime_NO_TZ' }, day: { type: 'Date' } }
    await api.admin('POST', '/schemas', { collectionName: 'lease', schema: { fields } })
    await api.sql(`insert into lease (at, local, day) values ('infinity', 'infinity', 'infinity'),
      ('-infinity', '-infinity', '-infinity'), ('2024-05-01 12:00Z', '2024-05-01 12:00', '2024-05-01')`)
    for (const part of ['year', 'yearmonth', 'month', 'yearweek', 'week', 'dow', 'isodow'])
      for (const field of Object.keys(fields)) {
        const { status, body } = await report({ groupBy: [`date:${part}:${field}`], aggregate: { n } }, 'lease')
        const counts = body.data?.map((row: Record<string, unknown>) => [row[`${part}_${field}`] === null, row.n])
        expect([part, field, status, counts]).toEqual([
          part,
          field,
          200,
          [
            [false, 1],
            [true, 2],
          ],
        ])
      }
    const zoned = await report({ groupBy: ['date:year:at'], aggregate: { n }, timezone: 'Europe/Vienna' }, 'lease')
    expect(zoned.body.data.map((row: Record<string, unknown>) => row.year_at)).toEqual([2024, null])
  })

  it.each(['Mars/Olympus', '+02:00', "UTC'--", ''])('refuse the zone %j', async (timezone) => {
    expect(refusal(await report({ groupBy: ['date:hour:soldAt'], timezone }))).toEqual([
      400,
      'Invalid query parameters',
    ])
  })
})

describe('rule 3: sort', () => {
  const query = { aggregate: { total: of('sum', 'amount') }, groupBy: ['status'] }

  it.each<[string, unknown]>([
    ['a minus', '-total'],
    ['a list', ['-total']],
    ['a direction', 'total:desc'],
    ['an object', { total: 'desc' }],
    ['objects', [{ field: 'total', order: 'DESC' }]],
    ['columns', [{ column: 'total', order: 'desc' }]],
    ['a list of members', [{ total: 'desc' }, 'status']],
  ])('by an aggregate, as %s', async (_form, sort) => {
    expect((await rows({ ...query, sort })).map((row) => row.total)).toEqual([30.3, 7.7, 5])
  })

  it('by a group, by a bucket and by both', async () => {
    expect((await rows({ ...query, sort: ['-status'] })).map((row) => row.status)).toEqual([null, 'paid', 'open'])
    const groupBy = ['date:month:soldAt', 'status']
    const months = (await rows({ groupBy, aggregate: { n }, sort: ['-date:month:soldAt', 'status'] })).map((row) => [
      row.month_soldAt,
      row.status,
    ])
    expect(months).toEqual([
      [12, null],
      [10, 'open'],
      [3, 'open'],
      [3, 'paid'],
      [1, 'paid'],
    ])
    expect((await rows({ groupBy, sort: { 'date:month:soldAt': 'desc' } }))[0]).toMatchObject({ month_soldAt: 12 })
  })

  it('by anything else is refused', async () => {
    expect(refusal(await report({ ...query, sort: 'amount' }))).toEqual([400, 'Invalid query parameters'])
  })
})

describe('rules 4 and 5: filter, pages, groups with related records', () => {
  const grouped = { aggregate: { n }, groupBy: ['status'], sort: '-n' }

  it('filters before it groups, and by having after', async () => {
    expect(await rows({ ...grouped, filter: { amount: { between: [5, 10.1] } }, sort: 'status' })).toEqual([
      { status: 'open', n: 1 },
      { status: 'paid', n: 1 },
      { status: null, n: 1 },
    ])
    const having = await report({ ...grouped, having: { n: { gt: 1 }, status: { ne: 'open' } } })
    expect(having.body).toEqual({ data: [{ status: 'paid', n: 2 }], totalCount: 1 })
  })

  it('counts all groups and gives the page, everything without one', async () => {
    const page = await report({ ...grouped, limit: 1, page: 2 })
    expect(page.body).toEqual({ data: [{ status: 'paid', n: 2 }], totalCount: 3 })
    for (const more of [{}, { limit: -1 }, { page: 2 }, { limit: -1, page: 3 }])
      expect((await report({ ...grouped, ...more })).body).toMatchObject({ data: { length: 3 }, totalCount: 3 })
    expect((await report({ ...grouped, limit: 0 })).body).toEqual({ data: [], totalCount: 3 })
    expect((await report({ ...grouped, limit: 5000, page: 2 })).body).toEqual({ data: [], totalCount: 3 })
  })

  it('passes a request without groups through as a list of items', async () => {
    const query = { fields: ['status', 'category.name'], filter: { margin: { lte: 2 } }, sort: ['-margin'] }
    const items = await api.admin('GET', `/items/sale?${parameters(query)}`)
    expect((await report(query)).body).toEqual(items.body)
    expect(items.body).toMatchObject({ data: { length: 2 }, totalCount: 2 })
    expect((await report()).body).toMatchObject({ data: { length: 5 }, totalCount: 5 })
    expect((await report({ page: 2 })).body.data).toHaveLength(5)
  })

  const books = { id: '00000000-0000-4000-8000-000000000001', name: 'Books' }
  const toys = { id: '00000000-0000-4000-8000-000000000002', name: 'Toys' }

  it('nests the record that a group’s key names', async () => {
    const query = { aggregate: { total: of('sum', 'amount') }, groupBy: ['category_id'], sort: '-total' }
    expect(await rows({ ...query, fields: ['category_id', 'category.name'] })).toEqual([
      { category_id: books.id, total: 30.3, category: books },
      { category_id: null, total: 7.7, category: null },
      { category_id: toys.id, total: 5, category: toys },
    ])
    expect((await rows({ ...query, fields: ['category_id', 'total'] }))[0]).toEqual({
      category_id: books.id,
      total: 30.3,
    })
  })

  it('groups by the column of a related record', async () => {
    const groups = await rows({ aggregate: { n }, groupBy: ['category.name', 'status'], fields: ['category.name'] })
    expect(groups).toEqual([
      { 'category.name': 'Books', category_name: 'Books', status: 'paid', n: 2, category: books },
      { 'category.name': 'Toys', category_name: 'Toys', status: 'open', n: 2, category: toys },
      { 'category.name': null, category_name: null, status: null, n: 1, category: null },
    ])
  })
})

describe('GET', () => {
  it('answers alike', async () => {
    const query = {
      aggregate: { total: of('sum', 'amount'), n },
      groupBy: ['status', 'date:year:soldAt'],
      having: { n: { gt: 1 } },
      sort: ['-total'],
      limit: 5,
    }
    const posted = await report(query)
    expect(posted.body.data).toHaveLength(2)
    expect((await byGet(query)).body).toEqual(posted.body)
    const bracketed =
      'aggregate[total][function]=sum&aggregate[total][field]=amount&aggregate[n][function]=count&aggregate[n][field]=*' +
      '&groupBy=status,date:year:soldAt&having[n][gt]=1&sort=-total&limit=5'
    expect((await api.admin('GET', `/reports/sale?${bracketed}`)).body).toEqual(posted.body)
  })

  it('refuses names that it does not know', async () => {
    expect(refusal(await byGet({ aggregate: { n }, utm_source: 'mail' }))).toEqual([400, 'Invalid query parameters'])
    expect((await byGet({ aggregate: { n }, _: '1' })).body.data).toEqual([{ n: 5 }])
  })
})

describe('many groups', () => {
  it('are streamed, ordered and counted', async () => {
    await api.admin('POST', '/schemas', {
      collectionName: 'tick',
      schema: { timestamps: false, fields: { at: { type: 'Integer' } } },
    })
    await api.sql(`insert into tick (at) select i / 2 from generate_series(0, 24001) i`)
    const all = await report({ aggregate: { n }, groupBy: ['at'], sort: '-at' }, 'tick')
    expect(all.body).toMatchObject({ data: { length: 12_001 }, totalCount: 12_001 })
    expect(all.body.data[0]).toEqual({ at: 12_000, n: 2 })
    const page = await report({ aggregate: { n }, groupBy: ['at'], limit: 11_000, page: 2 }, 'tick')
    expect(page.body).toMatchObject({ data: { length: 1001 }, totalCount: 12_001 })
    const items = await report({ fields: ['at'], limit: -1 }, 'tick')
    expect(items.body).toMatchObject({ data: { length: 24_002 }, totalCount: 24_002 })
  })
})

describe('the error table', () => {
  it.each<[string, unknown]>([
    ['no object', []],
    ['an unknown member', { group: ['status'] }],
    ['an unknown field', { groupBy: ['nope'] }],
    ['an unknown function', { aggregate: { x: of('median', 'amount') } }],
    ['an unknown date part', { groupBy: ['date:decade:soldAt'] }],
    ['a filter of the wrong type', { filter: { amount: { gt: 'much' } }, aggregate: { n } }],
    ['a cast that a row refuses', { filter: { status: { gt: 5, cast: 'integer' } }, aggregate: { n } }],
    ['having without groups', { having: { n: 1 } }],
    ['a limit below -1', { limit: -2 }],
    ['a page of zero', { page: 0 }],
  ])('400 for %s', async (_what, body) => {
    expect(refusal(await report(body))).toEqual([400, 'Invalid query parameters'])
  })

  it('400 for a body that is not JSON, or reaches a prototype', async () => {
    const json = { 'content-type': 'application/json' }
    for (const body of ['{"limit":', '{"__proto__":{"limit":1}}', '"x"', '5']) {
      expect(refusal(await api.admin('POST', '/reports/sale', body, json))).toEqual([400, 'Invalid query parameters'])
    }
    expect(refusal(await api.admin('GET', '/reports/sale?filter={'))).toEqual([400, 'Invalid query parameters'])
  })

  it('401 without a session, also where the public role may read', async () => {
    const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'public'`)
    await api.admin('POST', '/permissions', { role_Id: id, collection: 'category', action: 'read', fields: ['name'] })
    expect((await api.anonymous('GET', '/items/category')).status).toBe(200)
    for (const [method, path] of [
      ['POST', '/reports/category'],
      ['GET', '/reports/category'],
      ['POST', '/reports/nope'],
      ['POST', '/reports/stats'],
      ['GET', '/reports/stats'],
    ] as const) {
      expect(refusal(await api.anonymous(method, path))).toEqual([401, 'Authentication required'])
      expect(refusal(await api.as('nonsense')(method, path))).toEqual([401, 'Authentication required'])
    }
  })

  it('403 without a grant for the collection', async () => {
    expect(refusal(await report({ aggregate: { n } }, 'svc_User', clerk))).toEqual([403, 'Insufficient permissions'])
    expect(refusal(await clerk('GET', '/reports/svc_AuditLog'))).toEqual([403, 'Insufficient permissions'])
  })

  it('404 for an unknown collection', async () => {
    for (const name of ['nope', 'pg_class', 'SALE', 'public.sale', '__proto__'])
      expect(refusal(await report({}, name))).toEqual([404, 'Model not found'])
    expect(refusal(await api.admin('GET', '/reports/nope'))).toEqual([404, 'Model not found'])
  })

  it('500 for a failure of the database, with nothing of it', async () => {
    await brokenCollection(api, 'broken')
    for (const query of [{}, { aggregate: { n }, groupBy: ['name'] }]) {
      const answer = await report(query, 'broken')
      expect(refusal(answer)).toEqual([500, 'Error generating report'])
      expect(answer.text).not.toMatch(/canary|svc_|select/)
      expect(answer.body.error.details).toMatch(/^Reference: /)
    }
  })

  it('500 for a report that takes too long; the connection can be used again', async () => {
    await whileLocked(api, 'category', async () => {
      const { status, body } = await report({ aggregate: { n } }, 'category')
      expect([status, body.error]).toEqual([
        500,
        {
          message: 'Error generating report',
          code: 'INTERNAL_SERVER_ERROR',
          details: 'The report took too long',
          statusCode: 500,
        },
      ])
    })
    expect((await report({ aggregate: { n } }, 'category')).body.data).toEqual([{ n: 2 }])
  })
})

describe('a caller with a rule and few fields', () => {
  it('groups its own rows and nothing else', async () => {
    const query = { aggregate: { n, total: of('sum', 'amount') }, groupBy: ['status', 'category.name'] }
    expect((await report({ ...query, paranoid: false }, 'sale', clerk)).body).toMatchObject({
      data: [{ status: 'paid', category_name: 'Books', n: 2, total: 30.3 }],
      totalCount: 1,
    })
    expect((await report({ groupBy: ['category_id'], fields: ['category.*'] }, 'sale', clerk)).body.data).toEqual([
      { category_id: expect.any(String), category: { id: expect.any(String), name: 'Books' } },
    ])
  })

  const denied = ['weight', 'units', 'margin', 'category.code']

  it.each(denied)('learns nothing of %s', async (field) => {
    const asked = [
      ...['count', 'sum', 'avg', 'min', 'max', 'distinct', 'array_agg'].map((fn) => ({
        aggregate: { x: of(fn, field) },
      })),
      { groupBy: [field] },
      { groupBy: [`date:year:${field}`] },
      { groupBy: ['status'], fields: ['status', 'category.name', field] },
      { fields: [field] },
      { sort: [`-${field}`] },
      { filter: { [field]: { isNotNull: true } }, aggregate: { n } },
      { filter: { status: { eq: `$COL(${field})` } }, aggregate: { n } },
    ]
    for (const query of asked) {
      const answer = await report(query, 'sale', clerk)
      expect([query, ...refusal(answer)]).toEqual([query, 403, 'Insufficient permissions'])
      expect(answer.text).not.toContain('canary')
    }
    const having = { aggregate: { n }, groupBy: ['status'], having: { [field]: 1 } }
    expect(refusal(await report(having, 'sale', clerk))).toEqual([400, 'Invalid query parameters'])
    for (const alias of ['status', 'amount'])
      expect((await report({ aggregate: { [alias]: of('max', field) } }, 'sale', clerk)).status).toBeGreaterThan(399)
  })

  it('has no options but those of a query', async () => {
    for (const option of ['includeHidden', 'bypassPermissions', 'accountability', 'transaction', '_isAdmin']) {
      expect(refusal(await report({ aggregate: { n }, [option]: true }, 'sale', clerk))).toEqual([
        400,
        'Invalid query parameters',
      ])
      const got = await byGet({ aggregate: { n }, [option]: 'true' }, clerk)
      if (option.startsWith('_')) expect(got.body.data).toEqual([{ n: 2 }])
      else expect(refusal(got)).toEqual([400, 'Invalid query parameters'])
    }
  })
})

describe('text that wants to be SQL', () => {
  it.each<[string, object]>([
    ['in a bucket', { groupBy: ['date:year);select pg_sleep(5)--:soldAt'] }],
    ['as an empty part', { groupBy: ['date::soldAt'] }],
    ['around a part', { groupBy: ['date:YEAR FROM now()) --:soldAt'] }],
    ['in another case', { groupBy: ['DATE:year:soldAt'] }],
    ['as a function', { aggregate: { x: of('pg_sleep', 'amount') } }],
    ['as a call', { aggregate: { x: of('COUNT(*)', '*') } }],
    ['in an output name', { aggregate: { 'x", (select 1) as "y': n } }],
    ['as a long output name', { aggregate: { ['x'.repeat(64)]: n } }],
    ['as a path', { groupBy: ['x.y"=1) OR (SELECT 1)--'] }],
    ['in having', { aggregate: { n }, groupBy: ['status'], having: { '1=1) --': 1 } }],
    ['in a sort', { aggregate: { n }, groupBy: ['status'], sort: 'n;drop table sale' }],
    ['as a zone', { groupBy: ['date:year:soldAt'], timezone: "UTC') from pg_shadow --" }],
    ['by number', { groupBy: Array.from({ length: 30 }, (_, i) => `date:year:soldAt${i}`) }],
    ['by aggregates', { aggregate: Object.fromEntries(Array.from({ length: 26 }, (_, i) => [`a${i}`, n])) }],
  ])('%s is refused', async (_where, body) => {
    expect(refusal(await report(body))).toEqual([400, 'Invalid query parameters'])
  })
})

it('leaves no trace: a report changes nothing', async () => {
  const before = await api.position()
  await report({ aggregate: { n } }, 'sale', clerk)
  expect(await api.log(before)).toEqual([])
})
