import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { contextFor } from '../../src/extensions/context.ts'
import { verifyFiles } from '../../src/features/files/files/files.ts'
import { type Api, startApi } from '../support/api.ts'
import { plain } from '../support/images.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

/** Hooks of svc_File: what they see of an upload, and what they may say of it. */

let api: Api
let token: string
let picture: Buffer
let seen: any[]
let answer: (data: any) => unknown

beforeAll(async () => {
  api = await startApi({ SSRF_ALLOW_PRIVATE_URL_FETCH: 'true' })
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  picture = await plain(60, 40).png().toBuffer()
  for (const event of ['items.create', 'items.update'])
    api.runtime.hooks.register('test', 'svc_File', event, ({ data }: any) => {
      seen.push(structuredClone(data))
      return answer(data)
    })
})

beforeEach(() => {
  seen = []
  answer = (data) => ({ data })
})

const rowOf = async (id: string) => (await api.admin('GET', `/files/${id}`)).body.data
const png = () => ({ name: 'file', filename: 'Cat at sea.png', type: 'image/png', content: picture })
const ofPicture = {
  ...{ title: 'Cat at sea.png', originalFilename: 'Cat at sea.png', type: 'image/png', typeProven: true },
  ...{ size: expect.anything(), hash: expect.stringMatching(/^[\da-f]{64}$/), width: 60, height: 40 },
}

describe('a hook before a file is created', () => {
  it('sees what is known of it, however it comes', async () => {
    const folder = { name: 'folder', value: 'cats' }
    const made = await upload(api, token, '/files', [folder, png()])
    expect(made.status).toBe(200)
    expect(seen).toEqual([expect.objectContaining({ ...ofPicture, folder: 'cats', id: made.body.data })])
    expect(Number(seen[0].size)).toBe(picture.length)
    expect(await rowOf(made.body.data)).toMatchObject({ ...ofPicture, folder: 'cats' })

    const { storageService } = contextFor(api.runtime, 'svc-hook-test')
    await storageService.createFile({ content: picture, filename: 'Cat at sea.png', title: 'Given' })
    expect(seen[1]).toMatchObject({ ...ofPicture, title: 'Given' })

    const server = createServer(
      (_request, response) => void response.setHeader('content-type', 'image/png').end(picture),
    )
    onTestFinished(() => void server.close())
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/cat.png`
    expect((await api.admin('POST', '/files/upload-from-url', { url })).status).toBe(200)
    expect(seen[2]).toMatchObject({ ...ofPicture, title: 'cat.png', originalFilename: 'cat.png' })

    const metadata = `filename ${Buffer.from('Cat at sea.png').toString('base64')}`
    const begun = await api.admin('POST', '/files/tus', undefined, {
      ...{ 'tus-resumable': '1.0.0', 'upload-length': String(picture.length), 'upload-metadata': metadata },
    })
    const sent = await api.app.inject({
      ...{ method: 'PATCH', url: String(begun.headers.location), payload: picture },
      headers: {
        ...{ authorization: `Bearer ${token}`, 'tus-resumable': '1.0.0', 'upload-offset': '0' },
        'content-type': 'application/offset+octet-stream',
      },
    })
    expect(sent.statusCode).toBe(204)
    expect(seen[3]).toMatchObject(ofPicture)
  })

  it('refuses by type and size, and nothing of the file stays', async () => {
    answer = ({ type, size }) => {
      if (type !== 'image/png') throw { status: 415, message: 'Pictures only' }
      if (Number(size) > 10) throw { status: 413, message: 'Small pictures only' }
    }
    const position = await api.position()
    const text = { name: 'file', filename: 'a.png', type: 'text/plain', content: 'text' }
    expect(await upload(api, token, '/files', [text])).toMatchObject({
      status: 415,
      body: { error: { message: 'Pictures only' } },
    })
    expect((await upload(api, token, '/files', [png()])).status).toBe(413)
    expect(await api.log(position)).toEqual([])
    expect((await verifyFiles(api.runtime, { hashes: true })).differences).toEqual([])
  })

  it('may say otherwise what its sender could say, not what the content is', async () => {
    answer = ({ originalFilename }) => ({
      data: {
        ...{ title: 'Another', description: `Alt of ${originalFilename}`, originalFilename: 'other.png' },
        ...{ type: 'text/html', size: 1, hash: 'x', id: '00000000-0000-4000-8000-000000000000', storage: 'none' },
      },
    })
    const position = await api.position()
    const { status, body } = await upload(api, token, '/files', [png()])
    expect(status).toBe(200)
    expect(body.data).toBe(seen[0].id)
    const row = await rowOf(body.data)
    expect(row).toMatchObject({ title: 'Another', description: 'Alt of Cat at sea.png', originalFilename: 'other.png' })
    expect(row).toMatchObject({ type: 'image/png', hash: seen[0].hash, storage: seen[0].storage })
    expect(Number(row.size)).toBe(picture.length)
    expect(await api.log(position)).toMatchObject([{ entity: 'svc_File', action: 'create', entityId: body.data }])
  })

  it('needs no grant of its caller for what it leaves as it was, and one for what it changes', async () => {
    const { token: own } = await api.user([
      { collection: 'svc_File', action: 'create', fields: ['folder'] },
      { collection: 'svc_File', action: 'read', fields: ['*'] },
    ])
    answer = (data) => ({ data: { ...data, folder: 'cats' } })
    const made = await upload(api, own, '/files', [png()])
    expect([made.status, (await rowOf(made.body.data)).title]).toEqual([200, 'Cat at sea.png'])
    answer = (data) => ({ data: { ...data, title: 'Another' } })
    expect((await upload(api, own, '/files', [png()])).status).toBe(403)
  })
})

describe('a hook before a file gets other content', () => {
  it('sees what is known of it, and may name it', async () => {
    const { body } = await upload(api, token, '/files', [
      { name: 'file', filename: 'a.txt', type: 'text/plain', content: 'text' },
    ])
    seen = []
    answer = (data) => ({ data: { ...data, originalFilename: 'named.png' } })
    expect((await upload(api, token, `/files/${body.data}`, [png()], {}, 'PATCH')).status).toBe(200)
    const { title: _title, ...facts } = ofPicture
    expect(seen).toEqual([expect.objectContaining(facts)])
    expect(seen[0]).not.toHaveProperty('title')
    expect(await rowOf(body.data)).toMatchObject({ title: 'a.txt', originalFilename: 'named.png', type: 'image/png' })
    answer = () => {
      throw { status: 409, message: 'It stays' }
    }
    const position = await api.position()
    const text = { name: 'file', filename: 'b.txt', type: 'text/plain', content: 'text' }
    expect((await upload(api, token, `/files/${body.data}`, [text], {}, 'PATCH')).status).toBe(409)
    expect(await api.log(position)).toEqual([])
  })
})
