import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Api, type Call, startApi } from '../support/api.ts'
import { undoBed } from '../support/undo.ts'

/** Undo of requests, transactions and what users did (docs/undo.md). */

let api: Api
const collections = [
  'writer',
  'novel',
  'chapter',
  'genre',
  'novel_genre',
  'pair',
  'safe',
  'bin',
  'shelf',
  'copy',
  'page',
  'page_block',
] as const
const { rows, all, ok, make, undo, clear } = undoBed(() => api, collections)

const text = { type: 'String' }
const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
const to = (target: string, foreignKey: string, more = {}) => ({ relType: 'BelongsTo', target, foreignKey, ...more })

beforeAll(async () => {
  api = await startApi()
  const own = { usertrack: true }
  const schemas: [string, object, object?][] = [
    ['writer', { name: text, rank: { type: 'Integer' } }, own],
    [
      'novel',
      {
        id: serial,
        title: text,
        code: { ...text, unique: true },
        price: { type: 'Decimal', values: { precision: 20, scale: 10 } },
        big: { type: 'BigInt' },
        facts: { type: 'JSON' },
        tags: { type: 'Array', values: { type: 'String' } },
        at: { type: 'DateTime' },
        writer: to('writer', 'writer_Id', { onDelete: 'CASCADE' }),
        best: to('novel', 'best_Id', { onDelete: 'SET NULL' }),
      },
      own,
    ],
    ['chapter', { title: text, novel: to('novel', 'novel_Id', { allowNull: false, onDelete: 'CASCADE' }) }],
    ['genre', { id: serial, name: text }],
    [
      'novel_genre',
      {
        id: serial,
        novel: to('novel', 'novel_Id', { allowNull: false, onDelete: 'CASCADE' }),
        genre: to('genre', 'genre_Id', { allowNull: false, onDelete: 'CASCADE' }),
      },
      { isJunction: true, constraints: [{ type: 'unique', fields: ['novel_Id', 'genre_Id'] }] },
    ],
    ['pair', { name: text, other: to('pair', 'other_Id') }],
    ['safe', { name: text, pin: { ...text, hidden: true } }],
    ['bin', { name: text }, { paranoid: true }],
    ['page', { title: text }],
    ['shelf', { code: { ...text, unique: true } }],
    [
      'copy',
      {
        name: text,
        shelf: to('shelf', 'shelf_Code', { targetKey: 'code', allowNull: false }),
        fixed: to('shelf', 'fixed_Code', { targetKey: 'code', onUpdate: 'RESTRICT' }),
      },
    ],
  ]
  for (const [collectionName, fields, more] of schemas) {
    const { status, text: answer } = await api.admin('POST', '/schemas', {
      collectionName,
      schema: { ...more, fields },
    })
    if (status >= 300) throw new Error(`${collectionName}: ${answer}`)
  }
  const extend = async (name: string, relations: object) => {
    const { status, text: answer } = await api.admin('PATCH', `/schemas/${name}`, { schema: { fields: relations } })
    if (status >= 300) throw new Error(answer)
  }
  const blocks = { type: 'M2A', name: 'blocks', tables: ['chapter', 'copy'], through: 'page_block' }
  const related = await api.admin('POST', '/schemas/page/relationships', blocks)
  if (related.status >= 300) throw new Error(related.text)
  await extend('writer', { novels: { relType: 'HasMany', target: 'novel', foreignKey: 'writer_Id' } })
  await extend('novel', {
    chapters: { relType: 'HasMany', target: 'chapter', foreignKey: 'novel_Id' },
    genres: {
      relType: 'BelongsToMany',
      target: 'genre',
      through: 'novel_genre',
      foreignKey: 'novel_Id',
      otherKey: 'genre_Id',
    },
  })
})

beforeEach(() => clear())

const grants = (collection: string, actions: string[], more: object = {}) =>
  actions.map((action) => ({ collection, action, fields: ['*'], ...more }))

/** Does something and undoes it: everything is as it was; then undoes the undo: everything is as it was in between. */
async function thereAndBack(act: () => Promise<string>, more: object = {}): Promise<any> {
  const before = await all()
  const requestId = await act()
  const between = await all()
  expect(between).not.toEqual(before)
  const back = await ok(undo({ requestId, ...more }))
  expect(await all()).toEqual(before)
  const forth = await ok(undo({ requestId: back.id, ...more }))
  expect(await all()).toEqual(between)
  await ok(undo({ requestId: forth.id, ...more }))
  expect(await all()).toEqual(before)
  return back.data
}

const novel = {
  title: 'Emma',
  code: 'E',
  price: '12345678.0123456789',
  big: '9007199254740993',
  facts: { b: 1, a: [1.5, null] },
  tags: ['x', 'a "quoted", one'],
  at: '2024-02-29T12:00:00.123456Z',
}

