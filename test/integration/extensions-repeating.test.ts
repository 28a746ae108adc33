import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'

/** `Idempotency-Key` for endpoints of extensions, whoever their writes are attributed to (docs/repeating.md). */

let api: Api
let directory: string
let call: Api['admin']

const endpoint = `
  export default { id: 'pay', handler: (app, { ItemsService, db }) => {
    const own = () => new ItemsService('payment')
    const callers = (request) => new ItemsService('payment', { accountability: request.accountability })
    app.post('/own', async (request) => ({ made: await own().createOne(request.body) }))
    app.post('/both', async (request) => {
      const first = await own().createOne({ name: 'platform' })
      return { ids: [first, await callers(request).createOne({ name: 'caller' })] }
    })
    app.post('/at-once', async (request) => ({
      ids: await Promise.all([
        callers(request).createOne({ name: 'a' }),
        own().createOne({ name: 'b' }),
        ...['c', 'd', 'e', 'f', 'g', 'h'].map((name) => callers(request).createOne({ name })),
      ]),
    }))
    app.post('/transaction', async () => ({
      name: await db.transaction(async (tx) => {
        const [row] = await tx.query("insert into payment (name) values ('sql') returning name")
        await own().createOne({ name: 'inside' })
        return row.name
      }),
    }))
    app.post('/then-refused', async () => {
      await own().createOne({ name: 'tried' })
      throw Object.assign(new Error('no'), { status: 400 })
    })
    app.post('/one-fails', async () => {
      const outcomes = await Promise.allSettled([
        own().createOne({ name: 'broken', n: 'many' }),
        own().createOne({ name: 'after' }),
      ])
      return { outcomes: outcomes.map(({ status }) => status) }
    })
    app.post('/no-json', async () => ({
      n: String(await db.transaction(async () => {
        await own().createOne({ name: 'big' })
        return 12345678901234567890n
      })),
    }))
    let go, late
    app.post('/late', async () => {
      // What goes on after the answer.
      late = new Promise((resolve) => { go = resolve }).then(() => own().createOne({ name: 'late' }))
      return { id: await own().createOne({ name: 'now' }) }
    })
    app.get('/late', async () => { go(); return { id: await late } })
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

it('makes a key free for another request at one moment, however many commits it stands for', async () => {
  const { ids } = (await send('/pay/both', 'expiring')).body
  expect(ids).toHaveLength(2)
  const kept = `select step, "expiresAt" from "svc_IdempotencyKey" where key = 'expiring' order by step`
  const [first, second] = await api.sql(kept)
  expect([first.step, second.step]).toEqual([0, 1])
  expect(second.expiresAt).toEqual(first.expiresAt)
  await api.sql(
    `update "svc_IdempotencyKey" set "expiresAt" = "expiresAt" - interval '25 hours' where key = 'expiring'`,
  )
  expect((await send('/pay/both', 'expiring')).body.ids).not.toEqual(ids)
  expect(await names()).toEqual(['caller', 'caller', 'platform', 'platform'])
})

it.each([
  ['/pay/own', ['x'], { name: 'x' }],
  ['/pay/both', ['caller', 'platform'], {}],
  ['/pay/at-once', ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'], {}],
  ['/pay/transaction', ['inside', 'sql'], {}],
])('%s is done once', async (path, written, body) => {
  const before = await api.position()
  const first = await send(path, path, body)
  expect(first.status, first.text).toBe(200)
  expect(await names()).toEqual(written)
  const again = await send(path, path, body)
  expect([again.status, again.text, again.headers['idempotent-replayed']]).toEqual([200, first.text, 'true'])
  expect(await names()).toEqual(written)
  const events = (await api.log(before)).filter(({ entity }) => entity === 'payment')
  expect(events).toHaveLength(written.length)
  expect(await send(path, path, { name: 'another' })).toMatchObject({
    status: 409,
    body: { error: { code: 'IDEMPOTENCY_KEY_REUSED' } },
  })
})

/** As a crash between the commits of a request and its answer leaves it. */
const loseAnswer = (key: string) =>
  api.sql(`update "svc_IdempotencyKey" set status = null, "contentType" = null, body = null where key = $1`, [key])

it.each([
  ['/pay/own', { name: 'x' }],
  ['/pay/both', {}],
  ['/pay/transaction', {}],
])('%s is done once where its answer was lost, too', async (path, body) => {
  const key = `lost ${path}`.replace(' ', '-')
  const first = await send(path, key, body)
  const written = await names()
  await loseAnswer(key)
  const again = await send(path, key, body)
  expect([again.status, again.text]).toEqual([200, first.text])
  expect(await names()).toEqual(written)
})

it('a transaction may give what is no JSON; only where the answer was lost the repetition fails, and writes nothing', async () => {
  const first = await send('/pay/no-json', 'no-json')
  expect(first.body).toEqual({ n: '12345678901234567890' })
  expect((await send('/pay/no-json', 'no-json')).text).toBe(first.text)
  await loseAnswer('no-json')
  expect((await send('/pay/no-json', 'no-json')).status).toBe(500)
  expect(await names()).toEqual(['big'])
})

it('what was written before a refusal is not written again', async () => {
  expect((await send('/pay/then-refused', 'refused')).status).toBe(400)
  expect((await send('/pay/then-refused', 'refused')).status).toBe(400)
  expect(await names()).toEqual(['tried'])
})

it('a write that fails leaves its place to the next', async () => {
  const first = await send('/pay/one-fails', 'fails')
  expect(first.body).toEqual({ outcomes: ['rejected', 'fulfilled'] })
  expect((await send('/pay/one-fails', 'fails')).text).toBe(first.text)
  expect(await names()).toEqual(['after'])
})

it('what goes on after the answer is no part of the request', async () => {
  expect((await send('/pay/late', 'late')).status).toBe(200)
  expect((await call('GET', '/pay/late')).status).toBe(200)
  expect(await names()).toEqual(['late', 'now'])
  expect(await api.sql(`select step from "svc_IdempotencyKey" where key = 'late'`)).toEqual([{ step: 0 }])
})

it('without a key every request is done', async () => {
  for (const name of ['x', 'x']) expect((await call('POST', '/pay/own', { name })).status).toBe(200)
  expect(await names()).toEqual(['x', 'x'])
})
