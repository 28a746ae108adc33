import { beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'
import { brokenCollection, whileLocked } from '../support/failing.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'

/** `/reports/stats`: several reports in one answer, that fail together or alone (docs/reports.md). */

let api: Api
let clerk: Call

const n = { function: 'count', field: '*' }
const invalid = 'Invalid query parameters'

beforeAll(async () => {
  api = await startApi({ TRANSACTION_TIMEOUT_MS: '3000', MULTI_TENANT: 'true', EXPOSE_ERROR_DETAILS: 'false' })
  const declare = async (collectionName: string, fields: object) =>
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).status).toBe(201)
  await declare('item', { kind: { type: 'String' }, secret: { type: 'String', hidden: true } })
  await declare('other', { rank: { type: 'Integer' } })
  await declare('star', { mass: { type: 'Double' }, name: { type: 'String' } })
  const tenant = await createTenant(api, 'of the clerk')
  const role = await createRole(api)
  await grant(api, role, { collection: 'item', action: 'read', fields: ['kind'] })
  clerk = (await createUser(api, role, tenant)).call
  await api.sql(
    `insert into item (kind, secret, "tenant_Id") select 'k' || i % 2, 'canary', $1 from generate_series(1, 4) i`,
    [tenant],
  )
  await api.sql(`insert into star (mass, name) values (1.7e308, 'a'), (1.7e308, 'b')`)
  await api.sql('insert into other (rank) select i from generate_series(1, 1500) i')
  await brokenCollection(api, 'broken')
})

const ask = (stats: unknown, call = api.admin) => call('POST', '/reports/stats', { stats })
const stat = (name: string, collection: string, query: unknown = { aggregate: { n } }) => ({ name, collection, query })
const refusal = ({ status, body }: Answer) => [status, body?.error?.message]

const kinds = {
  data: [
    { kind: 'k0', n: 2 },
    { kind: 'k1', n: 2 },
  ],
  totalCount: 2,
}
const byKind = stat('by kind', 'item', { aggregate: { n }, groupBy: ['kind'] })

describe('an answer', () => {
  it('has each report under its name, as it would be alone', async () => {
    const names = ['a "quoted" name', '__proto__', 'ä\n', '1']
    const queries = [
      { fields: ['kind'], sort: 'kind', limit: 1 },
      { aggregate: { n } },
      { groupBy: ['kind'] },
      { limit: 0 },
    ]
    const { status, body } = await ask(names.map((name, i) => stat(name, 'item', queries[i])))
    expect([status, body.totalStats, body.successfulStats, Object.keys(body)]).toEqual([
      200,
      4,
      4,
      ['data', 'totalStats', 'successfulStats'],
    ])
    for (const [i, name] of names.entries()) {
      const alone = await api.admin('POST', '/reports/item', queries[i])
      expect(Object.getOwnPropertyDescriptor(body.data, name)?.value).toEqual(alone.body)
    }
  })

  it('is the same by GET, in JSON or brackets', async () => {
    const posted = await ask([byKind, stat('all', 'other')])
    expect(posted.body.data).toEqual({ 'by kind': kinds, all: { data: [{ n: 1500 }], totalCount: 1 } })
    const json = new URLSearchParams({ stats: JSON.stringify([byKind, stat('all', 'other')]), _: 'x' })
    expect((await api.admin('GET', `/reports/stats?${json}`)).body).toEqual(posted.body)
    const count = 'query][aggregate][n][function]=count'
    const bracketed =
      `stats[0][name]=by kind&stats[0][collection]=item&stats[0][${count}&stats[0][query][groupBy]=kind` +
      `&stats[1][name]=all&stats[1][collection]=other&stats[1][${count}&stats[1][query][aggregate][n][field]=*`
    expect((await api.admin('GET', `/reports/stats?${bracketed}`)).body).toEqual(posted.body)
  })

  it('streams what is too long to be held', async () => {
    const long = stat('long', 'other', { fields: ['rank'], sort: 'rank' })
    const { body } = await ask([byKind, long, stat('again', 'item')])
    expect(Object.keys(body.data)).toEqual(['by kind', 'long', 'again'])
    expect(body).toMatchObject({ totalStats: 3, successfulStats: 3, data: { long: { totalCount: 1500 } } })
    expect(body.data.long.data.map((row: { rank: number }) => row.rank)).toEqual(
      Array.from({ length: 1500 }, (_, i) => i + 1),
    )
  })

  it('may have 50 reports', async () => {
    const many = Array.from({ length: 50 }, (_, i) => stat(`s${i}`, 'item'))
    const { body } = await ask(many)
    expect(body).toMatchObject({ totalStats: 50, successfulStats: 50 })
    expect(Object.keys(body.data)).toEqual(many.map(({ name }) => name))
    expect(refusal(await ask([...many, stat('s50', 'item')]))).toEqual([400, invalid])
  })
})

