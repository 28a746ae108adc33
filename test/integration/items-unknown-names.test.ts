import { beforeAll, expect, it } from 'vitest'
import { openCatalog } from '../../src/catalog/store.ts'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

/** A field is written from the moment its definition is answered, also by a process that has not heard of it. */

let api: Api
let deaf: Api
const text = { type: 'String' }

beforeAll(async () => {
  api = await startApi()
  for (const collectionName of ['sheet', 'line']) {
    const schema = { fields: { name: { ...text, unique: true } } }
    expect((await api.admin('POST', '/schemas', { collectionName, schema })).status).toBe(201)
  }
  deaf = await startApi({}, api.database)
})

let fields = 0

/** Adds a field to a collection; the other process is not told. */
async function added(collection: string, more: object = {}): Promise<string> {
  Object.assign(deaf.runtime, { catalog: await openCatalog(deaf.runtime.db, undefined, deaf.runtime.log) })
  fields += 1
  const name = `field${fields}`
  const known = (await api.admin('GET', `/schemas/${collection}`)).body.data.schema.fields
  const answer = await api.admin('PATCH', `/schemas/${collection}`, {
    schema: { fields: { ...known, [name]: text, ...more } },
  })
  expect(answer.status, answer.text).toBe(200)
  expect(deaf.runtime.catalog.current().collections.get(collection)!.fields.has(name)).toBe(false)
  return name
}

const stored = async (table: string, field: string) =>
  (await api.sql(`select "${field}" as value from "${table}" where "${field}" is not null`)).map(({ value }) => value)

const create = async (name: string): Promise<string> => (await api.admin('POST', '/items/sheet', { name })).body.data.id

it.each<[how: string, write: (field: string) => Promise<{ status: number; text: string }>]>([
  ['create', (field) => deaf.admin('POST', '/items/sheet', { name: 'a', [field]: 'x' })],
  ['bulk create', (field) => deaf.admin('POST', '/items/sheet/bulk', [{ name: 'b' }, { name: 'c', [field]: 'x' }])],
  ['update', async (field) => deaf.admin('PATCH', `/items/sheet/${await create('d')}`, { [field]: 'x' })],
  [
    'bulk update',
    async (field) => deaf.admin('PATCH', '/items/sheet/bulk', [{ id: await create('e'), data: { [field]: 'x' } }]),
  ],
  ['upsert', (field) => deaf.admin('PUT', '/items/sheet?key=name', { name: 'f', [field]: 'x' })],
])('by %s', async (_how, write) => {
  const field = await added('sheet')
  const { status, text } = await write(field)
  expect([200, 201], text).toContain(status)
  expect(await stored('sheet', field)).toEqual(['x'])
})

it('in the row of a relation that is just as new', async () => {
  const field = await added('line')
  const relation = { relType: 'BelongsTo', target: 'sheet', foreignKey: 'sheet_Id' }
  await added('line', { sheet: relation })
  const ofSheet = await added('sheet')
  const line = { name: 'l', [field]: 'x', sheet: { name: 's', [ofSheet]: 'y' } }
  expect((await deaf.admin('POST', '/items/line', line)).status).toBe(201)
  expect([await stored('line', field), await stored('sheet', ofSheet)]).toEqual([['x'], ['y']])
})

it('by an import, a column of it', async () => {
  const field = await added('sheet')
  const { token } = (await deaf.anonymous('POST', '/auth/login', administrator)).body
  const file = { name: 'csvFile', filename: 'rows.csv', content: `name,${field}\nimported,x\n` }
  const answer = await upload(deaf, token, '/items/sheet/import-csv', [file])
  expect(answer.status, answer.text).toBe(200)
  expect(await stored('sheet', field)).toEqual(['x'])
})

it('and what no process knows is dropped as always', async () => {
  const { status, body } = await deaf.admin('POST', '/items/sheet', { name: 'g', nothing: 'x' })
  expect(status).toBe(201)
  expect((await api.admin('GET', `/items/sheet/${body.data.id}?fields=name`)).body.data).toEqual({ name: 'g' })
})
