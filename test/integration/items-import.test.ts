import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { connect } from '../support/log.ts'
import { administrator } from '../support/prepare.ts'
import { type Part, upload } from '../support/upload.ts'
import { waitFor } from '../support/wait.ts'

/** Files as items, all or none (docs/import-export.md). */

let api: Api
let admin: string
let directory: string

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'daybook-import-'))
  api = await startApi({
    MAX_UPLOAD_FILE_SIZE: '1',
    BODY_SIZE_LIMIT: '100kb',
    STORAGE_TEMP_PATH: join(directory, 'own'),
  })
  admin = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const schemas: [string, object, object?][] = [
    ['maker', { code: { type: 'String', primaryKey: true }, name: { type: 'String' } }],
    [
      'part',
      {
        sku: { type: 'String', unique: true },
        name: { type: 'String', allowNull: false, defaultValue: 'unnamed' },
        note: { type: 'Text', defaultValue: 'none' },
        stock: { type: 'Integer', validate: { min: 0 } },
        price: { type: 'Decimal' },
        weight: { type: 'Double' },
        active: { type: 'Boolean' },
        made: { type: 'Date' },
        seen: { type: 'DateTime' },
        tags: { type: 'Array_String' },
        meta: { type: 'JSON' },
        secret: { type: 'String', hidden: true },
        maker: { relType: 'BelongsTo', target: 'maker', foreignKey: 'maker_code' },
        parent: { relType: 'BelongsTo', target: 'part', foreignKey: 'parent_id' },
      },
      { usertrack: true },
    ],
    ['step', { name: { type: 'String' } }, { sortEnabled: true }],
  ]
  for (const [collectionName, fields, more] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { ...more, fields } })).text).toMatch(
      /success/,
    )
  await api.admin('POST', '/items/maker', { code: '007', name: 'Bond' })
})

afterAll(() => rm(directory, { recursive: true }))

const csvPart = (content: string | Buffer): Part => ({ name: 'csvFile', filename: 'rows.csv', content })
const jsonPart = (content: string | Buffer): Part => ({ name: 'jsonFile', filename: 'rows.json', content })
const importCsv = (content: string | Buffer, { token = admin, collection = 'part', encoding = '' } = {}) =>
  upload(api, token, `/items/${collection}/import-csv${encoding && `?encoding=${encoding}`}`, [csvPart(content)])
const importJson = (items: unknown, { token = admin, collection = 'part' } = {}) =>
  upload(api, token, `/items/${collection}/import-json`, [
    jsonPart(typeof items === 'string' ? items : JSON.stringify(items)),
  ])
const stored = async (sku: string) =>
  (await api.admin('GET', `/items/part?filter={"sku":"${sku}"}&fields=*,maker.name`)).body.data[0]
const imported = (count: number) => ({
  status: 200,
  body: {
    success: true,
    message: `Successfully imported ${count} items`,
    results: { imported: count, failed: 0, errors: [] },
  },
})

/** The call was refused, and neither a row nor an event nor a job is left of it. */
async function refused(attempt: () => Promise<Answer>, expected: object) {
  const before = await api.position()
  const rows = async () => (await api.sql('select count(*)::int as n from part'))[0].n
  const count = await rows()
  const answer = await attempt()
  expect(answer).toMatchObject(expected)
  expect(await rows()).toBe(count)
  const written = await api.log(before)
  // A busy machine may take so long that the caller is told how far it is.
  expect(written.filter(({ entity }) => entity !== 'svc_Notification')).toEqual([])
  expect(await api.jobs('mail')).toEqual([])
  return answer
}