describe('a request that is refused as a whole', () => {
  const required = 'stats array is required and must not be empty'
  const collection = "Each stats query must have a 'collection' property"

  it.each<[string, unknown, string]>([
    ['no body', undefined, required],
    ['no stats', {}, required],
    ['stats that are no array', { stats: {} }, required],
    ['empty stats', { stats: [] }, required],
    ['an array', [byKind], required],
    ['a report without a collection', { stats: [byKind, { name: 'x', query: {} }] }, collection],
    ['a collection that is no name', { stats: [{ name: 'x', collection: 1, query: {} }] }, collection],
    ['something else than a report', { stats: [null] }, collection],
    ['a report without a name', { stats: [{ collection: 'item', query: {} }] }, invalid],
    ['an empty name', { stats: [stat('', 'item')] }, invalid],
    ['a name given twice', { stats: [byKind, byKind] }, invalid],
    ['a report without a query', { stats: [{ name: 'x', collection: 'item' }] }, invalid],
    ['a query that is no object', { stats: [stat('x', 'item', [])] }, invalid],
    ['a query that makes no sense', { stats: [byKind, stat('x', 'item', { groupBy: ['nope'] })] }, invalid],
    ['an unknown member', { stats: [byKind], bypassPermissions: true }, invalid],
    ['an unknown member of a report', { stats: [{ ...byKind, accountability: null }] }, invalid],
    ['an unknown member of a query', { stats: [stat('x', 'item', { includeHidden: true })] }, invalid],
  ])('400 for %s', async (_what, body, message) => {
    const answer = await api.admin('POST', '/reports/stats', body)
    expect([...refusal(answer), answer.body.data]).toEqual([400, message, undefined])
  })

  it('400 by GET', async () => {
    for (const query of ['', '?stats=', '?stats=[]'])
      expect(refusal(await api.admin('GET', `/reports/stats${query}`))).toEqual([400, required])
    expect(refusal(await api.admin('GET', '/reports/stats?stats=[{'))).toEqual([400, invalid])
    expect(refusal(await api.admin('GET', '/reports/stats?stats[0][name]=x'))).toEqual([400, collection])
  })

  it('404 for an unknown collection, by its name', async () => {
    expect(refusal(await ask([byKind, stat('x', 'nope')]))).toEqual([404, 'Model nope not found'])
  })

  it('403 for a report that is forbidden, with nothing of the others', async () => {
    expect((await ask([byKind], clerk)).body.data).toEqual({ 'by kind': kinds })
    for (const forbidden of [
      stat('x', 'other'),
      stat('x', 'svc_User'),
      stat('x', 'item', { aggregate: { x: { function: 'max', field: 'secret' } } }),
      stat('x', 'item', { fields: ['secret'] }),
    ]) {
      const answer = await ask([byKind, forbidden], clerk)
      expect([...refusal(answer), answer.body.data]).toEqual([403, 'Insufficient permissions', undefined])
      expect(answer.text).not.toMatch(/canary|k0/)
    }
  })

  it('400 for a value that only the database could refuse', async () => {
    const cast = stat('x', 'item', { aggregate: { n }, filter: { kind: { gt: 5, cast: 'integer' } } })
    expect(refusal(await ask([byKind, cast]))).toEqual([400, invalid])
    const mass = { function: 'sum', field: 'mass' }
    const narrow = stat('x', 'star', { aggregate: { mass }, filter: { mass: { gt: 5, cast: 'integer' } } })
    expect(refusal(await ask([byKind, narrow]))).toEqual([400, invalid])
  })
})

