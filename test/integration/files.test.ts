import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { createServer, type RequestListener } from 'node:http'
import { type AddressInfo, connect as connectTcp } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { administrator } from '../support/prepare.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { formOf, type Part, upload } from '../support/upload.ts'
import { waitFor } from '../support/wait.ts'

/** Files: how content comes, is replaced and is refused, and what is left of it (docs/files.md). */

let api: Api
let admin: string
let base: string
let address: string

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/
const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
)
const prolog = '<?xml version="1.0"?>'
const word = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document'
const all = (...actions: string[]) => actions.map((action) => ({ collection: 'svc_File', action, fields: ['*'] }))

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'daybook-files-'))
  api = await startApi({
    STORAGE_SERVICES_ENABLED: 'local,second',
    LOCAL_STORAGE_DRIVER: 'LOCAL',
    LOCAL_STORAGE_PATH: join(base, 'local'),
    SECOND_STORAGE_DRIVER: 'LOCAL',
    SECOND_STORAGE_PATH: join(base, 'second'),
    MAX_UPLOAD_FILE_SIZE: '1',
    SSRF_ALLOW_PRIVATE_URL_FETCH: 'true',
    URL_FETCH_TIMEOUT_MS: '300',
  })
  admin = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  address = await api.app.listen({ port: 0, host: '127.0.0.1' })
})

afterAll(() => rm(base, { recursive: true }))

const file = (content: string | Buffer, filename = 'notes.txt', type = 'text/plain'): Part => ({
  name: 'file',
  filename,
  type,
  content,
})
const field = (name: string, value: string): Part => ({ name, value })
const send = (parts: readonly Part[], token: string | null = admin, headers: Record<string, string> = {}) =>
  upload(api, token ?? undefined, '/files', parts, headers)
/** A form of one part, byte by byte. */
const sendBytes = async (part: string) => {
  const { statusCode, headers, body } = await api.app.inject({
    method: 'POST',
    url: '/files',
    headers: { authorization: `Bearer ${admin}`, 'content-type': 'multipart/form-data; boundary=b' },
    payload: Buffer.from(`--b\r\ncontent-disposition: form-data; ${part}\r\n--b--\r\n`, 'latin1'),
  })
  return { status: statusCode, body: JSON.parse(body), text: body, headers }
}
const replace = (id: string, parts: readonly Part[], token: string | null = admin) =>
  upload(api, token ?? undefined, `/files/${id}`, parts, {}, 'PATCH')
const read = async (id: string) => (await api.admin('GET', `/files/${id}`)).body.data
const keysIn = async (service: string) => {
  const root = join(base, service)
  if (!existsSync(root)) return []
  const entries = await readdir(root, { recursive: true, withFileTypes: true })
  return entries.filter((entry) => entry.isFile()).map(({ name }) => name)
}
const held = async () => (await api.sql('select count(*)::int as n from "svc_FileRemoval"'))[0].n
const pathOf = ({ storage, storage_folder, filename }: Record<string, string | null>) =>
  join(base, storage!, storage_folder ?? '', filename!)

/** The request is refused, and leaves no row, event, content or hold. */
async function leavesNothing(attempt: () => Promise<Answer>, expected: object) {
  const position = await api.position()
  const state = async () => [await keysIn('local'), await keysIn('second'), await held(), await rows()]
  const rows = async () => (await api.sql('select count(*)::int as n from "svc_File"'))[0].n
  const before = await state()
  expect(await attempt()).toMatchObject(expected)
  expect(await state()).toEqual(before)
  expect(await api.log(position)).toEqual([])
}

