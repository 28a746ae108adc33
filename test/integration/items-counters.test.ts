import { beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

/** AUTOINCREMENT beside values that come with the items, as they do when another product's items are taken over. */

let api: Api
let admin: string
beforeAll(async () => {
  api = await startApi()
  admin = (await api.anonymous('POST', '/auth/login', administrator)).body.token
})

let count = 0

/** A collection with a counted key. */
async function counted(key: object = {}): Promise<string> {
  count += 1
  const name = `counted${count}`
  const id = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' }, ...key }
  const schema = { fields: { id, name: { type: 'String' } } }
  const { status, text } = await api.admin('POST', '/schemas', { collectionName: name, schema })
  expect(status, text).toBe(201)
  return name
}

const create = async (name: string): Promise<unknown> => {
  const { status, text, body } = await api.admin('POST', `/items/${name}`, { name: 'next' })
  expect(status, text).toBe(201)
  return body.data.id
}

const rows = (ids: readonly number[]) => ids.map((id) => ({ id, name: `row ${id}` }))

const ways: [string, (name: string, ids: readonly number[]) => Promise<readonly Answer[]>][] = [
  [
    'items one by one',
    async (name, ids) => {
      const answers: Answer[] = []
      for (const row of rows(ids)) answers.push(await api.admin('POST', `/items/${name}`, row))
      return answers
    },
  ],
  [
    'items at the same time',
    (name, ids) => Promise.all(rows(ids).map((row) => api.admin('POST', `/items/${name}`, row))),
  ],
  ['a bulk create', async (name, ids) => [await api.admin('POST', `/items/${name}/bulk`, rows(ids))]],
  [
    'a bulk create of rows that are not alike',
    async (name, ids) => [
      await api.admin('POST', `/items/${name}/bulk`, [...rows(ids), { name: 'without' }].reverse()),
    ],
  ],
  ['an upsert', async (name, ids) => [await api.admin('PUT', `/items/${name}`, rows(ids))]],
  [
    'an import',
    async (name, ids) => {
      const part = { name: 'jsonFile', filename: 'rows.json', content: JSON.stringify(rows(ids)) }
      return [await upload(api, admin, `/items/${name}/import-json`, [part])]
    },
  ],
]

describe.each(ways)('after %s with ids', (_way, write) => {
  it.each([
    ['in order', [1, 2, 3], 4],
    ['with gaps', [1, 3, 10, 14], 15],
    ['from the end', [14, 10, 3, 1], 15],
    ['far away', [70_000, 5, 60_000], 70_001],
    ['below zero', [-5, -1], 1],
  ])('%s the next create has the next one', async (_order, ids, next) => {
    const name = await counted()
    for (const { status, text } of await write(name, ids)) expect(status, text).toBeLessThan(300)
    const first = (await create(name)) as number
    // The row without an id may have come first.
    expect([next, next + 1]).toContain(first)
    expect(await create(name)).toBe(first + 1)
  })
})

it('a counter goes forward only', async () => {
  const name = await counted()
  for (let at = 1; at <= 5; at += 1) await create(name)
  await api.admin('DELETE', `/items/${name}/2`)
  expect((await api.admin('POST', `/items/${name}`, { id: 2 })).status).toBe(201)
  expect(await create(name)).toBe(6)
})

it('a row of a relation and one that an undo brings back count, too', async () => {
  const name = await counted()
  const fields = { of: { relType: 'BelongsTo', target: name, foreignKey: 'of_Id' } }
  await api.admin('POST', '/schemas', { collectionName: `${name}_of`, schema: { fields } })
  const related = await api.admin('POST', `/items/${name}_of`, { of: { name: 'new' } })
  expect(related.status, related.text).toBe(201)
  await api.admin('POST', `/items/${name}`, { id: 9, name: 'named' })
  await api.admin('DELETE', `/items/${name}/9`)
  const position = (await api.position()).toString()
  await api.sql(`alter table "${name}" alter column id restart with 7`)
  const undone = await api.admin('POST', '/log/undo', { position })
  expect(undone.status, undone.text).toBe(200)
  expect(await create(name)).toBe(10)
})

it('a field that is no key counts, and its changes', async () => {
  const name = await counted({ type: 'UUID', defaultValue: { type: 'UUIDV4' } })
  const number = { type: 'Integer', unique: true, defaultValue: { type: 'AUTOINCREMENT' } }
  const changed = await api.admin('PATCH', `/schemas/${name}`, { schema: { fields: { number } } })
  expect(changed.status, changed.text).toBe(200)
  const numberOf = async (body: object) =>
    (await api.admin('POST', `/items/${name}?fields=id,number`, body)).body.data as { id: string; number: number }
  expect((await numberOf({ number: 20 })).number).toBe(20)
  const { id, number: next } = await numberOf({})
  expect(next).toBe(21)
  expect((await api.admin('PATCH', `/items/${name}/${id}`, { number: 30 })).status).toBe(200)
  expect((await numberOf({})).number).toBe(31)
  expect((await api.admin('PATCH', `/items/${name}/bulk`, [{ id, number: 40 }])).status).toBe(200)
  expect((await numberOf({})).number).toBe(41)
})

describe('a value at the end of what there is', () => {
  it.each([
    ['Integer', '2147483647', '2146483647'],
    ['BigInt', '9223372036854775807', '9223372036853775807'],
  ])('of %s leaves the counter alone', async (type, last, furthest) => {
    const name = await counted({ type })
    expect((await api.admin('POST', `/items/${name}`, { id: last })).status).toBe(201)
    expect(await create(name)).toBe(1)
    expect((await api.admin('POST', `/items/${name}`, { id: furthest })).status).toBe(201)
    expect(String(await create(name))).toBe((BigInt(furthest) + 1n).toString())
    const least = type === 'Integer' ? '-2147483648' : '-9223372036854775808'
    expect((await api.admin('POST', `/items/${name}`, { id: least })).status).toBe(201)
  })

  it('of one who is no administrator does so from the middle on', async () => {
    const name = await counted()
    const condition = { name: { ne: 'forbidden' } }
    const { call } = await api.user([
      { collection: name, action: 'create', fields: ['*'], conditions: condition },
      { collection: name, action: 'read', fields: ['*'] },
    ])
    expect((await call('POST', `/items/${name}`, { id: 1_500_000_000, name: 'x' })).status).toBe(201)
    expect((await call('POST', `/items/${name}/bulk`, [{ id: 1_500_000_001, name: 'x' }])).status).toBe(201)
    expect(await create(name)).toBe(1)
    const answers = await Promise.all(rows([5, 6, 7, 8, 9, 10, 11]).map((row) => call('POST', `/items/${name}`, row)))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]))
    expect(await create(name)).toBe(12)
  })
})
