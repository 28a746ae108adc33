import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { dropLogTriggersSql, imageSettings, logTriggersSql } from '../../src/catalog/log-triggers.ts'
import { actorCondition, actorCte, setActorSql } from '../../src/events/log.ts'
import {
  asSuperuser,
  clearLog,
  collectionOf,
  connect,
  createLogDatabase,
  createLogged,
  type Logged,
  logged,
  run,
  story,
} from '../support/log.ts'
import { mulberry } from '../support/random.ts'

const notesFields = {
  id: { kind: 'integer' },
  title: { kind: 'text' },
  secret: { kind: 'text', hidden: true },
  seenAt: { kind: 'datetime', unlogged: true },
  price: { kind: 'decimal' },
  at: { kind: 'datetime' },
  during: { kind: 'range', element: 'datetime' },
  meta: { kind: 'json' },
  label: { kind: 'text', generated: `'#' || title` },
  tenant_Id: { kind: 'uuid' },
} as const
const notes = collectionOf('notes', notesFields)
const notesColumns = `id integer primary key, title text, secret text, "seenAt" timestamptz, price numeric, at timestamptz,
  during tstzrange, meta jsonb, label text generated always as ('#' || title) stored, "tenant_Id" uuid`

const user = '11111111-1111-4111-8111-111111111111'
const role = '22222222-2222-4222-8222-222222222222'
const tenant = '33333333-3333-4333-8333-333333333333'
const actor = JSON.stringify({ user, role, tenant, ip: '192.0.2.1', agent: 'test', request: 'r-1' })

let url: string
let db: pg.Client

beforeAll(async () => {
  url = await createLogDatabase()
  db = await connect(url)
  await createLogged(db, notes, notesColumns)
})

afterAll(() => db.end())

beforeEach(async () => {
  await db.query('truncate notes')
  await clearLog(db)
})