describe('a JSON file', () => {
  it('may hold empty texts and JSON as text, as a CSV file does', async () => {
    const row = {
      sku: 'json-text',
      name: '',
      stock: '',
      made: '',
      tags: '["x","{y"]',
      meta: ' {"k":[1]}',
      maker: '',
      note: '{}',
    }
    expect(await importJson([row, { sku: 'json-plain', meta: '5', tags: ['z'], price: '' }])).toMatchObject(imported(2))
    expect(await stored('json-text')).toMatchObject({
      ...{ name: '', stock: null, made: null, tags: ['x', '{y'], meta: { k: [1] }, maker: null, note: '{}' },
    })
    expect(await stored('json-plain')).toMatchObject({ meta: '5', tags: ['z'], price: null, name: 'unnamed' })
    await refused(() => importJson([{ sku: 'bad', tags: '[1' }]), { status: 400 })
  })
})

describe('a CSV file', () => {
  it('becomes items with values of their columns’ types, each with its event', async () => {
    const before = await api.position()
    const file =
      '\ufeffsku, name ,stock,price,weight,active,made,seen,tags,meta,maker_code,unknown\r\n' +
      'a1,"  Bolt, ""M8""\nlong  ",5,-1.50,0.25,TRUE,2024-02-29,2024-01-01T10:00:00+02:00,"[""x"",""y""]","{""k"":[1]}",007,dropped\r\n' +
      '\r\n' +
      "a2, Nut ,,,,0,,,,'=text,,\r\n"
    expect(await importCsv(file)).toMatchObject(imported(2))
    expect(await stored('a1')).toMatchObject({
      name: '  Bolt, "M8"\nlong  ',
      stock: 5,
      price: '-1.50',
      weight: 0.25,
      active: true,
      made: '2024-02-29',
      seen: '2024-01-01T08:00:00.000Z',
      tags: ['x', 'y'],
      meta: { k: [1] },
      maker: { name: 'Bond' },
    })
    expect(await stored('a2')).toMatchObject({ name: 'Nut', stock: null, active: false, meta: '=text', maker: null })
    const events = await api.log(before)
    expect(events.map(({ action, entity, changes }) => [action, entity, changes.after.sku])).toEqual([
      ['create', 'part', 'a1'],
      ['create', 'part', 'a2'],
    ])
    expect(new Set(events.map(({ userId }) => userId)).size).toBe(1)
    expect(events[0]!.userId).not.toBeNull()
    expect(await api.jobs('mail')).toEqual([])
  })

  it('has null in empty cells, the default where null cannot be, empty text in quotes', async () => {
    expect(await importCsv('sku,name,note,stock\nb1,,,\nb2,"","",""')).toMatchObject(imported(2))
    expect(await stored('b1')).toMatchObject({ name: 'unnamed', note: null, stock: null })
    expect(await stored('b2')).toMatchObject({ name: '', note: '', stock: null })
  })

  it.each([
    ['semicolons', ';'],
    ['tabs', '\t'],
  ])('may have %s between its columns, as the header says', async (name, delimiter) => {
    const row = (...cells: string[]) => cells.join(delimiter)
    const file = [
      row('\ufeffsku', ' "name"', 'stock', 'tags'),
      row(`${name}-1`, 'Bolts, short', '', '"[""x"",""y""]"'),
      row(`${name}-2`, `"a${delimiter}b"`, '7', ''),
    ].join('\r\n')
    expect(await importCsv(file)).toMatchObject(imported(2))
    expect(await stored(`${name}-1`)).toMatchObject({ name: 'Bolts, short', stock: null, tags: ['x', 'y'] })
    expect(await stored(`${name}-2`)).toMatchObject({ name: `a${delimiter}b`, stock: 7, tags: null })
  })

  it('may be of another encoding, by its name or by the mark of UTF-16', async () => {
    const content = (sku: string) => `sku;name\n${sku};Café ½ Zoll`
    const windows = Buffer.from(`${content('windows-1')} für 3 \x80`, 'latin1')
    expect(await importCsv(windows, { encoding: 'windows-1252' })).toMatchObject(imported(1))
    expect(await stored('windows-1')).toMatchObject({ name: 'Café ½ Zoll für 3 €' })
    const little = Buffer.from(`\ufeff${content('little-1')}`, 'utf16le')
    expect(await importCsv(little)).toMatchObject(imported(1))
    expect(await importCsv(Buffer.from(`\ufeff${content('big-1')}`, 'utf16le').swap16())).toMatchObject(imported(1))
    expect(await importCsv(Buffer.from(content('plain-1'), 'utf16le'), { encoding: 'utf-16le' })).toMatchObject(
      imported(1),
    )
    for (const sku of ['little-1', 'big-1', 'plain-1']) expect(await stored(sku)).toMatchObject({ name: 'Café ½ Zoll' })
    await refused(() => importCsv(little.subarray(0, -1)), {
      status: 400,
      body: { error: { message: expect.stringMatching(/^Invalid CSV format: the file is not UTF-16LE$/) } },
    })
  })

  it('keeps semicolons in the cells of a single column, and between commas', async () => {
    expect(await importCsv('sku\nc;1\n"c;2"')).toMatchObject(imported(2))
    expect(await importCsv('sku,"name","note;x"\nc3,a;b,c')).toMatchObject(imported(1))
    for (const [sku, name] of [
      ['c;1', 'unnamed'],
      ['c;2', 'unnamed'],
      ['c3', 'a;b'],
    ] as const)
      expect(await stored(sku)).toMatchObject({ name })
  })

  it('is refused where it is none', async () => {
    const format = (message: RegExp) => ({ status: 400, body: { error: { message: expect.stringMatching(message) } } })
    const empty = format(/^CSV file is empty or has no valid data$/)
    await refused(() => importCsv(''), empty)
    await refused(() => importCsv('\n\n'), empty)
    await refused(() => importCsv('sku,name\n'), empty)
    await refused(() => importCsv('unknown\nx'), { status: 400, body: { error: { details: null } } })
    await refused(() => importCsv('sku,name\nx'), format(/^Invalid CSV format: .*line 2/))
    await refused(() => importCsv('sku,name\nx,"y'), format(/^Invalid CSV format: /))
    await refused(() => importCsv('sku,name,sku\nx,y,z'), format(/^Invalid CSV format: column "sku" appears twice$/))
    const header = (columns: number) =>
      `sku${Array.from({ length: columns - 1 }, (_, place) => `,${place}`).join('')}\n`
    await refused(() => importCsv(header(5001)), format(/^CSV file has 5001 columns: at most 5000$/))
    await refused(() => importCsv(header(5000)), empty)
    const latin = Buffer.from('sku\nd\xe9j\xe0', 'latin1')
    const unnamed = /^Invalid CSV format: the file is not UTF-8; name its encoding, such as encoding=windows-1252$/
    await refused(() => importCsv(latin), format(unnamed))
    await refused(() => importCsv(latin, { encoding: 'utf-8' }), format(/^Invalid CSV format: the file is not UTF-8$/))
    await refused(() => importCsv(latin, { encoding: 'latin-9' }), {
      status: 400,
      body: { error: { details: expect.stringMatching(/^encoding: "latin-9" is not known/) } },
    })
    await refused(() => importCsv(Buffer.from('sku\nx', 'utf16le')), empty)
    await refused(() => importCsv(`sku\n${'x'.repeat(200_000)}`), format(/^Invalid CSV format: .*Record Size/))
  })
})

