import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { createRole, createTenant, createUser, grant, type TenantUser } from '../support/tenants.ts'
import { upload } from '../support/upload.ts'

/** Whose the rows are that a caller without a tenant nests in others. */

let api: Api
let admin: string
let one: string
let two: string
let ann: TenantUser
let everywhere: TenantUser

/** author ← book → chapter → remark, book → cover, book ↔ label, book → book_part → words; `shared` belongs to all tenants */
beforeAll(async () => {
  api = await startApi({
    MULTI_TENANT: 'true',
    STRICT_TENANT_ISOLATION: 'false',
    TENANT_IGNORED_TABLES: 'shared,shared_label',
  })
  admin = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const name = { type: 'String' }
  const belongsTo = (target: string, foreignKey: string, more = {}) => ({
    relType: 'BelongsTo',
    target,
    foreignKey,
    ...more,
  })
  const hasMany = (target: string, foreignKey: string, more = {}) => ({
    relType: 'HasMany',
    target,
    foreignKey,
    ...more,
  })
  const toLabels = (through: string, foreignKey: string) => ({
    ...{ relType: 'BelongsToMany', target: 'label', through, foreignKey, otherKey: 'label_id' },
  })
  const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
  const schemas: [string, object, object?][] = [
    ['author', { name: { ...name, unique: true } }],
    ['label', { name }],
    ['words', { id: serial, name }],
    ['shared', { name }],
    ['book', { id: serial, name, author: belongsTo('author', 'author_id'), shared: belongsTo('shared', 'shared_id') }],
    ['chapter', { name, book: belongsTo('book', 'book_id'), shared: belongsTo('shared', 'shared_id') }],
    ['remark', { name, chapter: belongsTo('chapter', 'chapter_id') }],
    ['cover', { name, book_id: { type: 'Integer', unique: true }, book: belongsTo('book', 'book_id') }],
    [
      'book_label',
      { id: serial, book: belongsTo('book', 'book_id'), label: belongsTo('label', 'label_id') },
      { isJunction: true },
    ],
    [
      'shared_label',
      { id: serial, chapter: belongsTo('chapter', 'chapter_id'), label: belongsTo('label', 'label_id') },
      { isJunction: true },
    ],
    [
      'book_part',
      {
        id: serial,
        book: belongsTo('book', 'book_id'),
        item_id: { type: 'Integer', allowNull: false },
        collection: name,
        words: { ...belongsTo('words', 'item_id'), constraints: false, scope: { collection: 'words' } },
      },
      { isJunction: true },
    ],
  ]
  for (const [collectionName, fields, more] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { ...more, fields } })).text).toMatch(
      /success/,
    )
  const backwards: [string, object][] = [
    [
      'book',
      {
        chapters: hasMany('chapter', 'book_id'),
        cover: { relType: 'HasOne', target: 'cover', foreignKey: 'book_id' },
        labels: toLabels('book_label', 'book_id'),
        parts: hasMany('book_part', 'book_id', { polymorphic: true, tables: ['words'] }),
      },
    ],
    [
      'chapter',
      {
        remarks: hasMany('remark', 'chapter_id'),
        labels: toLabels('shared_label', 'chapter_id'),
        links: hasMany('shared_label', 'chapter_id'),
      },
    ],
    ['shared', { chapters: hasMany('chapter', 'shared_id') }],
  ]
  for (const [collection, relations] of backwards) {
    const { schema } = (await api.admin('GET', `/schemas/${collection}`)).body.data
    const fields = { ...schema.fields, ...relations }
    expect((await api.admin('PATCH', `/schemas/${collection}`, { schema: { ...schema, fields } })).text).toMatch(
      /success/,
    )
  }
  ;[one, two] = [await createTenant(api, 'one'), await createTenant(api, 'two')]
  const granted = ['author', 'book', 'chapter', 'label'].flatMap((collection) =>
    ['create', 'read', 'update'].map((action) => ({
      collection,
      action,
      fields: ['*', 'chapters.*', 'book.author.*', '-tenant_Id'],
    })),
  )
  const [role, free] = [await createRole(api), await createRole(api, { isTenantSpecific: false })]
  for (const id of [role, free]) await grant(api, id, ...granted)
  ann = await createUser(api, role, one)
  everywhere = await createUser(api, free, null)
})

const calledIn = (tenant: unknown) => (tenant === one ? 'one' : tenant === two ? 'two' : tenant)

