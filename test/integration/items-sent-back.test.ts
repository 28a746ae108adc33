import { randomUUID } from 'node:crypto'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'
import { upload } from '../support/upload.ts'

/** Foreign keys of rows that come back as they were read, but for what their client has changed. */

let api: Api
/** Two rows of maker, and a part that points at the first. */
const ids = { x: '', y: '', part: '' }

beforeAll(async () => {
  api = await startApi()
  const maker = { relType: 'BelongsTo', target: 'maker', foreignKey: 'maker_Id' }
  const box = { relType: 'BelongsTo', target: 'box', foreignKey: 'box_Id' }
  const item = (target: string) => ({
    relType: 'BelongsTo',
    target,
    foreignKey: 'item_id',
    constraints: false,
    scope: { collection: target },
  })
  const schemas: [string, object, object?][] = [
    ['maker', { name: { type: 'String' } }, { paranoid: true }],
    ['box', { name: { type: 'String' } }],
    ['part', { name: { type: 'String', unique: true }, maker, box }],
    [
      'box_item',
      {
        box: { ...box, allowNull: false, onDelete: 'CASCADE' },
        item_id: { type: 'UUID', allowNull: false },
        collection: { type: 'String', allowNull: false },
        maker: item('maker'),
        part: item('part'),
      },
      { isJunction: true },
    ],
  ]
  for (const [collectionName, fields, more] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { ...more, fields } })).text).toMatch(
      /success/,
    )
  const { data } = (await api.admin('GET', '/schemas/box')).body
  const backwards = {
    parts: { relType: 'HasMany', target: 'part', foreignKey: 'box_Id' },
    items: {
      relType: 'HasMany',
      target: 'box_item',
      foreignKey: 'box_Id',
      polymorphic: true,
      tables: ['maker', 'part'],
    },
  }
  const schema = { ...data.schema, fields: { ...data.schema.fields, ...backwards } }
  expect((await api.admin('PATCH', '/schemas/box', { schema })).text).toMatch(/success/)
  ids.x = await create('maker', { name: 'X' })
  ids.y = await create('maker', { name: 'Y' })
})

beforeEach(async () => {
  ids.part = await create('part', { name: randomUUID(), maker_Id: ids.x })
})

const create = async (collection: string, payload: object, call: Call = api.admin) => {
  const { status, body, text } = await call('POST', `/items/${collection}`, payload)
  expect(status, text).toBe(201)
  return body.data.id
}
const read = async (collection: string, id: unknown, fields: string, call: Call = api.admin) => {
  const { status, body, text } = await call('GET', `/items/${collection}/${id}?fields=${fields}`)
  expect(status, text).toBe(200)
  return body.data
}
const makerOf = async (id: string) => (await api.sql('select "maker_Id" from part where id = $1', [id]))[0]!.maker_Id
const contradiction = (field: string, message = 'maker_Id and maker name different rows') => ({
  status: 400,
  body: { error: { message: 'Validation failed for relational data', details: [{ field, message }] } },
})
const story = async (position: bigint) => (await api.log(position)).map(({ action, entity }) => `${action} ${entity}`)
/** The call refused, and neither a row nor an event of it. */
async function refused(attempt: () => Promise<Answer>, expected: object) {
  const before = await api.position()
  expect(await attempt()).toMatchObject(expected)
  expect(await api.log(before)).toEqual([])
}
const reversed = (row: object) => Object.fromEntries(Object.entries(row).reverse())

type Way = (row: Record<string, unknown>) => Promise<Answer>
/** Ways to send a part back; `label` is where it stands in the request. */
const ways: Readonly<Record<string, { readonly send: Way; readonly label: string }>> = {
  PATCH: { send: (row) => api.admin('PATCH', `/items/part/${ids.part}`, row), label: '' },
  'a bulk PATCH': { send: (row) => api.admin('PATCH', '/items/part/bulk', [row]), label: '0.' },
  'a nested row': { send: (row) => api.admin('POST', '/items/box', { parts: [row] }), label: 'parts.0.' },
}