describe('POST /log/undo', () => {
  it('takes back a create, an update and a delete of all kinds of values, to the last digit', async () => {
    await thereAndBack(async () => (await ok(api.admin('POST', '/items/novel', novel))).id)
    const id = await make('novel', novel)
    await api.sql(`update novel set facts = '{"n": 12345678901234567890.123, "b": 1}' where id = $1`, [id])
    await thereAndBack(async () => {
      const changes = { title: null, price: 1, big: 2, facts: [], tags: [], at: null, code: 'F' }
      return (await ok(api.admin('PATCH', `/items/novel/${id}`, changes))).id
    })
    await thereAndBack(async () => (await ok(api.admin('DELETE', `/items/novel/${id}`))).id)
    const other = await make('writer', { name: 'w' })
    await thereAndBack(async () => (await ok(api.admin('DELETE', `/items/writer/${other}`))).id)
  })

  it('answers a read of now as a read of before', async () => {
    const writer = await make('writer', { name: 'Jane', novels: [{ ...novel, chapters: [{ title: '1' }] }] })
    const list = (query: string) =>
      api.admin('GET', `/items/writer?fields=id,name,createdAt,userCreated_Id,novels.*,novels.chapters.title${query}`)
    const { cursor } = (await ok(api.admin('GET', '/history/now'))).data
    const { id } = await ok(api.admin('DELETE', `/items/writer/${writer}`))
    expect((await list('')).body.data).toEqual([])
    await ok(undo({ requestId: id }))
    const plain = (body: any) =>
      JSON.parse(
        JSON.stringify(body.data, (key, value) => (/^(updatedAt|userUpdated_Id)$/.test(key) ? undefined : value)),
      )
    expect(plain((await list('')).body)).toEqual(plain((await list(`&asOf=${cursor}`)).body))
  })

  it('takes back a cascade, by whichever table it came', async () => {
    const writer = await make('writer', { name: 'Jane', novels: [novel, { title: 'Persuasion' }] })
    const [{ id }] = await api.sql(`select id from novel where title = 'Emma'`)
    const genre = await make('genre', { name: 'g' })
    await ok(
      api.admin('PATCH', `/items/novel/${id}`, {
        genres: [genre],
        chapters: [{ title: 'I' }, { title: 'II' }],
        best_Id: id,
      }),
    )
    const data = await thereAndBack(async () => (await ok(api.admin('DELETE', `/items/writer/${writer}`))).id)
    expect(data.counts).toEqual(
      expect.arrayContaining([
        { collection: 'chapter', create: 2, update: 0, delete: 0, conflicts: 0 },
        { collection: 'novel_genre', create: 1, update: 0, delete: 0, conflicts: 0 },
      ]),
    )
  })

  it('takes back one request over five collections', async () => {
    const genre = await make('genre', { name: 'old' })
    await thereAndBack(async () => {
      const genres = [{ id: genre, name: 'renamed' }, { name: 'new' }]
      return (
        await ok(
          api.admin('POST', '/items/writer', {
            name: 'Jane',
            novels: [
              { ...novel, chapters: [{ title: 'I' }], genres },
              { title: 'b', genres: [genre] },
            ],
          }),
        )
      ).id
    })
  })

  it('takes back what others than requests do, by the position of an event', async () => {
    const id = await make('writer', { name: 'a', novels: [novel] })
    const before = await all()
    await api.sql(`with gone as (delete from novel) update writer set name = 'b', rank = 3`)
    const [{ position, event }] = await api.sql(
      `select position::text, id as event from "svc_AuditLog" where entity = 'writer' and "entityId" = $1 order by "svc_AuditLog".position desc limit 1`,
      [id],
    )
    const { data } = await ok(undo({ position: event, dryRun: true }))
    expect(data.rows.map(({ collection, action }: any) => [collection, action])).toEqual([
      ['novel', 'create'],
      ['writer', 'update'],
    ])
    await ok(undo({ position }))
    expect(await all()).toEqual(before)
  })

  it('takes back what a user did in a time, and nothing that others did', async () => {
    const grant = (action: string) => ({ collection: 'genre', action, fields: ['*'] })
    const ada = await api.user(['create', 'read', 'update', 'delete'].map(grant))
    const kept = await make('genre', { name: 'kept' })
    const [{ now: from }] = await api.sql('select clock_timestamp()::text as now')
    const iso = (time: string) => new Date(time).toISOString()
    const before = await rows('genre')
    await ok(ada.call('POST', '/items/genre', { name: 'hers' }))
    await ok(ada.call('PATCH', `/items/genre/${kept}`, { name: 'by her' }))
    const [{ now: end }] = await api.sql(`select clock_timestamp() + interval '1 second' as now`)
    await make('writer', { name: 'other' })
    const body = { actor: ada.id, from: iso(from), to: iso(end) }
    expect((await undo({ ...body, collections: ['writer'] })).status).toBe(404)
    // Her own may she undo, another user's activity is not hers to ask about.
    expect((await undo({ ...body, actor: '00000000-0000-4000-8000-000000000000' }, ada.call)).status).toBe(403)
    await ok(undo(body, ada.call))
    expect(await rows('genre')).toEqual(before)
    expect(await rows('writer')).toHaveLength(1)
  })

  it('frees unique values before they are taken, and opens circles', async () => {
    const first = await make('novel', { title: 'first', code: 'A' })
    const genre = await make('genre', { name: 'g' })
    await ok(api.admin('PATCH', `/items/novel/${first}`, { genres: [genre] }))
    const before = await all()
    const [{ id: link }] = await api.sql('select id from novel_genre')
    await api.sql(`begin; delete from novel_genre where id = ${link}; insert into novel_genre ("novel_Id", "genre_Id") values (${first}, ${genre});
      delete from novel where title = 'first'; insert into novel (title, code) values ('second', 'A'); commit`)
    const [{ position }] = await api.sql('select max(position)::text as position from "svc_AuditLog"')
    await ok(undo({ position }))
    expect(await all()).toEqual(before)

    const a = await make('pair', { name: 'a' })
    const b = await make('pair', { name: 'b', other_Id: a })
    await ok(api.admin('PATCH', `/items/pair/${a}`, { other_Id: b }))
    const circle = await rows('pair')
    await api.sql('delete from pair')
    const [{ position: gone }] = await api.sql('select max(position)::text as position from "svc_AuditLog"')
    const back = await ok(undo({ position: gone }))
    expect(await rows('pair')).toEqual(circle)
    await ok(undo({ requestId: back.id }))
    expect(await rows('pair')).toEqual([])
  })

  it('gives two rows back the unique values that they have swapped', async () => {
    const [first, second] = [
      await make('novel', { title: '1', code: 'A' }),
      await make('novel', { title: '2', code: 'B' }),
    ]
    const before = await all()
    await api.sql(`begin; update novel set code = null where id = ${first}; update novel set code = 'A' where id = ${second};
      update novel set code = 'B' where id = ${first}; commit`)
    const [{ position }] = await api.sql('select max(position)::text as position from "svc_AuditLog"')
    const back = await ok(undo({ position }))
    expect(await all()).toEqual(before)
    await ok(undo({ requestId: back.id }))
    expect(await rows('novel')).not.toEqual(before.novel)
  })

  it('gives a row back the value that others refer to, and these follow it', async () => {
    const shelf = await make('shelf', { code: 'a' })
    for (const name of ['x', 'y']) await make('copy', { name, shelf_Code: 'a' })
    await thereAndBack(async () => (await ok(api.admin('PATCH', `/items/shelf/${shelf}`, { code: 'b' }))).id)
    // Rows that came later follow as well.
    const { id: requestId } = await ok(api.admin('PATCH', `/items/shelf/${shelf}`, { code: 'b' }))
    await make('copy', { name: 'z', shelf_Code: 'b' })
    expect((await ok(undo({ requestId }))).data.conflicts).toEqual([])
    expect((await api.sql('select "shelf_Code" from copy')).map((row) => row.shelf_Code)).toEqual(['a', 'a', 'a'])
  })

  it('gives a row back a value that must not change while others refer to it', async () => {
    await api.sql(`insert into shelf (code) values ('a')`)
    await make('copy', { shelf_Code: 'a' })
    await api.sql(`insert into shelf (code) values ('p')`)
    await api.sql(`update copy set "fixed_Code" = 'p'`)
    const before = await all()
    await api.sql(
      `do $$ begin
         update copy set "fixed_Code" = null; update shelf set code = 'q' where code = 'p'; update copy set "fixed_Code" = 'q';
       end $$`,
    )
    const [{ position }] = await api.sql('select max(position)::text as position from "svc_AuditLog"')
    await ok(undo({ position }))
    expect(await all()).toEqual(before)
  })

  it('brings no reference back to a value that a row has by now and gives up itself', async () => {
    const [{ id: shelf }] = await api.sql(`insert into shelf (code) values ('a') returning id`)
    await api.sql(`insert into shelf (code) values ('b'), ('c')`)
    const copy = await make('copy', { shelf_Code: 'c', fixed_Code: 'b' })
    const actor = (await api.admin('GET', '/auth/me')).body.user.id
    const [{ now: from }] = await api.sql('select clock_timestamp()::text as now')
    await ok(api.admin('PATCH', `/items/copy/${copy}`, { fixed_Code: null }))
    await api.sql(`update shelf set code = 'd' where code = 'b'`)
    await ok(api.admin('PATCH', `/items/shelf/${shelf}`, { code: 'b' }))
    const [{ now: end }] = await api.sql(`select clock_timestamp() + interval '1 second' as now`)
    const iso = (time: string) => new Date(time).toISOString()
    const chosen = { actor, from: iso(from), to: iso(end) }
    expect((await undo(chosen)).body.error.details.conflicts).toEqual([
      {
        collection: 'copy',
        id: copy,
        reasons: [{ reason: 'reference gone', fields: ['fixed_Code'], required: false }],
      },
    ])
    await ok(undo({ ...chosen, force: [{ collection: 'copy', id: copy }] }))
    expect(await api.sql('select "fixed_Code" from copy')).toEqual([{ fixed_Code: null }])
  })

  it('takes back soft deletes and their restoration', async () => {
    const id = await make('bin', { name: 'x' })
    await thereAndBack(async () => (await ok(api.admin('DELETE', `/items/bin/${id}`))).id)
    const deleted = await ok(api.admin('DELETE', `/items/bin/${id}`))
    await thereAndBack(async () => (await ok(api.admin('PATCH', `/items/bin/${id}`, { deletedAt: null }))).id)
    expect(deleted.id).toBeDefined()
    // A new row of such a collection is not destroyed, but marked.
    const created = await ok(api.admin('POST', '/items/bin', { name: 'new' }))
    await ok(undo({ requestId: created.id }))
    const { body } = await api.admin('GET', '/items/bin?paranoid=false&fields=name')
    expect(body.data.map(({ name }: any) => name).sort()).toEqual(['new', 'x'])
    expect((await undo({ requestId: created.id })).body.error.code).toBe('NOTHING_TO_UNDO')
  })

  it('is itself an event that names what it undid', async () => {
    const { id } = await ok(api.admin('POST', '/items/genre', { name: 'x' }))
    const position = await api.position()
    const back = await ok(undo({ requestId: id }))
    const log = await api.log(position)
    expect(log.map(({ type, action, entity, entityId }) => [type, action, entity, entityId])).toEqual([
      ['data', 'delete', 'genre', expect.any(String)],
      ['history', 'undone', 'svc_AuditLog', id],
    ])
    expect(log[1]!.changes).toEqual({ undone: id, by: 'request', rows: 1, forced: 0 })
    expect(await api.jobs('mail')).toEqual([])
    expect((await undo({ requestId: id })).body.error.code).toBe('NOTHING_TO_UNDO')
    expect(back.data.notUndone).toEqual([])
  })
})