describe('an upload', () => {
  it('stores the content, and row and event in one commit', async () => {
    const position = await api.position()
    const answer = await send([file('Hello', 'Grüße vom Meer.txt')])
    expect(answer).toMatchObject({ status: 200, body: { data: expect.stringMatching(uuid) } })
    const id = answer.body.data
    const row = await read(id)
    expect(row).toMatchObject({
      id,
      title: 'Grüße vom Meer.txt',
      originalFilename: 'Grüße vom Meer.txt',
      filename: `${id}-Gr_e_vom_Meer.txt`,
      type: 'text/plain',
      typeProven: false,
      size: 5,
      storage: 'local',
      storage_folder: null,
      isPublic: false,
      hash: createHash('sha256').update('Hello').digest('hex'),
    })
    expect(await readFile(pathOf(row), 'utf8')).toBe('Hello')
    expect((await api.log(position)).map(({ entity, entityId, action }) => [entity, entityId, action])).toEqual([
      ['svc_File', id, 'create'],
    ])
    expect(await held()).toBe(0)
  })

  it('takes names as browsers, curl and RFC 5987 write them', async () => {
    const name = 'naïve ☃.txt'
    expect(await read((await send([file('x', name)])).body.data)).toMatchObject({ originalFilename: name })
    const bytes = (text: string) => Buffer.from(text).toString('latin1')
    for (const [written, shown] of [
      [`filename="${bytes('naïve ☃.txt')}"`, 'naïve ☃.txt'],
      ["filename*=UTF-8''na%C3%AFve%20%E2%98%83.txt", 'naïve ☃.txt'],
      ["filename*=ISO-8859-1''na%EFve.txt", 'naïve.txt'],
    ] as const) {
      const { status, body } = await sendBytes(`name="file"; ${written}\r\n\r\nx`)
      expect([written, status]).toEqual([written, 200])
      expect((await read(body.data)).originalFilename).toBe(shown)
    }
  })

  it('drops files under other names, before the file and after it', async () => {
    const foreign = { ...file('not asked for'), name: 'other' }
    const before = await keysIn('local')
    const { status, body } = await send([foreign, field('title', 'Only one'), file('x'), foreign])
    expect(status).toBe(200)
    expect(await read(body.data)).toMatchObject({ title: 'Only one', size: 1 })
    expect(await keysIn('local')).toHaveLength(before.length + 1)
    expect(await held()).toBe(0)
  })

  it('takes fields before the file and after it, as text of their kind', async () => {
    const { body } = await send([
      field('title', 'A portrait'),
      file(png, 'ada.png', 'application/octet-stream'),
      field('isPublic', 'true'),
      field('metadata', '{"camera":"box"}'),
      field('description', 'at her desk'),
      field('folder', 'portraits'),
      field('originalFilename', 'lovelace.png'),
      field('nonsense', 'x'),
      field('storage', 'SECOND'),
      field('filename', '../../etc/passwd'),
      field('hash', 'mine'),
      field('size', '1'),
      field('id', '00000000-0000-4000-8000-000000000000'),
    ])
    const row = await read(body.data)
    expect(row).toMatchObject({
      ...{ title: 'A portrait', isPublic: true, metadata: { camera: 'box' }, folder: 'portraits' },
      ...{ originalFilename: 'lovelace.png', type: 'image/png', typeProven: true, size: png.length, storage: 'second' },
      filename: `${body.data}-ada.png`,
    })
    expect(await readFile(pathOf(row))).toEqual(png)
    expect(await keysIn('local')).not.toContain(row.filename)
  })

  it.each([
    ['text without a name that says more', 'x', 'notes', 'application/octet-stream', 'application/octet-stream', false],
    ['a name like a member of every object', 'x', 'a.constructor', '', 'application/octet-stream', false],
    ['a known extension', 'a,b', 'a.csv', '', 'text/csv', false],
    ['a declared type', '{}', 'a.bin', 'application/geo+json; charset=utf-8', 'application/geo+json', false],
    [
      'a script that begins as a picture',
      Buffer.from('GIF89a/*x*/=1;alert(1)'),
      'a.js',
      'text/javascript',
      'image/gif',
      false,
    ],
    [
      'a page in an archive',
      Buffer.from('504b0304140000000000', 'hex'),
      'a.html',
      'text/html',
      'application/zip',
      false,
    ],
    [
      'a film that runs, in an archive',
      Buffer.from('504b0304140000000000', 'hex'),
      'a.swf',
      'application/x-shockwave-flash',
      'application/zip',
      false,
    ],
    [
      'a compressed drawing',
      Buffer.from('1f8b0800000000000003', 'hex'),
      'a.svgz',
      'image/svg+xml',
      'application/gzip',
      false,
    ],
    [
      'a drawing that says it is a picture',
      '<svg xmlns="http://www.w3.org/2000/svg"/>',
      'a.svg',
      'image/png',
      'image/png',
      false,
    ],
    ['a drawing with a prolog', `${prolog}<svg/>`, 'a.svg', 'image/svg+xml', 'image/svg+xml', false],
    ['a feed with a prolog', `${prolog}<rss/>`, 'a.rss', 'application/rss+xml', 'application/rss+xml', false],
    ['a track with a prolog', `${prolog}<gpx/>`, 'a.gpx', 'application/gpx+xml', 'application/gpx+xml', false],
    ['XML that says no more', `${prolog}<a/>`, 'a.xml', 'text/xml', 'application/xml', true],
    ['XML that says it is a page', `${prolog}<html/>`, 'a.html', 'text/html', 'application/xml', false],
    ['a picture that says it is a feed', png, 'a.rss', 'application/rss+xml', 'image/png', false],
    ['a lie about a picture', png, 'a.html', 'text/html', 'image/png', false],
    ['a picture of another format', png, 'a.jpg', 'image/jpg', 'image/png', true],
    ['a page that says it is a picture', '<html>', 'a.png', 'image/png', 'image/png', false],
    ['no type at all', 'x', 'a.txt', 'nonsense', 'text/plain', false],
    ['a known extension of no text', 'x', 'a.PDF', '', 'application/pdf', false],
    ['an office document by its name', 'x', 'a.docx', 'application/octet-stream', word, false],
    ['a script by its name', 'x', 'a.mjs', '', 'text/javascript', false],
    ['a name that is an extension', 'x', 'pdf', '', 'application/octet-stream', false],
    ['an unknown extension', 'x', 'a.constructor', '', 'application/octet-stream', false],
  ])('knows the type of %s', async (_what, content, name, declared, type, typeProven) => {
    const { body } = await send([file(content, name, declared)])
    expect(await read(body.data)).toMatchObject({ type, typeProven })
  })

  it.each([
    ['image/svg+xml', 'a.svg', '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'],
    ['application/xhtml+xml', 'a.xhtml', '<html xmlns="http://www.w3.org/1999/xhtml"><script>alert(1)</script></html>'],
    ['application/rss+xml', 'a.rss', '<rss/>'],
  ])('never opens %s in a browser, whose type the content does not prove', async (type, name, content) => {
    const { body } = await send([file(prolog + content, name, type), field('isPublic', 'true')])
    expect(await read(body.data)).toMatchObject({ type, typeProven: false })
    const open = await configured(api.database, {
      ...{ STORAGE_SERVICES_ENABLED: 'local', LOCAL_STORAGE_DRIVER: 'LOCAL', LOCAL_STORAGE_PATH: join(base, 'local') },
      ...{ ASSET_XSS_PROTECTION: 'false', ASSET_NOSNIFF: 'false' },
    })
    for (const [app, sent] of [
      [api.app, 'application/octet-stream'],
      [open, type],
    ] as const) {
      const { statusCode, headers } = await app.inject({ url: `/assets/${body.data}` })
      expect([statusCode, headers]).toMatchObject([
        200,
        {
          'content-type': sent,
          'content-disposition': expect.stringMatching(/^attachment/),
          'x-content-type-options': 'nosniff',
          'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; sandbox",
        },
      ])
    }
  })

  it('keeps a name apart from the place: no path of a client is used', async () => {
    for (const name of ['../../x.sh', 'C:\\windows\\..\\y.txt', '....//z', `${'a'.repeat(300)}.txt`, '%2e%2e%2f']) {
      const { status, body } = await send([file('x', name)])
      expect(status).toBe(200)
      const row = await read(body.data)
      expect(row.filename).toMatch(/^[A-Za-z0-9._-]+$/)
      expect(row.filename.length).toBeLessThan(100)
      expect(row.originalFilename).not.toMatch(/[/\\]/)
      expect(existsSync(pathOf(row))).toBe(true)
    }
    expect(await readdir(base)).toEqual(expect.not.arrayContaining(['x.sh']))
  })

  it('with a long name keeps its extension, and the type by it', async () => {
    const longest = 'b'.repeat(252)
    for (const [name, shown, type] of [
      [`${'漢'.repeat(90)}.csv`, `${'漢'.repeat(83)}.csv`, 'text/csv'],
      [`${longest}.md`, `${longest}.md`, 'text/markdown'],
      [`${longest}b.md`, `${longest}.md`, 'text/markdown'],
      // Cut, this one would be a page.
      [`${'b'.repeat(250)}.html${'b'.repeat(30)}`, `${'b'.repeat(250)}.html`, 'application/octet-stream'],
    ] as const) {
      const { body } = await send([file('x', name, '')])
      expect(await read(body.data)).toMatchObject({ originalFilename: shown, title: shown, type })
    }
  })

  it('of nothing is a file of nothing', async () => {
    const { body } = await send([file('', 'empty.txt'), field('isPublic', ''), field('folder', '')])
    expect(await read(body.data)).toMatchObject({ size: 0, isPublic: false, folder: '' })
  })

  it('is stored once for each Idempotency-Key', async () => {
    const key = { 'idempotency-key': 'upload-once' }
    const before = (await keysIn('local')).length
    const first = await send([file('once')], admin, key)
    const second = await send([file('once')], admin, key)
    expect([first.status, second.status]).toEqual([200, 200])
    expect(second.body).toEqual(first.body)
    expect(first.headers['idempotent-replayed']).toBeUndefined()
    expect(second.headers['idempotent-replayed']).toBe('true')
    expect((await keysIn('local')).length).toBe(before + 1)
    await leavesNothing(() => send([file('other')], admin, key), {
      status: 409,
      body: { error: { code: 'IDEMPOTENCY_KEY_REUSED' } },
    })
  })

  it.each<[string, () => Promise<Answer>, object]>([
    [
      'without a file',
      () => send([field('title', 'x')]),
      {
        status: 400,
        body: { error: { message: "No file uploaded. Please provide a file with the field name 'file'." } },
      },
    ],
    ['under another name', () => send([{ ...file('x'), name: 'image' } as Part]), { status: 400 }],
    ['of nothing that was chosen', () => send([file('', '')]), { status: 400 }],
    ['that is no form', () => api.admin('POST', '/files', { title: 'x' }), { status: 400 }],
    [
      'to an unknown service',
      () => send([file('x'), field('storage', 'nowhere')]),
      { status: 400, body: { error: { message: 'Storage service nowhere not found' } } },
    ],
    [
      'with bad JSON after it',
      () => send([file('x'), field('metadata', '{')]),
      { status: 400, body: { error: { code: 'VALIDATION_ERROR' } } },
    ],
    [
      'with a tenant that is not there',
      () => send([file('x'), field('tenant_Id', '00000000-0000-4000-8000-000000000001')]),
      { status: 409 },
    ],
    [
      'that is too large',
      () => send([file(Buffer.alloc(1024 * 1024 + 1))]),
      { status: 413, body: { error: { code: 'FILE_TOO_LARGE' } } },
    ],
    [
      'with two files',
      () => send([file('x'), file('y')]),
      { status: 400, body: { error: { message: expect.stringContaining('one file') } } },
    ],
    [
      'with 21 fields',
      () => send([file('x'), ...Array.from({ length: 21 }, (_, i) => field(`f${i}`, 'x'))]),
      { status: 400, body: { error: { message: 'A form may have at most 20 fields' } } },
    ],
    [
      'with a heap of parts',
      () => send([file('x'), ...Array.from({ length: 31 }, () => ({ ...file('y'), name: 'other' }))]),
      { status: 400, body: { error: { message: 'A form may have at most 31 parts' } } },
    ],
    [
      'beside files under other names that are too large together',
      () => send([file('x'), ...['a', 'b'].map((name) => ({ ...file(Buffer.alloc(600_000)), name }))]),
      { status: 413, body: { error: { code: 'FILE_TOO_LARGE' } } },
    ],
    [
      'with text that is half a character, in JSON',
      () => send([file('x'), field('metadata', '{"a":"\\ud800"}')]),
      { status: 400, body: { error: { code: 'INVALID_TEXT' } } },
    ],
    ...Object.entries({
      'a field': 'name="title"\r\n\r\nna\xefve',
      'a field whose part says that it is UTF-8':
        'name="title"\r\ncontent-type: text/plain; charset=utf-8\r\n\r\nna\xefve',
      'the name of a field': 'name="na\xefve"\r\n\r\nx',
      'the name of the file': 'name="file"; filename="na\xefve.txt"\r\n\r\nx',
      'the encoded name of the file': 'name="file"; filename*=UTF-8\'\'na%EFve.txt\r\n\r\nx',
    }).map(([what, part]): [string, () => Promise<Answer>, object] => [
      `with bytes in ${what} that are no UTF-8`,
      () => sendBytes(part),
      { status: 400, body: { error: { code: 'INVALID_UTF8' } } },
    ]),
    ['with a field of the language', () => send([file('x'), field('__proto__', 'x')]), { status: 400 }],
    ['of nobody', () => send([file('x')], null), { status: 403 }],
  ])('%s is refused, and leaves nothing', async (_what, attempt, expected) => leavesNothing(attempt, expected))

  it('is decided on before the body: without a grant, by size, and by a field of it at the end', async () => {
    const reader = await api.user(all('read'))
    await leavesNothing(() => send([file('x')], reader.token), { status: 403 })
    const plain = await api.user([{ collection: 'svc_File', action: 'create', fields: ['title'] }, ...all('read')])
    await leavesNothing(() => send([file('x'), field('description', 'no')], plain.token), {
      status: 403,
      body: { error: { message: "You don't have permission to create field: description" } },
    })
    expect(await send([file('x'), field('title', 'mine')], plain.token)).toMatchObject({ status: 200 })
    const declared = await raw([
      'POST /files HTTP/1.1',
      'host: x',
      `authorization: Bearer ${admin}`,
      'content-type: multipart/form-data; boundary=b',
      'content-length: 90000000',
      'expect: 100-continue',
      '',
      '',
    ])
    expect(declared).toMatch(/^HTTP\/1\.1 (413|100)/)
  })

  it('that is no whole form is the form’s fault, while its sender waits for an answer', async () => {
    const whole = '--b\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n\r\nabc'
    for (const form of [whole, 'garbage', '--b\r\ngarbage\r\n\r\n--b--', '']) {
      const before = [await keysIn('local'), await held()]
      const answer = await raw([
        'POST /files HTTP/1.1',
        'host: x',
        `authorization: Bearer ${admin}`,
        'content-type: multipart/form-data; boundary=b',
        `content-length: ${form.length}`,
        '',
        form,
      ])
      expect([form, answer]).toEqual([form, expect.stringMatching(/^HTTP\/1\.1 400/)])
      expect([await keysIn('local'), await held()]).toEqual(before)
    }
  })

  it('leaves nothing when its client goes away in the middle', async () => {
    const before = [await keysIn('local'), await held()]
    const { type, payload } = await formOf([file(Buffer.alloc(500_000, 'x'))])
    const socket = connectTcp(Number(new URL(address).port), '127.0.0.1')
    socket.on('error', () => undefined)
    socket.write(
      `POST /files HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${admin}\r\ncontent-type: ${type}\r\ncontent-length: ${payload.length}\r\n\r\n`,
    )
    socket.write(payload.subarray(0, 300_000))
    await waitFor(async () => (await held()) === 1, { what: 'the upload to begin' })
    socket.destroy()
    await waitFor(async () => JSON.stringify([await keysIn('local'), await held()]) === JSON.stringify(before))
  })

  it('is 503 while its service is away, and nothing else is', async () => {
    const away = await startApi(
      {
        STORAGE_SERVICES_ENABLED: 'local',
        LOCAL_STORAGE_DRIVER: 'LOCAL',
        LOCAL_STORAGE_PATH: import.meta.filename,
      },
      api.database,
    )
    const token = (await away.anonymous('POST', '/auth/login', administrator)).body.token
    expect(await upload(away, token, '/files', [file('x')])).toMatchObject({
      status: 503,
      body: { error: { code: 'STORAGE_UNAVAILABLE', message: 'Storage service local is not available' } },
    })
    expect((await away.admin('GET', '/files')).status).toBe(200)
  })
})