describe('a change', () => {
  it('is logged as create, update with the old values of what changed, and delete', async () => {
    await db.query(`insert into notes (id, title, price) values (1, 'a', 1.50)`)
    await db.query(`update notes set title = 'b' where id = 1`)
    await db.query('delete from notes')
    const row = { id: 1, secret: null, seenAt: null, price: 1.5, at: null, during: null, meta: null, tenant_Id: null }
    const [a, b] = [
      { ...row, title: 'a', label: '#a' },
      { ...row, title: 'b', label: '#b' },
    ]
    expect(
      (await logged(db)).map(({ action, entity, entityId, changes }) => ({ action, entity, entityId, changes })),
    ).toEqual([
      { action: 'create', entity: 'notes', entityId: '1', changes: { after: a } },
      { action: 'update', entity: 'notes', entityId: '1', changes: { after: b, before: { title: 'a', label: '#a' } } },
      { action: 'delete', entity: 'notes', entityId: '1', changes: { before: b } },
    ])
  })

  it('that changes nothing appends nothing', async () => {
    await db.query(`insert into notes (id, title, meta) values (1, 'a', '{"x": 1}')`)
    await clearLog(db)
    await db.query(`update notes set title = 'a', meta = '{"x":1}'`)
    await db.query('update notes set title = null where false')
    expect(await logged(db)).toEqual([])
  })

  it('of unlogged fields alone appends nothing, with others they are not among the changed', async () => {
    await db.query(`insert into notes (id, title) values (1, 'a')`)
    await clearLog(db)
    await db.query('update notes set "seenAt" = now()')
    expect(await logged(db)).toEqual([])
    await db.query(`update notes set "seenAt" = '2020-01-02T00:00:00Z', title = 'b'`)
    const [event] = await logged(db)
    expect(event!.changes.before).toEqual({ title: 'a', label: '#a' })
    expect(event!.changes.after!.seenAt).toBe('2020-01-02T00:00:00+00:00')
  })

  it('of the digits of a decimal is a change', async () => {
    await db.query('insert into notes (id, price) values (1, 1.0)')
    await db.query('update notes set price = 1.00')
    const { rows } = await db.query(
      `select changes #>> '{after,price}' as after, changes #>> '{before,price}' as before from "svc_AuditLog" where action = 'update'`,
    )
    expect(rows).toEqual([{ after: '1.00', before: '1.0' }])
  })

  it('to or from null is a change', async () => {
    await db.query(`insert into notes (id) values (1)`)
    await db.query(`update notes set meta = '{}'`)
    await db.query('update notes set meta = null')
    expect((await logged(db)).slice(1).map(({ changes }) => changes.before)).toEqual([{ meta: null }, { meta: {} }])
  })

  it('of the primary key is a delete and a create', async () => {
    await db.query(`insert into notes (id, title) values (1, 'a'), (2, 'b')`)
    await clearLog(db)
    await db.query('update notes set id = id + 10 where id = 2')
    expect(await story(db)).toEqual(['delete 2', 'create 12'])
    expect((await logged(db))[1]!.changes).toEqual({ after: expect.objectContaining({ id: 12, title: 'b' }) })
  })

  it('that exchanges primary keys is an update of both', async () => {
    await db.query('create table swaps (id integer, title text, primary key (id) deferrable)')
    await run(db, logTriggersSql(collectionOf('swaps', { id: { kind: 'integer' }, title: { kind: 'text' } })))
    await db.query(`insert into swaps values (1, 'a'), (2, 'b')`)
    await db.query('update swaps set id = 3 - id')
    const events = (await logged(db, 'swaps')).slice(2)
    expect(events.map(({ action, entityId, changes }) => [action, entityId, changes.before, changes.after])).toEqual(
      expect.arrayContaining([
        ['update', '1', { title: 'a' }, { id: 1, title: 'b' }],
        ['update', '2', { title: 'b' }, { id: 2, title: 'a' }],
      ]),
    )
    expect(events).toHaveLength(2)
  })

  it('of one row or of some of several is the same, also where every field is logged', async () => {
    await db.query('create table tags (id integer primary key, title text)')
    await run(db, logTriggersSql(collectionOf('tags', { id: { kind: 'integer' }, title: { kind: 'text' } })))
    await db.query(`insert into tags values (1, 'a'), (2, 'b')`)
    await clearLog(db)
    await db.query('update tags set title = title where id = 1')
    await db.query(`update tags set title = 'a' where id <= 2`)
    await db.query('update tags set id = 3 where id = 1')
    await db.query(`update tags set id = 4, title = 'd' where id = 3`)
    await db.query(`update tags set title = 'e' where id = 4`)
    const events = await logged(db, 'tags')
    expect(events.map(({ action, entityId, changes }) => [action, entityId, changes])).toEqual([
      ['update', '2', { before: { title: 'b' }, after: { id: 2, title: 'a' } }],
      ['delete', '1', { before: { id: 1, title: 'a' } }],
      ['create', '3', { after: { id: 3, title: 'a' } }],
      ['delete', '3', { before: { id: 3, title: 'a' } }],
      ['create', '4', { after: { id: 4, title: 'd' } }],
      ['update', '4', { before: { title: 'd' }, after: { id: 4, title: 'e' } }],
    ])
  })

  it('of many rows keeps their order', async () => {
    await db.query('insert into notes (id) select i from generate_series(50, 1, -1) i')
    expect(await story(db)).toEqual(Array.from({ length: 50 }, (_, i) => `create ${50 - i}`))
    await clearLog(db)
    await db.query(`update notes set title = 'x'`)
    const stored = (await db.query('select id from notes order by ctid')).rows
    expect(await story(db)).toEqual(stored.map(({ id }) => `update ${id}`))
  })

  it('by an upsert is logged as what happened to each row', async () => {
    await db.query(`insert into notes (id, title) values (1, 'a')`)
    await clearLog(db)
    await db.query(
      `insert into notes (id, title) values (1, 'b'), (2, 'c') on conflict (id) do update set title = excluded.title`,
    )
    expect((await story(db)).sort()).toEqual(['create 2', 'update 1'])
  })

  it('by MERGE is logged as what happened to each row', async () => {
    await db.query(`insert into notes (id, title) values (1, 'a'), (2, 'b')`)
    await clearLog(db)
    await db.query(`merge into notes n using (values (1, 'x'), (2, null), (3, 'c')) v (id, title) on v.id = n.id
      when matched and v.title is null then delete
      when matched then update set title = v.title
      when not matched then insert (id, title) values (v.id, v.title)`)
    expect((await story(db)).sort()).toEqual(['create 3', 'delete 2', 'update 1'])
  })

  it('that is rolled back leaves no event', async () => {
    await db.query('begin')
    await db.query('insert into notes (id) values (1)')
    await db.query('savepoint s')
    await db.query('insert into notes (id) values (2)')
    await db.query('rollback to s')
    await db.query('insert into notes (id) values (3)')
    await db.query('commit')
    expect(await story(db)).toEqual(['create 1', 'create 3'])
  })

  it('by TRUNCATE is a delete of every row, by key', async () => {
    await db.query(`insert into notes (id, secret) values (2, 's'), (1, 't')`)
    await clearLog(db)
    await db.query('truncate notes')
    expect(await story(db)).toEqual(['delete 1', 'delete 2'])
    expect((await logged(db))[0]!.changes.before).toMatchObject({ id: 1, secret: null })
  })

  it('keeps a large value that the update did not touch', async () => {
    await db.query(
      `insert into notes (id, title, meta) values (1, 'a', jsonb_build_object('x', repeat(md5('1'), 3200)))`,
    )
    await db.query(`update notes set price = 2`)
    const [, update] = await logged(db)
    expect(update!.changes.before).toEqual({ price: null })
    expect((update!.changes.after!.meta as { x: string }).x).toHaveLength(102_400)
  })
})

