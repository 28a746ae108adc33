import pg from 'pg'
import { beforeAll, describe, expect, it } from 'vitest'
import { readerOf } from '../../src/db/pools.ts'
import { contextFor } from '../../src/extensions/context.ts'
import { touchedRows } from '../../src/features/data/undo/queries.ts'
import { type Api, type Call, startApi } from '../support/api.ts'

/** What requests did, and the trash (docs/undo.md). */

let api: Api
beforeAll(async () => {
  api = await startApi()
  const text = { type: 'String' }
  const schemas: [string, object, object?][] = [
    ['leaf', { name: text, secret: { ...text, hidden: true } }],
    ['tree', { name: text, leaf: { relType: 'BelongsTo', target: 'leaf', foreignKey: 'leaf_Id' } }],
    ['marked', { name: text }, { paranoid: true }],
  ]
  for (const [collectionName, fields, more] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { ...more, fields } })).status).toBeLessThan(
      300,
    )
})

const ok = async (answer: ReturnType<Call>) => {
  const { status, body, headers, text } = await answer
  if (status >= 300) throw new Error(`${status} ${text}`)
  return { ...body, id: String(headers['x-request-id']), logId: headers['x-log-request-id'] }
}
const list = async (query: string, call: Call = api.admin) => ok(call('GET', `/log/requests?${query}`))

