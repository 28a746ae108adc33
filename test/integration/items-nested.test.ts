import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'

let api: Api

/** author ← book → cover, book ↔ label (direct), book → book_tag → tag (junction), book → book_part → text | image */
beforeAll(async () => {
  api = await startApi()
  const name = { type: 'String', allowNull: false }
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
  const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
  const required = { allowNull: false, onDelete: 'CASCADE' }
  const schemas: [string, object, object?][] = [
    ['author', { name, rank: { type: 'Integer', validate: { max: 10 } } }],
    ['tag', { id: serial, name }],
    ['label', { name }],
    ['node', { parent: belongsTo('node', 'parent_id') }],
    ['words', { id: serial, text: name }],
    ['image', { id: serial, url: name }],
    ['book', { name, year: { type: 'Integer' }, author: belongsTo('author', 'author_id') }, { usertrack: true }],
    ['chapter', { name, book: belongsTo('book', 'book_id', required), note: { type: 'String' } }],
    ['cover', { name, book_id: { type: 'UUID', unique: true }, book: belongsTo('book', 'book_id') }],
    [
      'book_tag',
      {
        id: serial,
        book: belongsTo('book', 'book_id', required),
        tag: belongsTo('tag', 'tag_id', required),
        weight: { type: 'Integer' },
      },
      { isJunction: true, indexes: [{ name: 'book_tag_pair', fields: ['book_id', 'tag_id'], unique: true }] },
    ],
    [
      'book_label',
      { id: serial, book: belongsTo('book', 'book_id', required), label: belongsTo('label', 'label_id', required) },
      { isJunction: true },
    ],
    [
      'book_part',
      {
        id: serial,
        book: belongsTo('book', 'book_id', required),
        item_id: { type: 'Integer', allowNull: false },
        collection: name,
        place: { type: 'Integer' },
        words: { ...belongsTo('words', 'item_id'), constraints: false, scope: { collection: 'words' } },
        image: { ...belongsTo('image', 'item_id'), constraints: false, scope: { collection: 'image' } },
      },
      {
        isJunction: true,
        indexes: [{ name: 'book_part_item', fields: ['book_id', 'item_id', 'collection'], unique: true }],
      },
    ],
  ]
  for (const [collectionName, fields, more] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { ...more, fields } })).text).toMatch(
      /success/,
    )
  const backwards: [string, object][] = [
    ['author', { books: hasMany('book', 'author_id') }],
    [
      'book',
      {
        chapters: hasMany('chapter', 'book_id'),
        cover: { relType: 'HasOne', target: 'cover', foreignKey: 'book_id' },
        tags: hasMany('book_tag', 'book_id'),
        labels: {
          relType: 'BelongsToMany',
          target: 'label',
          through: 'book_label',
          foreignKey: 'book_id',
          otherKey: 'label_id',
        },
        parts: hasMany('book_part', 'book_id', { polymorphic: true, tables: ['words', 'image'] }),
      },
    ],
  ]
  for (const [collection, relations] of backwards) {
    const { data } = (await api.admin('GET', `/schemas/${collection}`)).body
    const schema = { ...data.schema, fields: { ...data.schema.fields, ...relations } }
    expect((await api.admin('PATCH', `/schemas/${collection}`, { schema })).text).toMatch(/success/)
  }
})

const create = async (collection: string, payload: object, call: Call = api.admin) => {
  const { status, body, text } = await call('POST', `/items/${collection}`, payload)
  expect(status, text).toBe(201)
  return body.data.id
}
const read = async (collection: string, id: unknown, fields: string) =>
  (await api.admin('GET', `/items/${collection}/${id}?fields=${fields}`)).body.data
const relational = (field: string) => ({
  status: 400,
  body: {
    error: { message: 'Validation failed for relational data', details: [{ field, message: expect.any(String) }] },
  },
})
const story = async (position: bigint) => (await api.log(position)).map(({ action, entity }) => `${action} ${entity}`)
/** The call refused, and neither a row nor an event of it. */
async function refused(attempt: () => Promise<Answer>, expected: object) {
  const before = await api.position()
  expect(await attempt()).toMatchObject(expected)
  expect(await api.log(before)).toEqual([])
}

