import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { deleteExpired } from '../../src/db/unlogged/requests.ts'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'

let api: Api

beforeAll(async () => {
  api = await startApi()
  const fields = { name: { type: 'String', unique: true }, lines: { type: 'Integer' } }
  await api.admin('POST', '/schemas', { collectionName: 'paper', schema: { fields } })
  const owned = {
    fields: { text: { type: 'String' }, paper: { relType: 'BelongsTo', target: 'paper', foreignKey: 'paper_id' } },
  }
  await api.admin('POST', '/schemas', { collectionName: 'remark', schema: owned })
})

const post = (path: string, body: unknown, key: string, call: Call = api.admin) =>
  call('POST', path, body, { 'idempotency-key': key })
const count = async (name: string) =>
  Number((await api.sql('select count(*) from paper where name = $1', [name]))[0].count)
/** The answer of the attempt, and that it left nothing in the log. */
async function quiet(attempt: () => Promise<Answer>): Promise<Answer> {
  const before = await api.position()
  const answer = await attempt()
  expect(await api.log(before)).toEqual([])
  return answer
}

describe('a POST with an Idempotency-Key', () => {
  it('is done once however many times it comes at the same moment, and answered alike', async () => {
    const key = randomUUID()
    const before = await api.position()
    const answers = await Promise.all(Array.from({ length: 50 }, () => post('/items/paper', { name: 'fifty' }, key)))
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1)
    expect(answers[0]).toMatchObject({ status: 201, body: { data: { id: expect.any(String) } } })
    expect(answers.filter(({ headers }) => headers['idempotent-replayed'] !== 'true')).toHaveLength(1)
    expect(await count('fifty')).toBe(1)
    expect(await api.log(before)).toMatchObject([
      { action: 'create', entity: 'paper', entityId: answers[0]!.body.data.id, userId: expect.any(String) },
    ])
  })

  it('is answered from what is stored when it comes again, and says so', async () => {
    const first = await post('/items/paper', { name: 'again' }, 'again')
    const second = await quiet(() => post('/items/paper', { name: 'again' }, 'again'))
    expect(second).toMatchObject({ status: 201, text: first.text })
    expect(first.headers['idempotent-replayed']).toBeUndefined()
    expect(second.headers['idempotent-replayed']).toBe('true')
    expect(second.headers['content-type']).toBe(first.headers['content-type'])
  })

  it('is 409 when the key stands for another body, query or path', async () => {
    await post('/items/paper', { name: 'taken' }, 'taken')
    const conflict = { status: 409, body: { error: { code: 'IDEMPOTENCY_KEY_REUSED' } } }
    expect(await quiet(() => post('/items/paper', { name: 'other' }, 'taken'))).toMatchObject(conflict)
    expect(await quiet(() => post('/items/paper?fields=name', { name: 'taken' }, 'taken'))).toMatchObject(conflict)
    expect(await quiet(() => post('/items/remark', { name: 'taken' }, 'taken'))).toMatchObject(conflict)
    const both = await Promise.all(['x', 'y'].map((name) => post('/items/paper', { name }, 'raced')))
    expect(both.map(({ status }) => status).sort()).toEqual([201, 409])
    expect((await count('x')) + (await count('y'))).toBe(1)
  })

  it('belongs to its caller', async () => {
    const create = { collection: 'paper', action: 'create', fields: '*' }
    const [one, two] = [await api.user([create]), await api.user([create])]
    const answers = [
      await post('/items/paper', { lines: 1 }, 'mine', one.call),
      await post('/items/paper', { lines: 1 }, 'mine', two.call),
    ]
    expect(answers.map(({ status }) => status)).toEqual([201, 201])
    expect(answers[0]!.text).not.toBe(answers[1]!.text)
  })

  it('may be tried again after a refusal, which wrote nothing', async () => {
    expect((await quiet(() => post('/items/paper', { name: 'x', lines: 'many' }, 'refused'))).status).toBe(400)
    expect((await post('/items/paper', { name: 'corrected', lines: 2 }, 'refused')).status).toBe(201)
  })

  it.each([
    ['a plain item', '/items/paper', { lines: 1 }],
    ['a nested one', '/items/remark', { text: 't', paper: { lines: 2 } }],
    ['a bulk', '/items/paper/bulk', [{ lines: 3 }, { lines: 4 }]],
    ['an answer with fields', '/items/paper?fields=lines', { lines: 5 }],
  ])('keeps %s when the process dies between the commit and the answer', async (what, path, body) => {
    const key = what.replaceAll(' ', '-')
    const first = await post(path, body, key)
    expect(first.status).toBe(201)
    // Such a crash leaves the commit with its result, and no answer.
    const forgotten = await api.sql(
      `update "svc_IdempotencyKey" set status = null, "contentType" = null, body = null where key = $1 returning result`,
      [key],
    )
    expect(forgotten).toEqual([{ result: expect.any(String) }])
    const second = await quiet(() => post(path, body, key))
    expect(second).toMatchObject({ status: 201, text: first.text })
    expect(await quiet(() => post(path, body, key))).toMatchObject({ text: first.text })
  })

  it('holds for routes that answer more than they wrote', async () => {
    const role = await api.admin('POST', '/items/svc_Role', { name: 'idempotent' })
    const permission = { role_Id: role.body.data.id, collection: 'paper', action: 'read', fields: '*' }
    const first = await post('/permissions', permission, 'permission')
    expect(first).toMatchObject({ status: 201, body: { collection: 'paper' } })
    expect(await quiet(() => post('/permissions', permission, 'permission'))).toMatchObject({
      status: 201,
      text: first.text,
    })
    const schema = { collectionName: 'once', schema: { fields: { a: { type: 'String' } } } }
    expect((await post('/schemas', schema, 'schema')).status).toBe(201)
    expect((await quiet(() => post('/schemas', schema, 'schema'))).status).toBe(201)
    expect((await api.admin('POST', '/schemas', schema)).status).toBe(409)
  })

  it('is forgotten after a day, by its next use or by cleaning up', async () => {
    const first = await post('/items/paper', { lines: 1 }, 'expired')
    const expire = (key: string) =>
      api.sql(`update "svc_IdempotencyKey" set "expiresAt" = now() - interval '1 second' where key = $1`, [key])
    await expire('expired')
    const second = await post('/items/paper', { lines: 1 }, 'expired')
    expect(second.status).toBe(201)
    expect(second.text).not.toBe(first.text)
    const left = async (key: string) =>
      (await api.sql(`select 1 from "svc_IdempotencyKey" where key = $1`, [key])).length
    await expire('expired')
    await post('/items/paper', { lines: 1 }, 'the-next-one')
    expect(await left('expired')).toBe(0)
    await expire('the-next-one')
    expect(await deleteExpired(api.runtime, 'idempotency keys', 100)).toBe(1)
    expect(await left('the-next-one')).toBe(0)
  })

  it('must have a key that makes sense', async () => {
    for (const key of ['', 'with blank', 'ümlaut', 'x'.repeat(256)])
      expect((await post('/items/paper', { lines: 1 }, key)).status).toBe(400)
  })
})