describe('a JSON file', () => {
  it('becomes items, with related rows in them', async () => {
    const items = [
      { sku: 'j1', name: 'One', meta: { deep: [null, 'text'] }, maker: { code: 'new', name: 'New' } },
      { sku: 'j2', name: 'Two', maker: '007' },
    ]
    const made = [{ code: 'new', name: 'New' }]
    expect(await importJson(made, { collection: 'maker' })).toMatchObject(imported(1))
    const before = await api.position()
    expect(await importJson(items)).toMatchObject(imported(2))
    expect(await stored('j1')).toMatchObject({ name: 'One', meta: { deep: [null, 'text'] }, maker: { name: 'New' } })
    expect(await stored('j2')).toMatchObject({ name: 'Two', maker: { name: 'Bond' } })
    expect((await api.log(before)).map(({ action, entity }) => `${action} ${entity}`)).toEqual([
      'create part',
      'create part',
    ])
  })

  it('is refused where it is none', async () => {
    const says = (message: string) => ({ status: 400, body: { error: { message: expect.stringContaining(message) } } })
    for (const empty of ['', ' \n', '[]', ' [ ] '])
      await refused(() => importJson(empty), says('JSON file is empty or has no valid data'))
    for (const other of ['{"sku":"x"}', '7', 'null', '[1]', '[{"sku":"x"},null]', '[[]]'])
      await refused(() => importJson(other), says('JSON file must contain an array of objects'))
    for (const broken of ['{', 'nonsense', '[', '[{"sku":"x"}', '[{"sku":"x"},]', '[{"sku":"x"}] x', '[{"sku":]}]'])
      await refused(() => importJson(broken), says('Invalid JSON format: '))
    await refused(() => importJson(`[{"meta":${'['.repeat(600)}${']'.repeat(600)}}]`), says('nested too deeply'))
    await refused(() => importJson(`[{"sku":"${'x'.repeat(200_000)}"}]`), says('item 1 is too large'))
  })

  it('takes names of prototypes as nothing but data', async () => {
    const text =
      '[{"sku":"proto","name":"p","__proto__":{"polluted":true},"meta":{"a":1,"__proto__":{"polluted":true}}}]'
    expect(await importJson(text)).toMatchObject(imported(1))
    expect(await importCsv('sku,__proto__,constructor\nproto2,x,y')).toMatchObject(imported(1))
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined()
    expect((await api.sql(`select meta::text as meta from part where sku = 'proto'`))[0].meta).toContain('__proto__')
  })
})