describe('a to-one relation', () => {
  it('takes an id, an object to create, an object to change, and null', async () => {
    const before = await api.position()
    const id = await create('book', { name: 'b', author: { name: 'new' } })
    expect(await story(before)).toEqual(['create author', 'create book'])
    const { author } = await read('book', id, 'author.*')
    expect(author.name).toBe('new')
    const other = await create('author', { name: 'other' })
    const set = async (value: unknown) => {
      expect((await api.admin('PATCH', `/items/book/${id}`, { author: value })).status).toBe(200)
      return (await read('book', id, 'author.name')).author?.name
    }
    expect(await set(other)).toBe('other')
    expect(await set({ id: author.id })).toBe('new')
    expect(await set({ id: other, name: 'renamed', rank: 3 })).toBe('renamed')
    expect(await set(null)).toBeUndefined()
    const [row] = await api.sql(`select rank from author where id = $1`, [other])
    expect(row.rank).toBe(3)
  })

  it('means the same by the name of its foreign key', async () => {
    const id = await create('book', { name: 'b', author_id: { name: 'by key' } })
    expect((await read('book', id, 'author.name')).author.name).toBe('by key')
  })

  it('answers 400 with the path of a reference that leads nowhere, and writes nothing', async () => {
    const nobody = randomUUID()
    for (const author of [nobody, { id: nobody }])
      await refused(() => api.admin('POST', '/items/book', { name: 'b', author }), relational('author'))
    await refused(
      () =>
        api.admin('POST', '/items/author', {
          name: 'a',
          books: [
            { name: 'b', cover: { name: 'c' }, author: 1 },
            { name: 'x', chapters: ['no id'] },
          ],
        }),
      relational('books.1.chapters.0'),
    )
    for (const author of [[nobody], [], true])
      expect((await api.admin('POST', '/items/book', { name: 'b', author })).status).toBe(400)
    await refused(() => api.admin('PATCH', `/items/book/${nobody}`, { author: { name: 'x' } }), { status: 403 })
    await refused(
      () => api.admin('POST', '/items/book', { name: 'b', author: { id: nobody, name: 'x' } }),
      relational('author'),
    )
    await refused(
      () => api.admin('POST', '/items/author/bulk', [{ name: 'a', books: [{ id: nobody, name: 'x' }] }]),
      relational('0.books.0'),
    )
  })

  it('reports all that is wrong at any level by its path, and writes nothing', async () => {
    await refused(
      () => api.admin('POST', '/items/book', { author: { rank: 11 }, chapters: [{ name: 'c' }, { name: null }] }),
      {
        status: 400,
        body: {
          error: {
            details: {
              errors: expect.arrayContaining(
                ['name', 'author.rank', 'author.name', 'chapters.1.name'].map((field) =>
                  expect.objectContaining({ field }),
                ),
              ),
            },
          },
        },
      },
    )
  })
})