describe('cascades', () => {
  beforeAll(async () => {
    await createLogged(db, collectionOf('parents', { id: { kind: 'integer' } }), 'id integer primary key')
    const child = collectionOf('children', { id: { kind: 'integer' }, parent: { kind: 'integer' } })
    await createLogged(
      db,
      child,
      'id integer primary key, parent integer references parents on delete cascade on update cascade',
    )
    const loose = collectionOf('loose', { id: { kind: 'integer' }, parent: { kind: 'integer' } })
    await createLogged(
      db,
      loose,
      'id integer primary key, parent integer references parents on delete set null deferrable initially deferred',
    )
    const tree = collectionOf('tree', { id: { kind: 'integer' }, up: { kind: 'integer' } })
    await createLogged(db, tree, 'id integer primary key, up integer references tree on delete cascade')
  })

  it('are logged with the actor of the statement that caused them', async () => {
    await db.query('insert into parents values (1), (2), (3)')
    await db.query('insert into children values (10, 1), (11, 1), (20, 2)')
    await db.query('insert into loose values (10, 1), (30, 3)')
    await clearLog(db)
    await db.query(`${actorCte(1)} delete from parents using ctx where id in (1, 2)`, [actor])
    const events = await logged(db)
    expect(events.map((event) => `${event.action} ${event.entity} ${event.entityId}`).sort()).toEqual([
      'delete children 10',
      'delete children 11',
      'delete children 20',
      'delete parents 1',
      'delete parents 2',
      'update loose 10',
    ])
    expect(events.map((event) => event.userId)).toEqual(events.map(() => user))
  })

  it('of a changed key are logged', async () => {
    await db.query('insert into parents values (5)')
    await db.query('insert into children values (50, 5)')
    await clearLog(db)
    await db.query('update parents set id = 6 where id = 5')
    expect(await story(db, 'children')).toEqual(['update 50'])
    expect((await story(db, 'parents')).sort()).toEqual(['create 6', 'delete 5'])
  })

  it('through a tree are logged once per row', async () => {
    await db.query('insert into tree values (1, null), (2, 1), (3, 2), (4, 2), (5, 4)')
    await clearLog(db)
    await db.query('delete from tree where id = 1')
    expect((await story(db, 'tree')).sort()).toEqual([1, 2, 3, 4, 5].map((id) => `delete ${id}`))
  })
})

