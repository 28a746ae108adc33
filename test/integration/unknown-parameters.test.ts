import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { beforeAll, describe, expect, it } from 'vitest'
import { isOfData, ownParameters } from '../../src/api/parameters.ts'
import type { App } from '../../src/http/http.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'

/** Unknown parameters are refused where an answer to them would be every row. */

let api: Api
let id: string

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', {
    collectionName: 'job',
    schema: { fields: { status: { type: 'String' }, rank: { type: 'Integer' } } },
  })
  const made = await api.admin(
    'POST',
    '/items/job/bulk',
    [1, 2, 3, 4, 5].map((rank) => ({ status: 'open', rank })),
  )
  id = made.body.data[0]
})

describe('a parameter of one value', () => {
  it.each([
    ['/log/requests?actor[]=x', 'actor: takes no brackets'],
    ['/log/requests?limit[]=1', 'limit: takes no brackets'],
    ['/log/facets?from[0]=2026-01-01', 'from: takes no brackets'],
    ['/log/export?actor[a][b]=x', 'actor: takes no brackets'],
    ['/changes?since[]=x', 'since: takes no brackets'],
    ['/items/job/deleted?limit[]=1', 'limit: takes no brackets'],
    ['/items/job?limit[]=1', 'limit: takes no brackets'],
    ['/log/requests?collection=a%00b', 'collection: NUL characters are not allowed'],
    ['/log/requests?agent=%00', 'agent: NUL characters are not allowed'],
    ['/log/facets?from=2026-01-01%00', 'from: NUL characters are not allowed'],
    ['/log/export?collection=%00', 'collection: NUL characters are not allowed'],
    ['/items/job?fields=status&fields=%00', 'fields: NUL characters are not allowed'],
  ])('is refused where it could not be read: %s', async (path, details) => {
    const { status, body } = await api.admin('GET', path)
    expect([status, body.error]).toEqual([
      400,
      { message: 'Invalid query parameters', code: 'BAD_QUERY', details, statusCode: 400 },
    ])
  })
})

