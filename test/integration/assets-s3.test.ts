import { createHash, randomUUID } from 'node:crypto'
import sharp from 'sharp'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { noise } from '../support/images.ts'
import { type S3, startS3 } from '../support/s3.ts'
import { storeFile } from '../support/stored-files.ts'

/** Assets whose content is in S3, by a server that checks signatures and fails as told. */

let s3: S3
let api: Api
let env: Record<string, string>
let picture: Buffer

beforeAll(async () => {
  s3 = await startS3()
  env = { STORAGE_SERVICES_ENABLED: 's3', ...s3.env('S3') }
  api = await startApi(env)
  picture = await noise(200, 100).png().toBuffer()
})

afterEach(() => {
  s3.fault = () => undefined
})

afterAll(() => s3?.close())

const get = async (path: string, headers: Record<string, string> = {}, on = api) => {
  const { statusCode: status, headers: answered, rawPayload: bytes } = await on.app.inject({ url: path, headers })
  return { status, headers: answered, bytes }
}

/** What the storage is asked for while something is done. */
async function requestsOf(work: () => Promise<unknown>): Promise<readonly string[]> {
  const before = s3.requests.length
  await work()
  return s3.requests.slice(before)
}

describe('assets in S3', () => {
  it('pass through, in parts too, and cost the storage nothing where the client has them', async () => {
    const content = Buffer.alloc(300_000, 'abcdefghij')
    const { id, filename } = await storeFile(api, { content, type: 'application/pdf', isPublic: true })
    const whole = await get(`/assets/${id}`)
    expect(whole.bytes.equals(content)).toBe(true)
    const part = await get(`/assets/${id}`, { range: 'bytes=250000-250004' })
    expect(part).toMatchObject({ status: 206, headers: { 'content-range': 'bytes 250000-250004/300000' } })
    expect(part.bytes.toString()).toBe('abcde')
    const kept = await requestsOf(() => get(`/assets/${id}`, { 'if-none-match': whole.headers.etag as string }))
    expect(kept).toEqual([])
    expect(await requestsOf(() => api.app.inject({ method: 'HEAD', url: `/assets/${id}` }))).toEqual([
      `HEAD ${filename}`,
    ])
  })

  it('are transformed once, and the result is kept there', async () => {
    const { id, filename } = await storeFile(api, { content: picture, isPublic: true })
    const path = `/assets/${id}?width=50&format=webp`
    const asked = await requestsOf(() => Promise.all(Array.from({ length: 5 }, () => get(path))))
    expect(asked.filter((request) => request === `GET ${filename}`)).toHaveLength(1)
    expect(asked.filter((request) => request.startsWith('PUT '))).toHaveLength(1)
    const other = await startApi(env, api.database)
    const answer = await get(path, {}, other)
    expect(await sharp(answer.bytes).metadata()).toMatchObject({ width: 50, height: 25, format: 'webp' })
    expect(other.runtime.images.load().processes).toBe(0)
    // Small content stays in memory.
    expect(await requestsOf(() => get(path, {}, other))).toEqual([])
  })

  it('are read there where they are sound or film, without a caller, until the address ends', async () => {
    const content = Buffer.alloc(1000, 'film')
    const { id } = await storeFile(api, { content, type: 'video/mp4', isPublic: true })
    const { status, headers } = await get(`/assets/${id}`)
    expect(status).toBe(302)
    const film = await fetch(String(headers.location), { headers: { range: 'bytes=4-7' } })
    expect([film.status, await film.text(), film.headers.get('content-type')]).toEqual([206, 'film', 'video/mp4'])
    const short = await startApi({ ...env, ASSET_SIGNED_URL_TTL: '1' }, api.database)
    const { location } = (await get(`/assets/${id}`, {}, short)).headers
    expect((await fetch(String(location))).status).toBe(200)
    await expect.poll(async () => (await fetch(String(location))).status, { timeout: 5000 }).toBe(403)
    // Only the headers come from here, as an address is good for reading alone.
    const head = await api.app.inject({ method: 'HEAD', url: `/assets/${id}` })
    expect([head.statusCode, head.headers['content-length']]).toEqual([200, '1000'])
  })

  it('pass through with ASSET_PROXY_ENABLED, whatever they are, and are kept in no cache', async () => {
    const content = Buffer.alloc(300_000, 'film')
    const { id } = await storeFile(api, { content, type: 'video/mp4', isPublic: true })
    const on = await startApi({ ...env, ASSET_PROXY_ENABLED: 'true' }, api.database)
    const part = await get(`/assets/${id}`, { range: 'bytes=4-11' }, on)
    expect(part).toMatchObject({
      status: 206,
      headers: { 'content-type': 'video/mp4', 'cache-control': 'no-cache, no-store, must-revalidate' },
    })
    expect(part.bytes.toString()).toBe('filmfilm')
    const saved = await get(`/assets/${id}?download=true`, {}, on)
    expect(saved).toMatchObject({
      status: 200,
      headers: { 'content-disposition': expect.stringMatching(/^attachment/) },
    })
  })

  it('are 503 while the storage is away, and nothing else is', async () => {
    const { id, filename } = await storeFile(api, { content: picture, isPublic: true })
    s3.fault = () => '503'
    const away = await get(`/assets/${id}`)
    expect(away).toMatchObject({ status: 503, headers: { 'retry-after': '5', 'cache-control': 'private, no-cache' } })
    expect(JSON.parse(away.bytes.toString()).error.code).toBe('STORAGE_UNAVAILABLE')
    expect((await get(`/assets/${id}?width=10`)).status).toBe(503)
    expect((await get(`/assets/${randomUUID()}`)).status).toBe(404)
    // A variant that cannot be kept is answered all the same.
    s3.fault = (request) => (request.startsWith('PUT ') ? '503' : undefined)
    const made = await get(`/assets/${id}?width=10&format=png`)
    expect(await sharp(made.bytes).metadata()).toMatchObject({ width: 10, height: 5 })
    expect(await api.sql('select from "svc_FileVariant" where original = $1', [filename])).toEqual([])
    s3.fault = () => undefined
    expect(
      createHash('sha256')
        .update((await get(`/assets/${id}`)).bytes)
        .digest('hex'),
    ).toBe(createHash('sha256').update(picture).digest('hex'))
  })
})