describe('a file', () => {
  it('is listed and read like an item', async () => {
    const { body } = await send([file('listed', 'listed.txt')])
    const listed = await api.admin('GET', `/files?filter={"id":"${body.data}"}&fields=id,title`)
    expect(listed.body).toMatchObject({ data: [{ id: body.data, title: 'listed.txt' }], totalCount: 1 })
    expect((await api.admin('GET', '/files?colour=red')).status).toBe(400)
    expect((await api.admin('GET', `/files/${body.data}?fields=title`)).body).toEqual({ data: { title: 'listed.txt' } })
    expect((await api.anonymous('GET', '/files')).status).toBe(403)
    expect((await api.anonymous('GET', `/files/${body.data}`)).status).toBe(403)
  })

  it('is described anew by JSON, through both doors; what is of its content stays', async () => {
    const { body } = await send([file('content')])
    const before = await read(body.data)
    const change = {
      title: 'New',
      folder: 'f',
      storage: 'second',
      filename: '../x',
      size: 1,
      type: 'text/html',
      hash: 'h',
    }
    expect(await api.admin('PATCH', `/files/${body.data}`, change)).toMatchObject({
      status: 200,
      body: { data: body.data },
    })
    expect(await read(body.data)).toMatchObject({
      ...before,
      title: 'New',
      folder: 'f',
      updatedAt: expect.any(String),
      userUpdated_Id: expect.any(String),
    })
    await api.admin('PATCH', `/items/svc_File/${body.data}`, { ...change, title: 'Newer', width: 5 })
    expect(await read(body.data)).toMatchObject({
      title: 'Newer',
      storage: 'local',
      filename: before.filename,
      width: null,
    })
    expect(await readFile(pathOf(before), 'utf8')).toBe('content')
  })

  it('is given other content by a form, under another key', async () => {
    const { body } = await send([file('old', 'old.txt')])
    const before = await read(body.data)
    const [position, holds] = [await api.position(), await held()]
    const answer = await replace(body.data, [file(png, 'new.png', 'image/png'), field('title', 'Both')])
    expect(answer).toMatchObject({ status: 200, body: { data: body.data } })
    const after = await read(body.data)
    expect(after).toMatchObject({ title: 'Both', originalFilename: 'new.png', type: 'image/png', size: png.length })
    expect(after.filename).toMatch(new RegExp(`^${body.data}-[0-9a-f]{8}-new\\.png$`))
    expect(await readFile(pathOf(after))).toEqual(png)
    expect((await api.log(position)).map(({ action }) => action)).toEqual(['update'])
    expect(await replace(body.data, [field('title', 'Only words')])).toMatchObject({ status: 200 })
    expect(await read(body.data)).toMatchObject({ title: 'Only words', filename: after.filename })
    expect(before.filename).not.toBe(after.filename)
    expect(await held()).toBe(holds)
  })

  it('is changed and deleted only in the version that If-Match names', async () => {
    const { body } = await send([file('old', 'old.txt')])
    const id = body.data
    const tag = async () => ({ 'if-match': String((await api.admin('GET', `/files/${id}`)).headers.etag) })
    const first = await tag()
    const changed = (headers: Record<string, string>, parts = [file('new', 'new.txt')]) =>
      upload(api, admin, `/files/${id}`, parts, headers, 'PATCH')
    expect((await api.admin('PATCH', `/files/${id}`, { title: 'two' }, first)).status).toBe(200)
    const refused = { status: 412, body: { error: { code: 'PRECONDITION_FAILED' } } }
    for (const stale of [first, { 'if-match': '"something else"' }])
      for (const attempt of [
        () => api.admin('PATCH', `/files/${id}`, { title: 'three' }, stale),
        () => changed(stale),
        // Not stored and discarded: the body is not read at all.
        () => changed(stale, [file('x'.repeat(1_100_000))]),
        () => changed({ ...stale, 'idempotency-key': 'stale' }),
        () => changed(stale, [field('title', 'three')]),
        () => api.admin('DELETE', `/files/${id}`, undefined, stale),
      ])
        await leavesNothing(attempt, refused)
    const once = { ...(await tag()), 'idempotency-key': 'replaced-once' }
    expect((await changed(once)).status).toBe(200)
    expect((await changed(once)).status).toBe(200)
    expect(await read(id)).toMatchObject({ title: 'two', originalFilename: 'new.txt' })
    expect((await changed(await tag(), [field('title', 'three')])).status).toBe(200)
    expect((await changed({ 'if-match': '*' })).status).toBe(200)
    expect((await api.admin('DELETE', `/files/${id}`, undefined, await tag())).status).toBe(200)
  })

  it('is changed by one of three forms that name the same version', async () => {
    const { body } = await send([file('old', 'old.txt')])
    const { headers } = await api.admin('GET', `/files/${body.data}`)
    const [position, holds, contents] = [await api.position(), await held(), (await keysIn('local')).length]
    const answers = await Promise.all(
      ['one', 'two', 'three'].map((name) =>
        upload(api, admin, `/files/${body.data}`, [file(name, name)], { 'if-match': String(headers.etag) }, 'PATCH'),
      ),
    )
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 412, 412])
    expect((await api.log(position)).map(({ action }) => action)).toEqual(['update'])
    expect([await held(), (await keysIn('local')).length]).toEqual([holds, contents + 1])
  })

  it('of others is refused, and not found where it may not be read: neither JSON nor a form, whose body is not stored', async () => {
    const { body } = await send([file('mine')])
    const own = await api.user([
      ...all('read', 'create'),
      {
        collection: 'svc_File',
        action: 'update',
        fields: ['*'],
        conditions: { userCreated_Id: { eq: '$CURRENT_USER' } },
      },
      {
        collection: 'svc_File',
        action: 'delete',
        fields: ['*'],
        conditions: { userCreated_Id: { eq: '$CURRENT_USER' } },
      },
    ])
    const notFound = { status: 404, body: { error: { message: 'File not found' } } }
    const denied = (await own.call('PATCH', `/items/svc_File/${body.data}`, { title: 'theirs' })).body
    const blind = await api.user([
      { collection: 'svc_File', action: 'update', fields: ['*'], conditions: { title: 'x' } },
    ])
    const refusals = [
      [body.data, own, { status: 403, body: denied }],
      ['00000000-0000-4000-8000-000000000000', own, notFound],
      ['nonsense', own, notFound],
      [body.data, blind, notFound],
    ] as const
    for (const [id, by, refusal] of refusals) {
      await leavesNothing(() => by.call('PATCH', `/files/${id}`, { title: 'theirs' }), refusal)
      await leavesNothing(() => replace(id, [file('theirs')], by.token), refusal)
    }
    await leavesNothing(() => own.call('DELETE', `/files/${body.data}`), { status: 403 })
    const mine = await send([file('x')], own.token)
    expect(await replace(mine.body.data, [file('y')], own.token)).toMatchObject({ status: 200 })
    expect(await own.call('DELETE', `/files/${mine.body.data}`)).toMatchObject({
      status: 200,
      body: { message: 'File deleted successfully' },
    })
  })

  it('is never created through the door of items', async () => {
    const row = { filename: 'x', originalFilename: 'x', type: 'text/plain', size: 1, storage: 'local' }
    const refused = { status: 400, body: { error: { message: 'Files are created by POST /files' } } }
    await leavesNothing(() => api.admin('POST', '/items/svc_File', row), refused)
    await leavesNothing(() => api.admin('POST', '/items/svc_File/bulk', [row]), refused)
    await leavesNothing(() => api.admin('PUT', '/items/svc_File?key=id', { ...row, id: crypto.randomUUID() }), refused)
    await leavesNothing(
      () =>
        api.admin('POST', '/items/svc_User', {
          firstName: 'A',
          email: 'a@b.cd',
          password: 'long enough 1',
          avatar: row,
        }),
      refused,
    )
  })

  it('that settings show stays', async () => {
    const { body } = await send([file(png, 'logo.png', 'image/png')])
    expect((await api.admin('PATCH', '/settings', { project_icon_Id: body.data })).status).toBe(200)
    expect((await api.admin('DELETE', `/files/${body.data}`)).status).toBe(409)
    await api.admin('PATCH', '/settings', { project_icon_Id: null })
    expect((await api.admin('DELETE', `/files/${body.data}`)).status).toBe(200)
  })
})

