import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import sharp from 'sharp'
import { beforeAll, describe, expect, it } from 'vitest'
import { variantKey } from '../../src/features/files/assets/assets.ts'
import { type Api, startApi } from '../support/api.ts'
import { noise, plain, wav } from '../support/images.ts'
import { storedContent, storeFile } from '../support/stored-files.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { type Part, upload } from '../support/upload.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let picture: Buffer

beforeAll(async () => {
  api = await startApi({ ASSET_PRESETS: 'thumb=width:20;height:20;format:webp', ASSET_VARIANTS_PER_FILE: '3' })
  picture = await noise(120, 90).png().toBuffer()
})

/** A read as a browser does it. */
async function get(path: string, headers: Record<string, string> = {}, on = api, method: 'GET' | 'HEAD' = 'GET') {
  const {
    statusCode: status,
    headers: answered,
    rawPayload: bytes,
  } = await on.app.inject({ method, url: path, headers })
  return { status, headers: answered, bytes, text: bytes.toString() }
}

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const notFound = { error: { message: 'File not found', code: 'NOT_FOUND', details: null, statusCode: 404 } }

describe('permission to read an asset', () => {
  it('anybody, what is public, and says who may keep it', async () => {
    const { id } = await storeFile(api, { content: picture, isPublic: true })
    const answer = await get(`/assets/${id}`)
    expect(answer).toMatchObject({
      status: 200,
      headers: {
        'content-type': 'image/png',
        'content-length': String(picture.length),
        'content-disposition': 'inline',
        'x-content-type-options': 'nosniff',
        'accept-ranges': 'bytes',
        'cache-control': 'public, no-cache',
        etag: expect.stringMatching(/^"[0-9a-f]{40}"$/),
        'last-modified': expect.stringContaining('GMT'),
      },
    })
    expect(answer.bytes).toEqual(picture)
  })

  it('those whose grant covers it, by header, cookie or access_token; no one else', async () => {
    const shown = await storeFile(api, { content: picture, name: 'shown.png' })
    const hidden = await storeFile(api, { content: picture, name: 'hidden.png' })
    const ruled = await api.user([{ collection: 'svc_File', action: 'read', conditions: { title: 'shown.png' } }])
    const without = await api.user()
    expect((await get(`/assets/${shown.id}`)).status).toBe(403)
    expect((await get(`/assets/${shown.id}`, bearer(without.token))).status).toBe(403)
    expect((await get(`/assets/${hidden.id}`, bearer(ruled.token))).status).toBe(403)
    const header = await get(`/assets/${shown.id}`, bearer(ruled.token))
    expect(header).toMatchObject({ status: 200, headers: { 'cache-control': 'private, no-cache' } })
    expect(header.headers.vary).toContain('Authorization, Cookie')
    expect((await get(`/assets/${shown.id}?access_token=${ruled.token}`)).status).toBe(200)
    expect((await get(`/assets/${hidden.id}?access_token=${ruled.token}`)).status).toBe(403)
    const login = { email: ruled.email, password: 'password of a user', authMode: 'cookie' }
    const { headers } = await api.anonymous('POST', '/auth/login', login)
    const cookie = String([headers['set-cookie']].flat()[0]).split(';', 1)[0]!
    expect((await get(`/assets/${shown.id}`, { cookie })).status).toBe(200)
    expect((await get(`/assets/${hidden.id}`, { cookie })).status).toBe(403)
    // The cookie is dropped, and that is no answer to keep for others.
    const open = await storeFile(api, { content: picture, isPublic: true })
    const dropped = await get(`/assets/${open.id}`, { cookie: cookie.replace(/=.*/, '=dead') })
    expect(dropped).toMatchObject({ status: 200, headers: { 'cache-control': 'private, no-cache' } })
    expect(dropped.headers['set-cookie']).toBeDefined()
    // The address wins over the cookie that the browser sends along.
    expect((await get(`/assets/${shown.id}?access_token=${without.token}`, { cookie })).status).toBe(403)
    expect(await get(`/assets/${shown.id}?access_token=nonsense`)).toMatchObject({
      status: 401,
      headers: { 'www-authenticate': expect.stringContaining('invalid_token') },
    })
  })

  it('takes the token of an address nowhere else', async () =>
    expect((await get(`/items/svc_User?access_token=${'x'.repeat(30)}`)).status).toBe(403))

  it('no one, what does not exist, in the same words', async () => {
    const { token } = await api.user([{ collection: 'svc_File', action: 'read' }])
    for (const id of [randomUUID(), 'no-uuid', '..%2fetc%2fpasswd', "'", 'x'.repeat(400)])
      for (const headers of [{}, bearer(token)]) {
        const { status, text } = await get(`/assets/${id}`, headers)
        expect({ status, body: JSON.parse(text) }).toEqual({ status: 404, body: notFound })
      }
    const lost = await storeFile(api, { content: picture, isPublic: true })
    await api.runtime.storages.usual().delete(lost.filename)
    const answer = await get(`/assets/${lost.id}`)
    expect({ status: answer.status, body: JSON.parse(answer.text) }).toEqual({ status: 404, body: notFound })
    expect(answer.headers).toMatchObject({ 'cache-control': 'private, no-cache' })
    expect(answer.headers.etag).toBeUndefined()
    expect((await get(`/assets/${lost.id}`, {}, api, 'HEAD')).status).toBe(404)
    expect((await get(`/assets/${lost.id}?width=10`)).status).toBe(404)
  })

  it('anybody, images that the settings name', async () => {
    const unset = await get('/assets/project_icon?tenant_id=x')
    expect(unset).toMatchObject({ status: 404, text: 'File not found' })
    expect(unset.headers['content-type']).toBe('text/plain; charset=utf-8')
    const { id } = await storeFile(api, { content: picture })
    await api.admin('PATCH', '/settings', { project_icon_Id: id })
    expect(await get('/assets/project_icon')).toMatchObject({
      status: 200,
      headers: { 'cache-control': 'public, no-cache' },
    })
    expect((await get('/assets/project_icon?preset=thumb')).headers['content-type']).toBe('image/webp')
    expect((await get(`/assets/${id}`)).status).toBe(403)
    await api.admin('PATCH', '/settings', { project_icon_Id: null })
    expect((await get('/assets/project_icon')).status).toBe(404)
  })

  it('no one any more, within a moment, whose permission is gone or whose file is private now', async () => {
    const { id } = await storeFile(api, { content: picture, isPublic: true })
    const { token, roleId } = await api.user([{ collection: 'svc_File', action: 'read' }])
    const { headers } = await get(`/assets/${id}`)
    await api.sql('update "svc_File" set "isPublic" = false where id = $1', [id])
    expect((await get(`/assets/${id}`, { 'if-none-match': headers.etag as string })).status).toBe(403)
    expect((await get(`/assets/${id}`, bearer(token))).status).toBe(200)
    await api.sql('delete from "svc_Permission" where "role_Id" = $1', [roleId])
    await waitFor(async () => (await get(`/assets/${id}`, bearer(token))).status === 403, { timeout: 1000 })
  })
})

