import { beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'
import { bearer, connectMcp } from '../support/mcp.ts'
import { upload } from '../support/upload.ts'

/** What errors of the database tell with EXPOSE_ERROR_DETAILS: names of fields, never a value. */

const canary = 'CANARY'
const text = { type: 'String' }
let api: Api
let call: Call
let token: string
let url: string

beforeAll(async () => {
  api = await startApi({ EXPOSE_ERROR_DETAILS: 'true', MCP_ENABLED: 'true' })
  url = `${await api.app.listen({ host: '127.0.0.1', port: 0 })}/mcp`
  const schemas: [string, object, object?][] = [
    [
      'safe',
      {
        a: { type: 'Integer' },
        short: { ...text, values: { length: 10 } },
        title: text,
        day: { type: 'Date' },
        secret: { ...text, hidden: true, defaultValue: `${canary}s1` },
      },
      {
        constraints: [
          { type: 'unique', fields: ['a', 'secret'] },
          { type: 'check', name: 'positive', expression: 'a > 0' },
        ],
      },
    ],
    ['secretchild', { safe: { relType: 'BelongsTo', target: 'safe', foreignKey: 'safe_Id', onDelete: 'NO ACTION' } }],
  ]
  for (const [collectionName, fields, more] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { ...more, fields } })).text).toMatch(
      /success/,
    )
  const fields = ['id', 'a', 'short', 'title', 'day']
  const user = await api.user([
    ...['create', 'read', 'update'].map((action) => ({ collection: 'safe', action, fields })),
    { collection: 'safe', action: 'delete' },
  ])
  ;({ call, token } = user)
  await api.sql(`insert into safe (id, a, title, secret) values (gen_random_uuid(), 1, $1, $2)`, [
    `${canary} title`,
    `${canary}s1`,
  ])
})

const told = ({ status, body, text: words }: Pick<Answer, 'status' | 'body' | 'text'>) => {
  expect(words).not.toContain(canary)
  expect(words).not.toContain('secretchild')
  const { code, details } = body.error
  return [status, code, details]
}
it('a refusal for the rule of a row says nothing twice', async () => {
  const action = ['create', 'update', 'delete']
  const conditions = { a: { lt: 0 } }
  const user = await api.user(action.map((name) => ({ collection: 'safe', action: name, fields: '*', conditions })))
  const { id } = (await api.admin('POST', '/items/safe', { a: 5, title: 'rule' })).body.data
  const answers = [
    await user.call('POST', '/items/safe', { a: 6 }),
    await user.call('PATCH', `/items/safe/${id}`, { a: 7 }),
    await user.call('DELETE', `/items/safe/${id}`),
    await user.call('DELETE', '/items/safe/bulk', [id]),
  ]
  expect(answers.map(({ status, body }) => [status, body.error.details])).toEqual(answers.map(() => [403, null]))
})

const taken = [409, 'UNIQUE_VIOLATION', 'Key (a, secret) already exists']

describe('a unique field', () => {
  it('is named without the value that is there', async () => {
    expect(told(await call('POST', '/items/safe', { a: 1 }))).toEqual(taken)
    expect(told(await call('POST', '/items/safe/bulk', [{ a: 7 }, { a: 1 }]))).toEqual(taken)
    const { data } = (await call('POST', '/items/safe', { a: 2 })).body
    expect(told(await call('PATCH', `/items/safe/${data.id}`, { a: 1 }))).toEqual(taken)
  })

  it('is named so to a program', async () => {
    const { client } = await connectMcp(url, bearer(token), '2026-07-28')
    const answer = await client.callTool({
      name: 'svc_create_item',
      arguments: { collection: 'safe', data: { a: 1 } },
    })
    expect(JSON.stringify(answer)).toContain('UNIQUE_VIOLATION')
    expect(JSON.stringify(answer)).not.toContain(canary)
  })

  it('is named so to an import', async () => {
    const content = JSON.stringify([{ a: 1 }])
    const part = { name: 'jsonFile', filename: 'rows.json', content }
    const { status, text: words } = await upload(api, token, '/items/safe/import-json', [part])
    expect(status).toBe(400)
    expect(words).toContain('Unique constraint violation')
    expect(words).not.toContain(canary)
  })
})

describe('a row that others refer to', () => {
  it('names no other collection', async () => {
    const [{ id }] = await api.sql(
      'with s as (select id from safe where a = 1) insert into secretchild (id, "safe_Id") select gen_random_uuid(), id from s returning "safe_Id" as id',
    )
    expect(told(await call('DELETE', `/items/safe/${id}`))).toEqual([
      409,
      'FOREIGN_KEY_VIOLATION',
      'Key (id) is still referenced',
    ])
  })
})

describe('a value that does not fit', () => {
  it.each([
    [
      'a cast of a filter',
      '/items/safe?filter={"title":{"eq":1,"cast":"integer"}}',
      'A text cannot be read as the type that it is for',
    ],
    [
      'a cast to a date',
      '/items/safe?filter={"title":{"eq":"2020-01-01","cast":"date"}}',
      'A text cannot be read as a date or time',
    ],
    [
      'a regular expression',
      `/items/safe?filter={"title":{"regex":"(${canary}"}}`,
      'A regular expression is malformed',
    ],
  ])('of %s is not printed', async (_what, path, details) => {
    expect(told(await call('GET', path))).toEqual([400, 'INVALID_VALUE', details])
  })

  it('of a check is not printed', async () => {
    const { status, body, text: words } = await call('POST', '/items/safe', { a: -1, title: canary })
    expect([status, body.error.code]).toEqual([400, 'VALIDATION_ERROR'])
    expect(words).not.toContain(canary)
  })
})