describe('an unknown parameter', () => {
  it.each([
    ['/estimates?x=1', 'unknown parameter "x"'],
    ['/estimates?where={}', 'unknown parameter "where"'],
    ['/estimates?collection=job', 'unknown parameter "collection": did you mean collections?'],
  ])('of a route that is no list proposes what has an effect there: %s', async (path, details) => {
    const { status, body } = await api.admin('GET', path)
    expect([status, body.error.code, body.error.details]).toEqual([400, 'UNKNOWN_PARAMETER', details])
  })

  it.each([
    ['filters={"status":"done"}', 'unknown parameter "filters": did you mean filter?'],
    ['where={"status":"done"}', 'unknown parameter "where": did you mean filter?'],
    ['status=done', 'unknown parameter "status": did you mean filter={"status": …}?'],
    ['Filter={}', 'unknown parameter "Filter": did you mean filter?'],
    ['FIELDS=status', 'unknown parameter "FIELDS": did you mean fields?'],
    ['orderBy=rank', 'unknown parameter "orderBy": did you mean sort?'],
    ['per_page=1', 'unknown parameter "per_page": did you mean limit?'],
    ['groupby=status', 'unknown parameter "groupby": did you mean groupBy?'],
    ['changescursor=true', 'unknown parameter "changescursor": did you mean changesCursor?'],
    ['status[eq]=done', 'unknown parameter "status[eq]": did you mean filter={"status": …}?'],
    ['filter[status=done', 'unknown parameter "filter[status": did you mean filter?'],
    ['filter.status=done', 'unknown parameter "filter.status"'],
    ['limit=1&status=', 'unknown parameter "status": did you mean filter={"status": …}?'],
    ['%73tatus=done', 'unknown parameter "status": did you mean filter={"status": …}?'],
    ['token=x', expect.stringContaining('unknown parameter "token"')],
  ])('%s is refused, and says what was meant', async (query, details) => {
    for (const call of [api.admin, api.anonymous]) {
      const { status, body } = await call('GET', `/items/job?${query}`)
      expect([status, body.error]).toEqual([
        400,
        { message: 'Invalid query parameters', code: 'UNKNOWN_PARAMETER', details, statusCode: 400 },
      ])
    }
  })

  it('is refused by every route of data, before anything is written', async () => {
    const before = await api.position()
    for (const [method, path, body] of [
      ['GET', `/items/job/${id}`],
      ['POST', '/items/job', { status: 'x' }],
      ['PUT', '/items/job', { status: 'x' }],
      ['PATCH', `/items/job/${id}`, { status: 'x' }],
      ['DELETE', `/items/job/${id}`],
      ['POST', '/items/job/bulk', [{ status: 'x' }]],
      ['PATCH', '/items/job/bulk', [{ id, status: 'x' }]],
      ['DELETE', '/items/job/bulk', [id]],
      ['GET', '/items/job/export'],
      ['GET', `/items/job/${id}/history`],
      ['GET', '/reports/job'],
      ['POST', '/reports/job', {}],
      ['GET', '/reports/stats'],
      ['GET', '/schemas'],
      ['GET', '/schemas/job'],
      ['DELETE', '/schemas/job'],
      ['GET', '/changes'],
      ['GET', '/permissions'],
      ['POST', '/permissions', { collection: 'job' }],
      ['GET', '/permissions/explain'],
      ['GET', '/log/requests'],
      ['POST', '/log/undo', { requestId: id }],
      ['GET', '/log/export'],
      ['GET', '/log/head'],
      ['GET', '/webhooks'],
      ['POST', '/webhooks', {}],
    ] as const) {
      const answer = await api.admin(method, `${path}?bogus=1`, body)
      expect([method, path, answer.status, answer.body?.error?.code]).toEqual([method, path, 400, 'UNKNOWN_PARAMETER'])
    }
    expect(await api.log(before)).toEqual([])
    expect((await api.admin('HEAD', '/items/job?bogus=1')).status).toBe(400)
  })

  it.each(['asOf=2020-01-01', 'filter={"status":"x"}', 'filter[status]=x', 'limit=1', 'groupBy=status'])(
    'of a report by POST is refused where its body takes it: %s',
    async (query) => {
      const aggregate = { n: { function: 'count', field: '*' } }
      const stats = [{ name: 'n', collection: 'job', query: { aggregate } }]
      for (const [path, body] of [
        ['job', { aggregate }],
        ['stats', { stats }],
      ] as const) {
        const answer = await api.admin('POST', `/reports/${path}?${query}`, body)
        const details = `${/^\w+/.exec(query)![0]}: is a member of the body`
        expect([answer.status, answer.body.error]).toMatchObject([400, { code: 'BAD_QUERY', details }])
        expect((await api.admin('POST', `/reports/${path}?cache=false&meta=x`, body)).status).toBe(200)
      }
    },
  )

  it.each([
    ['filter={"entity":"job"}', 'unknown parameter "filter"'],
    ['collections=job', 'unknown parameter "collections": did you mean collection?'],
    ['page=2', 'unknown parameter "page"'],
    ['size=2', 'unknown parameter "size": did you mean limit?'],
    ['entity=job', 'unknown parameter "entity"'],
  ])('of the log is one that other routes of data know: %s', async (query, details) => {
    const { status, body } = await api.admin('GET', `/log/requests?${query}`)
    expect([status, body.error.code, body.error.details]).toEqual([400, 'UNKNOWN_PARAMETER', details])
    expect((await api.admin('GET', '/log/requests?limit=1&meta=*&_=1')).status).toBe(200)
  })

  it.each(['/changes', '/items/job/deleted'])('of what follows the log: %s takes no filter', async (path) => {
    const { status, body } = await api.admin('GET', `${path}?filter={"rank":2}`)
    expect([status, body.error.code, body.error.details]).toEqual([
      400,
      'UNKNOWN_PARAMETER',
      'unknown parameter "filter"',
    ])
    expect((await api.admin('GET', `${path}?meta=*&_=1`)).status).toBe(200)
  })

  it('is said after what the caller may not do at all', async () => {
    expect((await api.anonymous('GET', '/reports/job?bogus=1')).status).toBe(401)
    expect((await api.anonymous('POST', '/permissions?bogus=1', {})).status).toBe(401)
  })

  it('is left alone elsewhere', async () => {
    for (const [path, status] of [
      ['/?utm_source=x', 200],
      ['/health?x=1', 200],
      ['/settings?utm_source=x', 200],
      ['/auth/check?x=1', 401],
      ['/auth/email/verify/nothing?utm_source=mail', 400],
      ['/auth/magiclink/nothing?utm_source=mail', 400],
    ] as const)
      expect([path, (await api.anonymous('GET', path)).status]).toEqual([path, status])
  })
})