describe('GET /log/requests', () => {
  it('lists requests and transactions with who, when and how much', async () => {
    const { id } = await ok(
      api.admin('POST', '/items/tree/bulk', [{ name: 'a', leaf: { name: 'x' } }, { name: 'b' }], {
        'x-svc-agent': 'robot',
      }),
    )
    await api.sql(`begin; insert into leaf (name) values ('sql'); update tree set name = 'c'; commit`)
    const { data } = await list('limit=2')
    expect(data[0]).toMatchObject({ requestId: null, userId: null, events: 3 })
    expect(data[1]).toMatchObject({
      requestId: id,
      clientRequestId: id,
      agent: { name: 'robot' },
      cause: null,
      events: 3,
      counts: [
        { collection: 'leaf', action: 'create', events: 1 },
        { collection: 'tree', action: 'create', events: 2 },
      ],
    })
    expect(Date.parse(data[1].at)).toBeLessThanOrEqual(Date.parse(data[1].until))
  })

  it('finds the requests that share an id of the client', async () => {
    const chosen = { 'x-request-id': 'my-id' }
    const ids = []
    for (const name of ['1', '2']) ids.unshift((await ok(api.admin('POST', '/items/leaf', { name }, chosen))).logId)
    const { data, nextCursor } = await list('requestId=my-id')
    expect([data.map(({ requestId }: any) => requestId), nextCursor]).toEqual([ids, null])
  })

  it('comes in pages, each request once', async () => {
    const ids: string[] = []
    for (let n = 0; n < 7; n += 1)
      ids.unshift((await ok(api.admin('POST', '/items/marked/bulk', [{ name: 'p' }, { name: 'q' }]))).id)
    const seen: string[] = []
    let cursor: string | null = ''
    for (let pages = 0; cursor !== null && pages < 20; pages += 1) {
      const page: any = await list(`collection=marked&action=create&limit=3${cursor && `&cursor=${cursor}`}`)
      seen.push(...page.data.map(({ requestId }: any) => requestId))
      cursor = page.nextCursor
    }
    expect(seen).toEqual(ids)
  })

  describe('with a filter that only some events of a request match', () => {
    const rounds = 5
    const made: string[] = []

    /** Each request creates trees, with the leaves that they point at first, and ends with a tree. */
    beforeAll(async () => {
      for (let n = 0; n < rounds; n += 1) {
        const trees = [{ name: 'a', leaf: { name: 'first' } }, { name: 'b', leaf: { name: 'second' } }, { name: 'c' }]
        made.unshift((await ok(api.admin('POST', '/items/tree/bulk', trees))).id)
        await ok(api.admin('POST', '/items/marked', { name: 'between' }))
      }
    })

    async function pagesOf(filter: string, limit: number, call?: Call): Promise<any[]> {
      const listed: any[] = []
      let cursor: string | null = ''
      for (let pages = 0; cursor !== null && pages < 100; pages += 1) {
        const page: any = await list(`${filter}&limit=${limit}${cursor && `&cursor=${cursor}`}`, call)
        listed.push(...page.data)
        cursor = page.nextCursor
      }
      return listed
    }

    it.each([1, 2, 3, 100])('lists each once, by pages of %i', async (limit) => {
      const listed = (await pagesOf('collection=leaf&action=create', limit)).map(({ requestId }) => requestId)
      expect(listed.filter((id) => made.includes(id))).toEqual(made)
      const ids = listed.filter((id) => id !== null)
      expect(new Set(ids).size).toBe(ids.length)
    })

    it.each([1, 2, 100])(
      'lists transactions whose events lie among those of another, by pages of %i',
      async (limit) => {
        const before = await api.position()
        const [outer, inner] = [new pg.Client(api.database.url), new pg.Client(api.database.url)]
        await Promise.all([outer.connect(), inner.connect()])
        try {
          await outer.query(`begin; insert into leaf (name) values ('outer')`)
          await inner.query(`insert into leaf (name) values ('inner 1'); insert into tree (name) values ('inner 2')`)
          await outer.query(`insert into tree (name) values ('outer'); commit`)
        } finally {
          await Promise.all([outer.end(), inner.end()])
        }
        const own = async (filter: string, call?: Call) =>
          (await pagesOf(filter, limit, call)).map(({ position }) => BigInt(position)).filter((one) => one > before)
        const positions = await own('action=create')
        expect(positions).toHaveLength(2)
        // The newest is the one that ended last; of the leaves the newest is the inner one's.
        expect(await own('collection=tree')).toHaveLength(2)
        expect(await own('collection=leaf')).toEqual(positions.toReversed())
        const log = { collection: 'svc_AuditLog', action: 'read', fields: ['*'], conditions: { entity: 'leaf' } }
        expect(await own('action=create', (await api.user([log])).call)).toEqual(positions.toReversed())
      },
    )
  })

  it.each([
    'actor=x',
    'cause=x',
    'tenant=x',
    'from=x',
    'from=2026',
    'to=-271821-04-20T00:00:00Z',
    'limit=0',
    'limit=x',
    'cursor=x',
  ])('refuses %s', async (query) => {
    expect((await api.admin('GET', `/log/requests?${query}`)).status).toBe(400)
  })

  it('shows who may read svc_AuditLog what that permission shows', async () => {
    const none = await api.user()
    const own = await api.user([
      {
        collection: 'svc_AuditLog',
        action: 'read',
        fields: ['id', 'logRequestId', 'createdAt', 'entity', 'action'],
        conditions: { entity: 'marked' },
      },
      { collection: 'marked', action: 'create', fields: ['*'] },
    ])
    expect((await none.call('GET', '/log/requests')).status).toBe(403)
    expect((await api.anonymous('GET', '/log/requests')).status).toBe(401)
    const { id } = await ok(own.call('POST', '/items/marked', { name: 'own' }))
    const { data } = await list('limit=100', own.call)
    expect(data[0]).toEqual({
      requestId: id,
      position: expect.any(String),
      at: expect.any(String),
      until: expect.any(String),
      events: 1,
      counts: [{ collection: 'marked', action: 'create', events: 1 }],
    })
    expect(new Set(data.flatMap(({ counts }: any) => counts.map(({ collection }: any) => collection)))).toEqual(
      new Set(['marked']),
    )
    const one = await ok(own.call('GET', `/log/requests/${id}`))
    expect(one.data.eventList[0].changes).toBeUndefined()
  })

  describe('to a role that may read some fields of svc_AuditLog', () => {
    const readerOfFields = async (...fields: string[]) =>
      (await api.user([{ collection: 'svc_AuditLog', action: 'read', fields }])).call
    const uuid = '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'

    it('tells nothing of the others', async () => {
      const call = await readerOfFields('id', 'createdAt')
      const { id } = await ok(api.admin('POST', '/items/tree', { name: 't', leaf: { name: 'l' } }))
      const shown = { position: expect.any(String), at: expect.any(String), until: expect.any(String), events: 2 }
      expect((await list('limit=1', call)).data).toEqual([shown])
      const { eventList, ...root } = (await ok(call('GET', `/log/requests/${id}`))).data
      expect(root).toEqual(shown)
      const event = { id: expect.any(String), position: expect.any(String), createdAt: expect.any(String) }
      expect(eventList).toEqual([event, event])
    })

    it('tells what comes from each of these', async () => {
      const { id } = await ok(api.admin('POST', '/items/tree', { name: 't' }))
      const { id: undoing } = await ok(api.admin('POST', '/log/undo', { requestId: id }))
      const of = async (...fields: string[]) =>
        (await ok((await readerOfFields('id', ...fields))('GET', `/log/requests/${id}`))).data
      expect(await of('entity')).toMatchObject({
        counts: [{ collection: 'tree', events: 1 }],
        eventList: [{ collection: 'tree' }],
      })
      expect((await of('entity')).counts[0]).not.toHaveProperty('action')
      const undone = await readerOfFields('id', 'action')
      expect((await ok(undone('GET', `/log/requests/${undoing}`))).data.counts).toEqual([
        { action: 'delete', events: 1 },
        { action: 'undone', events: 1 },
      ])
      const typed = await readerOfFields('id', 'action', 'type')
      expect((await ok(typed('GET', `/log/requests/${undoing}`))).data.counts).toEqual([
        { action: 'delete', events: 1 },
        { action: 'history.undone', events: 1 },
      ])
      expect(Object.keys(await of('logRequestId'))).toEqual(['requestId', 'position', 'events', 'eventList'])
      expect(await of('cause')).toMatchObject({ cause: null, caused: [], chain: [] })
      const fields = ['type', 'action', 'entity', 'entityId', 'logRequestId']
      expect(await of(...fields)).toMatchObject({ undoneBy: [undoing] })
      for (const field of fields)
        expect(await of(...fields.filter((name) => name !== field))).not.toHaveProperty('undoneBy')
    })

    it('shows what a request led to without its id', async () => {
      const { ItemsService } = contextFor(api.runtime, 'svc-hook-marked')
      api.runtime.hooks.register('svc-hook-marked', 'marked', 'items.create.after', async () => {
        await new ItemsService('leaf').createOne({ name: 'by the hook' })
      })
      const { id } = await ok(api.admin('POST', '/items/marked', { name: 'root' }))
      const call = await readerOfFields('id', 'entity', 'cause')
      const { data } = await ok(call('GET', `/log/requests/${id}`))
      expect(data.caused).toMatchObject([
        { cause: { request: id }, counts: [{ collection: 'leaf', events: 1 }], eventList: [{ collection: 'leaf' }] },
      ])
      const below = await ok(call('GET', `/log/requests/${data.caused[0].position}`))
      expect(below.data.chain).toMatchObject([{ counts: [{ collection: 'marked', events: 1 }] }])
      expect(below.data.chain[0]).not.toHaveProperty('requestId')
    })

    it.each([
      [`actor=${uuid}`, 'userId'],
      [`tenant=${uuid}`, 'tenant_Id'],
      [`cause=${uuid}`, 'cause'],
      ['collection=tree', 'entity'],
      ['action=create', 'action'],
      ['requestId=x', 'requestId'],
      ['agent=robot', 'agent'],
    ])('refuses %s to those who may not read %s', async (query, field) => {
      const refused = { status: 403, body: { error: { message: `You don't have permission to read field: ${field}` } } }
      expect(await (await readerOfFields('id', 'createdAt'))('GET', `/log/requests?${query}`)).toMatchObject(refused)
      const call = await readerOfFields('id', 'createdAt', field)
      expect((await call('GET', `/log/requests?${query}`)).status).toBe(200)
    })

    it('refuses the list, which is in order of time, to those who may not read the time', async () => {
      const call = await readerOfFields('id', 'entity', 'action')
      expect(await call('GET', '/log/requests')).toMatchObject({
        status: 403,
        body: { error: { message: "You don't have permission to read field: createdAt" } },
      })
    })

    it('goes on from cursors that hold no id of a request', async () => {
      const call = await readerOfFields('id', 'createdAt')
      for (const name of ['1', '2', '3']) await ok(api.admin('POST', '/items/leaf/bulk', [{ name }, { name }]))
      const ids = (await api.sql('select distinct "logRequestId"::text as id from "svc_AuditLog"')).map(({ id }) => id)
      const positions: string[] = []
      let cursor: string | null = ''
      while (cursor !== null && positions.length < 6) {
        const page: any = await list(`limit=2${cursor && `&cursor=${cursor}`}`, call)
        positions.push(...page.data.map(({ position }: any) => position))
        cursor = page.nextCursor as string | null
        const { seen } = JSON.parse(Buffer.from(cursor ?? '', 'base64url').toString())
        expect(seen.length).toBeGreaterThan(0)
        expect(seen.filter((id: string) => ids.includes(id))).toEqual([])
      }
      expect(new Set(positions).size).toBe(6)
      const { data } = await list('limit=6')
      expect(positions).toEqual(data.map(({ position }: any) => position))
    })
  })
})

