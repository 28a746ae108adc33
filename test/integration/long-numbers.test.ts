import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { contextFor } from '../../src/extensions/context.ts'
import { type Api, startApi } from '../support/api.ts'
import { bearer, connectMcp } from '../support/mcp.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

/** Numbers of JSON with more digits than a double has: exactly as they were sent where the field has all of them. */

let api: Api
let token: string
let address: string | undefined

const long = '12345678901234567.89'
const near = '12345678901234567.88'

const belongsTo = (target: string, foreignKey: string) => ({
  ...{ relType: 'BelongsTo', target, foreignKey, allowNull: false, onDelete: 'CASCADE' },
})
const amount = { type: 'Decimal', values: { precision: 20, scale: 2 } }

beforeAll(async () => {
  api = await startApi({ MCP_ENABLED: 'true', DATA_CACHE_STRATEGY: 'all' })
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
  const schemas: [string, object, object?][] = [
    [
      'bill',
      {
        id: serial,
        code: { type: 'String', unique: true },
        amount,
        free: { type: 'Decimal' },
        big: { type: 'BigInt' },
        n: { type: 'Integer' },
        size: { type: 'Double' },
        data: { type: 'JSON' },
        shares: { type: 'Array_Decimal' },
        span: { type: 'Range_Decimal' },
        shop: { ...belongsTo('shop', 'shop_id'), allowNull: true },
      },
    ],
    ['shop', { id: serial, amount, free: { type: 'Decimal' }, data: { type: 'JSON' } }],
    ['item', { id: serial, amount, bill: { ...belongsTo('bill', 'bill_id') } }],
    ['account', { id: { type: 'BigInt', primaryKey: true }, name: { type: 'String' } }],
    ['entry', { id: serial, amount, account: { ...belongsTo('account', 'account_id'), allowNull: true } }],
    [
      'bill_part',
      {
        id: serial,
        bill: belongsTo('bill', 'bill_id'),
        item_id: { type: 'Integer', allowNull: false },
        collection: { type: 'String', allowNull: false },
        fee: { ...belongsTo('fee', 'item_id'), allowNull: true, constraints: false, scope: { collection: 'fee' } },
      },
      { isJunction: true },
    ],
    ['fee', { id: serial, amount }],
  ]
  for (const name of ['shop', 'fee', 'bill', 'item', 'account', 'entry', 'bill_part']) {
    const [, fields, more] = schemas.find(([one]) => one === name)!
    const made = await api.admin('POST', '/schemas', { collectionName: name, schema: { ...more, fields } })
    expect(made.text).toMatch(/success/)
  }
  const hasMany = (target: string, foreignKey: string, more = {}) => ({
    ...{ relType: 'HasMany', target, foreignKey },
    ...more,
  })
  const parts = hasMany('bill_part', 'bill_id', { polymorphic: true, tables: ['fee'] })
  await extend('bill', { items: hasMany('item', 'bill_id'), parts })
  await extend('shop', { bills: hasMany('bill', 'shop_id') })
})

async function extend(name: string, fields: object) {
  const { schema } = (await api.admin('GET', `/schemas/${name}`)).body.data
  const changed = { schema: { ...schema, fields: { ...schema.fields, ...fields } } }
  expect((await api.admin('PATCH', `/schemas/${name}`, changed)).text).toMatch(/success/)
}

beforeEach(() => api.sql('truncate shop, bill, item, account, entry, fee, bill_part restart identity'))

