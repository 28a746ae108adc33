import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { verifyLog } from '../../src/events/verify.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { withClient } from '../support/server.ts'

/** The history of an item, its restoration, erasure and the export about a user (docs/history.md). */

let api: Api
let editor: { call: Call; id: string }
let reader: Call

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', {
    collectionName: 'paper',
    schema: {
      paranoid: true,
      fields: {
        title: { type: 'String' },
        price: { type: 'Decimal', values: { precision: 12, scale: 2 } },
        facts: { type: 'JSON' },
        note: { type: 'String' },
        secret: { type: 'String', hidden: true },
        owner: { relType: 'BelongsTo', target: 'svc_User', foreignKey: 'owner_Id' },
      },
    },
  })
  const open = { price: { lt: 50 } }
  editor = await api.user([
    { collection: 'paper', action: 'read', fields: ['*'], conditions: open },
    { collection: 'paper', action: 'update', fields: ['title', 'price', 'deletedAt'], conditions: open },
  ])
  reader = (await api.user([{ collection: 'paper', action: 'read', fields: ['id', 'title'], conditions: open }])).call
})

const verified = (collection: string) =>
  withClient(api.database.url, async (client) =>
    (await verifyLog(client, api.runtime.catalog.current())).find((each) => each.collection === collection),
  )

const make = async (values: object): Promise<string> => (await api.admin('POST', '/items/paper', values)).body.data.id
const change = (id: string, values: object) => api.admin('PATCH', `/items/paper/${id}`, values)
const history = async (id: string, call: Call = api.admin) =>
  (await call('GET', `/items/paper/${id}/history`)).body.data
const restore = (id: string, body: object, call: Call = api.admin) => call('POST', `/items/paper/${id}/restore`, body)