describe('later changes of others', () => {
  it('is refused field by field, unless it is forced, and then only these fields are overwritten', async () => {
    const id = await make('writer', { name: 'a', rank: 1 })
    const other = await make('writer', { name: 'a', rank: 1 })
    const { id: requestId } = await ok(
      api.admin('PATCH', '/items/writer/bulk', [
        { id, name: 'b', rank: 2 },
        { id: other, rank: 2 },
      ]),
    )
    await ok(api.admin('PATCH', `/items/writer/${id}`, { name: 'c' }))
    const before = await all()
    const refused = await undo({ requestId })
    expect([refused.status, refused.body.error.code]).toEqual([409, 'UNDO_CONFLICT'])
    expect(refused.body.error.details.conflicts).toEqual([
      { collection: 'writer', id, reasons: [{ reason: 'changed', fields: ['name'] }] },
    ])
    expect(await all()).toEqual(before)
    await ok(undo({ requestId, force: [{ collection: 'writer', id }] }))
    expect(
      (await api.sql('select name, rank from writer order by rank, name')).map(({ name, rank }) => [name, rank]),
    ).toEqual([
      ['a', 1],
      ['a', 1],
    ])
  })

  it('does not matter in other fields, nor where the old value is back', async () => {
    const id = await make('writer', { name: 'a', rank: 1 })
    const { id: requestId } = await ok(api.admin('PATCH', `/items/writer/${id}`, { name: 'b' }))
    await ok(api.admin('PATCH', `/items/writer/${id}`, { rank: 7 }))
    await ok(undo({ requestId }))
    expect((await api.sql('select name, rank from writer'))[0]).toEqual({ name: 'a', rank: 7 })
    const again = await ok(api.admin('PATCH', `/items/writer/${id}`, { name: 'b' }))
    await ok(api.admin('PATCH', `/items/writer/${id}`, { name: 'a' }))
    expect((await undo({ requestId: again.id })).body.error.code).toBe('NOTHING_TO_UNDO')
  })

  it('is none where an undo has put back what was left: requests are undone one after the other', async () => {
    const steps = async (...acts: (() => ReturnType<Call>)[]) => {
      const done: string[] = []
      const states = [await all()]
      for (const act of acts) {
        done.push((await ok(act())).id)
        states.push(await all())
      }
      for (const requestId of done.toReversed()) {
        states.pop()
        await ok(undo({ requestId }))
        expect(await all()).toEqual(states.at(-1))
      }
    }
    const id = '0198c0de-0000-7000-8000-000000000001'
    const path = `/items/writer/${id}`
    const create = () => api.admin('POST', '/items/writer', { id, name: 'a', rank: 1 })
    const write = (values: object) => () => api.admin('PATCH', path, values)
    await steps(create, write({ name: 'b' }), write({ name: 'c', rank: 2 }), write({ rank: 1 }))
    // Values that come again, and the row as a whole.
    await steps(create, write({ rank: 2 }), write({ rank: 1 }), () => api.admin('DELETE', path))
    await ok(create())
    const renamed = (await ok(write({ name: 'b' })())).id
    const back = (await ok(undo({ requestId: renamed }))).id
    await ok(undo({ requestId: (await ok(api.admin('DELETE', path))).id }))
    await ok(undo({ requestId: back }))
    expect((await api.sql('select name from writer'))[0].name).toBe('b')
  })

  it('is one where others wrote the same value again, or more than an undo has put back', async () => {
    const id = await make('writer', { name: 'a', rank: 1 })
    const write = async (values: object) => (await ok(api.admin('PATCH', `/items/writer/${id}`, values))).id
    const refused = async (requestId: string) =>
      (await undo({ requestId })).body.error?.details.conflicts.map((row: any) => row.reasons[0])
    const first = await write({ name: 'b' })
    await write({ name: 'c' })
    await write({ name: 'b' })
    expect(await refused(first)).toEqual([{ reason: 'changed', fields: ['name'] }])
    await ok(undo({ requestId: await write({ name: 'd' }) }))
    expect(await refused(first)).toEqual([{ reason: 'changed', fields: ['name'] }])
    const second = await write({ rank: 2 })
    await write({ rank: 3 })
    await ok(undo({ requestId: (await ok(api.admin('DELETE', `/items/writer/${id}`))).id }))
    expect(await refused(second)).toEqual([{ reason: 'changed', fields: ['rank'] }])
  })

  it('makes another plan than that of the dry run', async () => {
    const id = await make('writer', { name: 'a', rank: 1 })
    const { id: requestId } = await ok(api.admin('PATCH', `/items/writer/${id}`, { name: 'b' }))
    const dry = async () => (await ok(undo({ requestId, dryRun: true }))).data
    const first = await dry()
    expect(first).toMatchObject({
      conflicts: [],
      rows: [{ collection: 'writer', id, action: 'update', fields: ['name'] }],
    })
    await ok(api.admin('PATCH', `/items/writer/${id}`, { rank: 2 }))
    // Nothing of the plan has changed.
    expect((await dry()).plan).toBe(first.plan)
    await ok(api.admin('PATCH', `/items/writer/${id}`, { name: 'c' }))
    const changed = await undo({ requestId, plan: first.plan })
    expect([changed.status, changed.body.error.code]).toEqual([409, 'PLAN_CHANGED'])
    expect((await api.sql('select name from writer'))[0].name).toBe('c')
    await ok(undo({ requestId, plan: (await dry()).plan, force: [{ collection: 'writer', id }] }))
    expect((await api.sql('select name from writer'))[0].name).toBe('a')
  })

  it('is waited for while it is being written', async () => {
    const id = await make('writer', { name: 'a' })
    const { id: requestId } = await ok(api.admin('PATCH', `/items/writer/${id}`, { name: 'b' }))
    const pool = await api.sql('select 1')
    expect(pool).toHaveLength(1)
    const { withClient } = await import('../support/server.ts')
    await withClient(api.database.url, async (client) => {
      await client.query('begin')
      await client.query(`update writer set name = 'c' where id = $1`, [id])
      const undoing = undo({ requestId })
      for (;;) {
        const waiting = await api.sql(
          `select from pg_stat_activity where wait_event_type = 'Lock' and query like '%for update of t%' and datname = current_database()`,
        )
        if (waiting.length > 0) break
      }
      await client.query('commit')
      expect((await undoing).body.error.code).toBe('UNDO_CONFLICT')
    })
    expect((await api.sql('select name from writer'))[0].name).toBe('c')
  })

  it('keeps rows that others refer to by now', async () => {
    const { data, id: requestId } = await ok(api.admin('POST', '/items/novel', { title: 'x' }))
    await make('chapter', { title: 'of another', novel_Id: data.id })
    const { body } = await undo({ requestId })
    expect(body.error.details.conflicts).toEqual([
      {
        collection: 'novel',
        id: String(data.id),
        reasons: [{ reason: 'referenced', by: [{ collection: 'chapter', rows: 1 }] }],
      },
    ])
    await ok(undo({ requestId, force: [{ collection: 'novel', id: data.id }] }))
    expect(await all()).toMatchObject({ novel: [], chapter: [] })
  })

  it('cannot bring back what refers to something that is gone, but without the reference where that may be', async () => {
    const writer = await make('writer', { name: 'w' })
    const book = await make('novel', { title: 'x', writer_Id: writer, chapters: [{ title: 'I' }] })
    const [{ id: chapter }] = await api.sql('select id from chapter')
    const { id: ofChapter } = await ok(api.admin('DELETE', `/items/chapter/${chapter}`))
    const { id: ofBook } = await ok(api.admin('DELETE', `/items/novel/${book}`))
    await ok(api.admin('DELETE', `/items/writer/${writer}`))
    const force = [
      { collection: 'novel', id: book },
      { collection: 'chapter', id: chapter },
    ]
    const refused = await undo({ requestId: ofChapter, force })
    expect(refused.body.error.details.conflicts[0].reasons).toEqual([
      { reason: 'reference gone', fields: ['novel_Id'], required: true },
    ])
    expect((await undo({ requestId: ofBook })).status).toBe(409)
    await ok(undo({ requestId: ofBook, force }))
    expect((await api.sql('select id, "writer_Id" from novel'))[0]).toEqual({ id: book, writer_Id: null })
    await ok(undo({ requestId: ofChapter }))
    expect(await rows('chapter')).toHaveLength(1)
  })

  it('brings links to any collection back that had led nowhere, and none whose item has gone since', async () => {
    const book = async () => {
      const id = await make('novel', { title: 'x', chapters: [{ title: 'I' }] })
      const [{ id: chapter }] = await api.sql('select id from chapter')
      return { id, page: await make('page', { blocks: [{ collection: 'chapter', item_id: chapter }] }) }
    }
    const { id, page } = await book()
    await ok(api.admin('DELETE', `/items/novel/${id}`))
    expect(await rows('page_block')).toHaveLength(1)
    await thereAndBack(async () => (await ok(api.admin('DELETE', `/items/page/${page}`))).id)
    const { id: later, page: second } = await book()
    const { id: requestId } = await ok(api.admin('DELETE', `/items/page/${second}`))
    await ok(api.admin('DELETE', `/items/novel/${later}`))
    const { conflicts } = (await undo({ requestId })).body.error.details
    expect(conflicts.find(({ collection }: any) => collection === 'page_block').reasons).toEqual([
      { reason: 'reference gone', fields: ['item_id'], required: true },
    ])
  })

  it('leaves a row that others have deleted', async () => {
    const id = await make('writer', { name: 'a' })
    const { id: requestId } = await ok(api.admin('PATCH', `/items/writer/${id}`, { name: 'b' }))
    await ok(api.admin('DELETE', `/items/writer/${id}`))
    const { body } = await undo({ requestId })
    expect(body.error.details.conflicts[0].reasons).toEqual([{ reason: 'deleted' }])
    const forced = await undo({ requestId, force: [{ collection: 'writer', id }] })
    expect(forced.body.error.code).toBe('NOTHING_TO_UNDO')
  })
})