describe('GET /log/requests/{id}', () => {
  it('is a tree of what a request did and led to, with what led to it and what undid it', async () => {
    const { ItemsService } = contextFor(api.runtime, 'svc-hook-tree')
    api.runtime.hooks.register('svc-hook-tree', 'tree', 'items.create.after', async () => {
      await new ItemsService('leaf').createOne({ name: 'by the hook' })
    })
    const { id } = await ok(api.admin('POST', '/items/tree', { name: 'root' }))
    const { id: undoing } = await ok(api.admin('POST', '/log/undo', { requestId: id }))
    const { data } = await ok(api.admin('GET', `/log/requests/${id}`))
    expect(data).toMatchObject({ requestId: id, chain: [], undoneBy: [undoing], events: 1 })
    expect(data.eventList).toMatchObject([
      { collection: 'tree', action: 'create', changes: { before: null, after: { name: 'root' } } },
    ])
    expect(data.caused).toMatchObject([
      {
        cause: { request: id, depth: 1, by: 'hook' },
        eventList: [{ collection: 'leaf', action: 'create' }],
        caused: [],
      },
    ])
    expect(JSON.stringify(data)).not.toContain('secret')
    const below = await ok(api.admin('GET', `/log/requests/${data.caused[0].requestId}`))
    expect(below.data.chain).toMatchObject([{ requestId: id }])
    const { data: caused } = await list(`cause=${id}`)
    expect(caused.map(({ requestId }: any) => requestId)).toEqual([data.caused[0].requestId])
    const byPosition = await ok(api.admin('GET', `/log/requests/${data.eventList[0].id}`))
    expect(byPosition.data.requestId).toBe(id)
  })

  it('takes the position of an event for its transaction', async () => {
    await api.sql(`insert into leaf (name) values ('by SQL')`)
    const [{ position }] = await api.sql('select max(position)::text as position from "svc_AuditLog"')
    const { data } = await ok(api.admin('GET', `/log/requests/${position}`))
    expect(data).toMatchObject({ requestId: null, position, events: 1, eventList: [{ collection: 'leaf' }] })
  })

  it('shows one whose caller has named a cause that the log cannot have', async () => {
    const unmade = 'ffffffff-ffff-7fff-bfff-ffffffffffff'
    const { id } = await ok(api.admin('POST', '/items/leaf', { name: 'x' }, { 'daybook-cause': `${unmade}/1` }))
    expect((await ok(api.admin('GET', `/log/requests/${id}`))).data).toMatchObject({
      cause: { request: unmade },
      chain: [],
    })
  })

  it.each([
    'x',
    '99999999999999',
    '00000000-0000-7000-8000-000000000000',
    'fac494d2-3291-495d-a553-7e84721befc0',
    'ffffffff-ffff-7fff-bfff-ffffffffffff',
  ])('answers %s with 404', async (id) => {
    expect((await api.admin('GET', `/log/requests/${id}`)).status).toBe(404)
  })
})