describe('a to-many relation', () => {
  const chapters = async (id: string) => (await read('book', id, 'chapters.*')).chapters

  it('is created with its parent, several levels deep, in one transaction', async () => {
    const before = await api.position()
    const id = await create('author', {
      name: 'a',
      books: [
        { name: 'one', chapters: [{ name: 'c1' }, { name: 'c2' }], cover: { name: 'front' } },
        { name: 'two', tags: [{ tag: { name: 't1' } }] },
      ],
    })
    const events = await api.log(before)
    expect(events).toHaveLength(8)
    const xids = await api.sql('select count(distinct xid)::int as n from "svc_AuditLog" where position > $1', [
      String(before),
    ])
    expect(xids).toEqual([{ n: 1 }])
    const { books } = await read('author', id, 'books.name,books.chapters.name,books.cover.name,books.tags.tag.name')
    const byName = Object.fromEntries(books.map((book: any) => [book.name, book]))
    expect(byName.one.chapters.map((c: any) => c.name).sort()).toEqual(['c1', 'c2'])
    expect(byName.one.cover.name).toBe('front')
    expect(byName.two.tags[0].tag.name).toBe('t1')
    const [book] = await api.sql(`select "userCreated_Id" from book where author_id = $1`, [id])
    expect(book.userCreated_Id).not.toBeNull()
  })

  it('replaces the set: what is missing is deleted where it cannot stand alone', async () => {
    const id = await create('book', { name: 'b', chapters: [{ name: 'a' }, { name: 'b' }, { name: 'c' }] })
    const [a, b, c] = (await chapters(id)).sort((x: any, y: any) => (x.name < y.name ? -1 : 1))
    const before = await api.position()
    const set = [a.id, { id: b.id, name: 'B' }, { name: 'd' }]
    expect((await api.admin('PATCH', `/items/book/${id}`, { chapters: set })).status).toBe(200)
    expect(await story(before)).toEqual(['delete chapter', 'update chapter', 'create chapter'])
    expect((await api.log(before))[0]?.entityId).toBe(c.id)
    expect((await chapters(id)).map((row: any) => row.name).sort()).toEqual(['B', 'a', 'd'])
    const after = await api.position()
    expect((await api.admin('PATCH', `/items/book/${id}`, { chapters: [] })).status).toBe(200)
    expect(await story(after)).toEqual(['delete chapter', 'delete chapter', 'delete chapter'])
  })

  it('replaces the set: what is missing is let go where it can stand alone, and others are taken over', async () => {
    const one = await create('author', { name: 'one', books: [{ name: 'x' }, { name: 'y' }] })
    const two = await create('author', { name: 'two', books: [{ name: 'z' }] })
    const ids = await api.sql(`select id, name from book where author_id in ($1, $2) order by name`, [one, two])
    const [x, y, z] = ids.map((row) => row.id)
    const before = await api.position()
    expect((await api.admin('PATCH', `/items/author/${one}`, { books: [x, z] })).status).toBe(200)
    expect(await story(before)).toEqual(['update book', 'update book'])
    const rows = await api.sql(`select id, author_id from book where id in ($1, $2, $3) order by name`, [x, y, z])
    expect(rows.map((row) => row.author_id)).toEqual([one, null, one])
    const after = await api.position()
    expect((await api.admin('PATCH', `/items/author/${one}`, { books: [{ id: z }, x] })).status).toBe(200)
    expect(await api.log(after)).toEqual([])
    await refused(() => api.admin('PATCH', `/items/author/${one}`, { books: [x, randomUUID()] }), relational('books.1'))
  })

  it('to one row is replaced likewise', async () => {
    const id = await create('book', { name: 'b', cover: { name: 'first' } })
    const { cover: first } = await read('book', id, 'cover.*')
    expect((await api.admin('PATCH', `/items/book/${id}`, { cover: { name: 'second' } })).status).toBe(200)
    expect((await read('book', id, 'cover.name')).cover.name).toBe('second')
    expect((await api.sql('select book_id from cover where id = $1', [first.id]))[0].book_id).toBeNull()
    expect((await api.admin('PATCH', `/items/book/${id}`, { cover: first.id })).status).toBe(200)
    expect((await read('book', id, 'cover.name')).cover.name).toBe('first')
    expect((await api.admin('PATCH', `/items/book/${id}`, { cover: null })).status).toBe(200)
    expect((await read('book', id, 'cover.name')).cover).toBeNull()
  })

  it('through a collection between links exactly the given items', async () => {
    const kept = await create('label', { name: 'kept' })
    const gone = await create('label', { name: 'gone' })
    const id = await create('book', { name: 'b', labels: [kept, { id: gone }] })
    const before = await api.position()
    const labels = [{ id: kept, name: 'Kept' }, { name: 'new' }]
    expect((await api.admin('PATCH', `/items/book/${id}`, { labels })).status).toBe(200)
    expect(await story(before)).toEqual([
      'update label',
      'create label',
      'delete book_label',
      'update book',
      'create book_label',
    ])
    const names = (await read('book', id, 'labels.name')).labels.map((label: any) => label.name)
    expect(names.sort()).toEqual(['Kept', 'new'])
    await refused(
      () => api.admin('PATCH', `/items/book/${id}`, { labels: [kept, randomUUID()] }),
      relational('labels.1'),
    )
  })

  it('through a junction takes its rows in every form, and keeps rows that link the same', async () => {
    const t1 = await create('tag', { name: 't1' })
    const t2 = await create('tag', { name: 't2' })
    const id = await create('book', {
      name: 'b',
      tags: [{ tag_id: t1, weight: 1 }, { tag_id: { id: t2 } }, { tag: { name: 't3' } }],
    })
    const { tags } = await read('book', id, 'tags.*')
    expect(tags).toHaveLength(3)
    const before = await api.position()
    const again = [{ tag_id: t1, weight: 2 }, { tag: { id: t2 } }]
    expect((await api.admin('PATCH', `/items/book/${id}`, { tags: again })).status).toBe(200)
    expect(await story(before)).toEqual(['delete book_tag', 'update book', 'update book_tag'])
    const rows = await api.sql('select id, tag_id, weight from book_tag where book_id = $1 order by id', [id])
    expect(rows).toEqual([
      { id: tags[0].id, tag_id: t1, weight: 2 },
      { id: tags[1].id, tag_id: t2, weight: null },
    ])
    const quiet = await api.position()
    expect((await api.admin('PATCH', `/items/book/${id}`, { tags: [tags[0].id, { id: tags[1].id }] })).status).toBe(200)
    expect(await api.log(quiet)).toEqual([])
    await refused(() => api.admin('PATCH', `/items/book/${id}`, { tags: [{ tag: 999999 }] }), relational('tags.0.tag'))
    for (const bad of [{ tag_id: 999999 }, { tag: 999999 }, { tag_id: { id: 999999 } }, { tag_id: 999999, weight: 1 }])
      await refused(
        () => api.admin('POST', '/items/book', { name: 'b', tags: [{ tag_id: t1 }, bad] }),
        relational('tags.1.tag'),
      )
    const books = [
      { name: 'x', tags: [] },
      { name: 'y', tags: [{ tag_id: 999999 }] },
    ]
    await refused(() => api.admin('POST', '/items/book/bulk', books), relational('1.tags.0.tag'))
  })

  it('to any collection takes its rows in every form', async () => {
    const words = await create('words', { text: 'w' })
    const image = await create('image', { url: 'u' })
    const id = await create('book', {
      name: 'b',
      parts: [
        { collection: 'words', item_id: words, place: 1 },
        { type: 'image', item: image, place: 2 },
        { collection: 'image', item: { url: 'new' }, place: 3 },
      ],
    })
    const parts = async () =>
      api.sql('select id, item_id, collection, place from book_part where book_id = $1 order by place', [id])
    const [first, second, third] = await parts()
    expect([first, second]).toMatchObject([
      { item_id: words, collection: 'words' },
      { item_id: image, collection: 'image' },
    ])
    expect((await api.sql('select url from image where id = $1', [third.item_id]))[0].url).toBe('new')
    const before = await api.position()
    const set = [{ collection: 'image', id: image, place: 5 }, third.id]
    expect((await api.admin('PATCH', `/items/book/${id}`, { parts: set })).status).toBe(200)
    expect(await story(before)).toEqual(['delete book_part', 'update book', 'update book_part'])
    expect((await parts()).map((part) => [part.id, part.place])).toEqual([
      [third.id, 3],
      [second.id, 5],
    ])
    await refused(
      () => api.admin('PATCH', `/items/book/${id}`, { parts: [{ collection: 'words', item_id: 99999 }] }),
      relational('parts.0.words'),
    )
    const mixed = [
      { collection: 'image', item_id: image },
      { collection: 'image', item_id: 99999 },
    ]
    await refused(() => api.admin('POST', '/items/book', { name: 'b', parts: mixed }), relational('parts.1.image'))
    await refused(
      () => api.admin('POST', '/items/book', { name: 'b', parts: mixed.toReversed() }),
      relational('parts.0.image'),
    )
    await refused(
      () => api.admin('PATCH', `/items/book/${id}`, { parts: [{ collection: 'author', item_id: 1 }] }),
      relational('parts.0'),
    )
    const gone = await api.position()
    expect((await api.admin('DELETE', `/items/image/${image}`)).status).toBe(200)
    expect((await story(gone)).sort()).toEqual(['delete book_part', 'delete image', 'update book'])
    expect(await parts()).toHaveLength(1)
  })

  it('is written by bulk create and update too, all or nothing', async () => {
    const { body } = await api.admin('POST', '/items/book/bulk', [
      { name: 'p1' },
      { name: 'n1', chapters: [{ name: 'c' }] },
      { name: 'n2', author: { name: 'a' } },
      { name: 'p2' },
    ])
    const names = await api.sql('select id, name from book where id = any($1)', [body.data])
    expect(body.data.map((id: string) => names.find((row) => row.id === id)?.name)).toEqual(['p1', 'n1', 'n2', 'p2'])
    const [plain, nested] = body.data
    await refused(
      () =>
        api.admin('PATCH', '/items/book/bulk', [
          { id: plain, chapters: [{ name: 'x' }] },
          { id: nested, data: { author: { id: randomUUID() } } },
        ]),
      relational('1.author'),
    )
    expect(
      (
        await api.admin('PATCH', '/items/book/bulk', [
          { id: plain, chapters: [{ name: 'x' }] },
          { id: nested, chapters: [] },
        ])
      ).status,
    ).toBe(200)
    expect((await chapters(plain)).length).toBe(1)
    expect((await chapters(nested)).length).toBe(0)
  })

  it('has limits', async () => {
    const chain = (levels: number): object => (levels === 0 ? {} : { parent: chain(levels - 1) })
    await create('node', chain(7))
    await refused(() => api.admin('POST', '/items/node', chain(8)), { status: 400 })
    const many = { name: 'b', chapters: Array.from({ length: 1001 }, () => ({ name: 'c' })) }
    await refused(() => api.admin('POST', '/items/book', many), { status: 400 })
    expect((await api.admin('POST', '/items/book', { ...many, chapters: many.chapters.slice(0, 1000) })).status).toBe(
      201,
    )
  })

  it('keeps prototypes clean', async () => {
    const raw = '{"name":"b","chapters":[{"name":"c"},{"constructor":{"prototype":{"polluted":1}},"name":"d"}]}'
    const send = (payload: string) =>
      api.admin('POST', '/items/book', Buffer.from(payload), { 'content-type': 'application/json' })
    expect((await send(raw)).status).toBe(201)
    expect((await send(raw.replace('"constructor"', '"__proto__"'))).status).toBe(400)
    expect(({} as any).polluted).toBeUndefined()
  })

  it('is replaced by one writer after the other', async () => {
    const id = await create('book', { name: 'b' })
    const sets = Array.from({ length: 8 }, (_, i) => [{ name: `${i}a` }, { name: `${i}b` }])
    const answers = await Promise.all(sets.map((set) => api.admin('PATCH', `/items/book/${id}`, { chapters: set })))
    expect(answers.map(({ status }) => status)).toEqual(sets.map(() => 200))
    const names = (await chapters(id)).map((row: any) => row.name).sort()
    expect(sets.map((set) => set.map(({ name }) => name))).toContainEqual(names)
  })
})