describe('values that the log does not hold', () => {
  it('is listed, and the rest comes back where it is forced', async () => {
    const { data, id: created } = await ok(api.admin('POST', '/items/safe', { name: 'x', pin: 'canary' }))
    const { id } = data
    const { id: requestId } = await ok(api.admin('DELETE', `/items/safe/${id}`))
    const refused = await undo({ requestId })
    expect(refused.body.error.details.conflicts).toEqual([
      { collection: 'safe', id, reasons: [{ reason: 'lost', fields: ['pin'] }] },
    ])
    expect(refused.text).not.toContain('canary')
    await ok(undo({ requestId, force: [{ collection: 'safe', id }] }))
    expect((await api.sql('select name, pin from safe'))[0]).toEqual({ name: 'x', pin: null })
    await ok(api.admin('DELETE', `/items/safe/${id}/history`))
    const erased = await undo({ requestId: created })
    expect(erased.body.error.details.conflicts[0].reasons).toEqual([{ reason: 'erased' }])
  })

  it('are of columns made by SQL only where they were changed, and never of calculated ones', async () => {
    const fields = { name: text, n: { type: 'Integer' } }
    await ok(api.admin('POST', '/schemas', { collectionName: 'ledger', schema: { fields } }))
    await api.sql(`alter table ledger add column extra text default 'q', add column nothing text,
      add column twice int generated always as (n * 2) stored`)
    const id = await make('ledger', { name: 'first', n: 1 })
    const { id: requestId } = await ok(api.admin('PATCH', `/items/ledger/${id}`, { name: 'second', n: 4 }))
    await ok(undo({ requestId }))
    const now = () => api.sql('select name, n, extra, nothing, twice from ledger')
    expect(await now()).toEqual([{ name: 'first', n: 1, extra: 'q', nothing: null, twice: 2 }])
    await api.sql(`update ledger set name = 'by SQL', extra = 'r', nothing = 's'`)
    const [{ position }] = await api.sql(
      `select max(position)::text as position from "svc_AuditLog" where entity = 'ledger'`,
    )
    const changed = await undo({ position })
    expect(changed.body.error.details.conflicts).toEqual([
      { collection: 'ledger', id, reasons: [{ reason: 'lost', fields: ['extra', 'nothing'] }] },
    ])
    await ok(undo({ position, force: [{ collection: 'ledger', id }] }))
    expect(await now()).toEqual([{ name: 'first', n: 1, extra: 'r', nothing: 's', twice: 2 }])
    await ok(api.admin('DELETE', '/schemas/ledger'))
  })

  it('are not those of columns made by SQL in rows that were deleted', async () => {
    await ok(api.admin('POST', '/schemas', { collectionName: 'ledger', schema: { fields: { name: text } } }))
    await api.sql(`create type mood as enum ('glad', 'sad')`)
    await api.sql(`alter table ledger add column extra text default 'q', add column amount numeric(6, 2) default 1,
      add column tags text[], add column data jsonb, add column mood mood, add column late int,
      add column number int generated by default as identity, add column own int generated always as identity`)
    const ids = [await make('ledger', { name: 'a' }), await make('ledger', { name: 'b' })]
    await api.sql(
      `update ledger set extra = 'r', amount = 7.5, tags = '{"a, b",c}', data = '{"x": [1, "2"]}', mood = 'sad', late = 70000 where name = 'a'`,
    )
    await api.sql(`update ledger set extra = null where name = 'b'`)
    const now = async (more = '') => [
      ...(await api.sql(`select name, extra, amount, tags, data, mood, late, number${more} from ledger order by name`)),
    ]
    const before = await now()
    const { id: requestId } = await ok(api.admin('DELETE', '/items/ledger/bulk', ids))
    // One has come since, and values of another no longer fit.
    await api.sql(
      `alter table ledger add column added text default 'new', drop column late, add column late smallint default 2`,
    )
    const position = await api.position()
    await ok(undo({ requestId }))
    const back = before.map((row) => ({ ...row, late: row.name === 'a' ? 2 : null, added: 'new' }))
    expect(await now(', added')).toEqual(back)
    const events = await api.log(position)
    expect(events.map(({ action }) => action).sort()).toEqual(['create', 'create', 'undone'])
    // A single row takes another way.
    const one = (await ok(api.admin('DELETE', `/items/ledger/${ids[0]}`))).id
    expect((await now()).map(({ name }) => name)).toEqual(['b'])
    await ok(undo({ requestId: one }))
    expect(await now(', added')).toEqual(back)
    await ok(api.admin('DELETE', '/schemas/ledger'))
    await api.sql('drop type mood')
  })

  it('never touches credentials, and tells of mails that were sent', async () => {
    const email = 'ada@example.com'
    const { id: registered } = await ok(
      api.anonymous('POST', '/auth/register', { firstName: 'A', lastName: 'L', email, password: 'a long password' }),
    )
    const [{ id: userId }] = await api.sql('select id from "svc_User" where email = $1', [email])
    const { data } = await ok(undo({ requestId: registered, dryRun: true }))
    expect(data.notUndone).toEqual(
      expect.arrayContaining([expect.objectContaining({ event: 'auth.register', id: userId })]),
    )
    expect(data.rows.map(({ collection }: any) => collection)).not.toContain('svc_Account')
    const other = await api.user(grants('genre', ['read']))
    const refused = await undo({ requestId: registered, dryRun: true }, other.call)
    expect([refused.status, refused.text]).toEqual([403, expect.not.stringMatching(/auth\.register|mail/)])
  })
})