describe('tenants', () => {
  it('read their own files and public ones, and shared ones as SHARED_ASSET_ACCESS_MODE says', async () => {
    const first = await startApi({ MULTI_TENANT: 'true' })
    const [one, two] = [await createTenant(first, 'one'), await createTenant(first, 'two')]
    const role = await createRole(first)
    await grant(first, role, { collection: 'svc_File', action: 'read' })
    const user = await createUser(first, role, one)
    const own = await storeFile(first, { content: picture, tenant: one })
    const foreign = await storeFile(first, { content: picture, tenant: two })
    const open = await storeFile(first, { content: picture, tenant: two, isPublic: true })
    const statuses = async (on: Api, headers = {}) =>
      Promise.all([own, foreign, open].map(async ({ id }) => (await get(`/assets/${id}`, headers, on)).status))
    expect(await statuses(first, bearer(user.token))).toEqual([200, 403, 200])
    expect(await statuses(first)).toEqual([403, 403, 200])
    for (const [mode, anonymous, signedIn] of [
      ['public', [403, 200, 200], [200, 200, 200]],
      ['authenticated', [403, 403, 200], [200, 200, 200]],
    ] as const) {
      const env = { MULTI_TENANT: 'true', SHARED_ASSET_ACCESS_MODE: mode, SHARED_ASSET_TENANT_IDS: two }
      const shared = await startApi(env, first.database)
      expect(await statuses(shared)).toEqual(anonymous)
      expect(await statuses(shared, bearer(user.token))).toEqual(signedIn)
      const answer = await get(`/assets/${foreign.id}`, bearer(user.token), shared)
      expect(answer.headers['cache-control']).toBe(mode === 'public' ? 'public, no-cache' : 'private, no-cache')
    }
    const icon = await storeFile(first, { content: picture, tenant: two })
    await first.sql('insert into "svc_Settings" ("tenant_Id", "project_icon_Id") values ($1, $2)', [two, icon.id])
    await first.runtime.settings.reload()
    expect((await get(`/assets/project_icon?tenant_id=${two.toUpperCase()}`, {}, first)).status).toBe(200)
    expect((await get(`/assets/project_icon?tenant_id=${one}`, {}, first)).status).toBe(404)
  })
})