/** What events make of rows, by key; an event that does not fit what stands before it is an error. */
function replayed(
  start: ReadonlyMap<string, Record<string, unknown>>,
  events: readonly Logged[],
): Map<string, Record<string, unknown>> {
  const rows = new Map(start)
  for (const { action, entityId, changes } of events) {
    const present = rows.get(entityId)
    expect({ action, entityId, known: present !== undefined }).toEqual({ action, entityId, known: action !== 'create' })
    if (action === 'delete') expect(changes.before).toEqual(present)
    else if (action === 'update') expect({ ...changes.after, ...changes.before }).toEqual(present)
    if (action === 'delete') rows.delete(entityId)
    else rows.set(entityId, changes.after!)
  }
  return rows
}

describe('a statement that changes rows of a table that refers to itself', () => {
  const fields = {
    id: { kind: 'integer' },
    v: { kind: 'text' },
    up: { kind: 'integer' },
    secret: { kind: 'text', hidden: true },
  } as const

  const eventsOf = async (entity: string) =>
    (await logged(db, entity)).map(({ action, entityId, changes }) => [action, entityId, changes])

  it('logs keys with their rows’ references as a delete and a create of each, also where a column was dropped', async () => {
    await db.query(
      `create table heads (gone text, id integer primary key, v text, up integer references heads on update cascade, secret text)`,
    )
    await db.query('alter table heads drop column gone')
    await run(db, logTriggersSql(collectionOf('heads', fields)))
    await db.query(
      `insert into heads (id, v, up, secret) values (1, 'a', null, 'canary'), (2, 'b', 1, 'canary'), (3, 'c', 3, 'canary')`,
    )
    await clearLog(db)
    await db.query('update heads set id = id + 100')
    await db.query(`update heads set id = 7, v = 'd' where id = 103`)
    const row = (id: number, v: string, up: number | null) => ({ id, v, up, secret: null })
    const events = await eventsOf('heads')
    // The deletes of a statement are in no order.
    expect(events.slice(0, 3).sort()).toEqual([
      ['delete', '1', { before: row(1, 'a', null) }],
      ['delete', '2', { before: row(2, 'b', 1) }],
      ['delete', '3', { before: row(3, 'c', 3) }],
    ])
    expect(events.slice(3)).toEqual([
      ['create', '101', { after: row(101, 'a', null) }],
      ['create', '102', { after: row(102, 'b', 101) }],
      ['create', '103', { after: row(103, 'c', 103) }],
      ['delete', '103', { before: row(103, 'c', 103) }],
      ['create', '7', { after: row(7, 'd', 7) }],
    ])
  })

  it('logs other unique values with the references to them as one update of each row', async () => {
    await createLogged(
      db,
      collectionOf('codes', { id: { kind: 'integer' }, code: { kind: 'text' }, up: { kind: 'text' } }),
      'id integer primary key, code text unique, up text references codes (code) on update cascade',
    )
    await db.query(`insert into codes values (1, 'a', null), (2, 'b', 'a')`)
    await clearLog(db)
    await db.query(`update codes set code = code || '2'`)
    expect(await eventsOf('codes')).toEqual([
      ['update', '1', { after: { id: 1, code: 'a2', up: null }, before: { code: 'a' } }],
      ['update', '2', { after: { id: 2, code: 'b2', up: 'a2' }, before: { code: 'b', up: 'a' } }],
    ])
  })

  it('logs references that a delete empties one after the other as one update of each row', async () => {
    await createLogged(
      db,
      collectionOf('pairs', { id: { kind: 'integer' }, one: { kind: 'integer' }, two: { kind: 'integer' } }),
      'id integer primary key, one integer references pairs on delete set null, two integer references pairs on delete set null',
    )
    await db.query('insert into pairs values (1, null, null), (2, null, null), (3, 1, 2)')
    await clearLog(db)
    await db.query('delete from pairs where id < 3')
    expect((await eventsOf('pairs')).filter(([action]) => action === 'update')).toEqual([
      ['update', '3', { after: { id: 3, one: null, two: null }, before: { one: 1, two: 2 } }],
    ])
  })

  it('logs an update of the items that its rows link, and of no others', async () => {
    const items = collectionOf('items', { id: { kind: 'integer' } })
    const links = collectionOf('links', { id: { kind: 'integer' }, item: { kind: 'integer' }, up: { kind: 'integer' } })
    await createLogged(db, items, 'id integer primary key')
    await db.query(
      `create table links (id integer primary key, item integer references items, up integer references links on update cascade)`,
    )
    await run(db, logTriggersSql(links, [{ collection: items, foreignKey: 'item', discriminator: undefined }]))
    await db.query('insert into items values (1), (2)')
    await db.query('insert into links values (1, 1, null), (2, 1, 1), (3, 2, null)')
    await clearLog(db)
    await db.query('update links set id = id + 100 where item = 1')
    expect(await story(db, 'items')).toEqual(['update 1'])
    expect((await story(db, 'links')).sort()).toEqual(['create 101', 'create 102', 'delete 1', 'delete 2'])
  })

  it.each(['cascade', 'set null', 'no action'])(
    'is what its events make of the rows, with ON UPDATE %s',
    async (action) => {
      const name = `trees ${action}`
      const random = mulberry(7)
      const upTo = (most: number) => Math.floor(random() * most)
      await createLogged(
        db,
        collectionOf(name, { ...fields, other: { kind: 'integer' } }),
        `id integer primary key, v text, up integer, secret text, other integer,
        foreign key (up) references "${name}" on update ${action} deferrable initially deferred,
        foreign key (other) references "${name}" on update ${action} deferrable initially deferred`,
      )
      const stored = async () => {
        const { rows } = await db.query(`select id::text, to_jsonb(t.*) as row from "${name}" t`)
        return new Map(rows.map(({ id, row }) => [id, row]))
      }
      let known = new Map<string, Record<string, unknown>>()
      let changed = 0
      for (let round = 0; round < 40; round++) {
        const size = 1 + upTo(6)
        const any = () => (random() < 0.4 ? null : upTo(size))
        await db.query(`delete from "${name}"`)
        await clearLog(db)
        const rows = Array.from({ length: size }, (_, id) => [id, `v${upTo(3)}`, any(), any()])
        await db.query(
          `insert into "${name}" (id, v, up, other) select (r->>0)::int, r->>1, (r->>2)::int, (r->>3)::int from jsonb_array_elements($1) r order by random()`,
          [JSON.stringify(rows)],
        )
        known = replayed(new Map(), await logged(db, name))
        expect(known).toEqual(await stored())
        for (let step = 0; step < 3; step++) {
          await clearLog(db)
          const set = [
            ['id = id + 10', 'id = id - 1', 'id = id * 2 + 1', 'id = 5 - id', 'id = id'][upTo(5)],
            ...(random() < 0.3 ? [`v = 'w' || id % 2`] : []),
            ...(random() < 0.2 ? ['up = other'] : []),
          ]
          const which = ['true', `id % 2 = ${upTo(2)}`, `id = ${upTo(size)}`, 'up is not null', 'up = id'][upTo(5)]
          // A key that is taken, or a reference that is left behind, refuses the statement.
          const done = await db.query(`update "${name}" set ${set.join(', ')} where ${which}`).then(
            () => true,
            (error) => (['23505', '23503'].includes(error.code) ? false : Promise.reject(error)),
          )
          if (done) changed += 1
          known = replayed(known, await logged(db, name))
          expect(known).toEqual(await stored())
        }
      }
      expect(changed).toBeGreaterThan(30)
    },
  )
})