describe('fields that are younger than the changes', () => {
  const younger = {
    state: { ...text, allowNull: false, defaultValue: 'open' },
    n: { type: 'Integer', allowNull: false, defaultValue: 0 },
    note: { ...text, defaultValue: 'none' },
  }

  it('have their defaults in rows that come back, and stay as they are in rows that others made again', async () => {
    const define = (method: string, path: string, fields: object) =>
      ok(api.admin(method, path, { collectionName: 'ticket', schema: { fields } }))
    await define('POST', '/schemas', { name: text })
    const [gone, remade] = [await make('ticket', { name: 'a' }), await make('ticket', { name: 'b' })]
    const removal = (await ok(api.admin('DELETE', '/items/ticket/bulk', [gone, remade]))).id
    await define('PATCH', '/schemas/ticket', younger)
    await make('ticket', { id: remade, name: 'c', state: 'closed', n: 7, note: 'mine' })
    const force = [{ collection: 'ticket', id: remade }]
    const { data } = await ok(undo({ requestId: removal, dryRun: true }))
    expect(data).toMatchObject({
      counts: [{ collection: 'ticket', create: 1, update: 1, delete: 0, conflicts: 1 }],
      conflicts: [
        { collection: 'ticket', id: remade, reasons: [{ reason: 'changed', fields: ['createdAt', 'name'] }] },
      ],
    })
    const position = await api.position()
    await ok(undo({ requestId: removal, force }))
    const shown = async (id: string) =>
      (await ok(api.admin('GET', `/items/ticket/${id}?fields=name,state,n,note`))).data
    expect(await shown(gone)).toEqual({ name: 'a', state: 'open', n: 0, note: 'none' })
    expect(await shown(remade)).toEqual({ name: 'b', state: 'closed', n: 7, note: 'mine' })
    const written = await api.log(position)
    expect(written.map(({ action, entityId }) => [action, entityId]).sort()).toEqual(
      [
        ['create', gone],
        ['undone', removal],
        ['update', remade],
      ].sort(),
    )
    const update = written.find(({ action }) => action === 'update')
    expect(update!.changes.before).toMatchObject({ name: 'c' })
    expect(Object.keys(update!.changes.before)).not.toContain('state')
  })
})