describe('answers', () => {
  it('parts, conditions and headers alone', async () => {
    const content = 'abcdefghij'.repeat(10)
    const { id } = await storeFile(api, { content, type: 'text/plain', typeProven: false, isPublic: true })
    const whole = await get(`/assets/${id}`)
    const { etag, 'last-modified': modified } = whole.headers as Record<string, string>
    const read = (headers: Record<string, string>, method: 'GET' | 'HEAD' = 'GET') =>
      get(`/assets/${id}`, headers, api, method)
    expect(await read({ range: 'bytes=3-5' })).toMatchObject({
      status: 206,
      text: 'def',
      headers: { 'content-range': 'bytes 3-5/100', 'content-length': '3', etag },
    })
    expect(await read({ range: 'bytes=-4', 'if-range': etag! })).toMatchObject({ status: 206, text: 'ghij' })
    expect(await read({ range: 'bytes=-4', 'if-range': '"other"' })).toMatchObject({ status: 200, text: content })
    expect(await read({ range: 'bytes=100-' })).toMatchObject({
      status: 416,
      headers: { 'content-range': 'bytes */100' },
    })
    expect(await read({ range: 'bytes=0-1,4-5' })).toMatchObject({ status: 200, text: content })
    const kept = { status: 304, text: '', headers: { etag, 'cache-control': 'public, no-cache' } }
    expect(await read({ 'if-none-match': `W/${etag}` })).toMatchObject(kept)
    expect(await read({ 'if-modified-since': modified! })).toMatchObject(kept)
    expect((await read({ 'if-match': '"other"' })).status).toBe(412)
    expect(await read({ range: 'bytes=3-5' }, 'HEAD')).toMatchObject({
      status: 200,
      text: '',
      headers: { 'content-length': '100', 'content-type': 'text/plain', etag },
    })
  })

  it('odd requests without a fault, and with no more than they ask for', async () => {
    const content = 'abcdefghij'.repeat(10)
    const { id } = await storeFile(api, { content, type: 'text/plain', typeProven: false, isPublic: true })
    const none = await storeFile(api, { content: '', type: 'text/plain', typeProven: false, isPublic: true })
    const etag = String((await get(`/assets/${id}`)).headers.etag)
    const read = async (headers: Record<string, string>, path = `/assets/${id}`) => {
      const { status, text, headers: answered } = await get(path, headers)
      return [status, status === 416 ? answered['content-range'] : text]
    }
    const whole = [200, content]
    const ranges: [string, unknown][] = [
      ['bytes=99-', [206, 'j']],
      ['bytes=95-99999999999999999999', [206, 'fghij']],
      ['bytes=-200', [206, content]],
      ['bytes=-0', [416, 'bytes */100']],
      ['bytes=99999999999999999999-', [416, 'bytes */100']],
      ['bytes=0-0', [206, 'a']],
      ['bytes=5-3', whole],
      ['bytes=-', whole],
      ['bytes=--5', whole],
      ['bytes=1-2, 1-2, 1-2', whole],
      ['bytes=0x1-0x2', whole],
      ['items=0-1', whole],
      [`bytes=${'0-1,'.repeat(1000)}0-1`, whole],
    ]
    for (const [range, expected] of ranges) expect([range, await read({ range })]).toEqual([range, expected])
    expect(await read({ range: 'bytes=0-' }, `/assets/${none.id}`)).toEqual([416, 'bytes */0'])
    expect(await read({}, `/assets/${none.id}`)).toEqual([200, ''])
    expect(await read({ range: 'bytes=0-1', 'if-range': `W/${etag}` })).toEqual(whole)
    expect(await read({ range: 'bytes=0-1', 'if-range': 'Thu, 01 Jan 2099 00:00:00 GMT' })).toEqual(whole)
    expect(await read({ 'if-none-match': `"a", "b,c" , W/${etag}` })).toEqual([304, ''])
    expect(await read({ 'if-none-match': '"a", W/"b"' })).toEqual(whole)
    expect(await read({ 'if-none-match': etag.replaceAll('"', '') })).toEqual(whole)
    expect(await read({ 'if-none-match': '*' })).toEqual([304, ''])
    expect(await read({ 'if-modified-since': 'nonsense' })).toEqual(whole)
    for (const query of [
      'width=1&width=2',
      'width[]=1',
      'width=1e3',
      'width=-5',
      'width=9'.repeat(50),
      'download[a]=true',
    ])
      expect([query, await read({}, `/assets/${id}?${query}`)]).toEqual([query, whole])
    const tokens = await get(`/assets/${id}?access_token=a&access_token=b`)
    expect(tokens.status).toBe(401)
    const hidden = await storeFile(api, { content, type: 'text/plain' })
    for (const name of ['if-none-match', 'if-match', 'range'])
      expect((await get(`/assets/${hidden.id}`, { [name]: name === 'range' ? 'bytes=0-1' : '*' })).status).toBe(403)
    for (const path of [`${hidden.id}/`, `${hidden.id.toUpperCase()}`, `${hidden.id}%00`, `./${hidden.id}`])
      expect([403, 404]).toContain((await get(`/assets/${path}`)).status)
  })

  it('under any name, one header', async () => {
    for (const [name, shown] of [
      ['a"; filename="b.html', 'filename="a_; filename=_b.html"'],
      ['a\r\nset-cookie: x=y.png', 'filename="aset-cookie: x=y.png"'],
      ['\u202egnp.exe', 'filename="gnp.exe"'],
      ['../../etc/passwd', 'filename=".._.._etc_passwd"'],
      ['\ud800.png', "filename*=UTF-8''%EF%BF%BD.png"],
      // Without a name of its own, its title.
      ['', 'filename="picture.png"'],
    ] as const) {
      const { id } = await storeFile(api, { content: picture, isPublic: true })
      await api.sql(`update "svc_File" set "originalFilename" = $2 where id = $1`, [id, name.toWellFormed()])
      const { headers } = await get(`/assets/${id}?download=true`)
      expect(headers['content-disposition']).toContain(shown)
      expect(headers['set-cookie']).toBeUndefined()
    }
  })

  it('under another name, although the content is the same', async () => {
    const { id } = await storeFile(api, { content: picture, isPublic: true, name: 'before.png' })
    const [shown, saved] = [await get(`/assets/${id}`), await get(`/assets/${id}?download=true`)]
    const again = (path: string, { headers }: typeof shown) => get(path, { 'if-none-match': String(headers.etag) })
    expect((await again(`/assets/${id}?download=true`, saved)).status).toBe(304)
    await api.sql(`update "svc_File" set "originalFilename" = 'after.png' where id = $1`, [id])
    expect((await again(`/assets/${id}`, shown)).status).toBe(304)
    expect(await again(`/assets/${id}?download=true`, saved)).toMatchObject({
      status: 200,
      headers: { 'content-disposition': expect.stringContaining('after.png') },
    })
  })

  it('large content, piece by piece', async () => {
    const content = Buffer.alloc(1_000_000, 'abcdefg')
    const { id } = await storeFile(api, { content, type: 'video/mp4', name: 'film.mp4', isPublic: true })
    expect((await get(`/assets/${id}`)).bytes.equals(content)).toBe(true)
    const { bytes } = await get(`/assets/${id}`, { range: 'bytes=500000-899999' })
    expect(bytes.equals(content.subarray(500_000, 900_000))).toBe(true)
  })

  it('lets nothing run that was uploaded', async () => {
    for (const [type, typeProven] of [
      ['text/html', false],
      ['image/svg+xml', true],
      ['image/png', false],
    ] as const) {
      const { id } = await storeFile(api, {
        content: '<script>alert(1)</script>',
        type,
        typeProven,
        isPublic: true,
        name: 'Größe.html',
      })
      for (const query of ['', '?download=0', '?download=true']) {
        const { headers } = await get(`/assets/${id}${query}`)
        expect(headers).toMatchObject({
          'content-type': type === 'image/png' ? type : 'application/octet-stream',
          'content-disposition': `attachment; filename="Gr__e.html"; filename*=UTF-8''Gr%C3%B6%C3%9Fe.html`,
          'x-content-type-options': 'nosniff',
          'content-security-policy': expect.stringContaining('sandbox'),
        })
      }
      const transformed = await get(`/assets/${id}?format=png`)
      expect(transformed.status).toBe(type === 'text/html' ? 200 : 422)
    }
  })

  it('saves what is to be saved, under its name', async () => {
    const { id } = await storeFile(api, { content: picture, isPublic: true, name: 'holiday.png' })
    const saved = async (query: string) => (await get(`/assets/${id}?${query}`)).headers['content-disposition']
    expect(await saved('download=true')).toBe(`attachment; filename="holiday.png"; filename*=UTF-8''holiday.png`)
    expect(await saved('download=true&width=10&format=webp')).toContain('filename="holiday.webp"')
  })
})