describe('hidden fields', () => {
  it('are null in every image, and a change of one still shows', async () => {
    await db.query(`insert into notes (id, title, secret) values (1, 'a', 'canary-1')`)
    await db.query(`update notes set secret = 'canary-2'`)
    await db.query(`update notes set secret = 'canary-3', title = 'b'`)
    await db.query('delete from notes')
    const events = await logged(db)
    expect(events.map(({ changes }) => changes.before)).toEqual([
      undefined,
      { secret: null },
      { secret: null, title: 'a', label: '#a' },
      expect.objectContaining({ secret: null, title: 'b' }),
    ])
    expect(JSON.stringify(events)).not.toContain('canary')
  })
})

describe('the actor', () => {
  const who = async () => {
    const { rows } = await db.query(`select action, "userId", "roleId", "tenant_Id", ipaddress, "userAgent", "requestId"
      from "svc_AuditLog" order by position`)
    return rows
  }
  const known = {
    userId: user,
    roleId: role,
    tenant_Id: tenant,
    ipaddress: '192.0.2.1',
    userAgent: 'test',
    requestId: 'r-1',
  }
  const unknown = { userId: null, roleId: null, tenant_Id: null, ipaddress: null, userAgent: null, requestId: null }

  it('reaches the log from the statement itself, for every shape of write', async () => {
    await db.query(`${actorCte(1)} insert into notes (id, title) select $2::int, $3 from ctx returning id`, [
      actor,
      1,
      'a',
    ])
    await db.query(`insert into notes (id) select $2::int where ${actorCondition(1)} returning id`, [actor, 9])
    await db.query(`update notes set title = 'z' where id = $2 and ${actorCondition(1)}`, [actor, 9])
    await db.query(
      `${actorCte(1)} insert into notes (id) select v.id from ctx, unnest($2::int[]) v(id) on conflict (id) do nothing`,
      [actor, [2, 3]],
    )
    await db.query(`${actorCte(1)} update notes set title = 'b' from ctx where id = $2 returning notes.id`, [actor, 1])
    await db.query(
      `${actorCte(1)} insert into notes (id, title) select 1, 'c' from ctx on conflict (id) do update set title = excluded.title`,
      [actor],
    )
    await db.query(
      `${actorCte(1)}, gone as (delete from notes using ctx where id = any($2::int[]) returning notes.id) select * from gone`,
      [actor, [1, 2]],
    )
    const actions = ['create', 'create', 'update', 'create', 'create', 'update', 'update', 'delete', 'delete']
    expect(await who()).toEqual(actions.map((action) => ({ action, ...known })))
  })

  it('reaches it from a named prepared statement, each time anew', async () => {
    const texts = [
      `${actorCte(1)} insert into notes (id) select $2::int from ctx`,
      `insert into notes (id) select $2::int where ${actorCondition(1)}`,
    ]
    const ids = Array.from({ length: 14 }, (_, at) => at)
    for (const id of ids)
      await db.query({ name: `write ${id % 2}`, text: texts[id % 2]!, values: [JSON.stringify({ ip: `${id}` }), id] })
    expect((await who()).map(({ ipaddress }) => ipaddress)).toEqual(ids.map(String))
  })

  it('holds for a transaction and not beyond its end, where the setting reads as an empty string', async () => {
    await db.query('begin')
    await db.query(setActorSql, [actor])
    await db.query('insert into notes (id) values (1)')
    await db.query('update notes set price = 1')
    await db.query('commit')
    expect((await db.query(`select current_setting('svc.actor', true) as actor`)).rows).toEqual([{ actor: '' }])
    await db.query('delete from notes')
    expect(await who()).toEqual([
      { action: 'create', ...known },
      { action: 'update', ...known },
      { action: 'delete', ...unknown },
    ])
  })

  it('of the statement before does not leak into the next of the same session', async () => {
    await db.query(`${actorCte(1)} insert into notes (id) select 1 from ctx`, [actor])
    await db.query('insert into notes (id) values (2)')
    expect((await who()).map(({ userId }) => userId)).toEqual([user, null])
  })

  it('is missing when the statement does not read from ctx: the trap that actorCte warns of', async () => {
    await db.query(`${actorCte(1)} insert into notes (id) values (1)`, [actor])
    expect(await who()).toEqual([{ action: 'create', ...unknown }])
  })

  it('may know only some of it', async () => {
    await db.query(`${actorCte(1)} insert into notes (id) select 1 from ctx`, [
      JSON.stringify({ ip: '192.0.2.7', user: null }),
    ])
    expect(await who()).toEqual([{ action: 'create', ...unknown, ipaddress: '192.0.2.7' }])
  })

  it('lends its tenant to rows that have none; the row’s own wins', async () => {
    const other = '44444444-4444-4444-8444-444444444444'
    await db.query(`${actorCte(1)} insert into notes (id, "tenant_Id") select 1, $2::uuid from ctx`, [actor, other])
    await db.query(`${actorCte(1)} insert into notes (id) select 2 from ctx`, [actor])
    await db.query('delete from notes where id = 1')
    expect((await logged(db)).map((event) => event.tenant_Id)).toEqual([other, tenant, other])
  })
})