describe('a known parameter', () => {
  it.each([
    '_=1700000000',
    '_isAdmin=true',
    'meta=*',
    'meta=a&meta=b',
    'editMode=true',
    'tenant=x',
    'access_token=x',
    'cache=false',
    'paranoid=false',
    'count=true',
    '',
  ])('%s changes nothing', async (query) => {
    const { status, body } = await api.admin('GET', `/items/job?sort=rank&${query}`)
    expect([status, body.totalCount, body.data.length]).toEqual([200, 5, 5])
  })

  it('may stand in brackets, as text, or repeated where it is a list', async () => {
    for (const query of ['filter[rank]=2', 'filter[rank][eq]=2', 'filter={"rank":2}'])
      expect((await api.admin('GET', `/items/job?${query}`)).body.totalCount).toBe(1)
    for (const query of ['fields=rank&fields=status', 'fields[]=rank&fields[]=status', 'fields=rank,status'])
      expect(Object.keys((await api.admin('GET', `/items/job?${query}`)).body.data[0])).toEqual(['rank', 'status'])
  })

  it.each(['filter={}&filter={}', 'limit=1&limit=2', 'page=1&page=1', 'search=a&search=b', 'cursor=&cursor='])(
    'given twice is refused: %s',
    async (query) => {
      const { status, body } = await api.admin('GET', `/items/job?${query}`)
      expect([status, body.error.code, body.error.details]).toEqual([
        400,
        'REPEATED_PARAMETER',
        `${query.split('=')[0]}: is given twice`,
      ])
    },
  )
})