describe('a URL', () => {
  /** A server for one test. */
  async function serve(listener: RequestListener): Promise<string> {
    const server = createServer(listener).listen(0, '127.0.0.1')
    onTestFinished(() => {
      server.closeAllConnections()
      server.close()
    })
    await waitFor(() => server.listening)
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  }
  const fetched = (body: object, path = '/files/upload-from-url') => api.admin('POST', path, body)

  it('becomes a file, after redirects, under both addresses', async () => {
    const url = await serve((request, response) => {
      if (request.url === '/from') response.writeHead(302, { location: '/to/a%20picture.png?size=1' }).end()
      else response.writeHead(200, { 'content-type': 'image/png' }).end(png)
    })
    for (const path of ['/files/upload-from-url', '/files/import']) {
      const { status, body } = await fetched({ url: `${url}/from`, title: 'Fetched', isPublic: true }, path)
      expect(status).toBe(200)
      expect(await read(body.data)).toMatchObject({
        ...{ title: 'Fetched', originalFilename: 'a picture.png', type: 'image/png', isPublic: true },
      })
    }
  })

  it.each<[string, RequestListener, object]>([
    ['answers 404', (_q, a) => void a.writeHead(404).end('no'), { status: 400 }],
    ['does not begin', () => undefined, { status: 504 }],
    ['stops', (_q, a) => void a.writeHead(200).write('x'), { status: 504 }],
    [
      'breaks off',
      (_q, a) => void a.writeHead(200, { 'content-length': 10 }).write('x', () => a.destroy()),
      { status: 400 },
    ],
    ['is too large', (_q, a) => void a.writeHead(200).end(Buffer.alloc(1_100_000)), { status: 413 }],
    [
      'says that it is too large',
      (_q, a) => void a.writeHead(200, { 'content-length': 2_000_000 }).write('x'),
      { status: 413 },
    ],
    ['is compressed', (_q, a) => void a.writeHead(200, { 'content-encoding': 'gzip' }).end('x'), { status: 400 }],
    ['leads around', (_q, a) => void a.writeHead(302, { location: '/' }).end(), { status: 400 }],
    ['leads to a file', (_q, a) => void a.writeHead(302, { location: 'file:///etc/passwd' }).end(), { status: 400 }],
  ])('that %s is refused, and leaves nothing', async (_what, listener, expected) => {
    const url = await serve(listener)
    await leavesNothing(() => fetched({ url }), expected)
  })

  it('leads nowhere within', async () => {
    const guarded = await startApi({}, api.database)
    const canary = { asked: 0 }
    const url = await serve((_request, response) => {
      canary.asked += 1
      response.end('secret')
    })
    const { port } = new URL(url)
    for (const host of [
      '127.0.0.1',
      'localhost',
      '0',
      '127.1',
      '2130706433',
      '0x7f.1',
      '[::1]',
      '[::ffff:127.0.0.1]',
      'localhost.',
    ])
      expect([
        host,
        (await guarded.admin('POST', '/files/upload-from-url', { url: `http://${host}:${port}/` })).status,
      ]).toEqual([host, 400])
    for (const bad of ['ftp://example.com/x', 'http://a:b@example.com/', 'nonsense', ''])
      expect((await guarded.admin('POST', '/files/upload-from-url', { url: bad })).status).toBe(400)
    expect((await guarded.admin('POST', '/files/upload-from-url', {})).status).toBe(400)
    expect(canary.asked).toBe(0)
  })
})