describe('columns that the database computes from others', () => {
  it('follows them: who was renamed is renamed back', async () => {
    const { id } = await api.user(grants('genre', ['read']))
    const name = async () => (await api.sql('select "firstName", "fullName" from "svc_User" where id = $1', [id]))[0]
    const before = await name()
    const { id: requestId } = await ok(api.admin('PATCH', `/items/svc_User/${id}`, { firstName: 'Renamed' }))
    expect((await name()).fullName).toMatch(/^Renamed/)
    await ok(undo({ requestId }))
    expect(await name()).toEqual(before)
  })
})

describe('what others did', () => {
  const log = { collection: 'svc_AuditLog', action: 'read' }
  const genres = grants('genre', ['create', 'read', 'update', 'delete'])
  const day = 86_400_000
  const ofUser = (actor: string) => ({
    actor,
    from: new Date(Date.now() - day).toISOString(),
    to: new Date(Date.now() + day).toISOString(),
    collections: ['genre'],
    dryRun: true,
  })

  it('is undone as far as the rule and the fields of the permission to read svc_AuditLog show it', async () => {
    const ada = await api.user(genres)
    const [kept, gone] = [await make('genre', { name: 'kept' }), await make('genre', { name: 'gone' })]
    await ok(ada.call('PATCH', `/items/genre/${kept}`, { name: 'by her' }))
    await ok(ada.call('DELETE', `/items/genre/${gone}`))
    const as = async (grant: object) => (await api.user([...genres, { ...log, ...grant }])).call
    const before = await rows('genre')
    const hidden = await as({ fields: ['id', 'action', 'entity'], conditions: { userId: '$CURRENT_USER' } })
    expect(await undo(ofUser(ada.id), hidden)).toMatchObject({
      status: 403,
      body: { error: { message: expect.stringContaining('userId') } },
    })
    const own = await as({ fields: ['*'], conditions: { userId: '$CURRENT_USER' } })
    expect((await undo(ofUser(ada.id), own)).status).toBe(404)
    expect((await undo({ ...ofUser(ada.id), dryRun: false }, own)).status).toBe(404)
    expect(await rows('genre')).toEqual(before)

    const deletions = await as({ fields: ['*'], conditions: { action: 'delete' } })
    const { data } = await ok(undo({ ...ofUser(ada.id), dryRun: false }, deletions))
    expect(data.counts).toEqual([{ collection: 'genre', create: 1, update: 0, delete: 0, conflicts: 0 }])
    expect(await api.sql('select name from genre order by name')).toEqual([{ name: 'by her' }, { name: 'gone' }])
  })

  it('is no answer to a caller who walks through positions and may not read the collection', async () => {
    await make('genre', { name: 'unread' })
    const [{ position }] = await api.sql('select max(position)::text as position from "svc_AuditLog"')
    const nobody = await api.user([])
    const writer = await api.user(grants('genre', ['update', 'delete']))
    const reader = await api.user(genres)
    const logReader = await api.user([...grants('genre', ['update', 'delete']), { ...log, fields: ['*'] }])
    const answer = async (call: Call) => (await undo({ position, dryRun: true }, call)).status
    expect(await answer(nobody.call)).toBe(404)
    expect(await answer(writer.call)).toBe(404)
    expect(await answer(reader.call)).toBe(200)
    expect(await answer(logReader.call)).toBe(200)
  })
})

describe('facts that others caused', () => {
  it('are told as far as the log is: not to a caller who walks through its positions', async () => {
    const [{ position, userId }] = await api.sql(
      `select position, "userId" from "svc_AuditLog" where type = 'auth' and action = 'login' order by position desc limit 1`,
    )
    const nobody = await api.user([])
    const walk = (call: Call, more: object = { position: String(position) }) =>
      call('POST', '/log/undo', { ...more, dryRun: true })
    const login = expect.objectContaining({ event: 'auth.login', id: userId })
    expect((await ok(walk(api.admin))).data.notUndone).toContainEqual(login)
    const unseen = await walk(nobody.call)
    expect([unseen.status, unseen.body.error.message]).toEqual([404, 'The log has no event at this position'])
    const unknown = await walk(nobody.call, { position: '99999999' })
    expect(unseen.body).toEqual(unknown.body)
    const [{ logRequestId }] = await api.sql(
      `select "logRequestId" from "svc_AuditLog" where position = $1 and "logRequestId" is not null`,
      [position],
    )
    expect((await walk(nobody.call, { requestId: logRequestId })).status).toBe(404)

    const log = { collection: 'svc_AuditLog', action: 'read' }
    const some = await api.user([{ ...log, fields: ['id', 'action'] }])
    expect((await walk(some.call)).status).toBe(404)
    const own = await api.user([{ ...log, fields: ['*'], conditions: { userId: '$CURRENT_USER' } }])
    expect((await walk(own.call)).status).toBe(404)
    const reader = await api.user([{ ...log, fields: ['*'] }])
    expect((await ok(walk(reader.call))).data.notUndone).toContainEqual(login)

    const [mine] = await api.sql(
      `select position from "svc_AuditLog" where type = 'auth' and action = 'login' and "userId" = $1`,
      [nobody.id],
    )
    const { data } = await ok(walk(nobody.call, { position: String(mine.position) }))
    expect(data.notUndone).toEqual([expect.objectContaining({ event: 'auth.login', id: nobody.id })])
  })
})