describe('a form', () => {
  const post = (path: string, parts: readonly Part[], token: string | undefined = admin) =>
    upload(api, token, `/items/part/${path}`, parts)
  const says = (status: number, message: string) => ({ status, body: { error: { message } } })

  it('must hold the file, of the right kind', async () => {
    const field: Part = { name: 'csvFile', value: 'sku\nx' }
    await refused(() => post('import-csv', [field]), says(400, 'No CSV file provided'))
    expect((await post('import-csv', [field])).body.error.details).toBe(
      'send it as the part csvFile of multipart/form-data',
    )
    await refused(() => post('import-csv', [jsonPart('[]')]), says(400, 'No CSV file provided'))
    await refused(() => post('import-json', [csvPart('sku\nx')]), says(400, 'No JSON file provided'))
    await refused(() => api.admin('POST', '/items/part/import-json', [{}]), says(400, 'No JSON file provided'))
    const wrong = { filename: 'rows.txt', type: 'text/plain', content: 'sku\nx' }
    await refused(() => post('import-csv', [{ ...wrong, name: 'csvFile' }]), says(400, 'File must be a CSV file'))
    await refused(() => post('import-json', [{ ...wrong, name: 'jsonFile' }]), says(400, 'File must be a JSON file'))
    const typed = { name: 'csvFile', filename: 'rows', type: 'text/csv', content: 'sku\nby-type' }
    expect(await post('import-csv', [typed])).toMatchObject(imported(1))
    const broken = { 'content-type': 'multipart/form-data; boundary=x' }
    await refused(
      () => api.admin('POST', '/items/part/import-csv', 'no form', broken),
      says(400, 'The upload cannot be read'),
    )
  })

  it('must not be larger than an upload', async () => {
    const large = `sku\n${'x\n'.repeat(600_000)}`
    await refused(() => importCsv(large), says(413, 'Request body is too large'))
    expect(await readdir(join(directory, 'own'))).toEqual([])
  })

  it('needs a session and the permission to create', async () => {
    const path = '/items/part/import-csv'
    await refused(() => upload(api, undefined, path, [csvPart('sku\nx')]), says(401, 'Authentication required'))
    const { token } = await api.user()
    const denied = "You don't have permission to create items in 'part'"
    await refused(() => importCsv('sku\nx', { token }), says(403, denied))
    await refused(() => importCsv('sku\nx', { collection: 'nope' }), says(404, 'Model nope not found'))
    await refused(() => importCsv('id\nx', { collection: 'svc_AuditLog' }), { status: 403 })
  })
})