it('lets readers finish what they have begun, after the file is gone', async () => {
  const content = Buffer.alloc(20_000_000, 'abcdefg')
  const { id, filename } = await storeFile(api, { content, type: 'application/zip', isPublic: true })
  const address = await api.app.listen({ port: 0, host: '127.0.0.1' })
  const response = await fetch(`${address}/assets/${id}`)
  const reader = response.body!.getReader()
  let read = (await reader.read()).value!.length
  await api.sql('delete from "svc_File" where id = $1', [id])
  await api.runtime.storages.usual().delete(filename)
  expect((await get(`/assets/${id}`)).status).toBe(404)
  for (let next = await reader.read(); !next.done; next = await reader.read()) read += next.value.length
  expect(read).toBe(content.length)
})

describe('transforms', () => {
  const variants = (filename: string) =>
    api.sql('select key, size::int as size from "svc_FileVariant" where original = $1 order by "createdAt", key', [
      filename,
    ])

  it('are made once for all who ask, kept beside the original, and found again', async () => {
    const { id, filename } = await storeFile(api, { content: picture, isPublic: true })
    const path = `/assets/${id}?width=40&height=40&fit=inside&format=webp`
    const answers = await Promise.all(Array.from({ length: 20 }, () => get(path)))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]))
    expect(await sharp(answers[0]!.bytes).metadata()).toMatchObject({ width: 40, height: 30, format: 'webp' })
    const [stored, ...more] = await variants(filename)
    expect(more).toEqual([])
    expect(stored.key).toMatch(new RegExp(`^${filename.replace('.png', '')}_processed_[0-9a-f]{8}\\.webp$`))
    expect(await storedContent(api, stored.key)).toEqual(answers[0]!.bytes)
    const { etag } = answers[0]!.headers as Record<string, string>
    expect(etag).toMatch(/^"[0-9a-f]{40}-[0-9a-f]{8}"$/)
    expect((await get(path, { 'if-none-match': etag! })).status).toBe(304)
    expect((await get(path, { range: 'bytes=0-3' })).text).toBe('RIFF')
    expect((await get(path, {}, api, 'HEAD')).headers['content-length']).toBe(String(stored.size))
    // Another process has nothing in memory.
    const other = await startApi({}, api.database)
    expect((await get(path, {}, other)).bytes).toEqual(answers[0]!.bytes)
    expect(other.runtime.images.load().processes).toBe(0)
  })

  it('are made anew where the storage has lost them', async () => {
    const { id, filename } = await storeFile(api, { content: picture, isPublic: true })
    await get(`/assets/${id}?width=30`)
    const [{ key }] = await variants(filename)
    await api.runtime.storages.usual().delete(key)
    const other = await startApi({}, api.database)
    expect((await get(`/assets/${id}?width=30`, {}, other)).status).toBe(200)
    expect(await storedContent(api, key)).toBeDefined()
  })

  it('are never taken from a variant that is still being written', async () => {
    const { id, filename } = await storeFile(api, { content: picture, isPublic: true })
    const key = variantKey({ folder: null, filename }, { width: 31, fit: 'cover', format: 'png' })
    const begin = (ago: string) =>
      api.sql(
        `insert into "svc_FileVariant" (storage, key, original, "createdAt") values ('local', $1, $2, now() - $3::interval)
         on conflict (storage, key) do update set "createdAt" = excluded."createdAt"`,
        [key, filename, ago],
      )
    await api.runtime.storages.usual().write(key, [Buffer.from('half of a')] as never)
    await begin('1 second')
    const meanwhile = await get(`/assets/${id}?width=31&format=png`)
    expect(await sharp(meanwhile.bytes).metadata()).toMatchObject({ width: 31 })
    expect((await storedContent(api, key))?.toString()).toBe('half of a')
    // The process that began it was killed.
    await begin('1 hour')
    const made = await get(`/assets/${id}?width=31&format=png`)
    expect(await storedContent(api, key)).toEqual(made.bytes)
    expect(await variants(filename)).toEqual([{ key, size: made.bytes.length }])
  })

  it('are not more than ASSET_VARIANTS_PER_FILE of one file', async () => {
    const { id, filename } = await storeFile(api, { content: picture, isPublic: true })
    const keys: string[] = []
    for (const width of [10, 11, 12, 13, 14]) {
      expect((await get(`/assets/${id}?width=${width}`)).status).toBe(200)
      keys.push(...(await variants(filename)).map(({ key }) => key).filter((key: string) => !keys.includes(key)))
    }
    expect((await variants(filename)).map(({ key }) => key)).toEqual(keys.slice(2))
    for (const [n, key] of keys.entries()) expect((await storedContent(api, key)) !== undefined).toBe(n >= 2)
  })

  it('go with the file, also where it goes while they are made', async () => {
    const { id, filename } = await storeFile(api, { content: picture, isPublic: true })
    const asked = get(`/assets/${id}?width=50`)
    await delay(0)
    await api.sql('delete from "svc_File" where id = $1', [id])
    expect([200, 404]).toContain((await asked).status)
    const after = (await variants(filename)).filter(({ size }) => size > 0)
    // Nothing is left that no row names: what removes the file finds it by its row.
    for await (const { key } of api.runtime.storages.usual().list(filename.replace('.png', '_processed_')))
      expect(after.map((one) => one.key)).toContain(key)
  })

  it('are answered 422 and 400 where there is nothing to make, and 422 for a file that is broken', async () => {
    const text = await storeFile(api, { content: 'no image', isPublic: true })
    expect(await get(`/assets/${text.id}?width=10`)).toMatchObject({
      status: 422,
      headers: { 'cache-control': 'private, no-cache' },
    })
    const large = await storeFile(api, { content: picture, isPublic: true, width: 100_000, height: 100_000 })
    expect((await get(`/assets/${large.id}?width=10`)).status).toBe(400)
    const film = await storeFile(api, { content: 'film', type: 'video/mp4', isPublic: true })
    expect(await get(`/assets/${film.id}?width=10`)).toMatchObject({ status: 200, text: 'film' })
    expect((await get(`/assets/${text.id}?preset=unknown`)).status).toBe(400)
  })

  it('are made as ASSET_TRANSFORMS lets them', async () => {
    const { id } = await storeFile(api, { content: picture, isPublic: true })
    const sign = async (on: Api, transform: object) => {
      const { body } = await on.admin('POST', `/files/${id}/signed-url`, { expiresIn: 60, transform })
      return body.data === undefined ? body.error.code : (await get(body.data.url, {}, on)).status
    }
    const answers = async (mode: string) => {
      const on = await startApi({ ASSET_TRANSFORMS: mode, ASSET_PRESETS: 'thumb=width:20' }, api.database)
      const statuses = []
      for (const query of ['', '?width=20', '?preset=thumb', '?width=20&signature=x&signer=x&expires=9999999999'])
        statuses.push((await get(`/assets/${id}${query}`, {}, on)).status)
      return [...statuses, await sign(on, { width: 21 }), await sign(on, { preset: 'thumb' })]
    }
    const refused = 'TRANSFORM_NOT_ALLOWED'
    expect(await answers('signed')).toEqual([200, 403, 200, 403, 200, 200])
    expect(await answers('presets')).toEqual([200, 403, 200, 403, refused, 200])
    expect(await answers('off')).toEqual([200, 403, 403, 403, refused, refused])
  })
})

