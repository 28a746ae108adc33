import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, type Call, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

/** Lists as files. */

let api: Api
let lim: Call
let token: string

const canary = randomUUID()

beforeAll(async () => {
  api = await startApi()
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const fields = {
    sku: { type: 'String' },
    name: { type: 'Text' },
    stock: { type: 'Integer' },
    price: { type: 'Decimal' },
    big: { type: 'BigInt' },
    weight: { type: 'Double' },
    active: { type: 'Boolean' },
    made: { type: 'Date' },
    seen: { type: 'DateTime' },
    tags: { type: 'Array_String' },
    days: { type: 'Range_Date' },
    meta: { type: 'JSON' },
    secret: { type: 'String', hidden: true },
    inner: { type: 'String' },
  }
  const maker = { relType: 'BelongsTo', target: 'maker', foreignKey: 'maker_id' }
  const schemas: [string, object][] = [
    ['maker', { name: { type: 'String' }, phone: { type: 'String' } }],
    ['part', { ...fields, maker }],
    ['copy', { ...fields, maker }],
    ['line', { n: { type: 'Integer' } }],
  ]
  for (const [collectionName, own] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields: own } })).text).toMatch(/success/)
  const made = await api.admin('POST', '/items/maker', { name: '=Maker, "the"', phone: canary })
  const hidden = { secret: canary, inner: canary, maker: made.body.data.id }
  await api.admin('POST', '/items/part/bulk', [
    {
      ...hidden,
      sku: 'a',
      name: '=cmd|"/C calc"!A0',
      stock: -5,
      price: '-1.50',
      big: '-9007199254740993',
      weight: -0.25,
      active: true,
      made: '2024-02-29',
      seen: '2024-01-01T10:00:00.123Z',
      tags: ['=x', 'y,"z"', null],
      days: { lower: '2024-01-01', upper: '2024-02-01' },
      meta: { 'k"': ['=v', null, -1] },
    },
    { ...hidden, sku: 'b', name: '', stock: null, meta: '-text', tags: [] },
    { ...hidden, sku: 'c', name: ' \'+lead\r\nand, "more" ', meta: false, maker: null },
    { ...hidden, sku: 'd', name: "'tis", stock: 1, meta: [] },
  ])
  lim = (
    await api.user([
      {
        collection: 'part',
        action: 'read',
        fields: ['id', 'sku', 'name', 'stock', 'maker.name'],
        conditions: { sku: { in: ['a', 'b', 'c'] } },
      },
      { collection: 'maker', action: 'read', fields: ['name'] },
    ])
  ).call
})

const get = (call: Call, query: string, collection = 'part') => call('GET', `/items/${collection}/export?${query}`)