describe('GET /items/{collection}/{id}/history', () => {
  it('tells who changed what, the newest first', async () => {
    const id = await make({ title: 'a', price: '1.50', secret: 'canary' })
    await editor.call('PATCH', `/items/paper/${id}`, { title: 'b' })
    await api.sql('delete from paper where id = $1', [id])
    const [deleted, updated, created] = await history(id)
    expect(created).toMatchObject({ action: 'create', erased: false, changes: { title: { before: null, after: 'a' } } })
    expect(created.changes.price).toEqual({ before: null, after: '1.50' })
    expect(updated).toMatchObject({ action: 'update', userId: editor.id })
    expect(Object.keys(updated.changes).sort()).toEqual(['title', 'updatedAt'])
    expect(updated.changes.title).toEqual({ before: 'a', after: 'b' })
    expect(updated.createdAt).toMatch(/^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z$/)
    expect(deleted).toMatchObject({ action: 'delete', userId: null, changes: { title: { before: 'b', after: null } } })
    expect(JSON.stringify([deleted, updated, created])).not.toMatch(/canary|secret/)
  })

  it('comes in pages', async () => {
    const id = await make({ title: '0' })
    for (const title of ['1', '2', '3']) await change(id, { title })
    const seen: string[] = []
    for (let cursor: string | null = ''; cursor !== null; ) {
      const { body } = await api.admin('GET', `/items/paper/${id}/history?limit=2&cursor=${cursor}`)
      seen.push(...body.data.map((event: any) => event.changes.title.after))
      cursor = body.nextCursor
    }
    expect(seen).toEqual(['3', '2', '1', '0'])
  })

  it('shows a caller the fields it may read of the states that it might have read', async () => {
    const id = await make({ title: 'cheap', price: '1', note: 'n' })
    await change(id, { note: 'not yours' })
    await change(id, { title: 'dear', price: '70' })
    await change(id, { title: 'dearer', price: '80' })
    await change(id, { price: '2' })
    const seen = await history(id, reader)
    expect(seen.map(({ action, changes }: any) => [action, changes.title])).toEqual([
      ['create', { before: null, after: 'dearer' }],
      ['delete', { before: 'cheap', after: null }],
      ['create', { before: null, after: 'cheap' }],
    ])
    expect(JSON.stringify(seen)).not.toMatch(/"dear"|not yours|price/)
  })

  it('is refused to callers who could read no state of the item', async () => {
    const id = await make({ title: 'never', price: '99' })
    expect((await reader('GET', `/items/paper/${id}/history`)).status).toBe(403)
    expect((await api.anonymous('GET', `/items/paper/${id}/history`)).status).toBe(403)
  })

  it.each([
    ['/items/paper/00000000-0000-4000-8000-000000000000/history', 403],
    ['/items/paper/nonsense/history', 400],
    ['/items/nothing/1/history', 404],
    ['/items/svc_AuditLog/00000000-0000-4000-8000-000000000000/history', 400],
    ['/items/paper/00000000-0000-4000-8000-000000000000/history?cursor=x', 400],
    ['/items/paper/00000000-0000-4000-8000-000000000000/history?limit=0', 400],
  ])('answers %s with %i', async (path, status) => {
    expect((await api.admin('GET', path)).status).toBe(status)
  })

  it('folds to the stored row, whatever was done', async () => {
    const edits = fc.array(
      fc.record(
        {
          title: fc.option(fc.string({ maxLength: 5 }).filter((text) => !text.includes('\0'))),
          price: fc.option(fc.constantFrom('1.10', '0.00', '99.99')),
          facts: fc.option(fc.constantFrom({ a: 1 }, { b: { c: [null, 'x'] } }, [1.5])),
        },
        { requiredKeys: [] },
      ),
      { minLength: 1, maxLength: 6 },
    )
    await fc.assert(
      fc.asyncProperty(edits, async ([first, ...rest]) => {
        const id = await make(first!)
        for (const values of rest) expect((await change(id, values)).status).toBe(200)
        const folded: Record<string, unknown> = {}
        for (const { changes } of (await history(id)).reverse())
          for (const [field, { after }] of Object.entries<any>(changes)) folded[field] = after
        const { data } = (await api.admin('GET', `/items/paper/${id}`)).body
        const filled = Object.fromEntries(Object.entries(data).filter(([, value]) => value !== null))
        expect(Object.fromEntries(Object.entries(folded).filter(([, value]) => value !== null))).toEqual(filled)
      }),
      { numRuns: 15 },
    )
  })
})