describe('signed addresses', () => {
  const reader = () => api.user([{ collection: 'svc_File', action: 'read' }])
  const signed = async (call: Api['admin'], id: string, more = {}) =>
    (await call('POST', `/files/${id}/signed-url`, { expiresIn: 600, ...more })).body.data.url as string

  it('let every holder read the file in the name of the signer', async () => {
    const { id } = await storeFile(api, { content: picture })
    const { call } = await reader()
    const { status, body } = await call('POST', `/files/${id}/signed-url`, { expiresIn: 600 })
    expect(status).toBe(200)
    expect(body.data).toMatchObject({ id, url: expect.stringMatching(`^/assets/${id}\\?expires=\\d+&signer=`) })
    expect(Date.parse(body.data.expiresAt) - Date.now()).toBeGreaterThan(590_000)
    const answer = await get(body.data.url)
    expect(answer).toMatchObject({ status: 200, headers: { 'cache-control': 'private, no-cache' } })
    expect(answer.bytes).toEqual(picture)
    expect((await get(body.data.url, { range: 'bytes=1-3' })).text).toBe('PNG')
  })

  it('hold for what was signed only', async () => {
    const { id } = await storeFile(api, { content: picture })
    const other = await storeFile(api, { content: picture })
    const { call } = await reader()
    const url = await signed(call, id, { transform: { width: 40, format: 'webp' }, download: true })
    expect(url).toContain('width=40&fit=cover&format=webp&quality=80&download=true&')
    const answer = await get(url)
    expect(answer).toMatchObject({ status: 200, headers: { 'content-type': 'image/webp' } })
    expect(answer.headers['content-disposition']).toContain('attachment')
    for (const changed of [
      url.replace('width=40', 'width=41'),
      url.replace('&download=true', ''),
      url.replace(id, other.id),
      url.replace(/expires=\d+/, 'expires=9999999999'),
      url.replace(/signer=[^&]+/, `signer=${randomUUID()}`),
      url.replace(/signature=.{5}/, 'signature=AAAAA'),
      url.replace(/&signature=.*/, '&signature='),
      url.replace(/&signer=[^&]+/, ''),
    ])
      expect({ changed, status: (await get(changed)).status }).toEqual({ changed, status: 403 })
  })

  it('end with the content, the right and the signer', async () => {
    const { id } = await storeFile(api, { content: picture })
    const user = await reader()
    const url = await signed(user.call, id)
    expect((await get(url)).status).toBe(200)
    await api.sql('update "svc_File" set hash = $2 where id = $1', [id, 'f'.repeat(64)])
    expect((await get(url)).status).toBe(403)
    const again = await signed(user.call, id)
    expect((await get(again)).status).toBe(200)
    await api.sql('update "svc_User" set status = $2 where id = $1', [user.id, 'suspended'])
    expect((await get(again)).status).toBe(403)
    await api.sql('update "svc_User" set status = $2 where id = $1', [user.id, 'active'])
    expect((await get(again)).status).toBe(200)
    await api.sql('delete from "svc_Permission" where "role_Id" = $1', [user.roleId])
    await waitFor(async () => (await get(again)).status === 403, { timeout: 1000 })
  })

  it('expire', async () => {
    const { id } = await storeFile(api, { content: picture })
    const { call } = await reader()
    const { body } = await call('POST', `/files/${id}/signed-url`, { expiresIn: 1 })
    expect((await get(body.data.url)).status).toBe(200)
    await delay(Math.max(0, Date.parse(body.data.expiresAt) - Date.now()) + 50)
    const answer = await get(body.data.url)
    expect({ status: answer.status, code: JSON.parse(answer.text).error.code }).toEqual({
      status: 403,
      code: 'SIGNED_URL_EXPIRED',
    })
  })

  it('are signed by those who may read, many at once, for seven days at most', async () => {
    const [one, two] = [await storeFile(api, { content: picture }), await storeFile(api, { content: picture })]
    const { call } = await reader()
    const nobody = await api.user()
    const many = await call('POST', '/files/signed-urls', {
      expiresIn: 60,
      files: [one.id, { id: two.id, transform: { preset: 'thumb' } }],
    })
    expect(many.body.data.map(({ id }: { id: string }) => id)).toEqual([one.id, two.id])
    expect(many.body.data[1].url).toContain('?preset=thumb&expires=')
    for (const { url } of many.body.data) expect((await get(url)).status).toBe(200)
    const refused = async (on: Api['admin'], path: string, body: object) => (await on('POST', path, body)).status
    expect(await refused(nobody.call, `/files/${one.id}/signed-url`, { expiresIn: 60 })).toBe(403)
    expect(await refused(nobody.call, '/files/signed-urls', { expiresIn: 60, files: [one.id] })).toBe(403)
    // Whoever reads some files cannot tell those of others from those that there are not; whoever reads none is told that alone.
    const own = await api.user([
      { collection: 'svc_File', action: 'read', conditions: { userCreated_Id: { eq: '$CURRENT_USER' } } },
    ])
    const answers = async (on: Api['admin']) =>
      Promise.all(
        [one.id, randomUUID()].flatMap((id) => [
          on('POST', `/files/${id}/signed-url`, { expiresIn: 60 }),
          on('POST', '/files/signed-urls', { expiresIn: 60, files: [id] }),
        ]),
      ).then((all) => all.map(({ status, body }) => [status, body.error.message]))
    expect(await answers(own.call)).toEqual(Array(4).fill([404, 'File not found']))
    expect(new Set((await answers(nobody.call)).map(String)).size).toBe(1)
    expect(await refused(api.anonymous, `/files/${one.id}/signed-url`, { expiresIn: 60 })).toBe(401)
    expect(await refused(call, `/files/${randomUUID()}/signed-url`, { expiresIn: 60 })).toBe(404)
    expect(await refused(call, '/files/no-uuid/signed-url', { expiresIn: 60 })).toBe(404)
    for (const expiresIn of [0, -1, 604_801, 1.5, 'long', null])
      expect(await refused(call, `/files/${one.id}/signed-url`, { expiresIn })).toBe(400)
    expect(await refused(call, '/files/signed-urls', { expiresIn: 60, files: [] })).toBe(400)
    expect(await refused(call, '/files/signed-urls', { expiresIn: 60, files: [{ id: 7 }] })).toBe(400)
    expect(await refused(call, `/files/${one.id}/signed-url`, { expiresIn: 60, transform: 'small' })).toBe(400)
  })
})

