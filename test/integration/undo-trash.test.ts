import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { undoBed } from '../support/undo.ts'

/** Undo in collections with soft delete, where rows are in the trash (docs/undo.md). */

let api: Api
const collections = ['author', 'editor', 'house', 'tag', 'book', 'book_tag', 'page', 'note', 'poem'] as const
const { all, ok, make, undo, clear } = undoBed(() => api, collections)

const text = { type: 'String' }
const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
const to = (target: string, foreignKey: string, more = {}) => ({ relType: 'BelongsTo', target, foreignKey, ...more })
const many = (target: string, foreignKey: string) => ({ relType: 'HasMany', target, foreignKey })

beforeAll(async () => {
  api = await startApi()
  const named = { id: serial, name: text }
  const part = { allowNull: false, onDelete: 'CASCADE' }
  const schemas: [string, object, object?][] = [
    ['author', named],
    ['editor', named],
    ['house', named],
    ['tag', named],
    [
      'book',
      {
        ...named,
        rank: { type: 'Integer' },
        code: { ...text, unique: true },
        author: to('author', 'author_Id', { onDelete: 'CASCADE' }),
        editor: to('editor', 'editor_Id', { onDelete: 'SET NULL' }),
      },
      { paranoid: true },
    ],
    [
      'book_tag',
      { id: serial, book: to('book', 'book_Id', part), tag: to('tag', 'tag_Id', part) },
      { isJunction: true },
    ],
    ['page', { ...named, book: to('book', 'book_Id', part) }],
    ['note', { ...named, page: to('page', 'page_Id', part) }],
    [
      'poem',
      { ...named, house: to('house', 'house_Id', { allowNull: false, onDelete: 'RESTRICT' }) },
      { paranoid: true },
    ],
  ]
  for (const [collectionName, fields, more] of schemas)
    await ok(api.admin('POST', '/schemas', { collectionName, schema: { ...more, fields } }))
  const extend = (name: string, fields: object) => ok(api.admin('PATCH', `/schemas/${name}`, { schema: { fields } }))
  await extend('author', { books: many('book', 'author_Id') })
  await extend('house', { poems: many('poem', 'house_Id') })
  await extend('page', { notes: many('note', 'page_Id') })
  await extend('book', {
    pages: many('page', 'book_Id'),
    tags: { relType: 'BelongsToMany', target: 'tag', through: 'book_tag', foreignKey: 'book_Id', otherKey: 'tag_Id' },
  })
})

beforeEach(() => clear())

const gone = async (collection: string, id: number) => (await ok(api.admin('DELETE', `/items/${collection}/${id}`))).id
const preview = async (body: object) => (await ok(undo({ ...body, dryRun: true }))).data
const newest = async () => {
  const [{ position }] = await api.sql('select max(position)::text as position from "svc_AuditLog"')
  return { position }
}

/** Undoes what was done, then the undo, and then that: everything is as it was before, in between, and before. */
async function thereAndBack(before: object, undone: object): Promise<void> {
  const between = await all()
  expect(between).not.toEqual(before)
  expect((await preview(undone)).conflicts).toEqual([])
  const back = await ok(undo(undone))
  expect(await all()).toEqual(before)
  const forth = await ok(undo({ requestId: back.id }))
  expect(await all()).toEqual(between)
  await ok(undo({ requestId: forth.id }))
  expect(await all()).toEqual(before)
}

describe('GET /items/{collection}/deleted', () => {
  const trash = async () => (await ok(api.admin('GET', '/items/book/deleted'))).data

  it('lists rows that came back into the trash, were made there or got another key there', async () => {
    const author = await make('author', { name: 'w' })
    const book = await make('book', { name: 'b', author_Id: author })
    await gone('book', book)
    const requestId = await gone('author', author)
    await ok(undo({ requestId }))
    const [first, ...others] = await trash()
    expect([first, others]).toEqual([
      expect.objectContaining({ id: book, item: expect.objectContaining({ name: 'b', deletedAt: null }) }),
      [],
    ])
    await ok(api.admin('POST', `/items/book/${book}/restore`, { before: first.event }))
    expect((await ok(api.admin('GET', `/items/book/${book}?fields=name,author_Id`))).data).toEqual({
      name: 'b',
      author_Id: author,
    })
    expect(await trash()).toEqual([])
    const made = await make('book', { name: 'made', deletedAt: '2024-01-01T00:00:00Z' })
    await gone('book', book)
    await api.sql('update book set id = id + 1000000 where id = $1', [book])
    const ids = async () => (await trash()).map(({ id }: any) => id)
    expect((await ids()).sort((a: number, b: number) => a - b)).toEqual([book, made, book + 1_000_000])
    await ok(api.admin('PATCH', `/items/book/${made}`, { deletedAt: null }))
    expect(await ids()).not.toContain(made)
  })
})