describe('a report that fails while it runs', () => {
  it('is missing alone: a fault of the database, told without its words', async () => {
    const { status, body, text } = await ask([stat('bad', 'broken', {}), byKind])
    expect([status, body]).toEqual([
      200,
      {
        data: { 'by kind': kinds },
        totalStats: 2,
        successfulStats: 1,
        errors: { bad: { message: 'Error generating report' } },
      },
    ])
    expect(text).not.toContain('canary')
  })

  it('is missing alone: a timeout; what waits after three slow reports has no time of its own', async () => {
    await whileLocked(api, 'other', async () => {
      const slow = ['slow 1', 'slow 2', 'slow 3']
      const { status, body } = await ask([
        byKind,
        ...slow.map((name) => stat(name, 'other')),
        { ...byKind, name: 'late' },
      ])
      const error = { message: 'The report took too long' }
      expect([status, body]).toEqual([
        200,
        {
          data: { 'by kind': kinds },
          totalStats: 5,
          successfulStats: 1,
          errors: { 'slow 1': error, 'slow 2': error, 'slow 3': error, late: error },
        },
      ])
    })
    expect((await ask([stat('all', 'other')])).body).toMatchObject({ successfulStats: 1 })
  })

  it('is missing alone: a sum of what is stored that its type cannot hold', async () => {
    const total = { function: 'sum', field: 'mass' }
    const mean = { function: 'avg', field: 'mass' }
    const { status, body } = await ask([
      byKind,
      stat('sum', 'star', { aggregate: { n, total } }),
      stat('both', 'star', { aggregate: { total, mean }, having: { total: { gt: 1 } } }),
      stat('each', 'star', { aggregate: { total }, groupBy: ['name'] }),
    ])
    expect([status, body]).toMatchObject([
      200,
      {
        data: { 'by kind': kinds, each: { totalCount: 2 } },
        totalStats: 4,
        successfulStats: 2,
        errors: {
          sum: { message: 'The result is out of range: total (sum of mass)' },
          both: { message: 'The result is out of range: total (sum of mass) or mean (avg of mass)' },
        },
      },
    ])
    // The second time the plan is remembered.
    for (const _time of [1, 2]) {
      const alone = await api.admin('POST', '/reports/star', { aggregate: { total } })
      expect(refusal(alone)).toEqual([400, 'The result is out of range: total (sum of mass)'])
    }
    const aggregate = JSON.stringify({ total })
    const byGet = await api.admin('GET', `/reports/star?${new URLSearchParams({ aggregate })}`)
    expect(refusal(byGet)).toEqual([400, 'The result is out of range: total (sum of mass)'])
  })

  it('may be each of them', async () => {
    expect((await ask([stat('bad', 'broken', {})])).body).toEqual({
      data: {},
      totalStats: 1,
      successfulStats: 0,
      errors: { bad: { message: 'Error generating report' } },
    })
  })
})

it('counts a tenant’s own rows, whatever others do', async () => {
  const declared = await api.admin('POST', '/schemas', {
    collectionName: 'orders',
    schema: {
      fields: {
        total: { type: 'Integer' },
        tenant: { relType: 'BelongsTo', target: 'svc_Tenant', foreignKey: 'tenant_Id' },
      },
    },
  })
  expect(declared.status).toBe(201)
  const [one, two] = [await createTenant(api, 'one'), await createTenant(api, 'two')]
  const role = await createRole(api)
  await grant(api, role, { collection: 'orders', action: 'read', fields: ['*'] })
  const { call } = await createUser(api, role, one)
  await api.sql('insert into orders (total, "tenant_Id") values (1, $1), (2, $1), (40, $2)', [one, two])
  const stats = [
    stat('list', 'orders', { fields: ['total'], sort: 'total' }),
    stat('sum', 'orders', { aggregate: { sum: { function: 'sum', field: 'total' } } }),
    stat('groups', 'orders', { aggregate: { n }, groupBy: ['tenant_Id', 'date:year:createdAt'] }),
    stat('everything', 'orders', { aggregate: { n }, paranoid: false, filter: { OR: [{ total: { gt: 0 } }, {}] } }),
  ]
  const before = await ask(stats, call)
  expect(before.body.data).toMatchObject({
    list: { data: [{ total: 1 }, { total: 2 }], totalCount: 2 },
    sum: { data: [{ sum: 3 }] },
    groups: { data: [{ n: 2, tenant_Id: one }], totalCount: 1 },
    everything: { data: [{ n: 2 }] },
  })
  await api.sql('insert into orders (total, "tenant_Id") select i, $1 from generate_series(1, 50) i', [two])
  await api.sql('update orders set total = total + 1 where "tenant_Id" = $1', [two])
  expect((await ask(stats, call)).text).toBe(before.text)
})