describe('POST /items/{collection}/{id}/restore', () => {
  it('writes what differs from the version as a change of the caller’s', async () => {
    const id = await make({ title: 'a', price: '1', facts: { deep: [1] } })
    const now = (await api.anonymous('GET', '/history/now')).body.data
    await change(id, { title: 'b', facts: null })
    await change(id, { price: '9' })
    const [, second] = await history(id)
    const before = await api.position()
    expect((await restore(id, { event: second.id }, editor.call)).body).toEqual({ data: { id } })
    expect((await history(id))[0]).toMatchObject({
      userId: editor.id,
      changes: { price: { before: '9.00', after: '1.00' } },
    })
    expect(await api.log(before)).toHaveLength(1)
    expect((await restore(id, { asOf: now.cursor })).status).toBe(200)
    expect((await api.admin('GET', `/items/paper/${id}?fields=title,price,facts`)).body.data).toEqual({
      title: 'a',
      price: '1.00',
      facts: { deep: [1] },
    })
    const again = await api.position()
    expect((await restore(id, { asOf: now.cursor })).status).toBe(200)
    expect(await api.log(again)).toEqual([])
  })

  it('brings back what was deleted, softly or for good', async () => {
    const id = await make({ title: 'kept', price: '1' })
    const [created] = await history(id)
    await api.admin('DELETE', `/items/paper/${id}`)
    expect((await restore(id, { event: created.id }, editor.call)).status).toBe(200)
    expect((await reader('GET', `/items/paper/${id}`)).status).toBe(200)
    await api.sql('delete from paper where id = $1', [id])
    expect((await restore(id, { event: created.id }, editor.call)).status).toBe(403)
    expect((await restore(id, { event: created.id })).body).toEqual({ data: { id } })
    expect((await reader('GET', `/items/paper/${id}?fields=title`)).body).toEqual({ data: { title: 'kept' } })
  })

  it('gives fields that are younger than the version their defaults, and leaves them alone in an item that is there', async () => {
    const define = async (method: string, path: string, schema: object) => {
      const { status, text } = await api.admin(method, path, { collectionName: 'form', schema })
      expect([status < 300, text]).toEqual([true, expect.anything()])
    }
    const name = { type: 'String' }
    await define('POST', '/schemas', { fields: { name } })
    const [gone, there] = await Promise.all(
      ['a', 'b'].map(async (name) => (await api.admin('POST', '/items/form', { name })).body.data.id),
    )
    const { cursor, time } = (await api.anonymous('GET', '/history/now')).body.data
    await api.admin('PATCH', `/items/form/${there}`, { name: 'changed' })
    await api.admin('DELETE', `/items/form/${gone}`)
    const eventsOf = async (id: string) =>
      (await api.admin('GET', `/items/form/${id}/history`)).body.data.map((event: any) => event.id)
    const [[deletion], [update, creation]] = [await eventsOf(gone), await eventsOf(there)]
    await define('PATCH', '/schemas/form', {
      paranoid: true,
      fields: {
        state: { ...name, allowNull: false, defaultValue: 'open' },
        note: { ...name, defaultValue: 'none' },
      },
    })
    const back = (id: string, body: object) => api.admin('POST', `/items/form/${id}/restore`, body)
    const shown = async (id: string) => (await api.admin('GET', `/items/form/${id}?fields=name,state,note`)).body.data
    expect((await back(gone, { before: deletion })).body).toEqual({ data: { id: gone } })
    expect(await shown(gone)).toEqual({ name: 'a', state: 'open', note: 'none' })
    await api.sql('delete from form where id = $1', [gone])
    expect((await back(gone, { asOf: cursor })).body).toEqual({ data: { id: gone } })
    expect(await shown(gone)).toEqual({ name: 'a', state: 'open', note: 'none' })
    for (const version of [{ event: creation }, { before: update }, { asOf: cursor }, { asOf: time }]) {
      await api.admin('PATCH', `/items/form/${there}`, { name: 'later', state: 'closed', note: 'mine' })
      const before = await api.position()
      expect((await back(there, version)).body).toEqual({ data: { id: there } })
      expect(await shown(there)).toEqual({ name: 'b', state: 'closed', note: 'mine' })
      const [event, ...more] = await api.log(before)
      expect([Object.keys(event!.changes.before).sort(), more]).toEqual([['name', 'updatedAt'], []])
    }
    // It was not deleted when items could only be deleted for good.
    await api.admin('DELETE', `/items/form/${there}`)
    expect((await back(there, { asOf: cursor })).body).toEqual({ data: { id: there } })
    expect(await shown(there)).toEqual({ name: 'b', state: 'closed', note: 'mine' })
  })

  it('is no way past a permission', async () => {
    const id = await make({ title: 'dear', price: '70', note: 'old' })
    await change(id, { title: 'cheap', price: '2' })
    await change(id, { note: 'new' })
    const [, cheap, dear] = await history(id)
    const before = await api.position()
    expect((await restore(id, { event: dear.id }, editor.call)).status).toBe(403)
    expect((await restore(id, { event: cheap.id }, editor.call)).body.error.message).toMatch(/update field: note/)
    expect((await restore(id, { event: cheap.id }, reader)).status).toBe(403)
    expect(await api.log(before)).toEqual([])
  })

  it.each([
    {},
    { event: 'x' },
    { event: 1 },
    { event: 'x', asOf: 'y' },
    { asOf: 'x' },
    { asOf: '2020-01-01', more: 1 },
  ])('refuses %j', async (body) => {
    expect((await restore(await make({ title: 'a' }), body)).status).toBe(400)
  })

  it('takes no event of another item', async () => {
    const [{ id: event }] = await history(await make({ title: 'other' }))
    expect((await restore(await make({ title: 'own' }), { event })).status).toBe(403)
  })
})