/** What was created since, as the log has it, whose rows say the same: `collection name tenant`, in order. */
async function created(position: bigint): Promise<string[]> {
  const events = (await api.log(position)).filter(({ action, type }) => type === 'data' && action === 'create')
  for (const { entity, entityId, changes } of events) {
    const [row] = await api.sql(`select "tenant_Id" as t from "${entity}" where id::text = $1`, [entityId])
    expect([entity, row.t]).toEqual([entity, changes.after.tenant_Id])
  }
  return events.map(
    ({ entity, changes }) => `${entity} ${changes.after.name ?? '-'} ${calledIn(changes.after.tenant_Id)}`,
  )
}

async function make(collection: string, payload: unknown, call = api.admin): Promise<any> {
  const { status, body, text } = await call('POST', `/items/${collection}`, payload)
  expect(status, text).toBe(201)
  return body.data
}

async function change(collection: string, id: unknown, payload: object, call = api.admin): Promise<void> {
  const { status, text } = await call('PATCH', `/items/${collection}/${id}`, payload)
  expect(status, text).toBe(200)
}

const whole = (more: object = {}) => ({
  name: 'b',
  author: { name: crypto.randomUUID().slice(0, 8) },
  cover: { name: 'co' },
  chapters: [{ name: 'c', remarks: [{ name: 'r' }] }, { name: 'd' }],
  labels: [{ name: 'l' }],
  parts: [{ collection: 'words', item: { name: 'w' } }],
  ...more,
})

const all = (author: string, tenant: string) => [
  `author ${author} ${tenant}`,
  `book b ${tenant}`,
  `cover co ${tenant}`,
  `chapter c ${tenant}`,
  `remark r ${tenant}`,
  `chapter d ${tenant}`,
  `label l ${tenant}`,
  `book_label - ${tenant}`,
  `words w ${tenant}`,
  `book_part - ${tenant}`,
]

describe('rows that an administrator nests in a new row', () => {
  it('take its tenant, at every depth and in every kind of relation', async () => {
    const position = await api.position()
    const row = whole({ tenant_Id: one })
    await make('book', row)
    expect(await created(position)).toEqual(all(row.author.name, 'one'))
    const seen = await ann.call('GET', '/items/chapter?fields=name,book.author.name&sort=name')
    expect(seen.body.data).toMatchObject([
      { name: 'c', book: { author: { name: row.author.name } } },
      { name: 'd', book: { author: { name: row.author.name } } },
    ])
  })

  it('take no tenant where it has none', async () => {
    const position = await api.position()
    const row = whole()
    await make('book', row)
    expect(await created(position)).toEqual(all(row.author.name, 'null'))
  })

  it('take the tenant that is named by its relation, also one that is made with them', async () => {
    const position = await api.position()
    await make('book', { name: 'b', chapters: [{ name: 'c' }], tenant: one })
    await make('book', { name: 'b', author: { name: 'beside' }, chapters: [{ name: 'c' }], tenant: { name: 'three' } })
    const [{ id: three }] = await api.sql(`select id from "svc_Tenant" where name = 'three'`)
    const events = (await api.log(position)).filter(({ entity }) => entity !== 'svc_Tenant')
    expect(events.map(({ entity, changes }) => [entity, changes.after.tenant_Id])).toEqual([
      ['book', one],
      ['chapter', one],
      ['author', three],
      ['book', three],
      ['chapter', three],
    ])
  })

  it('keep the tenant that they name, and none where they say so, for what is nested in them, too', async () => {
    const position = await api.position()
    await make('book', {
      name: 'b',
      tenant_Id: one,
      author: { name: 'of two', tenant_Id: two },
      chapters: [
        { name: 'c', tenant_Id: two, remarks: [{ name: 'r' }] },
        { name: 'd', tenant_Id: null, remarks: [{ name: 's' }, { name: 't', tenant_Id: one }] },
        { name: 'e' },
      ],
    })
    expect(await created(position)).toEqual([
      'author of two two',
      'book b one',
      'chapter c two',
      'remark r two',
      'chapter d null',
      'remark s null',
      'remark t one',
      'chapter e one',
    ])
  })

  it('take each the tenant of their own parent in a list', async () => {
    const position = await api.position()
    const rows = [one, two, undefined].map((tenant_Id, at) => ({ name: `${at}`, tenant_Id, chapters: [{ name: 'c' }] }))
    expect((await api.admin('POST', '/items/book/bulk', rows)).status).toBe(201)
    expect(await created(position)).toEqual([
      ...['book 0 one', 'chapter c one', 'book 1 two', 'chapter c two', 'book 2 null', 'chapter c null'],
    ])
  })

  it('take the tenant that an import names', async () => {
    const position = await api.position()
    const content = JSON.stringify([{ name: 'b', author: { name: 'imported' }, chapters: [{ name: 'c' }] }])
    const answer = await upload(api, admin, `/items/book/import-json?tenant=${two}`, [
      { name: 'jsonFile', filename: 'books.json', content },
    ])
    expect(answer.status, answer.text).toBe(200)
    expect(await created(position)).toEqual(['author imported two', 'book b two', 'chapter c two'])
  })
})

