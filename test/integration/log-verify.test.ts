import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { logTriggersSql } from '../../src/catalog/log-triggers.ts'
import { report } from '../../src/cli/log.ts'
import { erasedMarker, logDoors } from '../../src/events/log.ts'
import { verifyLog } from '../../src/events/verify.ts'
import { catalogOf, clearLog, collectionOf, connect, createLogDatabase, createLogged, run } from '../support/log.ts'

const notes = collectionOf('notes', {
  id: { kind: 'integer' },
  title: { kind: 'text' },
  secret: { kind: 'text', hidden: true },
  seenAt: { kind: 'datetime', unlogged: true },
  price: { kind: 'decimal' },
  at: { kind: 'datetime' },
})
const columns = 'id integer primary key, title text, secret text, "seenAt" timestamptz, price numeric, at timestamptz'

let url: string
let db: pg.Client

beforeAll(async () => {
  url = await createLogDatabase()
  db = await connect(url)
})

afterAll(() => db.end())

beforeEach(async () => {
  await db.query('drop table if exists notes')
  await clearLog(db)
  await createLogged(db, notes, columns)
})

const verify = async (collection = notes) => (await verifyLog(db, catalogOf(collection)))[0]!
const good = { collection: 'notes', unverifiable: 0, erased: 0, different: 0, differences: [] }

/** Changes the table behind the log's back. */
async function tamper(statement: string): Promise<void> {
  await db.query(`alter table notes disable trigger user; ${statement}; alter table notes enable trigger user`)
}

describe('verifyLog', () => {
  it('finds a table that has been through every kind of change in order', async () => {
    await db.query(`set timezone = 'Asia/Tokyo'`)
    await db.query(
      `insert into notes (id, title, secret, price, at) select i, 'n' || i, 's', i * 1.10, now() from generate_series(1, 200) i`,
    )
    await db.query(`update notes set title = title || '!' where id % 2 = 0`)
    await db.query(`update notes set secret = 'other' where id % 3 = 0`)
    await db.query('update notes set "seenAt" = now()')
    await db.query('delete from notes where id % 5 = 0')
    await db.query('update notes set id = id + 1000 where id > 190')
    await db.query('reset timezone')
    expect(await verify()).toEqual({ ...good, rows: 160, verified: 160 })
  })

  it('finds an empty table in order', async () => {
    expect(await verify()).toEqual({ ...good, rows: 0, verified: 0 })
  })

  it('names rows that were changed, lost or brought back behind the log, and no values', async () => {
    await db.query(`insert into notes (id, title, price) values (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, 'd', 4)`)
    await db.query('delete from notes where id = 4')
    await tamper(
      `update notes set title = 'forged', price = 9 where id = 1; delete from notes where id = 2; insert into notes values (4)`,
    )
    expect(await verify()).toEqual({
      ...good,
      rows: 3,
      verified: 1,
      different: 3,
      differences: [
        { entityId: '1', kind: 'changed', fields: ['title', 'price'] },
        { entityId: '2', kind: 'lost', fields: [] },
        { entityId: '4', kind: 'revived', fields: [] },
      ],
    })
  })

  it('counts rows without an event as unverifiable, not as good', async () => {
    await tamper('insert into notes values (1), (2)')
    await db.query('insert into notes values (3)')
    expect(await verify()).toEqual({ ...good, rows: 3, verified: 1, unverifiable: 2 })
  })

  it('counts rows whose newest event was erased', async () => {
    await db.query('insert into notes values (1), (2)')
    await db.query(`${logDoors.erase} update "svc_AuditLog" set changes = $1 where "entityId" = '1'`, [erasedMarker])
    expect(await verify()).toEqual({ ...good, rows: 2, verified: 1, erased: 1 })
  })

  it('finds an event whose image was removed without the marker', async () => {
    await db.query('insert into notes values (1)')
    await db.query(`${logDoors.erase} update "svc_AuditLog" set changes = null`)
    expect((await verify()).differences).toEqual([{ entityId: '1', kind: 'changed', fields: [] }])
  })

  it('ignores other facts about an item, such as a login', async () => {
    await db.query('insert into notes values (1)')
    await db.query(
      `insert into "svc_AuditLog" (type, entity, "entityId", action) values ('auth', 'notes', '1', 'login')`,
    )
    expect(await verify()).toEqual({ ...good, rows: 1, verified: 1 })
  })

  it('reads old events with today’s columns', async () => {
    await db.query(`insert into notes (id, title, price) values (1, 'a', 5)`)
    await db.query(
      'alter table notes drop column title, add column rank integer default 7, alter column price type text',
    )
    const now = collectionOf('notes', {
      id: { kind: 'integer' },
      secret: { kind: 'text', hidden: true },
      seenAt: { kind: 'datetime', unlogged: true },
      price: { kind: 'text' },
      at: { kind: 'datetime', hidden: true },
      rank: { kind: 'integer' },
    })
    await run(db, logTriggersSql(now))
    expect(await verify(now)).toEqual({ ...good, rows: 1, verified: 1 })
    await db.query('update notes set rank = 8, at = now()')
    expect(await verify(now)).toEqual({ ...good, rows: 1, verified: 1 })
  })

  it('lists the first ten of many differences', async () => {
    await db.query('insert into notes select i from generate_series(1, 25) i')
    await tamper('delete from notes')
    const { different, differences } = await verify()
    expect(different).toBe(25)
    expect(differences).toHaveLength(10)
  })

  it('sees one moment: a change that commits meanwhile disturbs nothing', async () => {
    await db.query('insert into notes select i from generate_series(1, 2000) i')
    const writer = await connect(url)
    let running = true
    const writing = (async () => {
      for (let i = 0; running; i += 1) await writer.query('update notes set price = $1 where id % 10 = $2', [i, i % 10])
    })()
    for (let i = 0; i < 8; i += 1) expect(await verify()).toEqual({ ...good, rows: 2000, verified: 2000 })
    running = false
    await writing
    await writer.end()
  })

  it('says which table is missing', async () => {
    const missing = catalogOf(collectionOf('missing', { id: { kind: 'integer' } }))
    expect(await verifyLog(db, missing)).toMatchObject([
      { collection: 'missing', rows: 0, problem: 'its table is missing' },
    ])
  })

  it('passes over collections that are not logged and leaves no transaction open', async () => {
    expect(await verifyLog(db, catalogOf({ ...notes, logged: false }))).toEqual([])
    const unreadable = { ...notes, primaryKey: { ...notes.primaryKey, name: 'nothing' } }
    await expect(verifyLog(db, catalogOf(unreadable))).rejects.toThrow('nothing')
    await db.query('insert into notes values (1)')
  })
})

describe('the report', () => {
  it('is a table with the differences below', () => {
    const difference = { entityId: '7', kind: 'changed', fields: ['title', 'price'] } as const
    const counts = { rows: 1200, verified: 1199, unverifiable: 0, erased: 0, different: 1 }
    expect(report([{ collection: 'notes', ...counts, differences: [difference] }])).toBe(
      [
        'collection  rows  verified  unverifiable  erased  different',
        'notes       1200      1199             0       0          1',
        'notes 7: changed title, price',
        '',
      ].join('\n'),
    )
  })
})
