import { createHash, randomBytes } from 'node:crypto'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { Upload } from 'tus-js-client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { waitFor } from '../support/wait.ts'

/** Resumable uploads by tus 1.0, by the protocol's own client and by hand. */

let api: Api
let other: Api
let token: string
let base: string
const addresses: string[] = []

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'daybook-tus-'))
  const env = { LOCAL_STORAGE_PATH: base, MAX_UPLOAD_FILE_SIZE: '40' }
  api = await startApi(env)
  other = await startApi(env, api.database)
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  for (const { app } of [api, other]) addresses.push(await app.listen({ port: 0, host: '127.0.0.1' }))
})

afterAll(() => rm(base, { recursive: true }))

const rowOf = async (id: string) => (await api.admin('GET', `/files/${id}`)).body.data
const parts = async () => (await readdir(base)).filter((name) => name.endsWith('.part'))
const headers = { 'tus-resumable': '1.0.0' }
const chunk = { ...headers, 'content-type': 'application/offset+octet-stream' }
const encoded = (text: string) => Buffer.from(text).toString('base64')

async function begin(length: number, metadata = `filename ${encoded('a.txt')},filetype ${encoded('text/plain')}`) {
  const answer = await api.admin('POST', '/files/tus', undefined, {
    ...headers,
    'upload-length': String(length),
    'upload-metadata': metadata,
  })
  expect(answer.status).toBe(201)
  return String(answer.headers.location)
}
const add = (path: string, offset: number, content: Buffer | string, more: Record<string, string> = {}, via = api) =>
  via.app.inject({
    method: 'PATCH',
    url: path,
    headers: { ...chunk, authorization: `Bearer ${token}`, 'upload-offset': String(offset), ...more },
    payload: content,
  })
const where = async (path: string) => {
  const answer = await other.app.inject({
    method: 'HEAD',
    url: path,
    headers: { ...headers, authorization: `Bearer ${token}` },
  })
  return [answer.statusCode, answer.headers['upload-offset'], answer.headers['upload-length']]
}

describe('tus-js-client', () => {
  it('uploads, is stopped in the middle, and goes on at another process', async () => {
    const content = randomBytes(20 * 1024 * 1024)
    let upload: Upload
    const first = await new Promise<string>((resolve, reject) => {
      upload = new Upload(content as never, {
        endpoint: `${addresses[0]}/files/tus`,
        headers: { authorization: `Bearer ${token}` },
        metadata: { filename: 'big.bin', title: 'Big', isPublic: 'true' },
        retryDelays: null,
        // Bytes that are on their way when it stops may still arrive, but no more than these.
        chunkSize: 4 * 1024 * 1024,
        onError: reject,
        onProgress: (sent) => {
          if (sent > 11 * 1024 * 1024) void upload.abort().then(() => resolve(upload.url!))
        },
      })
      upload.start()
    })
    const path = new URL(first).pathname
    await waitFor(async () => Number((await where(path))[1]) >= 8 * 1024 * 1024)
    const offset = Number((await where(path))[1])
    expect(offset).toBeLessThan(content.length)
    let started: number | undefined
    const id = await new Promise<string>((resolve, reject) => {
      const again = new Upload(content as never, {
        uploadUrl: `${addresses[1]}${path}`,
        headers: { authorization: `Bearer ${token}` },
        retryDelays: [50, 100, 200],
        onProgress: (sent) => {
          started ??= sent
        },
        onError: reject,
        onSuccess: ({ lastResponse }) => resolve(lastResponse.getHeader('x-file-id')!),
      })
      again.start()
    })
    expect(started).toBeGreaterThanOrEqual(8 * 1024 * 1024)
    const row = await rowOf(id)
    expect(row).toMatchObject({
      ...{ title: 'Big', isPublic: true, originalFilename: 'big.bin', size: content.length },
      hash: createHash('sha256').update(content).digest('hex'),
    })
    expect(await parts()).toEqual([])
    expect(await api.sql('select from "svc_FileRemoval"')).toEqual([])
  })

  it('uploads in chunks, each to another process', async () => {
    const content = randomBytes(3_000_000)
    const id = await new Promise<string>((resolve, reject) => {
      const upload = new Upload(Readable.from([content]) as never, {
        endpoint: `${addresses[0]}/files/tus`,
        headers: { authorization: `Bearer ${token}` },
        uploadSize: content.length,
        chunkSize: 1_000_000,
        onChunkComplete: () => {
          upload.url = upload.url!.replace(addresses[0]!, addresses[1]!)
        },
        onError: reject,
        onSuccess: ({ lastResponse }) => resolve(lastResponse.getHeader('x-file-id')!),
      })
      upload.start()
    })
    const { filename } = await rowOf(id)
    expect(await readFile(join(base, filename))).toEqual(content)
  })
})