describe('limits and stores', () => {
  it('counts reads of assets apart from other requests', async () => {
    const env = { RATE_LIMIT_DISABLED: 'false', RATE_LIMIT: '4', RATE_LIMIT_INTERVAL: '60000', ASSET_RATE_LIMIT: '7' }
    const { id } = await storeFile(api, { content: picture, isPublic: true })
    // Signing the administrator in takes one.
    const limited = await startApi(env, api.database)
    const isRefused = []
    // The pages of the platform are made of many files too.
    const pages = ['/docs', '/docs/init.js', '/client.js', '/console', '/console/assets/none.js', '/console/mail-view']
    for (const path of [`/assets/${id}`, ...pages, `/assets/${id}`])
      isRefused.push((await get(path, {}, limited)).status === 429)
    expect(isRefused).toEqual([false, ...pages.map(() => false), true])
    expect((await limited.anonymous('GET', '/settings')).status).toBe(200)
  })

  it('leads to S3 for sound and film, for a short while', async () => {
    const env = {
      STORAGE_SERVICES_ENABLED: 'local,far',
      FAR_STORAGE_DRIVER: 'S3',
      FAR_STORAGE_ACCESS_KEY_ID: 'key',
      FAR_STORAGE_SECRET_ACCESS_KEY: 'secret',
      FAR_STORAGE_REGION: 'eu-central-1',
      FAR_STORAGE_BUCKET: 'bucket',
      FAR_STORAGE_ENDPOINT: 'http://127.0.0.1:9',
      ASSET_SIGNED_URL_TTL: '77',
    }
    const on = await startApi(env, api.database)
    const film = await storeFile(on, {
      content: 'film',
      type: 'video/mp4',
      name: 'film.mp4',
      storage: 'far',
      isStored: false,
      isPublic: true,
    })
    const answer = await get(`/assets/${film.id}`, {}, on)
    expect(answer).toMatchObject({ status: 302, headers: { 'cache-control': 'private, no-store' } })
    const address = new URL(String(answer.headers.location))
    expect(address.pathname).toBe(`/bucket/${film.filename}`)
    expect(Object.fromEntries(address.searchParams)).toMatchObject({
      'X-Amz-Expires': '77',
      'response-content-type': 'video/mp4',
      'response-content-disposition': 'inline',
    })
    // Files that must not be shown, or are to be saved, are not left to the storage; this server does not answer.
    const unproven = await storeFile(on, {
      content: 'film',
      type: 'video/mp4',
      typeProven: false,
      storage: 'far',
      isStored: false,
      isPublic: true,
    })
    expect((await get(`/assets/${unproven.id}`, {}, on)).status).toBe(503)
    expect((await get(`/assets/${film.id}?download=true`, {}, on)).status).toBe(503)
    const secure = await startApi(
      { ...env, ASSET_PROXY_ENABLED: 'true', ASSET_SECURE_PROXY_URLS: 'video' },
      api.database,
    )
    const user = await api.user([{ collection: 'svc_File', action: 'read' }])
    const asked = async (headers: Record<string, string>) => {
      const { status, text } = await get(`/assets/${film.id}`, headers, secure)
      return { status, body: JSON.parse(text) }
    }
    const missing = { status: 403, body: { error: 'Invalid or missing authentication header' } }
    expect(await asked({})).toEqual({ status: 401, body: { error: 'Authentication required' } })
    expect(await asked({ 'x-svc-user-auth': user.id })).toEqual({
      status: 401,
      body: { error: 'Authentication required' },
    })
    expect(await asked(bearer(user.token))).toEqual(missing)
    expect(await asked({ ...bearer(user.token), 'x-svc-user-auth': randomUUID() })).toEqual(missing)
    expect((await asked({ ...bearer(user.token), 'x-svc-user-auth': user.id })).status).toBe(503)
  })
})