describe('broken rows', () => {
  const failed = (n: number, unit: string) => `Import failed. ${n} ${unit} had errors. Transaction rolled back.`

  it('of every kind are all named, and nothing is imported', async () => {
    await importCsv('sku\ntaken')
    const file =
      'sku,name,stock,maker_code,parent_id,secret\n' +
      'good,ok,1,,,hush\n' +
      'e1,ok,-1,,,hush\n' +
      'e2,ok,many,,,\n' +
      'taken,ok,1,,,\n' +
      'good2,ok,1,007,,\n' +
      'e3,ok,1,nobody,,\n' +
      'good,again,1,,,\n' +
      `e4,ok,1,,${randomUUID()},\n`
    const { body } = await refused(() => importCsv(file), {
      status: 400,
      body: { error: { message: failed(6, 'rows') } },
    })
    const { results } = body.error.details
    expect(results).toMatchObject({ imported: 0, failed: 6 })
    expect(results.errors.map(({ row, error }: { row: number; error: string }) => [row, error])).toEqual([
      [2, 'Validation failed: stock: Value -1 is less than minimum 0'],
      [3, 'Validation failed: stock: expected an integer'],
      [4, 'Unique constraint violation'],
      [6, 'Foreign key constraint violation'],
      [7, 'Unique constraint violation'],
      [8, 'Foreign key constraint violation'],
    ])
    expect(results.errors[0].data).toEqual({ sku: 'e1', name: 'ok', stock: '-1', maker_code: null, parent_id: null })
  })

  it('of JSON are items', async () => {
    const items = [
      { sku: 'k1', name: 'x' },
      { sku: 'k2', name: null },
      { sku: 'k3', maker: { name: 'no key' } },
    ]
    const { body } = await refused(() => importJson(items), {
      status: 400,
      body: { error: { message: failed(2, 'items') } },
    })
    expect(body.error.details.results.errors).toEqual([
      {
        item: 2,
        line: 1,
        data: { sku: 'k2', name: null },
        error: 'Validation failed: name: is required',
        fields: [{ field: 'name', message: 'is required' }],
      },
      {
        item: 3,
        line: 1,
        data: items[2],
        error: expect.stringMatching(/^Validation failed: maker.code: is required/),
        fields: [expect.objectContaining({ field: 'maker.code' })],
      },
    ])
  })

  it('are listed up to a thousand', async () => {
    const { body } = await refused(() => importCsv(`sku,stock\n${'x,-1\n'.repeat(1200)}`), {
      body: { error: { message: failed(1000, 'rows') } },
    })
    expect(body.error.details.results.errors).toHaveLength(1000)
  })

  it('are not those that need an earlier row of the same file', async () => {
    const own = { collection: 'part', conditions: { userCreated_Id: { eq: '$CURRENT_USER' } } }
    const { token } = await api.user([
      { ...own, action: 'create', fields: ['*', 'parent'] },
      { ...own, action: 'read', fields: ['*', 'parent.*'] },
    ])
    const [first, second] = [randomUUID(), randomUUID()]
    const items = [
      { id: first, name: 'parent' },
      { id: second, name: 'child', parent: first },
    ]
    await refused(() => importJson([items[1]], { token }), { status: 400 })
    expect(await importJson(items, { token })).toMatchObject(imported(2))
  })
})