describe.each(Object.entries(ways))('the foreign key of a row that is sent back by %s', (_way, { send, label }) => {
  it.each(['*,maker.*', '*,maker.id'])('is the one that was changed, with fields=%s', async (fields) => {
    const other = await read('maker', ids.y, fields.slice('*,maker.'.length))
    for (const order of [(row: object) => row, reversed]) {
      const set = async (change: (row: Record<string, unknown>) => object, expected: string | null) => {
        const row = await read('part', ids.part, fields)
        const before = await api.position()
        expect((await send({ ...order({ ...row, ...change(row) }) })).status).toBeLessThan(300)
        expect(await makerOf(ids.part)).toBe(expected)
        expect((await story(before)).filter((event) => !event.endsWith(' box'))).toEqual(['update part'])
      }
      await set(() => ({ maker_Id: ids.y }), ids.y)
      await set(() => ({ maker_Id: null }), null)
      await set(() => ({ maker_Id: ids.x }), ids.x)
      await set(() => ({ maker: other }), ids.y)
      await set(() => ({ maker: null }), null)
      await set(() => ({ maker: ids.x }), ids.x)
    }
  })

  it('is refused where both names say something else than the row, each another thing', async () => {
    const row = await read('part', ids.part, '*,maker.*')
    for (const [column, relation] of [
      [ids.y, null],
      [null, ids.y],
      [ids.y, { name: 'new' }],
      [ids.y, { id: randomUUID(), name: 'q' }],
    ])
      for (const changed of [
        { ...row, maker_Id: column, maker: relation },
        { ...row, maker: relation, maker_Id: column },
      ])
        await refused(() => send(changed), contradiction(`${label}maker`))
    expect(await makerOf(ids.part)).toBe(ids.x)
  })

  it('leaves what is nested in the row that came back to that row', async () => {
    const row = await read('part', ids.part, '*,maker.*')
    const before = await api.position()
    await send({ ...row, maker_Id: ids.y, maker: { ...row.maker, name: 'X2' } })
    expect((await story(before)).filter((event) => !event.endsWith(' box'))).toEqual(['update maker', 'update part'])
    expect(await makerOf(ids.part)).toBe(ids.y)
    expect(await read('maker', ids.x, 'name')).toEqual({ name: 'X2' })
    await api.admin('PATCH', `/items/maker/${ids.x}`, { name: 'X' })
  })
})

