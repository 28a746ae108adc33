import { beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { declaredOf } from '../support/declared.ts'

let api: Api
beforeAll(async () => {
  api = await startApi({ EXPOSE_ERROR_DETAILS: 'false' })
})

type Part = { name: string; filename?: string; type?: string; content: string }

function upload(path: string, part?: Part): Promise<Answer> {
  const boundary = 'boundary-of-a-test'
  const { name = 'other', filename, type, content = '' } = part ?? {}
  const disposition = `form-data; name="${name}"${filename === undefined ? '' : `; filename="${filename}"`}`
  const headers = [`Content-Disposition: ${disposition}`, ...(type === undefined ? [] : [`Content-Type: ${type}`])]
  const body = `--${boundary}\r\n${headers.join('\r\n')}\r\n\r\n${content}\r\n--${boundary}--\r\n`
  return api.admin('POST', path, body, { 'content-type': `multipart/form-data; boundary=${boundary}` })
}

const file = (content: unknown): Part => ({
  name: 'schema',
  filename: 'schemas.json',
  type: 'application/json',
  content: typeof content === 'string' ? content : JSON.stringify(content),
})
const exported = (...schemas: object[]) => ({ version: '1.0', timestamp: '2024-01-01T00:00:00.000Z', schemas })
const named = (collectionName: string, fields: object = { name: { type: 'String' } }, more: object = {}) => ({
  collectionName,
  schema: { fields, ...more },
})

describe('export', () => {
  it.each(['/schemas-export', '/schemas/export'])('GET %s is a file with every definition', async (path) => {
    const answer = await api.admin('GET', path)
    expect(answer.status).toBe(200)
    expect(answer.headers['content-disposition']).toBe('attachment; filename="schemas.json"')
    expect(answer.body).toMatchObject({ version: '1.0', timestamp: expect.stringMatching(/Z$/) })
    expect(answer.body.schemas).toContainEqual({
      collectionName: 'svc_Tenant',
      schema: expect.objectContaining({ timestamps: true }),
      createdAt: expect.stringMatching(/Z$/),
      updatedAt: expect.stringMatching(/Z$/),
    })
  })

  it('is for administrators', async () => {
    const user = await api.user()
    for (const path of ['/schemas-export', '/schemas/export']) {
      expect((await api.anonymous('GET', path)).status).toBe(401)
      expect((await user.call('GET', path)).status).toBe(403)
    }
    expect((await user.call('POST', '/schemas/import', exported())).status).toBe(403)
    expect((await user.call('POST', '/schemas-import')).status).toBe(403)
    expect((await user.call('POST', '/schemas-preview-import')).status).toBe(403)
  })
})

describe('import', () => {
  it('takes what another installation exported, relationships included, all in one transaction', async () => {
    const source = await startApi()
    for (const name of ['author', 'story']) await source.admin('POST', '/schemas', named(name))
    await source.admin('POST', '/schemas/story/relationships', {
      type: 'M2M',
      name: 'authors',
      target: 'author',
      alias: 'stories',
    })
    await source.admin('POST', '/schemas/story/relationships', {
      type: 'M2O',
      name: 'editor',
      target: 'svc_User',
      alias: 'edited',
    })
    const dump = (await source.admin('GET', '/schemas-export')).body
    const before = await api.position()
    const answer = await upload('/schemas-import', file(dump))
    expect(answer).toMatchObject({ status: 200, body: { message: 'Schema import completed' } })
    expect(answer.body.changes).toMatchObject({
      created: ['author', 'story', 'story_author_authors_junction'],
      updated: ['svc_User'],
      deleted: [],
      errors: [],
    })
    expect(answer.body.changes.unchanged).toContain('svc_Role')
    const events = (await api.log(before)).filter(({ type }) => type === 'schema')
    expect(events.map(({ entityId, changes }) => [entityId, changes.change])).toEqual([
      ['author', 'create'],
      ['story', 'create'],
      ['story_author_authors_junction', 'create'],
      ['svc_User', 'update'],
    ])
    const story = (await api.admin('POST', '/items/story', { name: 'S' })).body.data.id
    const author = (await api.admin('POST', '/items/author', { name: 'A' })).body.data.id
    await api.admin('POST', '/items/story_author_authors_junction', { story_id: story, author_id: author })
    const read = await api.admin('GET', `/items/story/${story}?fields=authors.author.name`)
    expect(read.body.data.authors).toMatchObject([{ author: { name: 'A' } }])
    const again = await upload('/schemas-import', file(dump))
    expect(again.body.changes).toMatchObject({ created: [], updated: [], errors: [] })
    expect(again.body.changes.unchanged).toHaveLength(dump.schemas.length)
  })

  it('updates what differs and leaves alone what it does not name; the preview says so before', async () => {
    await api.admin('POST', '/schemas', named('kept'))
    await api.admin('POST', '/schemas', named('changing', { name: { type: 'String' }, old: { type: 'Integer' } }))
    const dump = exported(
      named('changing', { name: { type: 'Text' }, fresh: { type: 'Integer' } }, { paranoid: true }),
      named('brandNew', { name: { type: 'String' }, kept: { relType: 'BelongsTo', target: 'kept' } }),
      named('kept'),
    )
    const before = await api.position()
    const merging = await upload('/schemas-preview-import', file(dump))
    expect(merging.body.changes.modified).toEqual([
      { collectionName: 'changing', differences: ['field fresh added', 'field name changed', 'paranoid added'] },
    ])
    const preview = await upload('/schemas-preview-import?drop=true', file(dump))
    expect(preview).toMatchObject({
      status: 200,
      body: {
        importVersion: '1.0',
        importTimestamp: '2024-01-01T00:00:00.000Z',
        changes: {
          new: [{ collectionName: 'brandNew', details: { fields: ['name'], relations: ['kept'], indexes: 0 } }],
          modified: [
            {
              collectionName: 'changing',
              differences: ['field fresh added', 'field name changed', 'field old removed', 'paranoid added'],
            },
          ],
          deleted: [],
          unchanged: ['kept'],
        },
      },
    })
    expect(await api.log(before)).toEqual([])
    const answer = await api.admin('POST', '/schemas/import?drop=true', dump)
    expect(answer.body.dropped).toEqual([{ collection: 'changing', field: 'old', values: 0 }])
    expect(answer.body.changes).toEqual({
      created: ['brandNew'],
      updated: ['changing'],
      unchanged: ['kept'],
      deleted: [],
      errors: [],
    })
    const { fields } = (await api.admin('GET', '/schemas/changing')).body.data.schema
    expect(Object.keys(declaredOf(fields)).sort()).toEqual(['fresh', 'name'])
    expect((await api.admin('GET', '/schemas/story')).status).toBe(200)
  })

  it('lists everything that is wrong and changes nothing', async () => {
    const before = await api.position()
    const answer = await api.admin(
      'POST',
      '/schemas/import',
      exported(
        named('fine'),
        named('strange', { a: { type: 'Strange' } }),
        named('placed', { a: { type: 'Point' } }),
        named('svc_mine'),
        { collectionName: 'shapeless', schema: { fields: [] } },
      ),
    )
    expect(answer).toMatchObject({ status: 400, body: { error: { message: 'Schema import failed' } } })
    expect(answer.body.error.details).toMatchObject({ created: [], updated: [], unchanged: [], deleted: [] })
    expect(answer.body.error.details.errors).toEqual([
      { collectionName: 'strange', error: expect.stringContaining('fields.a.type: unknown type "Strange"') },
      { collectionName: 'placed', error: expect.stringContaining('DATABASE_POSTGIS') },
      { collectionName: 'svc_mine', error: expect.stringContaining('reserved') },
      { collectionName: 'shapeless', error: expect.stringContaining('fields: must be an object') },
    ])
    const compiled = await api.admin(
      'POST',
      '/schemas/import',
      exported(named('fine'), named('strange', { a: { type: 'Strange' } })),
    )
    expect(compiled.body.error.details.errors).toEqual([
      { collectionName: 'strange', error: expect.stringContaining('fields.a.type: unknown type "Strange"') },
    ])
    expect((await api.admin('GET', '/schemas/fine')).status).toBe(404)
    expect(await api.log(before)).toEqual([])
  })

  it('undoes what it had done when the database refuses a part', async () => {
    await api.admin('POST', '/schemas', named('full'))
    await api.admin('POST', '/items/full', { name: 'no number' })
    const before = await api.position()
    const dump = exported(named('halfway'), named('full', { name: { type: 'Integer' } }))
    const answer = await api.admin('POST', '/schemas/import', dump)
    expect(answer.status).toBe(400)
    expect(answer.body.error.details.errors).toEqual([
      {
        collectionName: 'full',
        error: 'The schema cannot be applied: full.name: stored values cannot be converted to the new type',
      },
    ])
    expect(await api.sql(`select to_regclass('halfway') as t`)).toEqual([{ t: null }])
    expect(await api.log(before)).toEqual([])
  })

  it('takes over what an installation added to system collections, never the system itself', async () => {
    const { schema } = (await api.admin('GET', '/schemas/svc_Tenant')).body.data
    const { userRoles: _, ...fields } = schema.fields
    const foreign = { ...schema, timestamps: false, fields: { ...fields, plan: { type: 'String' } } }
    const answer = await api.admin(
      'POST',
      '/schemas/import',
      exported({ collectionName: 'svc_Tenant', schema: foreign }),
    )
    expect(answer.body.changes.updated).toEqual(['svc_Tenant'])
    const { schema: after } = (await api.admin('GET', '/schemas/svc_Tenant')).body.data
    expect(after).toEqual({ ...schema, fields: { ...schema.fields, plan: { type: 'String' } } })
  })

  it.each<[message: string, part: Part | undefined]>([
    ['No schema file uploaded', undefined],
    ['No schema file uploaded', { ...file('{}'), name: 'other' }],
    ['Invalid file type. Please upload a JSON file', { ...file('{}'), filename: 'schemas.csv', type: 'text/csv' }],
    ['Invalid JSON file', file('{"schemas": [')],
    ['The uploaded file is nested too deeply', file('['.repeat(100_000))],
    ['Invalid import data format', file('[]')],
    ['Invalid import data format', file({ schemas: {} })],
    ['Invalid import data format', file({ schemas: [{ collectionName: 'a' }] })],
    ['Invalid import data format', file({ schemas: [null] })],
    ['Invalid import data format', file({ schemas: [named('twice'), named('twice')] })],
  ])('answers 400 %s (%#)', async (message, part) => {
    for (const path of ['/schemas-import', '/schemas-preview-import'])
      expect(await upload(path, part)).toMatchObject({ status: 400, body: { error: { message } } })
  })

  it('answers 400 to bodies of other types, and takes the file as a field', async () => {
    expect((await api.admin('POST', '/schemas-import', exported())).body.error.message).toBe('No schema file uploaded')
    expect((await api.admin('POST', '/schemas/import', { version: '1.0' })).body.error.message).toBe(
      'Invalid import data format',
    )
    const field = { name: 'schema', content: JSON.stringify(exported(named('asField'))) }
    expect((await upload('/schemas-import', field)).body.changes.created).toEqual(['asField'])
  })

  it('stores names like __proto__ nowhere and pollutes nothing', async () => {
    const text = `{"schemas":[{"collectionName":"ok","schema":{"fields":{"__proto__":{"type":"String"},"a":{"type":"String"}}}}]}`
    expect((await upload('/schemas-import', file(text))).status).toBe(400)
    const hint = `{"schemas":[{"collectionName":"ok","schema":{"fields":{"a":{"type":"String","showAs":{"__proto__":{"polluted":true}}}}}}]}`
    expect((await upload('/schemas-import', file(hint))).status).toBe(200)
    const member = `{"schemas":[{"collectionName":"ok","schema":{"__proto__":{"polluted":true},"fields":{}}}]}`
    expect((await upload('/schemas-import', file(member))).status).toBe(400)
    expect(({} as any).polluted).toBeUndefined()
  })
})