describe('rows that the caller may not create', () => {
  it('is refused per row as a create is: fields, conditions, privileges', async () => {
    const { token, id } = await api.user([
      { collection: 'part', action: 'create', fields: '*', conditions: { stock: { lt: 10 } } },
    ])
    const says = (row: number, error: string) => ({
      status: 400,
      body: { error: { details: { results: { errors: [expect.objectContaining({ row, error })] } } } },
    })
    for (const field of ['userCreated_Id', 'userUpdated_Id', 'secret'])
      await refused(
        () => importCsv(`sku,name,${field}\np1,x,${randomUUID()}`, { token }),
        says(1, `You don't have permission to create field: ${field}`),
      )
    const outside = "You don't have permission to create items in 'part'"
    await refused(() => importCsv('sku,stock\np1,1\np2,11\np3,2', { token }), says(2, outside))
    expect(await importCsv('sku,stock,createdAt\np1,1,2001-01-01', { token })).toMatchObject(imported(1))
    const [row] = await api.sql(`select "userCreated_Id" as by, "createdAt" as at from part where sku = 'p1'`)
    expect(row.by).toBe(id)
    expect(row.at.getFullYear()).toBeGreaterThan(2020)
  })

  it('is refused for users as everywhere: passwords are hashed, addresses checked', async () => {
    const user = { firstName: 'I', email: 'Imported@Example.com', password: 'long enough password' }
    expect(await importJson([user], { collection: 'svc_User' })).toMatchObject(imported(1))
    const [row] = await api.sql(`select email, password from "svc_User" where email = 'imported@example.com'`)
    expect(row.password).toMatch(/^[^l]*\$2/)
    const answer = await importJson([{ ...user, email: 'none' }], { collection: 'svc_User' })
    expect(answer.status).toBe(400)
    expect(answer.text).not.toContain('long enough')
    const { token } = await api.user([{ collection: 'svc_User', action: 'create', fields: '*' }])
    for (const more of [{ emailVerified: true }, { session_limits: {} }, {}])
      expect(
        await importJson([{ ...user, email: 'b@example.com', ...more }], { token, collection: 'svc_User' }),
      ).toMatchObject({
        status: 400,
        body: { error: { details: { results: { failed: 1 } } } },
      })
  })
})

describe('many rows', () => {
  it('are written in batches, in order, with the defaults of rows', async () => {
    const before = await api.position()
    const names = Array.from({ length: 1700 }, (_, n) => `step ${n}`)
    expect(await importCsv(`name\n${names.join('\n')}`, { collection: 'step' })).toMatchObject(imported(1700))
    const rows = await api.sql('select name from step order by sort')
    expect(rows.map(({ name }) => name)).toEqual(names)
    expect(await api.log(before)).toHaveLength(1700)
  })

  it('are waited for, longer than a silent connection lives', async () => {
    const address = await api.app.listen({ port: 0, host: '127.0.0.1' })
    const sockets: Socket[] = []
    api.app.server.on('connection', (socket) => sockets.push(socket))
    const client = await connect(api.database.url)
    await client.query('begin; lock table step in exclusive mode')
    const form = new FormData()
    form.append('csvFile', new Blob(['name\nwaited']), 'steps.csv')
    const answer = fetch(`${address}/items/step/import-csv`, {
      method: 'POST',
      headers: { authorization: `Bearer ${admin}` },
      body: form,
    })
    const blocked = `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
    await waitFor(async () => (await client.query(blocked)).rowCount)
    // Only from here on: a busy machine may be silent for as long before the import has begun.
    for (const socket of sockets) socket.setTimeout(100)
    await Promise.all(sockets.map((socket) => once(socket, 'timeout')))
    await client.query('commit')
    await client.end()
    expect((await answer).status).toBe(200)
  })

  it('sent twice with one key are imported once', async () => {
    const send = (content: string) =>
      upload(api, admin, '/items/part/import-csv', [csvPart(content)], { 'idempotency-key': 'import-1' })
    expect(await send('sku\nonce')).toMatchObject(imported(1))
    const before = await api.position()
    expect(await send('sku\nonce')).toMatchObject(imported(1))
    expect(await send('sku\nother')).toMatchObject({ status: 409 })
    expect(await api.log(before)).toEqual([])
  })
})
