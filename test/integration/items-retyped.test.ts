import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { untilAdmitted } from '../support/wait.ts'

/**
 * Statements that read rows out of the log keep no plan for the columns that a table had before: PostgreSQL reads values by it as
 * what they are not.
 */

let api: Api

beforeAll(async () => {
  api = await startApi()
})

const retypes = [
  ['String', 'Integer', '13', 13],
  ['Integer', 'String', 13, '13'],
  ['String', 'Double', '13.5', 13.5],
  ['String', 'Date', '2024-01-13', '2024-01-13'],
  ['Text', { type: 'String', values: { stringLength: 50 } }, 'thirteen', 'thirteen'],
] as const

describe.each(retypes)('after a change of a field from %j to %j', (from, to, stored, shown) => {
  it('the trash, the history and the changes show values of the new type', async () => {
    const name = `retyped_${retypes.findIndex((one) => one[0] === from && one[1] === to)}`
    const made = await api.admin('POST', '/schemas', {
      collectionName: name,
      schema: { fields: { n: { type: from }, other: { type: 'Integer' } } },
    })
    expect(made.status, made.text).toBe(201)
    const [kept, gone] = await Promise.all(
      [1, 2].map(async () => (await api.admin('POST', `/items/${name}`, { n: stored })).body.data.id),
    )
    const { body } = await api.admin('GET', '/changes')
    const since = body.cursor
    await api.admin('DELETE', `/items/${name}/${gone}`)
    await api.admin('PATCH', `/items/${name}/${kept}`, { other: 1 })
    const asked = {
      trash: `/items/${name}/deleted`,
      history: `/items/${name}/${gone}/history`,
      changes: `/changes?collections=${name}&since=${encodeURIComponent(since)}`,
      before: `/items/${name}?asOf=${encodeURIComponent(since)}&sort=id`,
    }
    /** On every connection that may have prepared it. */
    const answers = async (path: string) => {
      const all = await Promise.all(Array.from({ length: 12 }, () => untilAdmitted(() => api.admin('GET', path))))
      expect(all.map(({ status }) => status)).toEqual(all.map(() => 200))
      return all.map(({ body: { data } }) => JSON.stringify(data))
    }
    for (const path of Object.values(asked)) await answers(path)
    const type = typeof to === 'string' ? { type: to } : to
    const changed = await api.admin('PATCH', `/schemas/${name}`, { schema: { fields: { n: type } } })
    expect(changed.status, changed.text).toBe(200)
    for (const [what, path] of Object.entries(asked))
      for (const text of await answers(path))
        expect(text).toContain(`"n":${what === 'history' ? '{"before":' : ''}${JSON.stringify(shown)}`)
  })
})

