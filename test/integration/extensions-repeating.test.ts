import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'

/** `Idempotency-Key` for endpoints of extensions (docs/repeating.md). */

let api: Api
let directory: string
let call: Api['admin']

const endpoint = `
  export default { id: 'pay', handler: (app, { ItemsService }) => {
    app.post('/at-once', async (request) => {
      const payments = new ItemsService('payment', { accountability: request.accountability })
      return { ids: await Promise.all([...'abcdefgh'].map((name) => payments.createOne({ name }))) }
    })
  } }`

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'daybook-repeating-'))
  await mkdir(join(directory, 'svc-endpoint-pay'))
  await writeFile(join(directory, 'svc-endpoint-pay/index.js'), endpoint)
  api = await startApi({ EXTENSIONS_DIR: directory })
  const schema = { fields: { name: { type: 'String' }, n: { type: 'Integer' } } }
  expect((await api.admin('POST', '/schemas', { collectionName: 'payment', schema })).status).toBe(201)
  call = (await api.user([{ collection: 'payment', action: 'create', fields: '*' }])).call
})

beforeEach(() => api.sql('truncate payment'))
afterAll(() => rm(directory, { recursive: true }))

const names = async () => (await api.sql('select name from payment order by name')).map(({ name }) => name)
const send = (path: string, key: string, body: object = {}) => call('POST', path, body, { 'idempotency-key': key })

it('writes that an endpoint begins at once are all done, once', async () => {
  const first = await send('/pay/at-once', 'at-once')
  expect(first.status, first.text).toBe(200)
  expect(new Set(first.body.ids).size).toBe(8)
  expect(await names()).toEqual([...'abcdefgh'])
  const again = await send('/pay/at-once', 'at-once')
  expect([again.status, again.text, again.headers['idempotent-replayed']]).toEqual([200, first.text, 'true'])
  expect(await names()).toEqual([...'abcdefgh'])
})
