import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

/** Hooks of requests with several rows: each row's hooks see the rows before it as they are written. */

let api: Api
let admin: string

const text = { type: 'String' }
const integer = { type: 'Integer' }
const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
const belongsTo = (target: string, foreignKey: string) => ({ relType: 'BelongsTo', target, foreignKey })

beforeAll(async () => {
  api = await startApi()
  admin = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const schemas: [string, object, object?][] = [
    ['seat', { id: serial, name: text, n: integer, parent: belongsTo('seat', 'parent_id') }],
    ['article', { id: serial, title: text, slug: { ...text, unique: true } }],
    ['ledger', { id: serial, total: integer }],
    ['quiet', { id: serial, n: integer }],
    ['tag', { id: serial, name: text }],
    ['seat_tag', { id: serial, seat: belongsTo('seat', 'seat_id'), tag: belongsTo('tag', 'tag_id') }],
  ]
  for (const [collectionName, fields, more] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { ...more, fields } })).text).toMatch(
      /success/,
    )
  const { schema } = (await api.admin('GET', '/schemas/seat')).body.data
  const tags = {
    relType: 'BelongsToMany',
    target: 'tag',
    through: 'seat_tag',
    foreignKey: 'seat_id',
    otherKey: 'tag_id',
  }
  const extended = { ...schema, fields: { ...schema.fields, tags } }
  expect((await api.admin('PATCH', '/schemas/seat', { schema: extended })).text).toMatch(/success/)
  registerHooks()
})

type Told = { readonly event: string; readonly id: unknown; readonly was?: unknown; readonly is: unknown }
const told: Told[] = []

function registerHooks(): void {
  const hook = (collection: string, event: string, run: (context: any) => unknown) =>
    api.runtime.hooks.register('svc-hook-rows', collection, event, run)
  const count = async (db: any, table: string) =>
    (await db.query(`select count(*)::int as n from "${table}"`))[0].n as number
  hook('seat', 'items.create', async ({ db }) => {
    if ((await count(db, 'seat')) >= 2) throw new Error('Only two seats')
  })
  hook('seat', 'items.update', async ({ data, previousDocument, db }) => {
    if (data.n !== undefined) await db.query('update "ledger" set total = total + $1', [data.n - previousDocument.n])
  })
  hook('seat_tag', 'items.create', async ({ db }) => {
    if ((await count(db, 'seat_tag')) >= 2) throw new Error('Only two tags')
  })
  hook('article', 'items.create', async ({ data, db }) => {
    const taken = await count(db, 'article')
    return { data: { ...data, slug: `${data.title}-${taken + 1}` } }
  })
  for (const collection of ['seat', 'quiet'])
    for (const event of ['create', 'update', 'delete'])
      hook(collection, `items.${event}.after`, ({ id, document, previousDocument }) => {
        told.push({
          event: `${collection} ${event}`,
          id,
          is: document?.n,
          ...(event === 'update' && { was: previousDocument.n }),
        })
      })
}

beforeEach(async () => {
  await api.sql('truncate "seat", "article", "ledger", "quiet", "tag", "seat_tag" restart identity')
  told.length = 0
})

const rows = (table: string) => api.sql(`select * from "${table}" order by id`)
const csv = (collection: string, content: string) =>
  upload(api, admin, `/items/${collection}/import-csv`, [{ name: 'csvFile', filename: 'rows.csv', content }])