describe('the foreign key of a row that is sent back', () => {
  it('stays where its relation is not shown and so reads null', async () => {
    const gone = await create('maker', { name: 'gone' })
    const id = await create('part', { name: randomUUID(), maker_Id: gone })
    await api.admin('DELETE', `/items/maker/${gone}`)
    const row = await read('part', id, '*,maker.*')
    expect(row).toMatchObject({ maker_Id: gone, maker: null })
    await refused(() => api.admin('PATCH', `/items/part/${id}`, row), { status: 200 })
    expect(await makerOf(id)).toBe(gone)
    expect((await api.admin('PATCH', `/items/part/${id}`, { ...row, maker_Id: ids.y })).status).toBe(200)
    expect(await makerOf(id)).toBe(ids.y)
  })

  it('is decided by the row of an upsert, and by the payload where there is none', async () => {
    const row = await read('part', ids.part, '*,maker.id')
    for (const order of [(one: object) => one, reversed]) {
      const put = (more: object) => api.admin('PUT', '/items/part?key=name', { ...order({ ...row, ...more }) })
      expect((await put({ maker_Id: ids.y })).status).toBe(200)
      expect(await makerOf(ids.part)).toBe(ids.y)
      expect((await put({ maker_Id: ids.y })).status).toBe(200)
      expect(await makerOf(ids.part)).toBe(ids.x)
    }
    await refused(
      () => api.admin('PUT', '/items/part?key=name', { ...row, maker_Id: ids.y, maker: null }),
      contradiction('maker'),
    )
    const fresh = { name: randomUUID(), maker_Id: ids.y, maker: ids.x }
    await refused(() => api.admin('PUT', '/items/part?key=name', [fresh]), contradiction('0.maker'))
    const made = await api.admin('PUT', '/items/part?key=name', { ...fresh, maker: null })
    expect(made.status).toBe(201)
    expect(await makerOf(made.body.data.id)).toBe(ids.y)
  })

  it('of a new row is the one that names a row', async () => {
    const name = () => randomUUID()
    for (const [column, relation] of [
      [ids.y, null],
      [null, ids.y],
      [null, { id: ids.y }],
      [ids.y, { id: ids.y, name: 'Y' }],
    ])
      for (const payload of [
        { maker_Id: column, maker: relation },
        { maker: relation, maker_Id: column },
      ])
        expect(await makerOf(await create('part', { name: name(), ...payload }))).toBe(ids.y)
    for (const maker of [ids.x, { id: ids.x }, { id: ids.x, name: 'X' }, { name: 'new' }]) {
      const contradicting = { name: name(), maker_Id: ids.y, maker }
      await refused(() => api.admin('POST', '/items/part', contradicting), contradiction('maker'))
      await refused(() => api.admin('POST', '/items/part', reversed(contradicting)), contradiction('maker'))
      await refused(
        () => api.admin('POST', '/items/box', { parts: [{ name: name() }, contradicting] }),
        contradiction('parts.1.maker'),
      )
    }
  })

  it('of an imported row is decided as that of any new one', async () => {
    const { token } = await api.user(
      ['create', 'read'].flatMap((action) => [
        { collection: 'part', action, fields: ['*', 'maker'] },
        { collection: 'maker', action, fields: ['*'] },
      ]),
    )
    const name = randomUUID()
    const importing = (rows: readonly object[]) =>
      upload(api, token, '/items/part/import-json', [
        { name: 'jsonFile', filename: 'a.json', content: JSON.stringify(rows) },
      ])
    const broken = await importing([{ name, maker_Id: ids.x, maker: ids.y }])
    expect(broken.status).toBe(400)
    expect(broken.text).toContain('maker_Id and maker name different rows')
    expect((await importing([{ name, maker_Id: ids.x, maker: null }])).status).toBe(200)
    const [row] = await api.sql('select "maker_Id" from part where name = $1', [name])
    expect(row).toEqual({ maker_Id: ids.x })
  })

  it('is not told by contradictions to who may not read it', async () => {
    const { call } = await api.user([
      { collection: 'part', action: 'update', fields: ['*', 'maker'] },
      { collection: 'part', action: 'read', fields: ['name'] },
      { collection: 'maker', action: 'read', fields: ['*'] },
    ])
    for (const maker_Id of [ids.x, randomUUID()])
      await refused(() => call('PATCH', `/items/part/${ids.part}`, { maker_Id, maker: ids.y }), contradiction('maker'))
  })

  it('of a link to any collection is decided with what it points at', async () => {
    const box = await create('box', { items: [{ collection: 'maker', item_id: ids.x }] })
    const fields = '*,items.*,items.maker.*,items.part.*'
    const linked = () => api.sql('select collection, item_id from box_item where "box_Id" = $1', [box])
    const send = async (change: (link: Record<string, unknown>) => object) => {
      const row = await read('box', box, fields)
      const [link] = row.items
      const answer = await api.admin('PATCH', `/items/box/${box}`, { ...row, items: [{ ...link, ...change(link) }] })
      expect(answer.status, answer.text).toBe(200)
    }
    const before = await api.position()
    await send(() => ({}))
    expect(await api.log(before)).toEqual([])
    await send(() => ({ item_id: ids.y }))
    expect(await linked()).toEqual([{ collection: 'maker', item_id: ids.y }])
    await send(({ maker }) => ({ maker: { ...(maker as object), name: 'Y2' } }))
    expect(await read('maker', ids.y, 'name')).toEqual({ name: 'Y2' })
    await api.admin('PATCH', `/items/maker/${ids.y}`, { name: 'Y' })
    await send(() => ({ maker: { id: ids.x } }))
    expect(await linked()).toEqual([{ collection: 'maker', item_id: ids.x }])
    const [own] = await api.sql('select id from box_item where "box_Id" = $1', [box])
    const row = await read('box_item', own!.id, '*,maker.*,part.*')
    expect((await api.admin('PATCH', `/items/box_item/${own!.id}`, { ...row, part: ids.part })).status).toBe(200)
    expect(await linked()).toEqual([{ collection: 'part', item_id: ids.part }])
  })
})