describe('limit', () => {
  it('bounds the lists and says how many it leaves out, of those that the caller may read', async () => {
    const names = Array.from({ length: 5 }, (_, n) => ({ name: `limited ${n}` }))
    const { id: requestId } = await ok(api.admin('POST', '/items/genre/bulk', names))
    const look = async (limit: unknown, call?: Call) => undo({ requestId, dryRun: true, limit }, call)
    const whole = (await ok(undo({ requestId, dryRun: true }))).data
    expect(whole).not.toHaveProperty('more')
    const { data } = await ok(look(2))
    expect(data).toEqual({ ...whole, rows: whole.rows.slice(0, 2), more: { rows: 3, conflicts: 0, notUndone: 0 } })
    expect((await ok(look(5))).data).toEqual({ ...whole, more: { rows: 0, conflicts: 0, notUndone: 0 } })
    for (const limit of [0, 1001, 1.5, 'x']) expect((await look(limit)).status).toBe(400)
    const some = await api.user([
      { collection: 'genre', action: 'read', fields: ['*'], conditions: { name: { neq: 'limited 0' } } },
      ...grants('genre', ['delete']),
    ])
    expect((await ok(look(1, some.call))).data).toMatchObject({
      counts: [{ collection: 'genre', delete: 5 }],
      rows: [expect.anything()],
      more: { rows: 3 },
    })
    await ok(undo({ requestId }))
  })

  it('bounds the effects that stay', async () => {
    const email = 'limit@example.com'
    const { id: requestId } = await ok(
      api.anonymous('POST', '/auth/register', { firstName: 'L', lastName: 'L', email, password: 'a long password' }),
    )
    const all = (await ok(undo({ requestId, dryRun: true }))).data.notUndone
    expect(all.length).toBeGreaterThan(1)
    const { notUndone, more } = (await ok(undo({ requestId, dryRun: true, limit: 1 }))).data
    expect([notUndone, more.notUndone]).toEqual([all.slice(0, 1), all.length - 1])
  })
})

describe('deliveries of webhooks', () => {
  it('is counted for each, and stays', async () => {
    const insert = (id: string) =>
      api.sql(
        `insert into "svc_Webhook" (id, name, url, collections, "role_Id", "user_Id", secret, status)
         select $1::uuid, 'w', 'http://127.0.0.1', '["genre"]', ur."role_Id", ur."user_Id", '', 'paused' from "svc_UserRole" ur limit 1`,
        [id],
      )
    const [one, other] = ['11111111-1111-4111-8111-111111111111', '22222222-2222-4222-8222-222222222222']
    await insert(one)
    await insert(other)
    const { id: requestId } = await ok(api.admin('POST', '/items/genre/bulk', [{ name: 'a' }, { name: 'b' }]))
    const tell = (webhook: string, status: string, action: string) =>
      api.sql(
        `insert into "svc_WebhookDelivery" (id, "webhook_Id", position, collection, action, "itemId", status, "nextAt")
         select gen_random_uuid(), $1::uuid, position, entity, $3, "entityId", $2, now() from "svc_AuditLog"
         where "logRequestId" = $4::uuid`,
        [webhook, status, action, requestId],
      )
    await tell(one, 'delivered', 'create')
    await tell(other, 'withheld', 'create')
    await tell(other, 'delivered', 'resync')
    const { data } = await ok(undo({ requestId }))
    expect(data.notUndone).toEqual([{ event: 'webhook.delivery', id: one, count: 2, at: expect.any(String) }])
    expect(await rows('genre')).toEqual([])
    await api.sql('delete from "svc_Webhook"')
  })
})

describe('consequences of a request', () => {
  it('stays, unless it is included', async () => {
    const hooked = await import('../../src/extensions/context.ts')
    const { ItemsService } = hooked.contextFor(api.runtime, 'svc-hook-undo')
    api.runtime.hooks.register('svc-hook-undo', 'genre', 'items.create.after', async ({ document }: any) => {
      if (document.name === 'loud') await new ItemsService('writer').createOne({ name: 'by the hook' })
    })
    const first = await ok(api.admin('POST', '/items/genre', { name: 'loud' }))
    await ok(undo({ requestId: first.id }))
    expect([await rows('genre'), (await rows('writer')).length]).toEqual([[], 1])
    await api.sql('truncate writer cascade')
    const before = await all()
    const second = await ok(api.admin('POST', '/items/genre', { name: 'loud' }))
    expect(await rows('writer')).toHaveLength(1)
    await ok(undo({ requestId: second.id, include: 'caused' }))
    expect(await all()).toEqual(before)
  })
})