describe('the protocol', () => {
  it('makes the file with the last part, once, in the commit of an upload', async () => {
    const path = await begin(6)
    expect(await where(path)).toEqual([200, '0', '6'])
    expect(await add(path, 0, 'one')).toMatchObject({ statusCode: 204, headers: { 'upload-offset': '3' } })
    const position = await api.position()
    const last = await add(path, 3, 'two', {}, other)
    expect(last).toMatchObject({ statusCode: 204, headers: { 'upload-offset': '6', 'tus-resumable': '1.0.0' } })
    const id = String(last.headers['x-file-id'])
    expect((await api.log(position)).map(({ entity, entityId, action }) => [entity, entityId, action])).toEqual([
      ['svc_File', id, 'create'],
    ])
    expect(await rowOf(id)).toMatchObject({ originalFilename: 'a.txt', type: 'text/plain', size: 6 })
    // Sent again because its answer was lost.
    expect((await add(path, 6, '')).headers['x-file-id']).toBe(id)
    expect(await api.log(position)).toHaveLength(1)
  })

  it('says what it offers, to browsers of trusted pages too', async () => {
    const ask = (path: string, more: Record<string, string> = {}, on = api) =>
      on.app.inject({ method: 'OPTIONS', url: path, headers: more })
    const offer = {
      'tus-resumable': '1.0.0',
      'tus-version': '1.0.0',
      'tus-extension': 'creation,termination,expiration,checksum',
      'tus-checksum-algorithm': 'sha1,sha256',
      'tus-max-size': String(40 * 1024 * 1024),
    }
    for (const path of ['/files/tus', await begin(3)]) {
      const answer = await ask(path)
      expect(answer).toMatchObject({ statusCode: 204, headers: offer })
      expect(answer.headers['access-control-allow-origin']).toBeUndefined()
    }
    const page = 'https://app.example.com'
    const trusting = await startApi({ LOCAL_STORAGE_PATH: base, AUTH_CORS_ALLOWED_ORIGINS: page }, api.database)
    const preflight = { origin: page, 'access-control-request-method': 'PATCH' }
    const allowed = await ask('/files/tus/x', preflight, trusting)
    expect(allowed).toMatchObject({ statusCode: 204, headers: { 'access-control-allow-origin': page } })
    expect(allowed.headers['access-control-allow-methods']).toContain('PATCH')
    expect((await ask('/files/tus', { origin: page }, trusting)).headers).toMatchObject({
      'tus-version': '1.0.0',
      'access-control-expose-headers': expect.stringContaining('upload-offset'),
    })
    const foreign = await ask('/files/tus', { ...preflight, origin: 'https://evil.test' }, trusting)
    expect(foreign.headers['access-control-allow-origin']).toBeUndefined()
  })

  it('takes the method of a POST from X-HTTP-Method-Override', async () => {
    const post = (path: string, method: string | undefined, more: Record<string, string> = {}, payload = '') =>
      api.app.inject({
        method: 'POST',
        url: path,
        headers: {
          ...headers,
          authorization: `Bearer ${token}`,
          ...(method !== undefined && { 'x-http-method-override': method }),
          ...more,
        },
        payload,
      })
    const path = await begin(6)
    expect((await add(path, 0, 'one')).statusCode).toBe(204)
    const position = await api.position()
    const part = { 'content-type': chunk['content-type'], 'upload-offset': '3' }
    for (const method of [undefined, 'PUT', 'HEAD'])
      expect((await post(path, method, part, 'two')).statusCode).toBe(400)
    expect((await post(path, 'PATCH', { ...part, 'content-type': 'text/plain' }, 'two')).statusCode).toBe(415)
    expect(await where(path)).toEqual([200, '3', '6'])
    const last = await post(path, 'PATCH', part, 'two')
    expect(last).toMatchObject({ statusCode: 204, headers: { 'upload-offset': '6' } })
    expect(await rowOf(String(last.headers['x-file-id']))).toMatchObject({ size: 6 })
    expect((await api.log(position)).map(({ action }) => action)).toEqual(['create'])
    const other = await begin(6)
    expect((await post(other, 'DELETE')).statusCode).toBe(204)
    expect((await where(other))[0]).toBe(404)
  })

  it('takes a file of nothing', async () => {
    const answer = await api.admin('POST', '/files/tus', undefined, { ...headers, 'upload-length': '0' })
    expect(answer).toMatchObject({ status: 201, headers: { 'x-file-id': expect.any(String) } })
    expect(await rowOf(String(answer.headers['x-file-id']))).toMatchObject({ size: 0 })
  })

  it('keeps nothing of content that is not that of its checksum', async () => {
    const path = await begin(5)
    const sum = (algorithm: string, text: string) =>
      `${algorithm} ${createHash(algorithm).update(text).digest('base64')}`
    const wrong = await add(path, 0, 'Hello', { 'upload-checksum': sum('sha1', 'other') })
    expect([wrong.statusCode, wrong.json().error.message]).toEqual([460, 'Checksum Mismatch'])
    expect([await where(path), await parts()]).toEqual([[200, '0', '5'], []])
    expect((await add(path, 0, 'Hello', { 'upload-checksum': 'md5 AAAA' })).statusCode).toBe(400)
    expect((await add(path, 0, 'Hello', { 'upload-checksum': sum('sha256', 'Hello') })).statusCode).toBe(204)
  })

  it('refuses in JSON, and says why', async () => {
    const path = await begin(5)
    const status = async (answer: Promise<{ statusCode: number; json(): any }>) => {
      const got = await answer
      expect(got.json().error.message).toEqual(expect.any(String))
      return got.statusCode
    }
    expect(await status(add(path, 3, 'x'))).toBe(409)
    expect(await status(add(path, 0, 'too much'))).toBe(413)
    expect(await status(add(path, 0, 'x', { 'tus-resumable': '0.2.2' }))).toBe(412)
    expect(await status(add(path, 0, 'x', { 'content-type': 'text/plain' }))).toBe(415)
    expect(await status(add('/files/tus/00000000-0000-4000-8000-000000000000', 0, 'x'))).toBe(404)
    expect(await status(add('/files/tus/nonsense', 0, 'x'))).toBe(404)
    const create = async (more: Record<string, string>, call = api.admin) =>
      (await call('POST', '/files/tus', undefined, { ...headers, ...more })).status
    expect(await create({})).toBe(400)
    expect(await create({ 'upload-length': '-1' })).toBe(400)
    expect(await create({ 'upload-length': String(41 * 1024 * 1024) })).toBe(413)
    expect(await create({ 'upload-length': '1', 'upload-metadata': 'storage bm93aGVyZQ==' })).toBe(400)
    expect(await create({ 'upload-length': '1', 'upload-metadata': 'a b c' })).toBe(400)
    const notUtf8 = `title ${Buffer.from('na\xefve', 'latin1').toString('base64')}`
    expect(
      await api.admin('POST', '/files/tus', undefined, {
        ...headers,
        'upload-length': '1',
        'upload-metadata': notUtf8,
      }),
    ).toMatchObject({ status: 400, body: { error: { code: 'INVALID_UTF8' } } })
    const reader = await api.user([{ collection: 'svc_File', action: 'read', fields: ['*'] }])
    expect(await create({ 'upload-length': '1' }, reader.call)).toBe(403)
    expect(await create({ 'upload-length': '1' }, api.anonymous)).toBe(401)
    expect(await where(path)).toEqual([200, '0', '5'])
  })

  it('refuses at the beginning what its end would refuse of the metadata', async () => {
    const env = { LOCAL_STORAGE_PATH: base, MULTI_TENANT: 'true', PROTECT_IS_PUBLIC_FIELD: 'true' }
    const strict = await startApi(env, api.database)
    const [own, foreign] = [await createTenant(strict, 'own'), await createTenant(strict, 'foreign')]
    const role = await createRole(strict)
    await grant(strict, role, { collection: 'svc_File', action: 'create', fields: ['title', 'metadata', 'tenant_Id'] })
    const user = await createUser(strict, role, own)
    const create = async (fields: Record<string, string>, call = user.call) => {
      const metadata = Object.entries(fields).map(([name, value]) => `${name} ${encoded(value)}`)
      const more = { ...headers, 'upload-length': '1', 'upload-metadata': metadata.join(',') }
      return (await call('POST', '/files/tus', undefined, more)).status
    }
    const position = await strict.position()
    expect(await create({ filename: 'a.txt', filetype: 'text/plain', title: 'mine', unknown: 'x' })).toBe(201)
    expect(await create({ title: 'mine', tenant_Id: own })).toBe(201)
    const count = async () => (await strict.sql('select count(*)::int as n from "svc_Upload"'))[0].n
    const before = await count()
    expect(await create({ description: 'not granted' })).toBe(403)
    expect(await create({ isPublic: 'true' })).toBe(403)
    expect(await create({ tenant_Id: foreign })).toBe(403)
    expect(await create({ metadata: '{' })).toBe(400)
    expect(await create({ isPublic: 'perhaps' }, strict.admin)).toBe(400)
    expect([await count(), await strict.log(position)]).toEqual([before, []])
  })

  it('adds nothing to a finished upload, and takes no wrong place for the end of it', async () => {
    const path = await begin(3)
    const id = (await add(path, 0, 'one')).headers['x-file-id']
    const position = await api.position()
    expect((await add(path, 0, 'one')).json().error).toMatchObject({ statusCode: 409, details: { offset: 3 } })
    expect((await add(path, 1, '')).statusCode).toBe(409)
    expect((await add(path, 3, 'more')).statusCode).toBe(413)
    expect((await add(path, 3, Readable.from(['more']) as never)).statusCode).toBe(413)
    expect(await add(path, 3, '')).toMatchObject({
      statusCode: 204,
      headers: { 'upload-offset': '3', 'x-file-id': id },
    })
    expect([await rowOf(String(id)), await api.log(position)]).toMatchObject([{ size: 3 }, []])
  })

  it('is one user’s: 404 for others, also to end it; ended, nothing is left', async () => {
    const path = await begin(6)
    await add(path, 0, 'one')
    const stranger = await api.user([{ collection: 'svc_File', action: 'create', fields: ['*'] }])
    for (const method of ['HEAD', 'PATCH', 'DELETE'])
      expect((await stranger.call(method, path, undefined, { ...chunk, 'upload-offset': '3' })).status).toBe(404)
    expect(await parts()).toHaveLength(1)
    expect((await api.admin('DELETE', path, undefined, headers)).status).toBe(204)
    expect(await where(path)).toEqual([404, undefined, undefined])
    expect(await parts()).toEqual([])
  })

  it('bounds what is begun and not finished: how much of a tenant, and how many of a user', async () => {
    const env = { LOCAL_STORAGE_PATH: base, MULTI_TENANT: 'true', STORAGE_QUOTA_TENANT: '10kb' }
    const limited = await startApi(env, api.database)
    const role = await createRole(limited)
    await grant(limited, role, { collection: 'svc_File', action: 'create', fields: ['*'] })
    const user = await createUser(limited, role, await createTenant(limited, 'one'))
    const create = async (length: number) =>
      (await user.call('POST', '/files/tus', undefined, { ...headers, 'upload-length': String(length) })).status
    expect([await create(6000), await create(6000), await create(4000), await create(4000)]).toEqual([
      201, 413, 201, 413,
    ])
    await limited.sql(
      `insert into "svc_Upload" (id, "user_Id", length, metadata, storage, "expiresAt")
       select gen_random_uuid(), $1, 1, '{}', 'local', now() + interval '1 hour' from generate_series(1, 100)`,
      [user.id],
    )
    expect(await create(1)).toBe(429)
    await limited.sql(`delete from "svc_Upload" where "user_Id" = $1`, [user.id])
    const path = await begin(3)
    const id = path.split('/').at(-1)
    await api.sql(`update "svc_Upload" set parts = array_fill('x'::text, array[10000]) where id = $1`, [id])
    expect((await add(path, 0, 'one')).statusCode).toBe(413)
    await api.sql(`delete from "svc_Upload" where id = $1`, [id])
  })

  it('lets one request add at a time, and takes over from one that does not come back', async () => {
    const path = await begin(3)
    const id = path.split('/').at(-1)
    await api.sql(
      `update "svc_Upload" set claim = gen_random_uuid(), "claimedUntil" = now() + interval '1 minute' where id = $1`,
      [id],
    )
    expect((await add(path, 0, 'one')).statusCode).toBe(423)
    expect((await api.admin('DELETE', path, undefined, headers)).status).toBe(423)
    await api.sql(`update "svc_Upload" set "claimedUntil" = now() - interval '1 second' where id = $1`, [id])
    expect((await add(path, 0, 'one')).statusCode).toBe(204)
  })

  it('ends when its time is over', async () => {
    const path = await begin(3)
    await add(path, 0, 'on')
    await api.sql(`update "svc_Upload" set "expiresAt" = now() where id = $1`, [path.split('/').at(-1)])
    expect(await where(path)).toEqual([404, undefined, undefined])
    const [part] = await parts()
    const [{ soon }] = await api.sql(
      `select "dueAt" < now() + interval '25 hours' as soon from "svc_FileRemoval" where key = $1`,
      [part],
    )
    expect(soon).toBe(true)
  })
})