describe('GET /items/{collection}/deleted', () => {
  const trash = async (collection: string, call: Call = api.admin, query = '') =>
    ok(call('GET', `/items/${collection}/deleted${query}`))

  it('lists what was deleted and not restored, and each can be brought back with what it refers to', async () => {
    const { data: leaf } = await ok(api.admin('POST', '/items/leaf', { name: 'l' }))
    const { data: tree } = await ok(api.admin('POST', '/items/tree', { name: 't', leaf_Id: leaf.id }))
    const { id: request } = await ok(api.admin('DELETE', `/items/tree/${tree.id}`))
    const { data } = await trash('tree')
    expect(data[0]).toEqual({
      id: tree.id,
      event: expect.any(String),
      deletedAt: expect.stringMatching(/Z$/),
      deletedBy: expect.any(String),
      requestId: request,
      item: expect.objectContaining({ id: tree.id, name: 't', leaf_Id: leaf.id }),
    })
    await ok(api.admin('POST', `/items/tree/${tree.id}/restore`, { before: data[0].event }))
    const { data: back } = await ok(api.admin('GET', `/items/tree/${tree.id}?fields=name,leaf.name`))
    expect(back).toMatchObject({ name: 't', leaf: { name: 'l' } })
    expect((await trash('tree')).data.map(({ id }: any) => id)).not.toContain(tree.id)
  })

  it('lists marked rows too', async () => {
    const { data: row } = await ok(api.admin('POST', '/items/marked', { name: 'm' }))
    await ok(api.admin('DELETE', `/items/marked/${row.id}`))
    const [first] = (await trash('marked')).data
    expect(first).toMatchObject({ id: row.id, item: { name: 'm', deletedAt: null } })
    await ok(api.admin('POST', `/items/marked/${row.id}/restore`, { before: first.event }))
    expect((await api.admin('GET', `/items/marked/${row.id}`)).status).toBe(200)
    expect((await trash('marked')).data.map(({ id }: any) => id)).not.toContain(row.id)
    await ok(api.admin('DELETE', `/items/marked/${row.id}`))
    await api.sql('delete from marked where id = $1', [row.id])
    expect((await trash('marked')).data.filter(({ id }: any) => id === row.id)).toHaveLength(1)
  })

  it('shows a caller what it might have read, in pages', async () => {
    const rows = [{ name: 'mine 1' }, { name: 'other' }, { name: 'mine 2' }, { name: 'mine 3' }]
    await ok(
      api.admin(
        'POST',
        '/items/leaf/bulk',
        rows.map((row) => ({ ...row, secret: 'canary' })),
      ),
    )
    await api.sql(`delete from leaf where name like 'mine%' or name = 'other'`)
    const reader = await api.user([
      { collection: 'leaf', action: 'read', fields: ['name'], conditions: { name: { startsWith: 'mine' } } },
    ])
    const seen: string[] = []
    let cursor: string | null = ''
    do {
      const page: any = await trash('leaf', reader.call, `?limit=2${cursor && `&cursor=${cursor}`}`)
      expect(
        page.data.flatMap(({ item }: any) => Object.keys(item)).filter((name: string) => !/^(id|name)$/.test(name)),
      ).toEqual([])
      seen.push(...page.data.map(({ item }: any) => item.name))
      cursor = page.nextCursor
    } while (cursor !== null)
    expect(seen.sort()).toEqual(['mine 1', 'mine 2', 'mine 3'])
    const { text } = await api.admin('GET', '/items/leaf/deleted')
    expect(text).not.toMatch(/canary|secret/)
    const [{ id }] = (await trash('leaf')).data
    await ok(api.admin('DELETE', `/items/leaf/${id}/history`))
    expect((await trash('leaf')).data.map((row: any) => row.id)).not.toContain(id)
  })

  it.each([
    ['/items/leaf/deleted?limit=0', 400],
    ['/items/leaf/deleted?cursor=x', 400],
    ['/items/leaf/deleted?filters=x', 400],
    ['/items/nothing/deleted', 404],
    ['/items/svc_Sessions/deleted', 400],
  ])('answers %s with %i', async (path, status) => expect((await api.admin('GET', path)).status).toBe(status))

  it('is refused to callers who may not read the collection', async () => {
    expect((await api.anonymous('GET', '/items/leaf/deleted')).status).toBe(403)
  })
})