it('runs changes and deletions once under a key, too', async () => {
  const { body } = await api.admin('POST', '/items/paper', { lines: 1 })
  const path = `/items/paper/${body.data.id}`
  const before = await api.position()
  for (const [method, payload] of [
    ['PATCH', { lines: 2 }],
    ['DELETE', undefined],
  ] as const) {
    const headers = { 'idempotency-key': `${method}-once` }
    const first = await api.admin(method, path, payload, headers)
    const second = await api.admin(method, path, payload, headers)
    expect([first.status, second.status, second.text]).toEqual([200, 200, first.text])
    expect(second.headers['idempotent-replayed']).toBe('true')
  }
  expect((await api.log(before)).map(({ action }) => action)).toEqual(['update', 'delete'])
})

it('requests without a key, and those that write nothing or sign in, store nothing', async () => {
  await api.sql('delete from "svc_IdempotencyKey"')
  const { body } = await api.admin('POST', '/items/paper', { lines: 1 })
  const headers = { 'idempotency-key': 'k' }
  expect((await api.admin('PATCH', `/items/paper/${body.data.id}`, { lines: 2 })).status).toBe(200)
  expect((await api.admin('GET', '/items/paper?limit=1', undefined, headers)).status).toBe(200)
  expect((await api.anonymous('POST', '/auth/login', administrator, headers)).status).toBe(200)
  expect(await api.sql('select * from "svc_IdempotencyKey"')).toEqual([])
})