describe('images', () => {
  it('do not depend on the session’s settings', async () => {
    const fields = {
      id: { kind: 'integer' },
      at: { kind: 'datetime' },
      during: { kind: 'range', element: 'datetime' },
    } as const
    const more = { ...fields, ratio: { kind: 'float' }, days: { kind: 'array', element: 'datetime' } } as const
    const columns = 'id integer primary key, at timestamptz, during tstzrange, ratio float8, days timestamptz[]'
    await createLogged(db, collectionOf('times', more), columns)
    const insert = (id: number) =>
      db.query(`insert into times values (${id}, '2024-03-31T23:30:00.123456Z', '[2024-03-31T23:30:00Z,2024-04-01T00:00:00Z)',
        0.1::float8 + 0.2::float8, array['2024-03-31T23:30:00Z'::timestamptz])`)
    await insert(1)
    await db.query(
      `set timezone = 'Asia/Tokyo'; set datestyle = 'SQL, DMY'; set extra_float_digits = -3; set intervalstyle = iso_8601`,
    )
    await insert(2)
    await db.query('update times set id = id')
    await db.query('reset all')
    const [first, second] = (await logged(db, 'times')).map(({ changes }) => changes.after!)
    expect({ ...second, id: 1 }).toEqual(first)
    expect(first).toEqual({
      id: 1,
      at: '2024-03-31T23:30:00.123456+00:00',
      during: '["2024-03-31 23:30:00+00","2024-04-01 00:00:00+00")',
      ratio: 0.30000000000000004,
      days: ['2024-03-31T23:30:00+00:00'],
    })
    expect(Object.keys(imageSettings)).toEqual(['timezone', 'datestyle', 'extra_float_digits'])
  })

  it('turn back into the row they are of', async () => {
    await db.query(`insert into notes (id, title, price, at, during, meta)
      values (1, 'a''b"c\\d', 1234567890123456789.10, '2024-01-01T00:00:00.000001+09', '[,2024-01-01)', '{"n": 1.10, "b": [null]}')`)
    const { rows } = await db.query(`select n::text as stored, r::text as restored from notes n,
      (select (jsonb_populate_record(null::notes, changes -> 'after')).* from "svc_AuditLog") r`)
    expect(rows[0].restored).toBe(rows[0].stored)
  })

  it('are right where a column is called like the words of the trigger', async () => {
    const words = [
      'id',
      'actor',
      'oldest',
      'event',
      'changes',
      'action',
      'entityId',
      'tenant',
      'position',
      'xid',
      "it's",
      'a"b',
    ]
    const fields = Object.fromEntries(words.map((word) => [word, { kind: 'text', hidden: word === "it's" } as const]))
    const columns = words.map((word) => `"${word.replaceAll('"', '""')}" text`).join(', ')
    await createLogged(db, collectionOf('words', fields), `${columns}, primary key (id)`)
    await db.query(`insert into words (id, actor, "it's", "a""b") values ('1', 'x', 'canary', 'y')`)
    await db.query(`update words set oldest = 'o', "it's" = 'canary2', "a""b" = 'z'`)
    const events = await logged(db, 'words')
    expect(events[1]!.changes.before).toEqual({ oldest: null, "it's": null, 'a"b': 'y' })
    expect(JSON.stringify(events)).not.toContain('canary')
  })
})