describe('hooks of several rows', () => {
  it('see the rows that the same request has created before', async () => {
    const position = await api.position()
    const refused = await api.admin('POST', '/items/seat/bulk', [{ name: 'a' }, { name: 'b' }, { name: 'c' }])
    expect(refused).toMatchObject({ status: 400, body: { error: { message: 'Only two seats' } } })
    expect([await rows('seat'), await api.log(position), told]).toEqual([[], [], []])
    const made = await api.admin('POST', '/items/seat/bulk', [
      { name: 'a', n: 1 },
      { name: 'b', n: 2 },
    ])
    expect(made.status).toBe(201)
    const ids: number[] = (await rows('seat')).map(({ id }) => id)
    expect((await rows('seat')).map(({ name }) => name)).toEqual(['a', 'b'])
    expect((await api.log(position)).map(({ entity, action, entityId }) => [entity, action, entityId])).toEqual(
      ids.map((id) => ['seat', 'create', String(id)]),
    )
    expect(told).toEqual([
      { event: 'seat create', id: ids[0], is: 1 },
      { event: 'seat create', id: ids[1], is: 2 },
    ])
  })

  it('choose values that are free', async () => {
    const bulk = await api.admin('POST', '/items/article/bulk', [{ title: 'x' }, { title: 'x' }])
    expect(bulk.status).toBe(201)
    expect((await rows('article')).map(({ slug }) => slug)).toEqual(['x-1', 'x-2'])
  })

  it('name the place of a row that is refused', async () => {
    const position = await api.position()
    const answer = await api.admin('POST', '/items/seat/bulk', [{ name: 'a' }, { n: 'no number' }])
    expect(answer).toMatchObject({ status: 400, body: { error: { details: { errors: [{ field: '1.n' }] } } } })
    expect(await api.log(position)).toEqual([])
  })

  it('see the rows of an upsert and of an import', async () => {
    const put = await api.admin('PUT', '/items/seat?key=id', [{ id: 1 }, { id: 2 }, { id: 3 }])
    expect(put).toMatchObject({ status: 400, body: { error: { message: 'Only two seats' } } })
    const refused = await csv('seat', 'name\na\nb\nc\n')
    expect(refused.status).toBe(400)
    expect(refused.text).toContain('Only two seats')
    expect(await rows('seat')).toEqual([])
    expect((await csv('article', 'title\nx\nx\n')).status).toBe(200)
    expect((await rows('article')).map(({ slug }) => slug)).toEqual(['x-1', 'x-2'])
  })

  it('see the links that the same relation has got before', async () => {
    for (const name of ['a', 'b', 'c']) await api.admin('POST', '/items/tag', { name })
    const seat = { name: 'linked', tags: [1, 2, 3] }
    expect(await api.admin('POST', '/items/seat', seat)).toMatchObject({
      status: 400,
      body: { error: { message: 'Only two tags' } },
    })
    expect((await api.admin('POST', '/items/seat', { ...seat, tags: [3, 1] })).status).toBe(201)
    expect((await rows('seat_tag')).map(({ tag_id }) => tag_id)).toEqual([3, 1])
  })
})

describe('a row that occurs twice in a request', () => {
  it('is shown to hooks as it was before each of its changes, and after it', async () => {
    await api.sql('insert into "ledger" (total) values (1)')
    await api.admin('POST', '/items/seat', { n: 1 })
    told.length = 0
    const position = await api.position()
    const answer = await api.admin('PATCH', '/items/seat/bulk', [
      { id: 1, n: 2 },
      { id: 1, n: 3 },
    ])
    expect(answer.status).toBe(200)
    expect((await rows('ledger'))[0].total).toBe(3)
    expect(told).toEqual([
      { event: 'seat update', id: 1, was: 1, is: 2 },
      { event: 'seat update', id: 1, was: 2, is: 3 },
    ])
    expect((await api.log(position)).filter(({ entity }) => entity === 'seat')).toHaveLength(2)
  })

  it('is so too where no hook runs before the change', async () => {
    await api.admin('POST', '/items/quiet', { n: 1 })
    await api.admin('PATCH', '/items/quiet/bulk', [
      { id: 1, n: 2 },
      { id: 1, n: 3 },
    ])
    await api.admin('PUT', '/items/quiet?key=id', [
      { id: 2, n: 4 },
      { id: 2, n: 5 },
    ])
    expect(told).toEqual([
      { event: 'quiet create', id: 1, is: 1 },
      { event: 'quiet update', id: 1, was: 1, is: 2 },
      { event: 'quiet update', id: 1, was: 2, is: 3 },
      { event: 'quiet create', id: 2, is: 4 },
      { event: 'quiet update', id: 2, was: 4, is: 5 },
    ])
  })
})
