import { createHash, randomBytes } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { openBucket } from '../../src/adapters/s3.ts'
import type { S3StorageService } from '../../src/config/families.ts'
import { examine } from '../../src/doctor/doctor.ts'
import { removeDueContent, verifyFiles } from '../../src/features/files/files/files.ts'
import type { Storage } from '../../src/features/files/storage/storage.ts'
import { type Api, startApi } from '../support/api.ts'
import { administrator, testEnv } from '../support/prepare.ts'
import { type S3, startS3 } from '../support/s3.ts'
import { upload } from '../support/upload.ts'

/** An S3 service, by a server that checks signatures and fails as told. */

let s3: S3
let api: Api
let token: string
let storage: Storage

beforeAll(async () => {
  s3 = await startS3()
  const env = { STORAGE_SERVICES_ENABLED: 's3', ...s3.env('S3'), MAX_UPLOAD_FILE_SIZE: '40' }
  api = await startApi(env)
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  storage = api.runtime.storages.usual()
})

afterEach(() => {
  s3.fault = () => undefined
})

afterAll(() => s3?.close())

async function* pieces(...contents: (string | Buffer)[]): AsyncGenerator<Buffer> {
  for (const content of contents) yield Buffer.from(content)
}

const read = async (key: string, range?: { start: number; end: number }) => {
  const content = await storage.read(key, range)
  return content && text(content)
}
const send = (content: string | Buffer) =>
  upload(api, token, '/files', [{ name: 'file', filename: 'a.txt', type: 'text/plain', content }])
const keys = async () => {
  const found: string[] = []
  for await (const { key } of storage.list('')) found.push(key)
  return found.sort()
}

describe('an S3 service', () => {
  it('writes, reads in parts, measures, copies, lists, presigns and deletes', async () => {
    await storage.write('a b/ü.txt', pieces('one ', 'two'), { type: 'text/plain' })
    expect(await read('a b/ü.txt')).toBe('one two')
    expect(await read('a b/ü.txt', { start: 4, end: 5 })).toBe('tw')
    expect(await storage.stat('a b/ü.txt')).toMatchObject({ size: 7 })
    await storage.copy('a b/ü.txt', 'c/copy.txt')
    expect(await read('c/copy.txt')).toBe('one two')
    expect(await keys()).toEqual(['a b/ü.txt', 'c/copy.txt'])
    const address = await storage.presign('c/copy.txt', {
      expiresInSeconds: 60,
      type: 'text/html',
      disposition: 'attachment; filename="x"',
    })
    const answer = await fetch(address!)
    expect([answer.status, answer.headers.get('content-type'), answer.headers.get('content-disposition')]).toEqual([
      ...[200, 'text/html', 'attachment; filename="x"'],
    ])
    expect((await fetch(address!.replace(/(Signature=.)./, '$1_'))).status).toBe(403)
    for (const key of ['a b/ü.txt', 'c/copy.txt', 'c/copy.txt']) await storage.delete(key)
    expect([await storage.stat('c/copy.txt'), await storage.read('c/copy.txt')]).toEqual([undefined, undefined])
    await expect(storage.read('../x')).rejects.toMatchObject({ status: 400 })
  })

  it('takes an upload in parts, and gives it back', async () => {
    const content = randomBytes(20 * 1024 * 1024)
    const { status, body } = await send(content)
    expect(status).toBe(200)
    const row = (await api.admin('GET', `/files/${body.data}`)).body.data
    expect(row).toMatchObject({
      storage: 's3',
      size: content.length,
      hash: createHash('sha256').update(content).digest('hex'),
    })
    expect((await verifyFiles(api.runtime, { hashes: true })).differences).toEqual([])
  })

  it('is asked again where it says that it is busy', async () => {
    let refusals = 0
    s3.fault = () => (refusals++ === 0 ? '503' : undefined)
    await storage.write('busy.txt', pieces('x'))
    expect(await read('busy.txt')).toBe('x')
    expect(refusals).toBeGreaterThan(2)
    await storage.delete('busy.txt')
  })

  it('that goes on failing makes uploads 503, with nothing left once it is back', async () => {
    const before = [await keys(), (await api.sql('select count(*) from "svc_File"'))[0]]
    const failing: [string, (request: string) => '503' | undefined][] = [
      ['a small one', (request) => (request.startsWith('PUT') ? '503' : undefined)],
      // After two parts of three.
      ['one in parts', (request) => (request.startsWith('PUT') && s3.requests.length > from + 3 ? '503' : undefined)],
    ]
    let from = 0
    for (const [what, fault] of failing) {
      from = s3.requests.length
      s3.fault = fault
      const answer = await send(what === 'a small one' ? 'x' : Buffer.alloc(20 * 1024 * 1024))
      expect(answer).toMatchObject({ status: 503, body: { error: { code: 'STORAGE_UNAVAILABLE' } } })
    }
    s3.fault = () => undefined
    await api.sql(`update "svc_FileRemoval" set "dueAt" = now()`)
    await removeDueContent(api.runtime, new AbortController().signal)
    expect([await keys(), (await api.sql('select count(*) from "svc_File"'))[0]]).toEqual(before)
    expect(await api.sql('select from "svc_FileRemoval"')).toEqual([])
  })

  it('whose answer is cut is an error of the reader, and not the end of the content', async () => {
    await storage.write('long.txt', pieces('x'.repeat(100_000)))
    s3.fault = (request) => (request === 'GET long.txt' ? 'cut' : undefined)
    await expect(read('long.txt')).rejects.toThrow()
    s3.fault = () => undefined
    await storage.delete('long.txt')
  })

  it('that does not answer, or stops in the middle, is given up in time', async () => {
    const service = Object.values(api.runtime.config.storage.services)[0] as S3StorageService
    const bucket = openBucket(service, { connectionTimeout: 200, requestTimeout: 150, socketTimeout: 150 })
    await storage.write('here.txt', pieces('x'.repeat(100_000)))
    s3.fault = () => 'silence'
    const verbs: (() => Promise<unknown>)[] = [
      () => bucket.stat('here.txt'),
      () => bucket.read('here.txt'),
      () => bucket.write('new.txt', pieces('x')),
      () => bucket.copy('here.txt', 'new.txt'),
      () => bucket.delete('here.txt'),
    ]
    for (const verb of verbs) await expect(verb()).rejects.toThrow(/time/i)
    s3.fault = (request) => (request === 'GET here.txt' ? 'stop' : undefined)
    const stopping = (await bucket.read('here.txt'))!
    await expect(text(stopping)).rejects.toThrow()
    s3.fault = () => undefined
    expect(await bucket.stat('new.txt')).toBeUndefined()
    await bucket.delete('here.txt')
    bucket.close()
  })

  it('is checked by doctor, which says what to fix', async () => {
    const look = async (more: Record<string, string>) =>
      (await examine({ ...testEnv(api.database.url), STORAGE_SERVICES_ENABLED: 's3', ...s3.env('S3'), ...more }))
        .filter(({ check }) => check === 'storage')
        .map(({ status, says, remedy }) => [status, says, remedy])[0]
    expect(await look({})).toEqual(['ok', 's3: content can be written, read and deleted', undefined])
    expect(await look({ S3_SECRET_ACCESS_KEY: 'wrong' })).toEqual([
      'problem',
      's3: SignatureDoesNotMatch',
      'correct S3_STORAGE_SECRET_ACCESS_KEY',
    ])
    expect(await look({ S3_BUCKET: 'nowhere' })).toEqual([
      ...['problem', expect.stringContaining('s3: '), 'make the bucket, or correct S3_STORAGE_BUCKET'],
    ])
  })
})