describe('a value that no longer fits its field', () => {
  /**
   * Rows `bad` (of tenant or owner `other`) and `good`, both deleted, and `kept`, whose first value does not fit: n was text and is an
   * integer now, s may have 3 characters, u is as it was.
   */
  const retyped = async (name: string) => {
    const made = await api.admin('POST', '/schemas', {
      collectionName: name,
      schema: {
        fields: { n: { type: 'Text' }, s: { type: 'Text' }, u: { type: 'String' }, owner: { type: 'String' } },
      },
    })
    expect(made.status, made.text).toBe(201)
    const create = async (row: object) => (await api.admin('POST', `/items/${name}`, row)).body.data.id as string
    const [bad, good, kept] = [
      await create({ n: 'abc', s: 'abc', u: 'bad', owner: 'x' }),
      await create({ n: '13', s: 'abc', u: 'good', owner: 'y' }),
      await create({ n: 'def', s: 'abcdef', u: 'kept', owner: 'y' }),
    ]
    const at = (await api.admin('GET', '/history/now')).body.data.cursor as string
    const deleted = await api.admin('DELETE', `/items/${name}/${bad}`)
    await api.admin('DELETE', `/items/${name}/${good}`)
    const updated = await api.admin('PATCH', `/items/${name}/${kept}`, { n: '7', s: 'xyz' })
    const renamed = await api.admin('PATCH', `/items/${name}/${kept}`, { u: 'renamed' })
    const request = (answer: { headers: Record<string, unknown> }) =>
      (answer.headers['x-log-request-id'] ?? answer.headers['x-request-id']) as string
    const since = at
    const changed = await api.admin('PATCH', `/schemas/${name}`, {
      schema: { fields: { n: { type: 'Integer' }, s: { type: 'String', values: { stringLength: 3 } } } },
    })
    expect(changed.status, changed.text).toBe(200)
    const requests = { deleted: request(deleted), updated: request(updated), renamed: request(renamed) }
    return { name, bad, good, kept, at, since, requests, asOf: encodeURIComponent(at) }
  }

  const rowsOf = async (name: string) => api.sql(`select id, n, s, u from "${name}" order by u`)
  const eventsOf = async (name: string) =>
    (await api.sql(`select count(*)::int as n from "svc_AuditLog" where entity = $1`, [name]))[0].n

  it('is null in lists, items, reports, exports and the trash, and the rest is shown', async () => {
    const { name, bad, good, kept, asOf } = await retyped('misfit_reads')
    const was = [
      { u: 'bad', n: null, s: 'abc' },
      { u: 'good', n: 13, s: 'abc' },
      { u: 'kept', n: null, s: null },
    ]
    const list = await api.admin('GET', `/items/${name}?asOf=${asOf}&fields=u,n,s&sort=u`)
    expect(list.body, list.text).toMatchObject({ data: was, totalCount: 3 })
    const page = await api.admin('GET', `/items/${name}?asOf=${asOf}&fields=u,n,s&sort=u&cursor=&limit=2`)
    expect(page.body.data, page.text).toEqual(was.slice(0, 2))
    const one = await api.admin('GET', `/items/${name}/${bad}?asOf=${asOf}&fields=u,n,s`)
    expect(one.body.data, one.text).toEqual(was[0])
    const report = await api.admin('POST', `/reports/${name}`, {
      asOf: decodeURIComponent(asOf),
      aggregate: { t: { function: 'sum', field: 'n' } },
    })
    expect(report.body.data, report.text).toMatchObject([{ t: 13 }])
    const stats = await api.admin('POST', '/reports/stats', {
      stats: [
        { name: 'a', collection: name, query: { asOf: decodeURIComponent(asOf), filter: { n: 13 }, fields: ['u'] } },
      ],
    })
    expect(stats.body.data?.a?.data, stats.text).toEqual([{ u: 'good' }])
    const file = await api.admin('GET', `/items/${name}/export?asOf=${asOf}&fields=u,n&sort=u`)
    expect(file.status, file.text).toBe(200)
    expect(file.text).toContain('good,13')
    const trash = await api.admin('GET', `/items/${name}/deleted`)
    expect(trash.body.data, trash.text).toMatchObject([
      { id: good, item: { n: 13, u: 'good' } },
      { id: bad, item: { n: null, s: 'abc', u: 'bad' } },
    ])
    const changes = await api.admin('GET', `/changes?collections=${name}&since=${asOf}`)
    expect(changes.status, changes.text).toBe(200)
    expect(changes.body.data).toMatchObject([
      { action: 'delete', id: bad },
      { action: 'delete', id: good },
      { action: 'update', id: kept, data: { n: 7 } },
      { action: 'update', id: kept, data: { u: 'renamed' } },
    ])
  })

  it('is as the log has it in the history of its item', async () => {
    const { name, bad, kept } = await retyped('misfit_history')
    const gone = await api.admin('GET', `/items/${name}/${bad}/history`)
    expect(gone.body.data?.[0].changes, gone.text).toMatchObject({
      n: { before: 'abc', after: null },
      s: { before: 'abc', after: null },
    })
    const { body, text } = await api.admin('GET', `/items/${name}/${kept}/history`)
    expect(
      body.data?.map(({ changes }: { changes: object }) => changes),
      text,
    ).toMatchObject([
      { u: { before: 'kept', after: 'renamed' } },
      { n: { before: 'def', after: 7 }, s: { before: 'abcdef', after: 'xyz' } },
      { n: { before: null, after: 'def' } },
    ])
  })

  it('stops nobody who does not see its row or its field', async () => {
    const { name, good, bad, kept, asOf } = await retyped('misfit_rights')
    const { call } = await api.user([
      { collection: name, action: 'read', fields: ['u', 'owner'], conditions: { owner: 'y' } },
    ])
    const list = await call('GET', `/items/${name}?asOf=${asOf}&sort=u`)
    expect(list.body.data, list.text).toEqual([
      { id: good, u: 'good', owner: 'y' },
      { id: kept, u: 'kept', owner: 'y' },
    ])
    const trash = await call('GET', `/items/${name}/deleted`)
    expect(trash.body.data, trash.text).toMatchObject([{ id: good, item: { u: 'good' } }])
    expect((await call('GET', `/items/${name}/${good}/history`)).status).toBe(200)
    const other = await call('GET', `/items/${name}/${bad}/history`)
    expect(other.status).toBe(403)
    expect(other.text).not.toContain('abc')
  })

  it('is no answer to a caller who may not write its field', async () => {
    const { name, requests } = await retyped('misfit_forbidden')
    const { call } = await api.user([{ collection: name, action: 'create', fields: ['u', 's', 'owner'] }])
    for (const dryRun of [true, false]) {
      const { status, text } = await call('POST', '/log/undo', { requestId: requests.deleted, dryRun })
      expect(status, text).toBe(403)
    }
  })

  it('shows no row to a rule that names its field', async () => {
    const { name, bad, good, kept, asOf } = await retyped('misfit_rules')
    const conditions = { OR: [{ n: { isNull: true } }, { n: { gt: 0 } }] }
    const { call } = await api.user([{ collection: name, action: 'read', fields: ['u'], conditions }])
    const list = await call('GET', `/items/${name}?asOf=${asOf}`)
    expect(list.body.data, list.text).toEqual([{ id: good, u: 'good' }])
    const trash = await call('GET', `/items/${name}/deleted`)
    expect(trash.body.data.map(({ id }: { id: string }) => id)).toEqual([good])
    expect((await call('GET', `/items/${name}/${bad}/history`)).status).toBe(403)
    const history = await call('GET', `/items/${name}/${kept}/history`)
    expect(history.body.data.map(({ action }: { action: string }) => action)).toEqual(['update', 'create'])
    const changes = await call('GET', `/changes?collections=${name}&since=${asOf}`)
    expect(changes.body.data, changes.text).toMatchObject([
      { action: 'delete', id: good },
      { action: 'create', id: kept },
      { action: 'update', id: kept },
    ])
  })

  it('is not brought back: undo and restore name the field, write nothing, and do the rest', async () => {
    const { name, bad, good, kept, at, requests } = await retyped('misfit_undo')
    const [rows, events] = [await rowsOf(name), await eventsOf(name)]
    const attempts: [string, object, RegExp][] = [
      ['/log/undo', { requestId: requests.deleted }, /\bn: /],
      ['/log/undo', { requestId: requests.deleted, dryRun: true }, /\bn: /],
      ['/log/undo', { requestId: requests.updated }, /\bn: .*\bs: /s],
      [`/items/${name}/${bad}/restore`, { asOf: at }, /\bn: /],
      [`/items/${name}/${kept}/restore`, { asOf: at }, /\bn: .*\bs: /s],
      [`/items/${name}/${bad}/restore`, { before: await deletionOf(name, bad) }, /\bn: /],
    ]
    for (const [path, body, says] of attempts) {
      const { status, body: answer, text } = await api.admin('POST', path, body)
      expect(status, `${path} ${JSON.stringify(body)}: ${text}`).toBe(400)
      expect(answer.error?.message ?? answer.message ?? text).toMatch(says)
    }
    expect(await rowsOf(name)).toEqual(rows)
    expect(await eventsOf(name)).toBe(events)
    // Another field of a row with such a value, and another row.
    const renamed = await api.admin('POST', '/log/undo', { requestId: requests.renamed })
    expect(renamed.status, renamed.text).toBe(200)
    const restored = await api.admin('POST', `/items/${name}/${good}/restore`, { before: await deletionOf(name, good) })
    expect(restored.status, restored.text).toBe(200)
    expect(await rowsOf(name)).toEqual([
      { id: good, n: 13, s: 'abc', u: 'good' },
      { id: kept, n: 7, s: 'xyz', u: 'kept' },
    ])
  })

  const deletionOf = async (name: string, id: string) =>
    (
      await api.sql(`select id from "svc_AuditLog" where entity = $1 and "entityId" = $2 and action = 'delete'`, [
        name,
        id,
      ])
    )[0].id as string

  it('leaves no list half read that is too long for one statement', async () => {
    const { name, asOf } = await retyped('misfit_long')
    await api.sql(`insert into "${name}" (n, u) select 1, 'more' from generate_series(1, 1500)`)
    const now = (await api.admin('GET', '/history/now')).body.data.cursor
    await api.sql(`update "${name}" set n = 2`)
    const list = await api.admin('GET', `/items/${name}?asOf=${encodeURIComponent(now)}&limit=-1&fields=n`)
    expect(list.body.data.length).toBe(1501)
    const then = await api.admin('GET', `/items/${name}?asOf=${asOf}&limit=-1&fields=u&sort=u`)
    expect(then.body.data).toEqual([{ u: 'bad' }, { u: 'good' }, { u: 'kept' }])
  })
})
