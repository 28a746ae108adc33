import { beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

let api: Api
let token: string
let stored: readonly number[]

/** `name` is known to be missing before anything is written; of `rank`, whose default is null, only the database knows. */
const required = {
  name: { type: 'String', allowNull: false },
  rank: { type: 'Integer', allowNull: false, defaultValue: { type: 'SQL', value: 'null::integer' } },
}
const belongsTo = { relType: 'BelongsTo', allowNull: false, onDelete: 'CASCADE' }

beforeAll(async () => {
  api = await startApi()
  const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
  await declare('form', { id: serial, code: { type: 'String', unique: true }, ...required })
  await declare('line', { id: serial, form: { ...belongsTo, target: 'form', foreignKey: 'form_id' }, ...required })
  await declare('place', { id: serial })
  const ends = {
    form: { ...belongsTo, target: 'form', foreignKey: 'form_id' },
    place: { ...belongsTo, target: 'place', foreignKey: 'place_id' },
  }
  await declare('form_place', { id: serial, ...ends, note: required.name, rank: required.rank })
  await change('form', {
    lines: { relType: 'HasMany', target: 'line', foreignKey: 'form_id' },
    places: {
      relType: 'BelongsToMany',
      target: 'place',
      through: 'form_place',
      foreignKey: 'form_id',
      otherKey: 'place_id',
    },
  })
  stored = (await api.admin('POST', '/items/form/bulk', [ok, ok])).body.data
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
})

async function declare(collectionName: string, fields: object) {
  const answer = await api.admin('POST', '/schemas', { collectionName, schema: { fields } })
  expect(answer.status, answer.text).toBe(201)
}

/** Adds fields to a collection, or gives them other definitions. */
async function tryChange(collection: string, fields: object): Promise<Answer> {
  const { schema } = (await api.admin('GET', `/schemas/${collection}`)).body.data
  return api.admin('PATCH', `/schemas/${collection}`, {
    schema: { ...schema, fields: { ...schema.fields, ...fields } },
  })
}

async function change(collection: string, fields: object) {
  const answer = await tryChange(collection, fields)
  expect(answer.status, answer.text).toBe(200)
}

const ok = { name: 'n', rank: 1 }
const noName = { rank: 1 }
const noRank = { name: 'n' }

describe('a write without a required value names it by its path', () => {
  it.each<[string, string, () => Promise<Answer>]>([
    ['one row', 'name', () => api.admin('POST', '/items/form', noName)],
    ['one row with its fields', 'name', () => api.admin('POST', '/items/form?fields=*', noName)],
    ['bulk create', '1.name', () => api.admin('POST', '/items/form/bulk', [ok, noName])],
    ['nested', 'lines.1.name', () => api.admin('POST', '/items/form', { ...ok, lines: [ok, noName] })],
    ['nested in bulk', '1.lines.0.name', () => api.admin('POST', '/items/form/bulk', [ok, { ...ok, lines: [noName] }])],
    ['upsert', 'name', () => api.admin('PUT', '/items/form?key=code', { code: 'x', ...noName })],
    [
      'upserts',
      '1.name',
      () =>
        api.admin('PUT', '/items/form?key=code', [
          { code: 'x', ...ok },
          { code: 'y', ...noName },
        ]),
    ],
    ['key of an upsert', '0.code', () => api.admin('PUT', '/items/form?key=code', [ok])],
    ['null in a change', 'name', () => api.admin('PATCH', `/items/form/${stored[0]}`, { name: null })],
    [
      'null in bulk changes',
      '2.name',
      () => api.admin('PATCH', '/items/form/bulk', [{ id: stored[0] }, {}, { id: stored[1], data: { name: null } }]),
    ],
  ])('%s: %s', async (_form, field, send) => {
    const { status, body } = await unwritten(send)
    expect(status).toBe(400)
    expect(body.error).toMatchObject({ code: 'VALIDATION_ERROR', message: `Validation failed: ${field}: is required` })
    expect(body.error.details.errors).toMatchObject([{ field }])
  })

  it.each<[string, string, () => Promise<Answer>]>([
    ['one row', 'rank', () => api.admin('POST', '/items/form', noRank)],
    ['one row with its fields', 'rank', () => api.admin('POST', '/items/form?fields=*', noRank)],
    ['bulk create', '1.rank', () => api.admin('POST', '/items/form/bulk', [ok, noRank, noRank])],
    ['bulk create with fields', '1.rank', () => api.admin('POST', '/items/form/bulk?fields=id', [ok, noRank])],
    ['nested', 'lines.1.rank', () => api.admin('POST', '/items/form', { ...ok, lines: [ok, noRank] })],
    ['nested in bulk', '1.lines.0.rank', () => api.admin('POST', '/items/form/bulk', [ok, { ...ok, lines: [noRank] }])],
    ['upsert', 'rank', () => api.admin('PUT', '/items/form?key=code', { code: 'x', ...noRank })],
    [
      'upserts',
      '1.rank',
      () =>
        api.admin('PUT', '/items/form?key=code', [
          { code: 'x', ...ok },
          { code: 'y', ...noRank },
        ]),
    ],
  ])('that only the database misses: %s: %s', async (_form, field, send) => {
    expect(await unwritten(send)).toMatchObject({
      status: 400,
      body: { error: { message: 'Required field missing', code: 'REQUIRED_FIELD_MISSING', details: field } },
    })
  })

  it('in a row that links, and of an import by row and field', async () => {
    const { body } = await unwritten(() => api.admin('POST', '/items/form', { ...ok, places: [{}] }))
    expect(body.error.message).toBe('Validation failed: places.0.note: is required')
    const rows = [ok, noName, noRank]
    const answer = await unwritten(() =>
      upload(api, token, '/items/form/import-json', [
        { name: 'jsonFile', filename: 'forms.json', content: JSON.stringify(rows) },
      ]),
    )
    expect(answer.body.error.details.results.errors).toMatchObject([
      { item: 2, error: 'Validation failed: name: is required' },
      { item: 3, error: 'Required field missing: rank' },
    ])
  })
})

/** The call, of which nothing is left. */
async function unwritten(send: () => Promise<Answer>): Promise<Answer> {
  const before = await api.position()
  const answer = await send()
  expect(answer.status, answer.text).toBe(400)
  expect(await api.log(before)).toEqual([])
  return answer
}

describe('a schema that requires a value which stored rows do not have', () => {
  beforeAll(async () => {
    await declare('paper', { title: { type: 'String' }, pages: { type: 'Integer' } })
    for (const title of ['a', 'b', null]) await api.admin('POST', '/items/paper', { title })
  })

  it('is refused with the field and the number of rows, and changes nothing', async () => {
    const before = await api.position()
    const cases: [object, string][] = [
      [{ title: { type: 'String', allowNull: false } }, 'paper.title is required, and stored rows without a value: 1'],
      [{ kind: { type: 'String', allowNull: false } }, 'paper.kind is required, and stored rows without a value: 3'],
      [
        { pages: { type: 'BigInt', allowNull: false }, by: { ...belongsTo, target: 'form' } },
        'paper.pages is required, and stored rows without a value: 3; paper.by_Id is required, and stored rows without a value: 3',
      ],
      [
        { rank: { type: 'Integer', allowNull: false, defaultValue: { type: 'SQL', value: 'null::integer' } } },
        'stored rows have no value for the required field rank',
      ],
    ]
    for (const [fields, reason] of cases)
      expect(await tryChange('paper', fields)).toMatchObject({
        status: 400,
        body: {
          error: { code: 'SCHEMA_NOT_APPLICABLE', details: `The schema cannot be applied: ${reason}` },
        },
      })
    expect((await api.log(before)).filter(({ entity }) => entity === 'paper')).toEqual([])
  })

  it('is applied where a default gives them one, and when they have one', async () => {
    await change('paper', { kind: { type: 'String', allowNull: false, defaultValue: 'plain' } })
    await api.sql(`update paper set title = 'c' where title is null`)
    await change('paper', { title: { type: 'String', allowNull: false } })
    expect((await api.admin('POST', '/items/paper', {})).body.error.details.errors).toMatchObject([{ field: 'title' }])
  })
})