describe('a CSV file', () => {
  it('is an attachment with a header, safe for spreadsheets, numbers as they are', async () => {
    const answer = await get(api.admin, 'format=csv&sort=sku&fields=sku,name,stock,price,big,weight,meta,tags')
    expect(answer.status).toBe(200)
    expect(answer.headers['content-type']).toBe('text/csv; charset=utf-8')
    expect(answer.headers['content-disposition']).toMatch(/^attachment; filename="part-\d{4}-\d\d-\d\d\.csv"$/)
    expect(answer.text).toBe(
      'sku,name,stock,price,big,weight,meta,tags\r\n' +
        `a,"'=cmd|""/C calc""!A0",-5,-1.50,-9007199254740993,-0.25,"{""k\\"""":[""=v"",null,-1]}","[""=x"",""y,\\""z\\"""",null]"\r\n` +
        'b,"",,,,,"""-text""",[]\r\n' +
        'c," \'+lead\r\nand, ""more"" ",,,,,false,\r\n' +
        "d,'tis,1,,,,[],\r\n",
    )
  })

  it('has related rows as JSON', async () => {
    const { text } = await get(api.admin, 'fields=sku,maker.name&filter={"sku":"a"}')
    expect(text).toMatch(/^sku,maker\r\na,"\{""id"":""[\da-f-]{36}"",""name"":""=Maker, \\""the\\""""\}"\r\n$/)
  })

  it('of groups has their keys and aggregates', async () => {
    const aggregate = encodeURIComponent(
      '{"n":{"function":"count","field":"*"},"low":{"function":"min","field":"price"}}',
    )
    const { text } = await get(api.admin, `groupBy=active&aggregate=${aggregate}&sort=active`)
    expect(text).toBe('active,n,low\r\ntrue,1,-1.5\r\n,3,\r\n')
  })

  it('without rows has its header, and is a file of its collection', async () => {
    expect((await get(api.admin, 'fields=sku,stock&limit=0')).text).toBe('sku,stock\r\n')
    expect((await get(api.admin, '', 'line')).text).toBe('id,n,createdAt,updatedAt\r\n')
  })
})

describe('the rules of the list', () => {
  it('are those of the export: fields, rows, hidden fields, relations', async () => {
    const list = await lim('GET', '/items/part?sort=sku')
    const file = await get(lim, 'format=json&sort=sku')
    expect(JSON.parse(file.text)).toEqual(list.body.data)
    expect(list.body.data).toHaveLength(3)
    for (const format of ['csv', 'json']) {
      const { text } = await get(lim, `format=${format}&fields=*,maker.name`)
      expect(text).toContain('Maker')
      expect(text).not.toContain(canary)
      const all = await get(api.admin, `format=${format}&fields=*,maker.name&sort=sku`)
      expect(all.text.split(canary)).toHaveLength(1 + 4)
      expect(all.text).not.toMatch(/secret/)
      for (const field of ['inner', 'secret', 'maker.phone', '*,maker.phone'])
        expect((await get(lim, `format=${format}&fields=${field}`)).status).toBe(403)
      expect((await get(lim, `format=${format}&filter={"inner":"${canary}"}`)).status).toBe(403)
      expect((await get(lim, `format=${format}&sort=secret`)).status).toBe(403)
      expect((await get(api.anonymous, `format=${format}`)).status).toBe(403)
    }
  })

  it('are those of the export: page, limit, search, and what is refused', async () => {
    const query = 'format=json&sort=-sku&limit=2&page=2&fields=sku'
    expect(JSON.parse((await get(api.admin, query)).text)).toEqual([{ sku: 'b' }, { sku: 'a' }])
    expect(JSON.parse((await get(api.admin, 'format=json&search=calc&fields=sku')).text)).toEqual([{ sku: 'a' }])
    expect(await get(api.admin, 'format=xml')).toMatchObject({
      status: 400,
      body: { error: { message: 'Invalid query parameters', details: 'format: csv or json' } },
    })
    expect((await get(api.admin, 'format=csv&filter={"nope":1}')).status).toBe(400)
    expect((await get(api.admin, 'format=csv&format=json')).status).toBe(400)
    expect((await get(api.admin, '', 'nope')).status).toBe(404)
  })

  it('leave no trace', async () => {
    const before = await api.position()
    await get(api.admin, '')
    expect(await api.log(before)).toEqual([])
    expect(await api.jobs('mail')).toEqual([])
  })
})

describe('exported files', () => {
  it.each([
    ['csv', 'csvFile'],
    ['json', 'jsonFile'],
  ])('is imported as the same rows: %s', async (format, name) => {
    await api.sql('delete from copy')
    const { text } = await get(api.admin, `format=${format}`)
    const part = { name, filename: `copy.${format}`, content: text }
    const answer = await upload(api, token, `/items/copy/import-${format}`, [part])
    expect(answer).toMatchObject({ status: 200, body: { results: { imported: 4 } } })
    const rows = async (collection: string) => (await api.admin('GET', `/items/${collection}?fields=*,maker.*`)).text
    expect(await rows('copy')).toBe(await rows('part'))
  })

  it.each([
    ['csv', 'csvFile', ['[1]', '{}', '', '5', ' [']],
    ['json', 'jsonFile', [[1], {}, null, '5', ' [']],
  ])('is imported with text in JSON as %s has it', async (format, name, metas) => {
    const texts = ['[1]', '{}', '', '5', ' [']
    await api.sql('delete from copy')
    await api.admin(
      'POST',
      '/items/copy/bulk',
      texts.map((meta, n) => ({ stock: n, meta })),
    )
    const { text } = await get(api.admin, `format=${format}&fields=stock,meta`, 'copy')
    await api.sql('delete from copy')
    const part = { name, filename: `copy.${format}`, content: text }
    expect((await upload(api, token, `/items/copy/import-${format}`, [part])).status).toBe(200)
    const { data } = (await api.admin('GET', '/items/copy?fields=meta&sort=stock')).body
    expect(data.map(({ meta }: { meta: unknown }) => meta)).toEqual(metas)
  })

  it('is all of it, beyond a batch of the cursor', async () => {
    await api.sql('insert into line (id, n) select gen_random_uuid(), n from generate_series(1, 1201) n')
    const { text } = await get(api.admin, 'fields=n&sort=n', 'line')
    expect(text).toBe(`n\r\n${Array.from({ length: 1201 }, (_, n) => `${n + 1}\r\n`).join('')}`)
    expect(JSON.parse((await get(api.admin, 'format=json&fields=n&sort=n', 'line')).text)).toHaveLength(1201)
  })
})