describe('a collection', () => {
  it.each(['guard', 'shown', 'floor', 'svc_log'])('may be called %s, and the log stays guarded', async (name) => {
    await createLogged(db, collectionOf(name, { id: { kind: 'integer' } }), 'id integer primary key')
    await db.query(`insert into "${name}" values (1)`)
    await db.query(`truncate "${name}"`)
    expect(await story(db, name)).toEqual(['create 1', 'delete 1'])
    await expect(db.query('delete from "svc_AuditLog"')).rejects.toThrow('append-only')
  })
})

describe('after DDL', () => {
  const before = collectionOf('shapes', { id: { kind: 'integer' }, a: { kind: 'text' }, b: { kind: 'text' } })

  it('triggers that are made again follow added, dropped and hidden columns', async () => {
    await createLogged(db, before, 'id integer primary key, a text, b text')
    await db.query(`insert into shapes values (1, 'a', 'b')`)
    const after = collectionOf('shapes', {
      id: { kind: 'integer' },
      b: { kind: 'text', hidden: true },
      c: { kind: 'integer' },
    })
    await db.query('begin')
    await run(db, dropLogTriggersSql('shapes'))
    await db.query('alter table shapes drop column a, add column c integer default 5')
    await run(db, logTriggersSql(after))
    await db.query('commit')
    await db.query(`update shapes set b = 'canary', c = 6`)
    expect((await logged(db, 'shapes'))[1]!.changes).toEqual({
      after: { id: 1, b: null, c: 6 },
      before: { b: null, c: 5 },
    })
  })

  it('can be made again without being dropped, and twice', async () => {
    const same = collectionOf('shapes', { id: { kind: 'integer' }, b: { kind: 'text' }, c: { kind: 'integer' } })
    await run(db, logTriggersSql(same))
    await run(db, logTriggersSql(same))
    await db.query(`update shapes set b = 'shown'`)
    const events = await logged(db, 'shapes')
    expect(events).toHaveLength(1)
    expect(events[0]!.changes.after).toEqual({ id: 1, b: 'shown', c: 6 })
  })

  it('sessions that were open before follow, too', async () => {
    const other = await connect(url)
    await other.query(`update shapes set b = 'x1'`)
    const wider = collectionOf('shapes', {
      id: { kind: 'integer' },
      b: { kind: 'text' },
      c: { kind: 'integer' },
      d: { kind: 'text' },
    })
    await db.query('alter table shapes add column d text')
    await run(db, logTriggersSql(wider))
    await other.query(`update shapes set d = 'new'`)
    await other.end()
    expect((await logged(db, 'shapes')).at(-1)!.changes.before).toEqual({ d: null })
  })

  it('a collection that is not logged any more loses its triggers', async () => {
    await run(db, logTriggersSql({ ...before, logged: false }))
    await db.query('delete from shapes')
    expect(await logged(db, 'shapes')).toEqual([])
    const { rows } = await db.query(
      `select proname from pg_proc where pronamespace = 'svc_log'::regnamespace and proname = 'shapes'`,
    )
    expect(rows).toEqual([])
  })

  it('a dropped table can be made again under its name', async () => {
    await run(db, dropLogTriggersSql('shapes'))
    await db.query('drop table shapes')
    await createLogged(db, before, 'id integer primary key, a text, b text')
    await db.query('insert into shapes values (1)')
    expect(await story(db, 'shapes')).toEqual(['create 1'])
  })
})

describe('other roles', () => {
  it('may change a table without any right to the log, and are logged', async () => {
    const admin = await connect(asSuperuser(url))
    const writer = `log_writer_${process.pid}`
    try {
      await admin.query(
        `create role ${writer}; grant select, insert, update, delete on notes to ${writer}; set role ${writer}`,
      )
      await expect(admin.query('select from "svc_AuditLog"')).rejects.toThrow('permission denied')
      await admin.query('insert into notes (id) values (1)')
      expect(await story(db)).toEqual(['create 1'])
    } finally {
      await admin.query(`reset role; drop owned by ${writer}; drop role ${writer}`)
      await admin.end()
    }
  })

  it('can’t catch events in a table of their own', async () => {
    await db.query('create temp table "svc_AuditLog" (like public."svc_AuditLog")')
    await db.query('insert into notes (id) values (1)')
    await db.query('drop table pg_temp."svc_AuditLog"')
    expect(await story(db)).toEqual(['create 1'])
  })
})