describe('rows in the trash', () => {
  it('are a conflict where others have put them there since, and stay there where that is forced', async () => {
    const ids = [
      await make('book', { name: 'a' }),
      await make('book', { name: 'a' }),
      await make('book', { name: 'a' }),
    ]
    const changes = ids.map((id) => ({ id, name: 'b' }))
    const { id: requestId } = await ok(api.admin('PATCH', '/items/book/bulk', changes))
    await gone('book', ids[1])
    const conflicts = [{ collection: 'book', id: String(ids[1]), reasons: [{ reason: 'deleted' }] }]
    expect((await preview({ requestId })).conflicts).toEqual(conflicts)
    const refused = await undo({ requestId })
    expect([refused.status, refused.body.error.code]).toEqual([409, 'UNDO_CONFLICT'])
    expect(refused.body.error.details.conflicts).toEqual(conflicts)
    await ok(undo({ requestId, force: [{ collection: 'book', id: ids[1] }] }))
    const left = await api.sql('select name, "deletedAt" is null as live from book order by id')
    expect(left).toEqual([
      { name: 'a', live: true },
      { name: 'b', live: false },
      { name: 'a', live: true },
    ])
  })

  it('are linked again', async () => {
    const tag = await make('tag', { name: 't' })
    const author = await make('author', { name: 'w' })
    const book = await make('book', { name: 'b', author_Id: author, tags: [tag] })
    await gone('book', book)
    const before = await all()
    const requestId = await gone('tag', tag)
    await thereAndBack(before, { requestId })
    await thereAndBack(before, { requestId: await gone('author', author) })
  })

  it('refer again to what comes back, for callers who may change them there', async () => {
    const editor = await make('editor', { name: 'e' })
    const book = await make('book', { name: 'b', editor_Id: editor })
    await gone('book', book)
    const before = await all()
    const requestId = await gone('editor', editor)
    await thereAndBack(before, { requestId })
    const again = { requestId: await gone('editor', editor) }
    const create = { collection: 'editor', action: 'create', fields: ['*'] }
    const changing = (fields: string[]) => [create, { collection: 'book', action: 'update', fields }]
    const partly = await api.user(changing(['id', 'name', 'editor_Id', 'editor']))
    for (const dryRun of [true, false])
      expect(await undo({ ...again, dryRun }, partly.call)).toMatchObject({
        status: 403,
        body: { error: { message: `book: Item not found or you don't have permission to update it` } },
      })
    const none = await api.user([create])
    expect((await undo(again, none.call)).status).toBe(403)
    const reader = (collection: string) => ({ collection, action: 'read', fields: ['*'] })
    const whole = await api.user([...changing(['*']), reader('editor'), reader('book')])
    await ok(undo(again, whole.call))
    expect(await all()).toEqual(before)
  })

  it('are marked before the row that they go with is deleted', async () => {
    const before = await all()
    const { id: requestId } = await ok(api.admin('POST', '/items/book', { name: 'b', author: { name: 'w' } }))
    await thereAndBack(before, { requestId })
    const book = { name: 'b', pages: [{ name: 'p', notes: [{ name: 'n' }] }] }
    const { id: nested, data } = await ok(api.admin('POST', '/items/author', { name: 'w', books: [book] }))
    await thereAndBack(before, { requestId: nested })
    await api.sql(`insert into author (id, name) values (${data.id}, 'w')`)
    await make('book', { name: 'live', author_Id: data.id })
    const live = await all()
    await thereAndBack(live, { requestId: await gone('author', data.id) })
  })

  it('are a conflict where rows of others would go with them', async () => {
    const { id: requestId } = await ok(api.admin('POST', '/items/author', { name: 'w', books: [{ name: 'b' }] }))
    const [{ id: book }] = await api.sql('select id from book')
    await make('page', { name: 'p', book_Id: book })
    const reasons = [{ reason: 'referenced', by: [{ collection: 'page', rows: 1 }] }]
    const conflicts = [{ collection: 'book', id: String(book), reasons }]
    expect((await preview({ requestId })).conflicts).toEqual(conflicts)
    expect((await undo({ requestId })).body.error.details.conflicts).toEqual(conflicts)
    await ok(undo({ requestId, force: [{ collection: 'book', id: book }] }))
    expect(await all()).toMatchObject({ author: [], book: [], page: [] })
  })

  it('are made there again by administrators alone, which a preview tells as well', async () => {
    const author = await make('author', { name: 'w' })
    await gone('book', await make('book', { name: 'b', author_Id: author }))
    const before = await all()
    const requestId = await gone('author', author)
    const grant = (collection: string) => ({ collection, action: 'create', fields: ['*'] })
    const user = await api.user([grant('author'), grant('book')])
    for (const dryRun of [true, false])
      expect(await undo({ requestId, dryRun }, user.call)).toMatchObject({
        status: 403,
        body: { error: { message: `book: You don't have permission to create field: deletedAt` } },
      })
    await thereAndBack(before, { requestId })
  })

  it('keep a row that they must refer to', async () => {
    const { data, id: requestId } = await ok(api.admin('POST', '/items/house', { name: 'h', poems: [{ name: 'p' }] }))
    const reasons = [{ reason: 'referenced', by: [{ collection: 'poem', rows: 1 }] }]
    const conflicts = [{ collection: 'house', id: String(data.id), reasons }]
    expect((await preview({ requestId })).conflicts).toEqual(conflicts)
    const refused = await undo({ requestId })
    expect([refused.status, refused.body.error.code]).toEqual([409, 'UNDO_CONFLICT'])
    expect(refused.body.error.details.conflicts).toEqual(conflicts)
  })

  it('get back what was changed of them there, and their keys', async () => {
    const book = await make('book', { name: 'b' })
    await gone('book', book)
    const before = await all()
    await api.sql(`update book set name = 'c'`)
    await thereAndBack(before, await newest())
    await api.sql('update book set id = id + 1000000')
    await ok(undo(await newest()))
    // The row with the other key is only marked, and it was that already.
    expect(await all()).toMatchObject({ book: expect.arrayContaining(before.book) })
  })

  it('keep their unique values, which is a conflict of the row that had them', async () => {
    const book = await make('book', { name: 'b', code: 'X' })
    const reasons = [{ reason: 'taken', fields: ['code'], required: true }]
    const conflicts = [{ collection: 'book', id: String(book), reasons }]
    const force = [{ collection: 'book', id: book }]
    await api.sql('update book set id = id + 1000000')
    const renamed = await newest()
    expect((await preview(renamed)).conflicts).toEqual(conflicts)
    for (const more of [{}, { force }]) {
      const { status, body } = await undo({ ...renamed, ...more })
      expect([status, body.error.code, body.error.details.conflicts]).toEqual([409, 'UNDO_CONFLICT', conflicts])
    }
    await gone('book', book + 1_000_000)
    expect((await preview(renamed)).conflicts).toEqual(conflicts)
    await api.sql('update book set code = null')
    await ok(undo({ ...renamed, force: [{ collection: 'book', id: book + 1_000_000 }] }))
    expect(await api.sql('select code from book where id = $1', [book])).toEqual([{ code: 'X' }])
  })

  it('are as the undo would leave them where they were made there', async () => {
    const { id: requestId } = await ok(
      api.admin('POST', '/items/book', { name: 'b', deletedAt: '2024-01-01T00:00:00Z' }),
    )
    expect(await preview({ requestId })).toMatchObject({ rows: [], conflicts: [] })
    expect((await undo({ requestId })).body.error.code).toBe('NOTHING_TO_UNDO')
  })
})