describe('permissions of nested rows', () => {
  const mine = { userCreated_Id: { eq: '$CURRENT_USER' } }
  const grant = (collection: string, action: string, fields: unknown = '*', conditions?: object) => ({
    collection,
    action,
    fields,
    ...(conditions !== undefined && { conditions }),
  })

  it('each is the permission of its own collection, action and fields', async () => {
    const book = [
      grant('book', 'create', ['*', 'author.*', 'chapters.*']),
      grant('book', 'update', ['*', 'author.*', 'chapters.*']),
    ]
    const author = await create('author', { name: 'a' })
    const none = (await api.user(book)).call
    const some = (
      await api.user([
        ...book,
        grant('author', 'create', ['name']),
        grant('chapter', 'create', ['*']),
        grant('author', 'read'),
      ])
    ).call
    const message = (text: string) => ({ status: 403, body: { error: { message: text } } })
    await refused(
      () => none('POST', '/items/book', { name: 'b', author: { name: 'x' } }),
      message(`You don't have permission to create items in 'author'`),
    )
    await refused(
      () => none('POST', '/items/book', { name: 'b', author }),
      message(`You don't have permission to read items in 'author'`),
    )
    await refused(
      () => some('POST', '/items/book', { name: 'b', author: { name: 'x', rank: 1 } }),
      message(`You don't have permission to create field: rank`),
    )
    await refused(
      () => some('POST', '/items/book', { name: 'b', author: { id: author, name: 'x' } }),
      message(`You don't have permission to update items in 'author'`),
    )
    await refused(
      () => some('POST', '/items/book', { name: 'b', cover: { name: 'x' } }),
      message(`You don't have permission to create relation: cover`),
    )
    const id = await create('book', { name: 'b', author: { name: 'x' }, chapters: [{ name: 'c' }] }, some)
    await refused(() => some('PATCH', `/items/book/${id}`, { chapters: [] }), { status: 200 })
    const reader = (await api.user([...book, grant('chapter', 'read'), grant('chapter', 'create')])).call
    await refused(
      () => reader('PATCH', `/items/book/${id}`, { chapters: [] }),
      message(`You don't have permission to delete items in 'chapter'`),
    )
  })

  it('attaches a nested row only by a foreign key that the caller may set, and says through which relation', async () => {
    const book = ['name', 'chapters.name']
    const { call } = await api.user([grant('book', 'create', book), grant('chapter', 'create', ['name'])])
    const attempt = () => call('POST', '/items/book', { name: 'b', chapters: [{ name: 'c' }] })
    const message = `You don't have permission to create field: chapters.book_id`
    await refused(attempt, { status: 403, body: { error: { message } } })
  })

  it('limits a nested row by the grant of its parent for the relation, too', async () => {
    const { call } = await api.user([grant('book', 'create', ['name', 'author.name']), grant('author', 'create', '*')])
    expect((await call('POST', '/items/book', { name: 'b', author: { name: 'x' } })).status).toBe(201)
    await refused(() => call('POST', '/items/book', { name: 'b', author: { name: 'x', rank: 1 } }), {
      status: 403,
      body: { error: { message: `You don't have permission to create field: author.rank` } },
    })
  })

  it('rows that the caller may not change cannot be linked, unlinked or changed through a parent', async () => {
    const all = ['*', 'books.*', 'author.*']
    const { call } = await api.user([
      grant('author', 'create', all),
      grant('author', 'update', all),
      grant('author', 'read', all),
      grant('book', 'create', '*', mine),
      grant('book', 'update', '*', mine),
      grant('book', 'read', '*', mine),
    ])
    const foreign = await create('book', { name: 'foreign' })
    await refused(() => call('POST', '/items/author', { name: 'thief', books: [foreign] }), relational('books.0'))
    await refused(
      () => call('POST', '/items/author', { name: 'thief', books: [{ id: foreign, name: 'x' }] }),
      relational('books.0'),
    )
    const author = await create('author', { name: 'a', books: [{ name: 'own' }] }, call)
    await api.admin('PATCH', `/items/book/${foreign}`, { author_id: author })
    expect((await call('PATCH', `/items/author/${author}`, { books: [] })).status).toBe(200)
    const left = await api.sql('select id from book where author_id = $1', [author])
    expect(left).toEqual([{ id: foreign }])
  })

  it('a row that is seen but may not be changed keeps the set from being replaced', async () => {
    const all = ['*', 'books.*']
    const { call } = await api.user([
      grant('author', 'update', all),
      grant('book', 'read'),
      grant('book', 'update', '*', mine),
    ])
    const author = await create('author', { name: 'a', books: [{ name: 'theirs' }] })
    await refused(() => call('PATCH', `/items/author/${author}`, { books: [] }), { status: 403 })
  })

  it('a relation given by id, or by its column, is a row that the caller may read', async () => {
    const conditions = { rank: { lte: 5 } }
    const { call } = await api.user([
      grant('book', 'create'),
      grant('book', 'update'),
      grant('author', 'read', '*', conditions),
    ])
    const open = await create('author', { name: 'open', rank: 1 })
    const closed = await create('author', { name: 'closed', rank: 9 })
    const id = await create('book', { name: 'b', author: open }, call)
    await refused(() => call('POST', '/items/book', { name: 'b', author: closed }), relational('author'))
    await refused(() => call('PATCH', `/items/book/${id}`, { author: { id: closed } }), relational('author'))
    await refused(
      () =>
        call('POST', '/items/book/bulk', [
          { name: 'b', author: open },
          { name: 'b', author: closed },
        ]),
      relational('1.author'),
    )
    await refused(() => call('PATCH', `/items/book/${id}`, { author_id: closed }), relational('author'))
    const other = await create('author', { name: 'open too', rank: 2 })
    expect((await call('PATCH', `/items/book/${id}`, { author_id: other })).status).toBe(200)
  })

  it('links of a junction belong to the parent, what they link must be readable', async () => {
    const { call } = await api.user([
      grant('book', 'create', ['*', 'tags.*']),
      grant('book', 'update', ['*', 'tags.*']),
      grant('tag', 'read', '*', { name: { startsWith: 'open' } }),
    ])
    const open = await create('tag', { name: 'open tag' })
    const closed = await create('tag', { name: 'closed tag' })
    const id = await create('book', { name: 'b', tags: [{ tag_id: open }] }, call)
    await refused(
      () => call('POST', '/items/book', { name: 'b', tags: [{ tag_id: closed }] }),
      relational('tags.0.tag'),
    )
    expect((await call('PATCH', `/items/book/${id}`, { tags: [] })).status).toBe(200)
    expect(await api.sql('select id from book_tag where book_id = $1', [id])).toEqual([])
    await refused(() => call('POST', '/items/book_tag', { book_id: id, tag_id: open }), { status: 403 })
  })

  it('a rule over related rows is judged when they are there', async () => {
    const rule = { 'chapters.name': 'intro' }
    const { call } = await api.user([
      grant('book', 'create', ['*', 'chapters.*'], rule),
      grant('chapter', 'create'),
      grant('chapter', 'read'),
    ])
    expect((await call('POST', '/items/book', { name: 'b', chapters: [{ name: 'intro' }] })).status).toBe(201)
    await refused(() => call('POST', '/items/book', { name: 'b', chapters: [{ name: 'outro' }] }), { status: 403 })
  })

  it('rules of the system hold for nested rows', async () => {
    const role = await api.admin('POST', '/items/svc_Role', { name: 'nested' })
    const users = { firstName: 'N', email: 'Nested@Example.com', password: 'password of a user' }
    const link = await api.admin('POST', '/items/svc_UserRole', { role_Id: role.body.data.id, user: users })
    expect(link.status).toBe(201)
    const [user] = await api.sql(`select email, password from "svc_User" where email = 'nested@example.com'`)
    expect(user.password).not.toBe(users.password)
    const { call } = await api.user([
      grant('svc_User', 'update', ['*', 'userRoles.*']),
      grant('svc_UserRole', 'create', ['*', 'role_Id']),
    ])
    const [self] = await api.sql(`select id from "svc_User" where email like 'user%' order by "createdAt" desc limit 1`)
    const [admin] = await api.sql(`select id from "svc_Role" where name = 'administrator'`)
    await refused(() => call('PATCH', `/items/svc_User/${self.id}`, { userRoles: [{ role_Id: admin.id }] }), {
      status: 403,
    })
  })
})