const send = async (method: string, url: string, payload: string, headers: Record<string, string> = {}) => {
  const response = await api.app.inject({
    method: method as 'POST',
    url,
    payload,
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}`, ...headers },
  })
  const { statusCode: status, body: text } = response
  return { status, text, body: text === '' ? undefined : JSON.parse(text), headers: response.headers }
}

const stored = async (table = 'bill', column = 'amount') =>
  (await api.sql(`select "${column}"::text as value from "${table}" order by id`)).map(({ value }) => value)

const first = async () => (await send('POST', '/items/bill', '{"code":"a","amount":1}')).body.data.id

describe('a long number for a Decimal is stored as it was sent', () => {
  it('by create, and the log has it, too', async () => {
    const before = await api.position()
    const answer = await send('POST', '/items/bill?fields=amount', `{"amount":${long}}`)
    expect(answer).toMatchObject({ status: 201, body: { data: { amount: long } } })
    expect(await stored()).toEqual([long])
    const events = await api.sql(
      `select entity, action, changes->'after'->>'amount' as amount from "svc_AuditLog" where position > $1`,
      [String(before)],
    )
    expect(events).toEqual([{ entity: 'bill', action: 'create', amount: long }])
  })

  it.each([
    ['-12345678901234567.89', '-12345678901234567.89'],
    ['123456789012345678', '123456789012345678.00'],
    ['1234567890123456789e-2', '12345678901234567.89'],
    ['12345678901234567.890000000000000000000000', '12345678901234567.89'],
    ['0.30000000000000004', '0.30'],
    ['12.5', '12.50'],
  ])('%s as %s', async (literal, value) => {
    expect((await send('POST', '/items/bill', `{"amount": ${literal} }`)).status).toBe(201)
    expect(await stored()).toEqual([value])
  })

  it('with all digits where the column has room for them', async () => {
    const literals = ['0.1234567890123456789012345', `1${'0'.repeat(40)}1.5`, '1e-320', '1.00000000000000000001']
    for (const literal of literals) expect((await send('POST', '/items/bill', `{"free":${literal}}`)).status).toBe(201)
    expect(await stored('bill', 'free')).toEqual([
      ...literals.slice(0, 2),
      `0.${'0'.repeat(319)}1`,
      '1.00000000000000000001',
    ])
  })

  it('or is refused as its text is', async () => {
    for (const literal of ['123456789012345678901234.5', `1.${'1'.repeat(500)}`]) {
      const asText = await send('POST', '/items/bill', `{"amount":"${literal}"}`)
      const asNumber = await send('POST', '/items/bill', `{"amount":${literal}}`)
      expect([asNumber.status, asNumber.body]).toEqual([400, asText.body])
    }
    expect(await send('POST', '/items/bill', '{"n":1.00000000000000000001}')).toMatchObject({ status: 400 })
    expect(await stored()).toEqual([])
  })

  it('by update', async () => {
    const id = await first()
    expect((await send('PATCH', `/items/bill/${id}`, `{"amount":${long}}`)).status).toBe(200)
    expect(await stored()).toEqual([long])
  })

  it('by bulk requests, short and long', async () => {
    const rows = [`{"amount":${long}}`, '{"amount":1}', `{"amount":${near}}`]
    expect((await send('POST', '/items/bill/bulk', `[${rows}]`)).status).toBe(201)
    expect(await stored()).toEqual([long, '1.00', near])
    const updates = [`{"id":1,"data":{"amount":${near}}}`, `{"id":2,"amount":${long}}`]
    expect((await send('PATCH', '/items/bill/bulk', `[${updates}]`)).status).toBe(200)
    expect(await stored()).toEqual([near, long, near])
    const filled = `[${rows},{"code":"${'x'.repeat(200)}","amount":${long}},${' '.repeat(1_100_000)}${rows[0]}]`
    expect((await send('POST', '/items/bill/bulk', filled)).status).toBe(201)
    expect((await stored()).slice(3)).toEqual([long, '1.00', near, long, long])
  })

  it('by upserts of a new and of a known row, alone and in a list', async () => {
    for (const [body, status] of [
      [`{"code":"a","amount":${long}}`, 201],
      [`{"code":"a","amount":${near}}`, 200],
      [`[{"code":"a","amount":${long}},{"code":"b","amount":${near}}]`, 200],
    ] as const)
      expect((await send('PUT', '/items/bill?key=code', body)).status).toBe(status)
    expect(await stored()).toEqual([long, near])
  })

  it('in the rows of relations', async () => {
    const nested = `{"items":[{"amount":${long}},{"amount":2}],"parts":[{"collection":"fee","item":{"amount":${near}}}]}`
    expect((await send('POST', '/items/bill', nested)).text).toMatch(/"id"/)
    expect(await stored('item')).toEqual([long, '2.00'])
    expect(await stored('fee')).toEqual([near])
    const changed = `{"items":[{"id":1,"amount":${near}},{"id":2}],"parts":[{"id":1,"fee":{"id":1,"amount":${long}}}]}`
    expect((await send('PATCH', '/items/bill/1', changed)).status).toBe(200)
    expect(await stored('item')).toEqual([near, '2.00'])
    expect(await stored('fee')).toEqual([long])
    expect((await send('POST', '/items/entry', `{"account":{"id":1,"name":"x"},"amount":${long}}`)).status).toBe(400)
    expect((await send('POST', '/items/item', `{"bill_id":{"amount":${long}},"amount":1}`)).status).toBe(201)
    expect(await stored()).toEqual([null, long])
  })

  it('in lists and ranges', async () => {
    expect(
      (await send('POST', '/items/bill', `{"shares":[1,${long},${near}],"span":{"lower":${near},"upper":${long}}}`))
        .status,
    ).toBe(201)
    expect((await send('POST', '/items/bill', `{"span":[1,${long}]}`)).status).toBe(201)
    expect(await stored('bill', 'shares')).toEqual([`{1,${long},${near}}`, null])
    expect(await stored('bill', 'span')).toEqual([`[${near},${long})`, `[1,${long})`])
  })

  it('out of imported files', async () => {
    const json = `[{"amount":${long}},{"items":"[{\\"amount\\":${long}}]"},{"shares":"[${near}]"}]`
    const csv = `amount,items,shares\n${near},"[{""amount"":${near}}]",[${long}]\n`
    for (const [path, name, content] of [
      ['json', 'jsonFile', json],
      ['csv', 'csvFile', csv],
    ] as const) {
      const file = { name, filename: `rows.${path}`, content }
      expect((await upload(api, token, `/items/bill/import-${path}`, [file])).text).toMatch(/"imported":[13]/)
    }
    expect(await stored()).toEqual([long, null, null, near])
    expect(await stored('item')).toEqual([long, near])
    expect(await stored('bill', 'shares')).toEqual([null, null, `{${near}}`, `{${long}}`])
  })

  it('out of forms with a file', async () => {
    await extend('svc_File', { price: amount, shares: { type: 'Array_Decimal' }, rate: { type: 'Double' } })
    const parts = [
      `name="price"\r\ncontent-type: application/json\r\n\r\n${long}`,
      `name="rate"\r\ncontent-type: application/json\r\n\r\n${long}`,
      `name="shares"\r\n\r\n[1,${near}]`,
      'name="file"; filename="a.txt"\r\ncontent-type: text/plain\r\n\r\nabc',
    ]
    const form = `${parts.map((part) => `--x\r\ncontent-disposition: form-data; ${part}\r\n`).join('')}--x--\r\n`
    const answer = await send('POST', '/files', form, { 'content-type': 'multipart/form-data; boundary=x' })
    expect(answer.status).toBe(200)
    expect(await api.sql('select price, rate, shares::text from "svc_File"')).toEqual([
      { price: long, rate: Number(long), shares: `{1,${near}}` },
    ])
  })

  it('as the key of a row and of related rows', async () => {
    const keys = ['1234567890123456788', '1234567890123456789']
    expect((await send('POST', '/items/account/bulk', `[{"id":${keys[0]}},{"id":${keys[1]}}]`)).status).toBe(201)
    expect(await stored('account', 'id')).toEqual(keys)
    for (const link of [`"account":${keys[1]}`, `"account_id":${keys[1]}`, `"account":{"id":${keys[1]}}`])
      expect((await send('POST', '/items/entry', `{${link}}`)).status).toBe(201)
    expect(await stored('entry', 'account_id')).toEqual([keys[1], keys[1], keys[1]])
    expect((await send('PATCH', '/items/account/bulk', `[{"id":${keys[1]},"name":"x"}]`)).status).toBe(200)
    expect(await stored('account', 'name')).toEqual([null, 'x'])
    await api.sql('truncate entry')
    expect((await send('DELETE', '/items/account/bulk', `[${keys[1]}]`)).status).toBe(204)
    expect(await stored('account', 'id')).toEqual([keys[0]])
    expect((await send('DELETE', '/items/account/bulk', `[${' '.repeat(1_100_000)}${keys[0]} ]`)).status).toBe(204)
    expect(await stored('account', 'id')).toEqual([])
  })

  it('in a definition that was changed by another process a moment ago', async () => {
    const { schema } = (await api.admin('GET', '/schemas/fee')).body.data
    const other = await startApi({}, api.database)
    const extended = { ...schema, fields: { ...schema.fields, extra: amount } }
    expect((await other.admin('PATCH', '/schemas/fee', { schema: extended })).text).toMatch(/success/)
    expect((await send('POST', '/items/fee', `{"extra":${long}}`)).status).toBe(201)
    expect(await stored('fee', 'extra')).toEqual([long])
  })
})

describe('where a number is a double it stays one', () => {
  it('in JSON and Double', async () => {
    const body = `{"data":{"a":[${long}],"b":"${long}"},"size":${long},"amount":${long}}`
    expect((await send('POST', '/items/bill', body)).status).toBe(201)
    expect(await api.sql('select data, size, amount from bill')).toEqual([
      { data: { a: [Number(long)], b: long }, size: Number(long), amount: long },
    ])
  })

  it('and keys that would reach a prototype are refused beside a long number', async () => {
    for (const key of ['"__proto__"', '"\\u005f_proto__"']) {
      const answer = await send('POST', '/items/bill', `{"amount":${long},"data":{${key}:{"a":1}}}`)
      expect(answer.status).toBe(400)
      expect((await send('POST', '/items/bill/bulk', `[{"amount":${long},${key}:{"a":1}}]`)).status).toBe(400)
    }
    expect(await stored()).toEqual([])
  })
})

describe('filters', () => {
  beforeEach(() =>
    send('POST', '/items/bill/bulk', `[{"code":"long","amount":${long}},{"code":"near","amount":${near}}]`),
  )

  const codes = (body: any) => body.data.map(({ code }: { code: string }) => code)
  const list = async (filter: string) => {
    const answer = await api.admin('GET', `/items/bill?sort=id&fields=code&filter=${encodeURIComponent(filter)}`)
    return answer.status === 200 ? codes(answer.body) : answer.body
  }

  it('tell long numbers apart, in every spelling and also when they repeat', async () => {
    for (const [literal, code] of [
      [long, 'long'],
      [near, 'near'],
      ['1', undefined],
      [long, 'long'],
    ] as const) {
      const found = code === undefined ? [] : [code]
      expect(await list(`{"amount":${literal}}`)).toEqual(found)
      expect(await list(`{"amount":{"eq":${literal}}}`)).toEqual(found)
      expect(await list(`{"amount":{"in":[3,${literal}]}}`)).toEqual(found)
      expect(await list(`{"OR":[{"amount":{"between":[${literal},${literal}]}},{"n":7}]}`)).toEqual(found)
      expect(await list(`{"amount":{"gte":"${near}","lte":${literal}}}`)).toEqual(
        literal === long ? ['long', 'near'] : found,
      )
    }
  })

  it('also through relations, in casts, in reports and in what they keep', async () => {
    expect((await send('POST', '/items/item', `{"bill_id":1,"amount":${near}}`)).status).toBe(201)
    expect(await list(`{"items":{"amount":${near}}}`)).toEqual(['long'])
    expect(await list(`{"items.amount":${long}}`)).toEqual([])
    expect(await list(`{"amount":{"cast":"text","eq":${long}}}`)).toEqual(['long'])
    expect(await list(`{"amount":{"gt":${near}}}`)).toEqual(['long'])
    expect(await list(`{"size":{"cast":"numeric","eq":${long}}}`)).toEqual([])
    for (const [literal, code] of [
      [long, 'long'],
      [near, 'near'],
    ] as const) {
      const { body } = await send('POST', '/reports/bill', `{"filter":{"amount":${literal}},"fields":["code"]}`)
      expect(codes(body)).toEqual([code])
      const stats = `{"stats":[{"name":"s","collection":"bill","query":{"filter":{"amount":{"in":[${literal}]}},"fields":["code"]}}]}`
      expect((await send('POST', '/reports/stats', stats)).text).toContain(`"code":"${code}"`)
    }
  })
})

it('a request with another long number is another request to its Idempotency-Key', async () => {
  const headers = { 'idempotency-key': 'one' }
  expect((await send('POST', '/items/bill', `{"amount":${long}}`, headers)).status).toBe(201)
  expect((await send('POST', '/items/bill', `{"amount":${near}}`, headers)).status).toBe(409)
  const again = await send('POST', '/items/bill', `{ "amount": ${long} }`, headers)
  expect([again.status, again.headers['idempotent-replayed']]).toEqual([201, 'true'])
  const bulk = (literal: string) => `[${' '.repeat(1_100_000)}{"amount":${literal}}]`
  const many = { 'idempotency-key': 'many' }
  expect((await send('POST', '/items/bill/bulk', bulk(long), many)).status).toBe(201)
  expect((await send('POST', '/items/bill/bulk', bulk(near), many)).status).toBe(409)
  expect(await stored()).toEqual([long, long])
})

it.each(['2025', '2026-07-28'] as const)('tools of the generation %s pass long numbers on', async (generation) => {
  address ??= await api.app.listen({ host: '127.0.0.1', port: 0 })
  // The client writes doubles: the text goes into its requests.
  const exact: typeof fetch = (url, init = {}) =>
    fetch(url, { ...init, ...(init.body && { body: String(init.body).replaceAll(/"@([\d.]+)"/g, '$1') }) })
  const { call, done } = await connectMcp(`${address}/mcp`, bearer(token), generation, 'exact', exact)
  await done('svc_create_item', { collection: 'bill', data: { amount: `@${long}` } })
  await done('svc_create_item', { collection: 'bill', data: `{"amount":${near}}` })
  expect(await stored()).toEqual([long, near])
  const found = await done('svc_list_items', { collection: 'bill', filter: { amount: `@${near}` } })
  expect(found.data).toMatchObject([{ amount: near }])
  await send('POST', '/items/account/bulk', '[{"id":1234567890123456789},{"id":1234567890123456800}]')
  expect(await call('svc_delete_item', { collection: 'account', id: '@1234567890123456789' })).toMatchObject({
    isRefused: true,
    value: { error: { code: 'INVALID_ARGUMENTS' } },
  })
  expect(await stored('account', 'id')).toHaveLength(2)
})

it('code that writes what a request has sent writes the long numbers', async () => {
  const { parseJson } = await import('../../src/language/exact-json.ts')
  const { ItemsService } = contextFor(api.runtime, 'svc-long')
  const bills = new ItemsService('bill')
  const body = parseJson(`{"amount":${long},"inner":[{"amount":${near}}]}`) as { amount: number; inner: object[] }
  await bills.createOne(body as never)
  await bills.createMany(body.inner as never)
  expect(await stored()).toEqual([long, near])
})

describe('hooks', () => {
  const hook = (collection: string, run: (context: any) => unknown) =>
    api.runtime.hooks.register('svc-long', collection, 'items.create', run)

  it('see the text, as in stored rows, and may copy the payload', async () => {
    const seen: unknown[] = []
    hook('shop', (context) => {
      seen.push(structuredClone(context.data))
      context.data = JSON.parse(JSON.stringify(context.data))
    })
    const body = `{"amount":${long},"free":0.5,"data":{"a":${long}},"bills":[{"amount":${long}}]}`
    expect((await send('POST', '/items/shop', body)).text).toMatch(/"id"/)
    expect(seen).toEqual([{ amount: long, free: 0.5, data: { a: Number(long) }, bills: [{ amount: long }] }])
    expect(await stored('shop')).toEqual([long])
    expect(await stored()).toEqual([long])
    const file = { name: 'jsonFile', filename: 'rows.json', content: `[{"amount":${near}}]` }
    expect((await upload(api, token, '/items/shop/import-json', [file])).status).toBe(200)
    expect(await stored('shop')).toEqual([long, near])
  })

  it('have the last word', async () => {
    hook('fee', (context) => {
      context.data.amount = 5
    })
    expect((await send('POST', '/items/fee', `{"amount":${long}}`)).status).toBe(201)
    expect(await stored('fee')).toEqual(['5.00'])
  })
})
