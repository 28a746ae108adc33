import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { openRaw } from '../support/raw-socket.ts'
import { upload } from '../support/upload.ts'

/** What bodies may be made of: bytes, text and numbers that can be kept as they are. */

let api: Api
let token: string
let address: string

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true' })
  address = await api.app.listen({ host: '127.0.0.1', port: 0 })
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const fields = {
    name: { type: 'String' },
    data: { type: 'JSON' },
    price: { type: 'Decimal' },
    size: { type: 'Double' },
    tags: { type: 'Array_String' },
  }
  expect((await api.admin('POST', '/schemas', { collectionName: 'thing', schema: { fields } })).status).toBe(201)
})

const send = async (method: string, url: string, payload: string | Buffer, headers: Record<string, string> = {}) => {
  const response = await api.app.inject({
    method: method as 'POST',
    url,
    payload,
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}`, ...headers },
  })
  const { statusCode: status, body } = response
  return { status, body: JSON.parse(body), headers: response.headers }
}

const count = async () => (await api.admin('GET', '/items/thing?limit=1000')).body.data.length

const unkeepable: readonly [what: string, json: string | Buffer, code: string][] = [
  ['half of a surrogate pair', '{"name":"\\ud800"}', 'INVALID_TEXT'],
  ['a surrogate pair in the wrong order', '{"name":"\\udc00\\ud800"}', 'INVALID_TEXT'],
  ['half a pair within JSON', '{"data":{"a":["\\uDBFF"]}}', 'INVALID_TEXT'],
  ['half a pair as a key', '{"data":{"\\ud800":1}}', 'INVALID_TEXT'],
  ['half a pair in a list', '{"tags":["\\ud800"]}', 'INVALID_TEXT'],
  ['a number beyond doubles', '{"data":1e400000}', 'NUMBER_TOO_LARGE'],
  ['a number beyond doubles within JSON', '{"data":{"a":[-1e999]}}', 'NUMBER_TOO_LARGE'],
  ['a number of too many digits', `{"data":${'9'.repeat(400)}}`, 'NUMBER_TOO_LARGE'],
  ['such a number for a column of numbers', '{"size":1e999}', 'NUMBER_TOO_LARGE'],
  ['such a decimal', '{"price":1e999}', 'NUMBER_TOO_LARGE'],
  ['bytes that are no UTF-8', Buffer.from([...Buffer.from('{"name":"'), 0xff, ...Buffer.from('"}')]), 'INVALID_UTF8'],
  [
    'a surrogate as bytes',
    Buffer.from([...Buffer.from('{"name":"'), 0xed, 0xa0, 0x80, ...Buffer.from('"}')]),
    'INVALID_UTF8',
  ],
]

describe.each(unkeepable)('%s', (_what, json, code) => {
  it('is refused by every way to write, and nothing is stored', async () => {
    const [{ id }] = (await api.sql(
      `insert into thing (id, name) values (gen_random_uuid(), 'kept') returning id`,
    )) as [{ id: string }]
    const before = await count()
    const position = await api.position()
    const list = Buffer.concat([Buffer.from('['), Buffer.from(json), Buffer.from(']')])
    const answers = [
      await send('POST', '/items/thing', json),
      await send('PATCH', `/items/thing/${id}`, json),
      await send('POST', '/items/thing/bulk', list),
      await send('PUT', '/items/thing', json),
      await send('PATCH', '/settings', json),
      await send('POST', '/schemas', json),
      await send('POST', '/auth/login', json, { authorization: '' }),
    ]
    expect(answers.map(({ status, body }) => [status, body.error?.code ?? body.code])).toEqual(
      answers.map(() => [400, code]),
    )
    const imported = await upload(api, token, '/items/thing/import-json', [
      { name: 'jsonFile', filename: 'rows.json', content: list },
    ])
    expect([imported.status, imported.body.error.message]).toEqual([
      400,
      expect.stringMatching(/^Invalid JSON format: (item 1: it has|the file is not UTF-8)/),
    ])
    const schemas = await upload(api, token, '/schemas-import', [
      { name: 'schema', filename: 'schemas.json', content: json },
    ])
    expect([schemas.status, schemas.body.error.code]).toEqual([400, code])
    expect(await count()).toBe(before)
    expect(await api.log(position)).toEqual([])
  })
})

it('keeps text of every plane, and numbers to the largest', async () => {
  const json = '{"name":"\\ud83d\\ude00 😀 \\\\ud800 \\ufffd","data":[1e308,-1.5e-7,"1e400000"],"size":1.7e308}'
  expect((await send('POST', '/items/thing', json)).status).toBe(201)
  const [row] = (await api.admin('GET', '/items/thing?filter={"size":{"gt":1e308}}&fields=name,data,size')).body.data
  expect(row).toEqual(JSON.parse(json))
})

it('names what it refuses: a key that would reach a prototype, and the field that has a NUL', async () => {
  const position = await api.position()
  const refusal = async (method: string, url: string, json: string) => {
    const { status, body } = await send(method, url, json)
    return [status, body.error.code, body.error.message]
  }
  const proto = [400, 'FORBIDDEN_KEY', 'The request body has the key "__proto__", which is not allowed']
  for (const json of ['{"data":{"__proto__":1}}', '{"data":{"a":[{"__pr\\u006fto__":{}}]}}']) {
    expect(await refusal('POST', '/items/thing', json)).toEqual(proto)
    expect(await refusal('POST', '/items/thing/bulk', `[${json}]`)).toEqual(proto)
    expect((await send('POST', '/reports/thing', json)).body.error.details).toBe(proto[2])
  }
  expect((await send('POST', '/items/thing', '{"data":"__proto__"')).body.error.message).toBe(
    'The request body is not valid JSON',
  )
  const nul = (field: string) => [
    400,
    'VALIDATION_ERROR',
    `Validation failed: ${field}: NUL characters are not allowed`,
  ]
  expect(await refusal('POST', '/items/thing', '{"name":"a\\u0000"}')).toEqual(nul('name'))
  for (const json of ['{"k":"\\u0000"}', '{"\\u0000":1}', '["\\\\\\u0000"]', '"\\u0000"'])
    expect(await refusal('POST', '/items/thing', `{"data":${json}}`)).toEqual(nul('data'))
  const view = { name: 'Mine', page: 'data', collection: 'thing', query: {} }
  for (const [member, value] of Object.entries({ name: 'a\0', page: '\0a', collection: '\0', query: { a: ['\0'] } })) {
    expect(await refusal('POST', '/views', JSON.stringify({ ...view, [member]: value }))).toEqual(nul(member))
  }
  expect(await api.log(position)).toEqual([])
  const kept = await send('POST', '/items/thing?fields=data', '{"data":["\\\\u0000"]}')
  expect([kept.status, kept.body.data.data]).toEqual([201, ['\\u0000']])
})

it('is refused in a CSV cell and in a query too', async () => {
  for (const cell of ['"{""a"":""\\ud800""}"', '1e400000', '"[1e999]"']) {
    const content = `data\n${cell}\n`
    const answer = await upload(api, token, '/items/thing/import-csv', [
      { name: 'csvFile', filename: 'a.csv', content },
    ])
    expect([cell, answer.status]).toEqual([cell, 400])
  }
  for (const filter of [
    '{"name":"\\ud800"}',
    '{"name":{"like":"\\udfff"}}',
    '{"size":{"gt":1e999}}',
    '{"\\ud800":1}',
  ]) {
    const answer = await api.admin('GET', `/items/thing?filter=${encodeURIComponent(filter)}`)
    expect([filter, answer.status]).toEqual([filter, 400])
  }
})

it('is refused in a message of a socket', async () => {
  // A client of socket.io writes null where a number is too large; JSON written by hand need not.
  const raw = await openRaw(address, token)
  const send = async (id: number, json: string) => {
    raw.send(`42${id}["subscribe",${json}]`)
    return JSON.parse((await raw.packet(`43${id}`)).slice(`43${id}`.length))
  }
  const refused = (code: string) => [expect.objectContaining({ status: 'error', code })]
  expect(await send(1, '{"collection":"thing","filter":{"name":"\\ud800"}}')).toEqual(refused('INVALID_TEXT'))
  expect(await send(2, '{"collection":"thing","filter":{"size":1e400}}')).toEqual(refused('NUMBER_TOO_LARGE'))
  expect(await send(3, '{"collection":"thing","filter":{"size":1e300}}')).toMatchObject([{ status: 'success' }])
  raw.close()
})

describe('a body that is compressed', () => {
  const json = JSON.stringify({ name: 'packed' })
  it.each([
    ['gzip', gzipSync(json)],
    ['GZIP', gzipSync(json)],
    ['x-gzip', gzipSync(json)],
    ['deflate', deflateSync(json)],
    ['br', brotliCompressSync(json)],
    ['zstd', Buffer.from(json)],
    ['gzip', Buffer.from(json)],
    ['gzip, identity', gzipSync(json)],
    ['nonsense', Buffer.from(json)],
  ])('is refused: %s', async (encoding, body) => {
    const before = await count()
    const answers = [
      await send('POST', '/items/thing', body, { 'content-encoding': encoding }),
      await send('POST', '/auth/login', body, { 'content-encoding': encoding, authorization: '' }),
      await send('POST', '/items/thing/import-json', body, {
        'content-encoding': encoding,
        'content-type': 'multipart/form-data; boundary=x',
      }),
    ]
    for (const { status, body: answer, headers } of answers)
      expect([status, answer.error?.code ?? answer.code, headers['accept-encoding']]).toEqual([
        415,
        'UNSUPPORTED_CONTENT_ENCODING',
        'identity',
      ])
    expect(await count()).toBe(before)
  })

  it('is not one that says it is none', async () => {
    for (const encoding of ['identity', 'Identity', ''])
      expect((await send('POST', '/items/thing', json, { 'content-encoding': encoding })).status).toBe(201)
  })
})

describe('objects that say how they are to become text or numbers', () => {
  const odd = { toString: 1, valueOf: 1 }
  const column = (more: object) => ({ collectionName: 'odd', schema: { fields: { a: { type: 'String', ...more } } } })
  const link = (more: object) => column({ type: undefined, relType: 'BelongsTo', target: 'thing', ...more })
  it.each<[what: string, path: string, body: object]>([
    ['the name of a collection', '/schemas', { ...column({}), collectionName: odd }],
    ['the length of a column', '/schemas', column({ values: { length: odd } })],
    ['the element of an array', '/schemas', column({ type: 'Array', values: { type: odd } })],
    ['the target of a relation', '/schemas', link({ target: odd })],
    ['the name of a relation', '/schemas', link({ as: odd })],
    ['the name of a relationship', '/schemas/thing/relationships', { type: 'M2O', name: odd, target: 'thing' }],
    ['the collection of a permission', '/permissions', { collection: odd, action: 'read', fields: '*' }],
    ['a named rule', '/permissions', { collection: 'thing', action: 'read', acl_Ids: [odd] }],
    ['an action of realtime', '/realtime/collections/thing/enable', { actions: [odd] }],
  ])('are refused as %s', async (_what, path, body) => {
    const answer = await api.admin('POST', path, body)
    expect(answer.status, answer.text).toBe(400)
    expect(answer.text).not.toContain('[object')
  })
})
