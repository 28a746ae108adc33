import { randomUUID } from 'node:crypto'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'

/** Answers have milliseconds, the database has microseconds: times that come back as they were read are the stored ones. */

let api: Api
let part = ''

beforeAll(async () => {
  api = await startApi()
  const box = { relType: 'BelongsTo', target: 'box', foreignKey: 'box_Id' }
  const schemas: [string, object][] = [
    ['box', { name: { type: 'String' } }],
    ['part', { name: { type: 'String', unique: true }, note: { type: 'String' }, at: { type: 'DateTime' }, box }],
  ]
  for (const [collectionName, fields] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).text).toMatch(/success/)
  const { data } = (await api.admin('GET', '/schemas/box')).body
  const parts = { relType: 'HasMany', target: 'part', foreignKey: 'box_Id' }
  const schema = { ...data.schema, fields: { ...data.schema.fields, parts } }
  expect((await api.admin('PATCH', '/schemas/box', { schema })).text).toMatch(/success/)
})

beforeEach(async () => {
  part = (await api.admin('POST', '/items/part', { name: randomUUID() })).body.data.id
})

const read = async (fields = '*', call: Call = api.admin) =>
  (await call('GET', `/items/part/${part}?fields=${fields}`)).body.data

describe('times of a row that is sent back', () => {
  const times = async () =>
    (await api.sql('select "createdAt"::text, "updatedAt"::text, at::text from part where id = $1', [part]))[0]!
  /** Microseconds that JSON does not show. */
  const exact = async () => {
    await api.sql(
      `update part set "createdAt" = '2026-01-02 03:04:05.123456Z', "updatedAt" = '2026-01-02 03:04:05.234567Z',
         at = '2026-01-02 03:04:05.345678Z' where id = $1`,
      [part],
    )
    return times()
  }
  const sends: Readonly<Record<string, (call: Call, row: Record<string, unknown>) => Promise<Answer>>> = {
    PATCH: (call, row) => call('PATCH', `/items/part/${part}`, row),
    'a bulk PATCH': (call, row) => call('PATCH', '/items/part/bulk', [row]),
    PUT: (call, row) => call('PUT', '/items/part?key=name', row),
    'a nested row': (call, row) => call('POST', '/items/box', { parts: [row] }),
  }
  const named = async () => {
    const all = ['create', 'read', 'update'].map((action) => ({
      collection: 'part',
      action,
      fields: ['*', 'createdAt', 'updatedAt'],
    }))
    return (
      await api.user([
        ...all,
        { collection: 'box', action: 'create', fields: ['*', 'parts.*', 'parts.updatedAt', 'parts.createdAt'] },
      ])
    ).call
  }

  it.each(Object.keys(sends))('stay as they are where nothing else has changed, by %s', async (way) => {
    for (const call of [api.admin, await named()]) {
      const before = await exact()
      const row = await read('*', call)
      const position = await api.position()
      expect((await sends[way]!(call, row)).status).toBeLessThan(300)
      const after = await times()
      if (way === 'a nested row') {
        // Its box is another one.
        expect(after).toEqual({ ...before, updatedAt: after.updatedAt })
        continue
      }
      expect(after).toEqual(before)
      expect(await api.log(position)).toEqual([])
    }
  })

  it.each(Object.keys(sends))('but for updatedAt where another field has changed, by %s', async (way) => {
    for (const call of [api.admin, await named()]) {
      const before = await exact()
      const row = await read('*', call)
      expect((await sends[way]!(call, { ...row, note: randomUUID() })).status).toBeLessThan(300)
      const after = await times()
      expect(after).toEqual({ ...before, updatedAt: expect.any(String) })
      expect(after.updatedAt > before.updatedAt).toBe(true)
    }
  })

  it('are written where they are changed themselves', async () => {
    await exact()
    const row = await read()
    const old = { createdAt: '2001-02-03T04:05:06.700Z', updatedAt: '2002-02-03T04:05:06.700Z', at: null }
    expect((await api.admin('PATCH', `/items/part/${part}`, { ...row, ...old, name: randomUUID() })).status).toBe(200)
    expect(await read('createdAt,updatedAt,at')).toEqual(old)
  })
})