describe('a nested row whose key only the client gives', () => {
  it('is changed where it is there, and else refused with the way to create it', async () => {
    const make = async (collectionName: string, fields: object) =>
      expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).status).toBe(201)
    const id = { type: 'String', primaryKey: true }
    const title = { type: 'String' }
    const topic = { relType: 'BelongsTo', target: 'topic' }
    await make('topic', { id, title })
    await make('post', { title, topic })
    await make('remark', { id, title, topic })
    const many = (target: string) => ({ relType: 'HasMany', target, foreignKey: 'topic_Id' })
    const fields = { posts: many('post'), remarks: many('remark') }
    expect((await api.admin('PATCH', '/schemas/topic', { schema: { fields } })).status).toBe(200)
    const position = await api.position()
    const refusalOf = async (path: string, payload: object) => {
      const { status, body } = await api.admin('POST', path, payload)
      return [status, body.error.details]
    }
    const denied = "Item not found or you don't have permission to update it"
    const wayOut = (collection: string) =>
      `${denied}. A nested row with a key is changed, never created: create it first by POST /items/${collection}`
    expect(await refusalOf('/items/post', { topic: { id: 'new', title: 'N' } })).toEqual([
      400,
      [{ field: 'topic', message: wayOut('topic') }],
    ])
    expect(await refusalOf('/items/topic', { id: 'x', remarks: [{ id: 'r', title: 'R' }] })).toEqual([
      400,
      [{ field: 'remarks.0', message: wayOut('remark') }],
    ])
    expect(await refusalOf('/items/topic', { id: 'x', remarks: ['r'] })).toEqual([
      400,
      [{ field: 'remarks.0', message: wayOut('remark') }],
    ])
    expect(await refusalOf('/items/topic', { id: 'x', posts: [{ id: randomUUID(), title: 'P' }] })).toEqual([
      400,
      [{ field: 'posts.0', message: denied }],
    ])
    expect(await api.log(position)).toEqual([])
    await api.admin('POST', '/items/topic', { id: 'new', title: 'N' })
    expect((await api.admin('POST', '/items/post', { topic: { id: 'new', title: 'M' } })).status).toBe(201)
    expect((await api.admin('GET', '/items/topic/new')).body.data.title).toBe('M')
  })
})