describe('erasure', () => {
  it('replaces the images of one item, says so in the log, and leaves its past unknown', async () => {
    const id = await make({ title: 'canary title', price: '1' })
    const other = await make({ title: 'kept title', price: '1' })
    const { cursor } = (await api.admin('GET', '/history/now')).body.data
    await change(id, { title: 'canary two' })
    expect((await editor.call('DELETE', `/items/paper/${id}/history`)).status).toBe(403)
    const before = await api.position()
    const { body } = await api.admin('DELETE', `/items/paper/${id}/history`)
    expect(body).toEqual({ data: { events: 2 } })
    expect(await api.log(before)).toMatchObject([
      { type: 'history', action: 'erased', changes: { collection: 'paper', item: id, events: 2 } },
    ])
    expect(JSON.stringify(await api.sql('select * from "svc_AuditLog"'))).not.toContain('canary t')
    expect((await history(id)).map(({ erased, changes }: any) => [erased, changes])).toEqual([
      [true, null],
      [true, null],
    ])
    expect(await history(id, reader)).toEqual([])
    expect(await verified('paper')).toMatchObject({ erased: 1, different: 0 })
    expect((await api.admin('GET', `/items/paper/${id}?asOf=${cursor}`)).status).toBe(403)
    expect((await api.admin('GET', `/items/paper/${other}?asOf=${cursor}`)).status).toBe(200)
    await expect(api.sql(`update "svc_AuditLog" set changes = null where "entityId" = $1`, [id])).rejects.toThrow(
      'append-only',
    )
    expect((await api.admin('DELETE', '/items/paper/00000000-0000-4000-8000-000000000000/history')).status).toBe(404)
  })

  it('forgets where a user’s requests came from', async () => {
    const { id, call } = await api.user([{ collection: 'paper', action: 'create', fields: ['*'] }])
    await call('POST', '/items/paper', { title: 'mine' }, { 'user-agent': 'canary agent' })
    expect((await api.admin('DELETE', `/items/svc_User/${id}/history`)).status).toBe(200)
    const left = await api.sql(`select ipaddress, "userAgent" from "svc_AuditLog" where "userId" = $1`, [id])
    expect(left.length).toBeGreaterThan(0)
    expect(left.filter((row) => row.ipaddress !== null || row.userAgent !== null)).toEqual([])
  })
})

describe('the export about a user', () => {
  it('holds every event about or by the user, secrets and other people’s data apart', async () => {
    const user = await api.user([{ collection: 'paper', action: 'create', fields: ['*'] }])
    const own = await make({ title: 'own paper', owner_Id: user.id, secret: 'canary' })
    await user.call('POST', '/items/paper', { title: 'paper of somebody else' })
    await make({ title: 'no business of the user’s' })
    const { status, text, headers } = await api.admin('GET', `/history/users/${user.id}/export`)
    expect({ status, type: headers['content-type'] }).toEqual({
      status: 200,
      type: 'application/x-ndjson; charset=utf-8',
    })
    const events = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    const kinds = events.map(({ type, entity, action }) => `${type} ${entity} ${action}`)
    expect(kinds).toEqual(
      expect.arrayContaining(['data svc_User create', 'data svc_UserRole create', 'auth svc_User login']),
    )
    expect(events.find(({ entityId }) => entityId === own).changes.after.title).toBe('own paper')
    expect(events.filter(({ entity }) => entity === 'paper').map(({ changes }) => changes === null)).toEqual([
      false,
      true,
    ])
    expect(text).not.toMatch(/canary|\$2[aby]\$|business|somebody else/)
  })

  it('is for administrators', async () => {
    expect((await editor.call('GET', `/history/users/${editor.id}/export`)).status).toBe(403)
    expect((await api.admin('GET', '/history/users/x/export')).status).toBe(400)
  })
})