describe('uploads', () => {
  it('are described by their headers, and told apart after a replacement', async () => {
    const { token } = await api.user(
      ['create', 'read', 'update'].map((action) => ({ collection: 'svc_File', action, fields: ['*'] })),
    )
    const form = (content: Buffer, filename: string, type: string): Part[] => [
      { name: 'file', filename, type, content },
    ]
    const lying = await noise(40, 20).withMetadata({ orientation: 6 }).jpeg().toBuffer()
    const { body } = await upload(api, token, '/files', form(lying, 'lying.jpg', 'image/jpeg'))
    const read = async () => (await api.admin('GET', `/files/${body.data}`)).body.data
    expect(await read()).toMatchObject({
      width: 20,
      height: 40,
      metadata: { format: 'jpeg', space: 'srgb', orientation: 6 },
    })
    const { url } = (await api.admin('POST', `/files/${body.data}/signed-url`, { expiresIn: 60 })).body.data
    const before = await get(url)
    expect(before.bytes).toEqual(lying)
    const small = await get(`/assets/${body.data}?width=10`, bearer(token))
    expect(await sharp(small.bytes).metadata()).toMatchObject({ width: 10, height: 20 })
    expect(
      (await upload(api, token, `/files/${body.data}`, form(picture, 'other.png', 'image/png'), {}, 'PATCH')).status,
    ).toBe(200)
    expect(await read()).toMatchObject({ width: 120, height: 90, metadata: { format: 'png' } })
    expect((await get(url)).status).toBe(403)
    const after = await get(`/assets/${body.data}?width=10`, bearer(token))
    expect(await sharp(after.bytes).metadata()).toMatchObject({ width: 10, height: 8 })
    expect(after.headers.etag).not.toBe(small.headers.etag)
  })

  it('that replace others keep their own metadata, and none of the content before', async () => {
    const { token } = await api.user(
      ['create', 'read', 'update'].map((action) => ({ collection: 'svc_File', action, fields: ['*'] })),
    )
    const text = { name: 'file', filename: 'plain.txt', type: 'text/plain', content: 'plain' }
    const image = { name: 'file', filename: 'shown.png', type: 'image/png', content: picture }
    const sound = { name: 'file', filename: 'silence.wav', type: 'audio/wav', content: wav(2) }
    const said = (metadata: string) => ({ name: 'metadata', value: metadata })
    const create = async (...parts: Part[]) => (await upload(api, token, '/files', parts)).body.data as string
    const replaced = async (id: string, ...parts: Part[]) => {
      expect((await upload(api, token, `/files/${id}`, parts, {}, 'PATCH')).status).toBe(200)
      return JSON.parse((await api.admin('GET', `/files/${id}?fields=metadata`)).text).data.metadata
    }
    const facts = expect.objectContaining({ format: 'png', channels: expect.any(Number) })
    const plain = await create(image)
    expect(await replaced(plain, sound)).toMatchObject({ duration: 2 })
    expect(await replaced(plain, image)).toEqual(facts)
    expect(await replaced(plain, image)).not.toHaveProperty('duration')
    expect(await replaced(plain, text)).toBeNull()
    const own = await create(said('{"camera":"box","pages":7}'), text)
    expect(await replaced(own, text)).toEqual({ camera: 'box', pages: 7 })
    expect(await replaced(own, image)).toMatchObject({ camera: 'box', format: 'png' })
    expect(await replaced(own, sound)).toMatchObject({ camera: 'box', duration: 2 })
    expect(await replaced(own, text)).toEqual({ camera: 'box' })
    expect(await replaced(own, image, said('{"format":"own"}'))).toEqual({ format: 'own' })
    expect(await replaced(own, text, said('[1]'))).toEqual([1])
    expect(await replaced(own, image)).toEqual([1])
  })

  it('keep what their sender says of them, and are taken where nothing can be read', async () => {
    const { token } = await api.user(
      ['create', 'read'].map((action) => ({ collection: 'svc_File', action, fields: ['*'] })),
    )
    const recording = { name: 'file', filename: 'silence.wav', type: 'audio/wav', content: wav(2) }
    const { body } = await upload(api, token, '/files', [recording])
    const read = async (id: string) => (await api.admin('GET', `/files/${id}`)).body.data
    expect(await read(body.data)).toMatchObject({
      metadata: { duration: 2, streams: [{ type: 'audio', sampleRate: 8000 }] },
    })
    const shown = { name: 'file', filename: 'shown.png', type: 'image/png', content: picture }
    const said = await upload(api, token, '/files', [{ name: 'metadata', value: '{"camera":"box"}' }, shown])
    expect(await read(said.body.data)).toMatchObject({ width: 120, metadata: { camera: 'box' } })
    const broken = await upload(api, token, '/files', [{ ...shown, content: picture.subarray(0, 30) }])
    expect(broken.status).toBe(200)
    expect(await read(broken.body.data)).toMatchObject({ type: 'image/png', metadata: null })
  })
})

it('keeps alpha and colours of what it is given', async () => {
  const { id } = await storeFile(api, {
    content: await plain(20, 20, { r: 9, g: 9, b: 9, alpha: 0 }, 4).png().toBuffer(),
    isPublic: true,
  })
  const { bytes } = await get(`/assets/${id}?format=jpeg`)
  expect([...(await sharp(bytes).raw().toBuffer()).subarray(0, 3)]).toEqual([255, 255, 255])
})