describe('permissions', () => {
  it('is who may do each change of it', async () => {
    const id = await make('genre', { name: 'a' })
    const { id: requestId } = await ok(api.admin('DELETE', `/items/genre/${id}`))
    const none = await api.user(grants('writer', ['read']))
    const reader = await api.user(grants('genre', ['read', 'update']))
    const creator = await api.user(grants('genre', ['read', 'create']))
    const blind = await api.user(grants('genre', ['create']))
    expect((await undo({ requestId }, api.anonymous)).status).toBe(401)
    expect((await undo({ requestId }, none.call)).status).toBe(403)
    expect((await undo({ requestId }, reader.call)).status).toBe(403)
    const counted = await undo({ requestId, dryRun: true }, blind.call)
    expect(counted.body.data).toMatchObject({ rows: [], counts: [{ collection: 'genre', create: 1 }] })
    const seen = await undo({ requestId, dryRun: true }, creator.call)
    expect(seen.body.data.rows).toEqual([{ collection: 'genre', id: String(id), action: 'create' }])
    await ok(undo({ requestId }, creator.call))
    expect(await rows('genre')).toHaveLength(1)
  })

  it('refuses a preview where a value no longer fits its field, as the undo; a conflict is told', async () => {
    const define = (more: object) => ({
      collectionName: 'grade',
      schema: { fields: { n: { type: 'Integer', ...more } } },
    })
    await ok(api.admin('POST', '/schemas', define({})))
    const id = await make('grade', { n: 50 })
    const { id: requestId } = await ok(api.admin('PATCH', `/items/grade/${id}`, { n: 5 }))
    await ok(api.admin('PATCH', '/schemas/grade', define({ validate: { max: 10 } })))
    const position = await api.position()
    for (const dryRun of [true, false]) {
      const { status, body } = await undo({ requestId, dryRun })
      const { message, details } = body.error
      expect([status, message]).toEqual([400, 'grade: Validation failed: 0.n: Value 50 is greater than maximum 10'])
      expect(details.errors).toEqual([expect.objectContaining({ rule: 'max', value: 50 })])
    }
    expect(await api.log(position)).toEqual([])
    await ok(api.admin('PATCH', `/items/grade/${id}`, { n: 6 }))
    const conflicts = [{ collection: 'grade', id, reasons: [{ reason: 'changed', fields: ['n'] }] }]
    expect((await undo({ requestId, dryRun: true })).body.data).toMatchObject({ conflicts })
    expect(await undo({ requestId })).toMatchObject({
      status: 409,
      body: { error: { code: 'UNDO_CONFLICT', details: { conflicts } } },
    })
  })

  it('refuses a preview in the words of the undo', async () => {
    const id = await make('writer', { name: 'a', rank: 1 })
    const update = (await ok(api.admin('PATCH', `/items/writer/${id}`, { name: 'b', rank: 2 }))).id
    const { id: removal } = await ok(
      api.admin('DELETE', `/items/writer/${await make('writer', { name: 'c', rank: 3 })}`),
    )
    const { id: making } = await ok(api.admin('POST', '/items/genre', { name: 'g' }))
    const partly = await api.user([
      { collection: 'writer', action: 'read', fields: ['*'] },
      ...['create', 'update'].map((action) => ({ collection: 'writer', action, fields: ['id', 'name'] })),
    ])
    const elsewhere = await api.user([
      ...grants('writer', ['read']),
      ...grants('writer', ['update'], { conditions: { name: 'another' } }),
    ])
    const all = await api.user(grants('writer', ['read', 'create', 'update']))
    const answers = async (requestId: string, call: Call) => {
      const both = []
      for (const dryRun of [true, false]) both.push(await undo({ requestId, dryRun }, call))
      const [preview, made] = both.map(({ status, body }) => [status, body.error?.message])
      expect(preview).toEqual(made)
      return preview
    }
    const denied = (what: string) => [403, `writer: You don't have permission to ${what}`]
    expect(await answers(update, partly.call)).toEqual(denied('update field: rank'))
    expect(await answers(removal, partly.call)).toEqual(denied('create field: rank'))
    expect(await answers(removal, elsewhere.call)).toEqual(denied(`create items in 'writer'`))
    expect(await answers(making, all.call)).toEqual([
      403,
      `genre: You don't have permission to delete items in 'genre'`,
    ])
    expect(await answers(update, elsewhere.call)).toEqual([
      403,
      `writer: Item not found or you don't have permission to update it`,
    ])
    const before = await api.position()
    expect((await ok(undo({ requestId: update, dryRun: true }, all.call))).data.rows).toHaveLength(1)
    expect(await api.position()).toBe(before)
    expect(await answers(update, all.call)).toEqual([200, undefined])
  })

  it.each([
    [{}, 400],
    [{ requestId: '00000000-0000-7000-8000-000000000000', position: 1 }, 400],
    [{ requestId: 'chosen' }, 404],
    [{ requestId: '00000000-0000-7000-8000-000000000000' }, 404],
    [{ requestId: 'fac494d2-3291-495d-a553-7e84721befc0' }, 404],
    [{ requestId: 'ffffffff-ffff-7fff-bfff-ffffffffffff' }, 404],
    [{ requestId: 5 }, 400],
    [{ position: 'x' }, 404],
    [{ position: -1 }, 400],
    [{ position: '99999999999999' }, 404],
    [{ position: '99999999999999999999' }, 404],
    [{ actor: 'x', from: '2024-01-01T00:00:00Z', to: '2024-01-02T00:00:00Z' }, 400],
    [{ actor: '00000000-0000-7000-8000-000000000000' }, 400],
    [{ actor: '00000000-0000-7000-8000-000000000000', from: 'x', to: 'y' }, 400],
    [{ actor: '00000000-0000-7000-8000-000000000000', from: '2024-01-02T00:00:00Z', to: '2024-01-01T00:00:00Z' }, 400],
    [{ position: 1, include: 'all' }, 400],
    [{ position: 1, force: 'all' }, 400],
    [{ position: 1, force: [{ collection: 'genre' }] }, 400],
    [{ position: 1, everything: true }, 400],
  ])('refuses %j with %i', async (body, status) => {
    const position = await api.position()
    const answer = await undo(body)
    expect([answer.status, answer.text]).toEqual([status, expect.not.stringMatching(/select|syntax/i)])
    expect(await api.position()).toBe(position)
  })
})

describe('more rows than one undo takes', () => {
  it('are refused with their number, by a dry run too, and nothing is done', async () => {
    await api.sql(`insert into genre (name) select 'n' from generate_series(1, 100001)`)
    const [{ position }] = await api.sql(`select max(position)::text as position from "svc_AuditLog"`)
    for (const dryRun of [true, false])
      expect(await undo({ position, dryRun })).toMatchObject({
        status: 413,
        body: { error: { message: 'At most 100000 rows can be undone at once', details: { rows: 100_001 } } },
      })
    const [{ n }] = await api.sql('select count(*)::int as n from genre')
    expect([n, await api.position()]).toEqual([100_001, BigInt(position)])
  })
})

describe('a bulk import', () => {
  it('of 10,000 rows is undone', async () => {
    const body = Array.from({ length: 10_000 }, (_, n) => ({ name: `row ${n}`, rank: n }))
    const { id: requestId } = await ok(api.admin('POST', '/items/writer/bulk', body))
    const { data } = await ok(undo({ requestId }))
    expect(data.counts).toEqual([{ collection: 'writer', create: 0, update: 0, delete: 10_000, conflicts: 0 }])
    expect(await rows('writer')).toEqual([])
  })
})