it('every route of data takes the parameters that it declares', async () => {
  const seen = new Map<string, readonly string[]>()
  const watch = (message: unknown) =>
    (message as { fastify: App }).fastify.addHook('onRoute', (route) => {
      for (const method of [route.method].flat())
        if (method !== 'HEAD' && isOfData(route.url)) seen.set(`${method} ${route.url}`, ownParameters(route))
    })
  subscribe('fastify.initialization', watch)
  try {
    await configured(api.database, {})
  } finally {
    unsubscribe('fastify.initialization', watch)
  }
  const own = Object.fromEntries([...seen].filter(([, names]) => names.length > 0))
  expect(seen.size).toBe(94)
  expect(own).toEqual({
    'GET /items/:collection': ['changesCursor'],
    'GET /items/:collection/deleted': ['limit', 'cursor'],
    'PUT /items/:collection': ['key'],
    'GET /items/:collection/export': ['format'],
    'POST /files/migrate-storage-structure': ['dryRun'],
    'POST /items/:collection/import-csv': ['dryRun', 'encoding', 'decimal', 'dateFormat'],
    'POST /items/:collection/import-json': ['dryRun', 'encoding', 'decimal', 'dateFormat'],
    'GET /reports/stats': ['stats'],
    'POST /schemas': ['dryRun', 'migration'],
    'PATCH /schemas/:collection': ['drop', 'alter', 'dryRun', 'migration'],
    'DELETE /schemas/:collection': ['dryRun', 'migration'],
    'DELETE /schemas/:collection/fields/:field': ['dryRun', 'migration'],
    'POST /schemas/:collection/indexes': ['dryRun', 'migration'],
    'DELETE /schemas/:collection/indexes/:name': ['dryRun', 'migration'],
    'POST /schemas/:collection/relationships': ['dryRun', 'migration'],
    'PATCH /schemas/:collection/relationships/:field': ['dryRun', 'migration'],
    'DELETE /schemas/:collection/relationships/:field': ['dryRun', 'migration'],
    'POST /schemas/import': ['drop', 'alter', 'dryRun'],
    'GET /changes': ['since', 'collections', 'fields', 'limit'],
    'GET /migrations': ['status', 'type', 'limit'],
    'GET /permissions/explain': ['collection', 'action', 'role', 'user', 'id', 'field'],
    'GET /log/requests': [
      ...['actor', 'from', 'to', 'collection', 'action', 'tenant', 'requestId', 'agent', 'cause', 'limit', 'cursor'],
    ],
    'GET /estimates': ['collections'],
    'GET /log/moments': ['collections', 'item', 'at'],
    'GET /log/facets': ['from', 'to', 'collection', 'action', 'actor', 'tenant', 'agent', 'buckets'],
    'GET /log/export': ['since', 'collection', 'action', 'actor', 'tenant', 'from', 'to'],
    'GET /schemas': ['brief'],
    'GET /webhooks/:id/deliveries': ['status', 'limit'],
  })
})

describe('QUERY_DEFAULT_LIMIT', () => {
  it.each([
    '/log/requests?limit=101',
    '/items/job/deleted?limit=101',
    '/items/job/1/history?limit=101',
    '/ops/jobs?limit=101',
    '/changes?limit=1001',
  ])('%s is refused, not cut', async (path) => {
    const { status, body } = await api.admin('GET', path)
    expect({ status, ...body.error }).toMatchObject({
      status: 400,
      code: 'BAD_QUERY',
      details: expect.stringMatching(/^limit: (expected at most|must be an integer from 1 to) \d+$/),
    })
  })

  it('is how many items a list without a limit has, and its pages', async () => {
    const app = await configured(api.database, { QUERY_DEFAULT_LIMIT: '2' })
    const { token } = (
      await app.inject({
        method: 'POST',
        url: '/auth/login',
        payload: { email: 'admin@example.com', password: 'correct horse battery staple' },
      })
    ).json()
    const ranks = async (url: string, payload?: object) => {
      const answer = await app.inject({
        url,
        method: payload === undefined ? 'GET' : 'POST',
        headers: { authorization: `Bearer ${token}` },
        ...(payload && { payload }),
      })
      expect(answer.statusCode, answer.body).toBe(200)
      const body = answer.json()
      return (Array.isArray(body) ? body : body.data).map(({ rank }: any) => rank)
    }
    const list = '/items/job?sort=rank'
    expect(await ranks(list)).toEqual([1, 2])
    expect(await ranks(`${list}&page=2`)).toEqual([3, 4])
    expect(await ranks(`${list}&offset=3`)).toEqual([4, 5])
    expect(await ranks(`${list}&cursor=`)).toEqual([1, 2])
    expect(await ranks(`${list}&limit=-1`)).toEqual([1, 2, 3, 4, 5])
    expect(await ranks(`${list}&limit=4`)).toEqual([1, 2, 3, 4])
    expect(await ranks('/items/job?groupBy=rank&sort=rank')).toEqual([1, 2, 3, 4, 5])
    expect(await ranks('/items/job/export?sort=rank&format=json')).toEqual([1, 2, 3, 4, 5])
    expect(await ranks('/reports/job', { sort: ['rank'] })).toEqual([1, 2, 3, 4, 5])
  })
})