describe('with tenants', () => {
  it('files have the tenant of who sends them, lie in its folder, and come to no more than its quota', async () => {
    const tenants = await startApi({
      MULTI_TENANT: 'true',
      STORAGE_QUOTA_TENANT: '10kb',
      STORAGE_FOLDER_STRUCTURE: 'true',
      LOCAL_STORAGE_PATH: join(base, 'tenants'),
    })
    const role = await createRole(tenants)
    await grant(tenants, role, ...all('create', 'read', 'update', 'delete'))
    const [one, two] = [await createTenant(tenants, 'one'), await createTenant(tenants, 'two')]
    const [ada, bob] = [await createUser(tenants, role, one), await createUser(tenants, role, two)]
    const sendAs = (token: string, parts: readonly Part[]) => upload(tenants, token, '/files', parts)
    const sent = await sendAs(ada.token, [file('of one')])
    const row = (await ada.call('GET', `/files/${sent.body.data}`)).body.data
    expect(row).toMatchObject({ tenant_Id: one, storage_folder: `tenants/${one}/users/${ada.id}` })
    expect(existsSync(join(base, 'tenants', row.storage_folder, row.filename))).toBe(true)
    expect((await bob.call('GET', `/files/${row.id}`)).status).toBe(403)
    expect((await upload(tenants, bob.token, `/files/${row.id}`, [file('x')], {}, 'PATCH')).status).toBe(404)
    expect((await bob.call('DELETE', `/files/${row.id}`)).status).toBe(403)
    expect((await sendAs(bob.token, [file('x'), field('tenant_Id', one)])).status).toBe(403)
    await ada.call('PATCH', `/files/${row.id}`, { isPublic: true })
    expect((await bob.call('GET', `/files/${row.id}`)).status).toBe(200)
    // Five of 3 kB at once: three fit beside the first one.
    const answers = await Promise.all(Array.from({ length: 5 }, () => sendAs(ada.token, [file(Buffer.alloc(3072))])))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 200, 413, 413])
    expect(answers.find(({ status }) => status === 413)!.body.error.code).toBe('STORAGE_QUOTA')
    const usage = () =>
      tenants.sql('select sum(files)::int as files, sum(bytes)::int as bytes from "svc_FileUsage" where tenant = $1', [
        one,
      ])
    expect(await usage()).toEqual([{ files: 4, bytes: 3 * 3072 + 6 }])
    const others = await sendAs(bob.token, [file(Buffer.alloc(3072))])
    expect(others.status).toBe(200)
    // A tenant that is given a file must have room for it.
    const before = await tenants.position()
    const given = { tenant_Id: one, title: 'given' }
    for (const [method, path, body] of [
      ['PATCH', `/items/svc_File/${others.body.data}`, given],
      ['PATCH', '/items/svc_File/bulk', [{ id: others.body.data, ...given }]],
      ['PUT', '/items/svc_File?key=id', [{ id: others.body.data, ...given }]],
    ] as const) {
      const { status, body: answer } = await tenants.admin(method, path, body)
      expect([method, path, status, answer]).toMatchObject([method, path, method === 'PUT' ? 400 : 413, {}])
    }
    expect(await tenants.log(before)).toEqual([])
    // Nor does it need more for what it has.
    const kept = await tenants.admin('PATCH', `/items/svc_File/${row.id}?fields=title`, {
      tenant_Id: one,
      title: 'kept',
    })
    expect([kept.status, kept.body.data?.title]).toEqual([200, 'kept'])
    await tenants.admin('DELETE', `/files/${answers.find(({ status }) => status === 200)!.body.data}`)
    const moved = await tenants.admin('PATCH', `/items/svc_File/${others.body.data}`, given)
    expect([moved.status, moved.text]).toEqual([200, expect.any(String)])
    expect(await usage()).toEqual([{ files: 4, bytes: 3 * 3072 + 6 }])
    await tenants.sql('delete from "svc_File" where "tenant_Id" = $1', [one])
    expect(await usage()).toEqual([{ files: 0, bytes: 0 }])
  })
})

/** Bytes by hand; the first line of the answer. */
async function raw(lines: readonly string[]): Promise<string> {
  const socket = connectTcp(Number(new URL(address).port), '127.0.0.1')
  let answer = ''
  socket.on('data', (data) => {
    answer += data
  })
  socket.write(lines.join('\r\n'))
  await waitFor(() => answer !== '')
  socket.destroy()
  return answer
}
