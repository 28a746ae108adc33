import { randomUUID } from 'node:crypto'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

/** Triggers that the operator of a database has put on tables, and that refuse rows. */

let api: Api
let admin: string
beforeAll(async () => {
  api = await startApi()
  admin = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const schemas: [string, object][] = [
    ['box', { name: { type: 'String' } }],
    ['thing', { name: { type: 'String' }, box: { relType: 'BelongsTo', target: 'box', foreignKey: 'box_Id' } }],
  ]
  for (const [collectionName, fields] of schemas) {
    const { status, text } = await api.admin('POST', '/schemas', { collectionName, schema: { fields } })
    expect(status, text).toBe(201)
  }
  const related = await api.admin('POST', '/schemas/box/relationships', {
    type: 'HasMany',
    name: 'things',
    target: 'thing',
    foreignKey: 'box_Id',
  })
  expect(related.status, related.text).toBeLessThan(300)
  await api.sql(`create function refuse_thing() returns trigger language plpgsql as $$begin return null; end$$`)
  await api.sql(`create trigger refuse_thing before insert on thing
    for each row when (new.name like 'refused%') execute function refuse_thing()`)
})

const acts = (body: string) =>
  api.sql(
    `create or replace function refuse_thing() returns trigger language plpgsql as $$begin ${body.replaceAll('$$', '')} end$$`,
  )

const imported = (rows: readonly object[], query = '') => {
  const part = { name: 'jsonFile', filename: 'things.json', content: JSON.stringify(rows) }
  return upload(api, admin, `/items/thing/import-json${query}`, [part])
}

const kept = { name: 'kept' }
const refused = { name: 'refused' }

const ways: [string, () => Promise<Answer>][] = [
  ['a create', () => api.admin('POST', '/items/thing', refused)],
  ['a create that asks for the row', () => api.admin('POST', '/items/thing?fields=*', refused)],
  ['a bulk create', () => api.admin('POST', '/items/thing/bulk', [kept, refused, kept])],
  ['a bulk create of nothing else', () => api.admin('POST', '/items/thing/bulk', [refused, refused])],
  ['a bulk create that asks for the rows', () => api.admin('POST', '/items/thing/bulk?fields=*', [kept, refused])],
  ['an upsert', () => api.admin('PUT', '/items/thing', { id: randomUUID(), ...refused })],
  ['a nested row', () => api.admin('POST', '/items/box', { name: 'with things', things: [kept, refused] })],
  ['a nested row with a row in it', () => api.admin('POST', '/items/thing', { ...refused, box: { name: 'of it' } })],
]

const content = async () => [
  await api.sql('select name from thing order by name'),
  await api.sql('select name from box order by name'),
]

describe('a row that a trigger leaves out', () => {
  beforeEach(() => acts('return null;'))

  it.each(ways)('of %s is refused, and nothing is written', async (_way, write) => {
    const [before, position] = [await content(), await api.position()]
    const { status, text, body } = await write()
    expect(status, text).toBe(403)
    expect(body.error.message).toMatch(/left it out|permission/)
    expect([await content(), await api.log(position)]).toEqual([before, []])
  })

  it('of an import is named', async () => {
    const [before, position] = [await content(), await api.position()]
    for (const query of ['', '?dryRun=true']) {
      const { text, body } = await imported([kept, refused, kept], query)
      const { errors } = body.results ?? body.error.details.results
      expect(errors, text).toMatchObject([{ item: 2, error: expect.stringMatching(/left it out/) }])
    }
    expect([await content(), await api.log(position)]).toEqual([before, []])
  })

  it('leaves others alone', async () => {
    expect((await api.admin('POST', '/items/thing', kept)).status).toBe(201)
    expect((await api.admin('POST', '/items/thing/bulk', [kept, kept])).body.data).toHaveLength(2)
  })
})

describe('a trigger that raises an exception', () => {
  const words = 'The team has reached its quota'
  beforeEach(() => acts(`raise exception '${words}';`))

  it.each(ways)('says why to the writer of %s', async (_way, write) => {
    const [before, position] = [await content(), await api.position()]
    const { status, text, body } = await write()
    expect(status, text).toBe(400)
    expect(body.error).toEqual({ message: words, code: 'REFUSED_BY_DATABASE', details: null, statusCode: 400 })
    expect([await content(), await api.log(position)]).toEqual([before, []])
  })

  it('says so for its row of an import', async () => {
    for (const query of ['', '?dryRun=true']) {
      const { text, body } = await imported([kept, refused, kept], query)
      const { errors } = body.results ?? body.error.details.results
      expect(errors, text).toMatchObject([{ item: 2, error: words }])
    }
  })

  it('says no more than 500 characters', async () => {
    await acts(`raise exception '%', repeat('a', 10000);`)
    const { body } = await api.admin('POST', '/items/thing', refused)
    expect(body.error.message).toBe(`${'a'.repeat(500)}…`)
  })

  it('as a broken rule names what it says: a column, or itself', async () => {
    const broken = (using: string) => acts(`raise exception 'no refused things' using errcode = '23514'${using};`)
    const write = async () => (await api.admin('POST', '/items/thing', refused)).body.error
    await broken(`, constraint = 'my_rule', column = 'name'`)
    const problem = { field: 'name', message: 'no refused things', rule: 'check', constraint: 'my_rule' }
    expect(await write()).toMatchObject({ code: 'VALIDATION_ERROR', details: { errors: [problem] }, statusCode: 400 })
    await broken(`, constraint = 'my_rule'`)
    expect(await write()).toMatchObject({
      message: 'no refused things',
      code: 'REFUSED_BY_DATABASE',
      statusCode: 400,
    })
  })
})

it('a domain that does not allow a value says that it does not fit', async () => {
  await api.sql(`create domain small_text as text check (length(value) < 5)`)
  await api.sql(
    `create function small_box() returns trigger language plpgsql as $$begin perform new.name::small_text; return new; end$$`,
  )
  await api.sql(`create trigger small_box before insert on box for each row execute function small_box()`)
  expect(await api.admin('POST', '/items/box', { name: 'a long name' })).toMatchObject({
    status: 400,
    body: { error: { message: 'Invalid value', code: 'INVALID_VALUE' } },
  })
  expect((await api.admin('POST', '/items/box', { name: 'box' })).status).toBe(201)
})