/** Events in the time before `$1`, so many of each request. */
const eventsSql = (interval: string, count: number, ofEach: number) => `
  with at as (select n, n / ${ofEach} as request, $1::timestamptz - interval '${interval}' as "from", interval '${interval}' / ${count} as step
    from generate_series(0, ${count - 1}) n)
  insert into "svc_AuditLog" ("createdAt", entity, "entityId", action, "logRequestId")
  select "from" + n * step, 'leaf', n, 'create',
    (lpad(to_hex((1000 * extract(epoch from "from" + request * ${ofEach} * step))::bigint), 12, '0') || '70008' || to_char(request, 'FM000000000000000'))::uuid
  from at`

it('finds the events of a request by its id and time in one index, whatever the statistics say', async () => {
  const [{ at }] = await api.sql(`select date_trunc('month', now()) + interval '1 month 10 days' as at`)
  // The statistics know large requests and nothing of the last ten minutes, in which there seem to be few events.
  await api.sql(eventsSql('9 days', 30_000, 200), [at])
  await api.sql('analyze "svc_AuditLog"')
  await api.sql(eventsSql('10 minutes', 3000, 1), [at])
  const [{ id }] = await api.sql(`select "logRequestId"::text as id from "svc_AuditLog" order by position desc limit 1`)
  const plans: unknown[] = []
  const explaining = readerOf(async (text, values) => {
    plans.push(await api.sql(`explain (format json) ${text}`, [...values]))
    return { rows: [] }
  })
  await touchedRows(explaining, { by: 'requests', requests: [id] })
  const scans = nodesOf(plans).filter((node) => String(node['Relation Name']).startsWith('svc_AuditLog'))
  expect(scans.map((node) => node['Index Cond'] ?? node['Node Type'])).toEqual([
    expect.stringMatching(/logRequestId.+ = .+createdAt.+ >= .+createdAt.+ < /),
  ])
})

/** The nodes of plans, from PostgreSQL's JSON. */
function nodesOf(plan: unknown): Record<string, unknown>[] {
  if (typeof plan !== 'object' || plan === null) return []
  const inner = Object.values(plan).flatMap(nodesOf)
  return 'Node Type' in plan ? [plan as Record<string, unknown>, ...inner] : inner
}