describe('rows that an administrator nests in a row that is there', () => {
  it('take the stored tenant', async () => {
    const { id } = await make('book', { name: 'b', tenant_Id: two })
    const position = await api.position()
    const { name, ...row } = whole()
    await change('book', id, row)
    expect(await created(position)).toEqual(all(row.author.name, 'two').filter((line) => !line.startsWith('book b')))
    const other = await api.position()
    const rows = [{ id, chapters: [{ name: 'x' }] }]
    expect((await api.admin('PATCH', '/items/book/bulk', rows)).status).toBe(200)
    expect(await created(other)).toEqual(['chapter x two'])
  })

  it('take the tenant that the change gives it', async () => {
    const { id } = await make('book', { name: 'b', tenant_Id: two })
    const position = await api.position()
    await change('book', id, { tenant_Id: one, author: { name: 'moved' }, chapters: [{ name: 'c' }] })
    await change('book', id, { tenant_Id: null, chapters: [{ name: 'd' }] })
    expect(await created(position)).toEqual(['author moved one', 'chapter c one', 'chapter d null'])
  })

  it('take the tenant of the row that they are in, and those that were there keep theirs', async () => {
    const { id } = await make('book', { name: 'b', tenant_Id: one })
    const chapter = await make('chapter', { name: 'c', tenant_Id: two })
    const connected = await make('chapter', { name: 'd' })
    const label = await make('label', { name: 'l', tenant_Id: two })
    const position = await api.position()
    await change('book', id, {
      chapters: [{ id: chapter.id, name: 'c2', remarks: [{ name: 'r' }] }, connected.id],
      labels: [label.id],
      author: { name: 'new' },
    })
    expect(await created(position)).toEqual(['author new one', 'remark r two', 'book_label - one'])
    const events = (await api.log(position)).filter(({ action, entity }) => action === 'update' && entity !== 'book')
    expect(events.map(({ changes: { after } }) => [after.name, after.tenant_Id])).toEqual([
      ['d', null],
      ['c2', two],
    ])
    expect(await api.sql('select name, "tenant_Id" as t from chapter where book_id = $1 order by 1', [id])).toEqual([
      { name: 'c2', t: two },
      { name: 'd', t: null },
    ])
    expect(await api.sql('select "tenant_Id" as t from label where id = $1', [label.id])).toEqual([{ t: two }])
  })

  it('are refused with it, and nothing is written', async () => {
    const position = await api.position()
    const answer = await api.admin('PATCH', '/items/book/999999', { author: { name: 'x' }, chapters: [{ name: 'c' }] })
    expect(answer.status).toBe(403)
    expect(await api.log(position)).toEqual([])
  })
})

describe('collections that belong to all tenants', () => {
  it('take no tenant, and give what their rows name', async () => {
    const position = await api.position()
    await make('book', { name: 'b', tenant_Id: one, shared: { name: 's', chapters: [{ name: 'c' }] } })
    await make('shared', { name: 't', tenant_Id: two, chapters: [{ name: 'd' }] })
    expect(await created(position)).toEqual([
      ...['shared s null', 'chapter c null', 'book b one', 'shared t two', 'chapter d two'],
    ])
  })

  it('pass the tenant on where they only link', async () => {
    const { id } = await make('chapter', { name: 'c', tenant_Id: two })
    const position = await api.position()
    await change('chapter', id, { labels: [{ name: 'l' }] })
    await make('chapter', { name: 'd', tenant_Id: one, links: [{ label: { name: 'm' } }] })
    expect(await created(position)).toEqual([
      ...['label l two', 'shared_label - null', 'chapter d one', 'label m one', 'shared_label - null'],
    ])
  })
})

describe('other callers', () => {
  it('without a tenant nest as administrators do, though they may not name one', async () => {
    const { id } = await make('book', { name: 'b', tenant_Id: two })
    const position = await api.position()
    await change('book', id, { chapters: [{ name: 'c' }] }, everywhere.call)
    expect(await created(position)).toEqual(['chapter c two'])
  })

  it('with a tenant write for that one', async () => {
    const position = await api.position()
    await make('book', { name: 'b', chapters: [{ name: 'c' }] }, ann.call)
    expect(await created(position)).toEqual(['book b one', 'chapter c one'])
  })
})
