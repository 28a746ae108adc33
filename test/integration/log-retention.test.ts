import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { quoteText } from '../../src/db/sql.ts'
import { type Cursor, cursorAt, parseCursor } from '../../src/events/cursor.ts'
import { logDoors, positionOfEventId } from '../../src/events/log.ts'
import { currentCursor, pullRound } from '../../src/events/log-reader.ts'
import { adoptRestoredEventsSql, ensurePartitionsSql, logTableSql, publicationSql } from '../../src/events/log-table.ts'
import { expireEvents } from '../../src/events/retention.ts'
import { clearLog, connect, createLogDatabase, run } from '../support/log.ts'
import { settled } from '../support/settled.ts'
import { waitFor } from '../support/wait.ts'

let url: string
let db: pg.Client

beforeAll(async () => {
  url = await createLogDatabase()
  db = await connect(url)
})

afterAll(() => db.end())

beforeEach(async () => {
  await clearLog(db)
  await db.query(`update svc_log.floor set removed = '0'`)
})

const append = async (at: string | null, count = 1) => {
  await db.query(
    `insert into "svc_AuditLog" (entity, "entityId", action, "createdAt")
     select 'items', i::text, 'create', coalesce($1::timestamptz, clock_timestamp()) from generate_series(1, $2::int) i`,
    [at, count],
  )
}
const partitions = async (): Promise<string[]> => {
  const { rows } = await db.query(
    `select relname from pg_inherits join pg_class c on c.oid = inhrelid where inhparent = '"svc_AuditLog"'::regclass order by 1`,
  )
  return rows.map(({ relname }) => relname)
}
const partitionOf = async (at: string): Promise<string[]> => {
  const { rows } = await db.query(
    'select tableoid::regclass::text as name from "svc_AuditLog" where "createdAt" = $1',
    [at],
  )
  return rows.map(({ name }) => name.replaceAll('"', ''))
}
/** The first of the month so many months from now, 12:00 UTC. */
const month = (ahead: number) => {
  const now = new Date()
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + ahead, 1, 12)).toISOString()
}
const nameOf = (at: string) => `svc_AuditLog_${at.slice(0, 4)}${at.slice(5, 7)}`

describe('the log’s table', () => {
  it('can be made again without harm', async () => {
    await append(null)
    await run(db, [...logTableSql(), ...publicationSql()])
    expect((await db.query('select from "svc_AuditLog"')).rowCount).toBe(1)
  })

  it('has ids that grow with the position and lead back to it', async () => {
    await append(null, 300)
    const { rows } = await db.query('select id, position from "svc_AuditLog" order by id')
    expect(rows.map(({ id }) => positionOfEventId(id))).toEqual(rows.map(({ position }) => position))
    expect(rows.map(({ position }) => Number(position))).toEqual(
      rows.map(({ position }) => Number(position)).sort((a, b) => a - b),
    )
    expect(positionOfEventId('11111111-1111-4111-8111-111111111111')).toBeUndefined()
  })

  it('has partitions that begin and end with the months of UTC', async () => {
    await db.query(`set timezone = 'Asia/Tokyo'`)
    await run(db, ensurePartitionsSql(5))
    await db.query('reset timezone')
    expect(await partitions()).toEqual([
      ...[0, 1, 2, 3, 4, 5].map((ahead) => nameOf(month(ahead))),
      'svc_AuditLog_default',
    ])
    const first = `${month(1).slice(0, 8)}01T00:00:00.000Z`
    const justBefore = new Date(Date.parse(first) - 1).toISOString()
    await append(first)
    await append(justBefore)
    expect(await partitionOf(first)).toEqual([nameOf(month(1))])
    expect(await partitionOf(justBefore)).toEqual([nameOf(month(0))])
  })

  it('keeps events of a month without a partition, and moves them when it gets one', async () => {
    const at = month(7)
    await append(at, 3)
    expect(await partitionOf(at)).toEqual(Array(3).fill('svc_AuditLog_default'))
    const before = (await db.query('select * from "svc_AuditLog" order by position')).rows
    await run(db, ensurePartitionsSql(7))
    expect(await partitionOf(at)).toEqual(Array(3).fill(nameOf(at)))
    expect((await db.query('select * from "svc_AuditLog" order by position')).rows).toEqual(before)
    const { rows } = await db.query('select removed from svc_log.floor')
    expect(rows).toEqual([{ removed: '0' }])
  })

  it('gets its partitions once, however many ask', async () => {
    const others = await Promise.all([1, 2, 3].map(() => connect(url)))
    await Promise.all(others.map((client) => run(client, ensurePartitionsSql(9))))
    await Promise.all(others.map((client) => client.end()))
    expect(await partitions()).toContain(nameOf(month(9)))
  })

  it('publishes inserts, and of them only the position', async () => {
    const { rows } = await db.query('select tablename, attnames::text[] as columns from pg_publication_tables')
    expect(rows).toEqual([{ tablename: 'svc_AuditLog', columns: ['position'] }])
    const { rows: publications } = await db.query(
      'select pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot from pg_publication',
    )
    expect(publications).toEqual([
      { pubinsert: true, pubupdate: false, pubdelete: false, pubtruncate: false, pubviaroot: true },
    ])
  })

  it('repairs a publication that was widened', async () => {
    await db.query('create table secrets (token text)')
    await db.query(
      `alter publication svc_realtime add table secrets; alter publication svc_realtime set (publish = 'insert, update')`,
    )
    await run(db, publicationSql())
    const { rows } = await db.query('select tablename from pg_publication_tables')
    expect(rows).toEqual([{ tablename: 'svc_AuditLog' }])
    expect((await db.query('select pubupdate from pg_publication')).rows).toEqual([{ pubupdate: false }])
  })
})

describe('an event', () => {
  const refused = 'the log is append-only'
  it.each([
    'update "svc_AuditLog" set changes = null',
    `update "${nameOf(month(0))}" set action = 'x'`,
    'delete from "svc_AuditLog"',
    `delete from "${nameOf(month(0))}"`,
    'truncate "svc_AuditLog"',
    `truncate "${nameOf(month(0))}"`,
    'truncate "svc_AuditLog_default"',
  ])('stays: %s', async (statement) => {
    await append(null)
    await expect(db.query(statement)).rejects.toThrow(refused)
    expect((await db.query('select action from "svc_AuditLog"')).rows).toEqual([{ action: 'create' }])
  })

  it('may be deleted by retention and changed by erasure, each behind its own door, which closes with the statement', async () => {
    await append(null)
    const erase = `${logDoors.erase} update "svc_AuditLog"`
    await db.query(`${erase} set changes = '{"erased": true}', ipaddress = null, "userAgent" = null`)
    await expect(db.query(`${logDoors.erase} delete from "svc_AuditLog"`)).rejects.toThrow(refused)
    await expect(db.query(`${erase} set action = 'login'`)).rejects.toThrow(refused)
    await expect(db.query('update "svc_AuditLog" set changes = null')).rejects.toThrow(refused)
    await expect(db.query(`${logDoors.retention} update "svc_AuditLog" set changes = null`)).rejects.toThrow(refused)
    expect((await db.query('select changes, action from "svc_AuditLog"')).rows).toEqual([
      { changes: { erased: true }, action: 'create' },
    ])
  })

  it('stays, whatever SQL says that another statement runs: only the text that was sent opens a door', async () => {
    await append(null)
    const inner = [
      'delete from "svc_AuditLog"',
      `${logDoors.retention} delete from "svc_AuditLog"`,
      `set svc.retention = 'on'; ${logDoors.retention} delete from "svc_AuditLog"`,
    ]
    for (const statement of inner) {
      await expect(db.query(`do $do$ begin execute ${quoteText(statement)}; end $do$`)).rejects.toThrow(refused)
      await expect(db.query(`select 1; ${statement}`)).rejects.toThrow(refused)
    }
    for (const name of ['svc.retention', 'svc.erase', 'svc.adopt']) await db.query(`set ${name} = 'on'`)
    await expect(db.query('delete from "svc_AuditLog"')).rejects.toThrow(refused)
    await expect(db.query('update "svc_AuditLog" set changes = null')).rejects.toThrow(refused)
    expect((await db.query('select action from "svc_AuditLog"')).rows).toEqual([{ action: 'create' }])
  })

  it('has the id of its position, which erasing leaves alone', async () => {
    const insert = `insert into "svc_AuditLog" (entity, action) select 'x', 'y' from generate_series(1, 3) returning id, position`
    const { rows } = await db.query(insert)
    expect(rows.map(({ id }) => positionOfEventId(id))).toEqual(rows.map(({ position }) => position))
    const change = `${logDoors.erase} update "svc_AuditLog" set id = gen_random_uuid()`
    await expect(db.query(change)).rejects.toThrow('append-only')
  })
})

describe('expireEvents', () => {
  const makePartition = (at: string) => {
    const from = `${at.slice(0, 8)}01T00:00:00Z`
    return db.query(`create table "${nameOf(at)}" partition of "svc_AuditLog" for values from ('${from}')
      to ('${new Date(Date.UTC(Number(at.slice(0, 4)), Number(at.slice(5, 7)), 1)).toISOString()}')`)
  }

  it('drops whole months, deletes the rest in batches, and keeps what is younger', async () => {
    const [old, older] = [month(-3), month(-4)]
    await makePartition(old)
    await makePartition(older)
    await append(older, 5)
    await append(old, 5)
    const boundary = new Date(Date.parse(month(-2)))
    await append(new Date(boundary.getTime() - 1000).toISOString(), 1)
    await append(new Date(boundary.getTime() - 3_600_000).toISOString(), 24)
    await append(boundary.toISOString(), 2)
    await append(null, 3)
    const expiry = await expireEvents(db, boundary, { batch: 10 })
    expect(expiry).toEqual({ dropped: [nameOf(older), nameOf(old)], postponed: [], held: [], deleted: 25 })
    expect((await db.query('select from "svc_AuditLog"')).rowCount).toBe(5)
    expect(await expireEvents(db, boundary, { batch: 10 })).toEqual({
      dropped: [],
      postponed: [],
      held: [],
      deleted: 0,
    })
  })

  it('takes no other table for a month, whatever it is called', async () => {
    await db.query('create table invoices_141631 (); set enable_nestloop = off; set enable_mergejoin = off')
    const expiry = await expireEvents(db, new Date(month(-1)))
    await db.query('drop table invoices_141631; reset enable_nestloop; reset enable_mergejoin')
    expect(expiry).toEqual({ dropped: [], postponed: [], held: [], deleted: 0 })
  })

  it('leaves a month that a transaction is using for the next run', async () => {
    const old = month(-3)
    await makePartition(old)
    await append(old, 2)
    const reader = await connect(url)
    await reader.query('begin')
    await reader.query(`select from "${nameOf(old)}"`)
    expect(await expireEvents(db, new Date(month(-1)))).toEqual({
      dropped: [],
      postponed: [nameOf(old)],
      held: [],
      deleted: 0,
    })
    await reader.query('commit')
    await reader.end()
    expect(await expireEvents(db, new Date(month(-1)))).toMatchObject({ dropped: [nameOf(old)], deleted: 0 })
  })
})

describe('a cursor whose events are gone', () => {
  const pull = async (cursor: Parameters<typeof pullRound>[1]) => {
    const page = await pullRound(db, cursor)
    return page.resync ? 'resync' : page.events.length
  }

  it('is told to start over, with a cursor that works', async () => {
    const before = await currentCursor(db)
    await append(month(-3), 2)
    await settled(db)
    const between = await currentCursor(db)
    await append(null)
    expect(await pull(before)).toBe(3)
    await expireEvents(db, new Date(month(-1)))
    expect(await pull(before)).toBe('resync')
    expect(await pull(between)).toBe(1)
    const page = await pullRound(db, before)
    expect(await pull(page.cursor)).toBe(0)
  })

  it('is told so when the log was emptied, and is not when it is new', async () => {
    const early = cursorAt('3:3:')
    expect(await pull(early)).toBe(0)
    await append(month(-3))
    await expireEvents(db, new Date(month(-1)))
    expect((await db.query('select from "svc_AuditLog"')).rowCount).toBe(0)
    expect(await pull(early)).toBe('resync')
    await waitFor(async () => (await pull(await currentCursor(db))) === 0)
  })

  it('is told so in the middle of a round', async () => {
    const before = await currentCursor(db)
    await append(month(-3), 5)
    const page = await pullRound(db, before, { limit: 2 })
    await expireEvents(db, new Date(month(-1)))
    expect(await pull(page.cursor)).toBe('resync')
  })

  it('carried by the newest removed event is told so, by the event of the next round is not', async () => {
    const eventSince = async (cursor: Cursor) => {
      const page = await pullRound(db, cursor)
      if (page.resync) throw new Error('resync')
      return { event: page.events[0], cursor: page.cursor }
    }
    await append(month(-3))
    await settled(db)
    const { event: removed, cursor } = await eventSince(cursorAt('3:3:'))
    await append(null)
    const { event: kept } = await eventSince(cursor)
    await expireEvents(db, new Date(month(-1)))
    expect(await pull(parseCursor(removed!.cursor))).toBe('resync')
    expect(await pull(parseCursor(kept!.cursor))).toBe(0)
  })
})

describe('after a restore into another server', () => {
  const future = '900000000000'
  /** As pg_dump leaves it: events, and a floor, of transactions that this server will not reach for years. */
  const restore = async () => {
    await append(null, 3)
    await db.query(`${logDoors.adopt} begin;
      update "svc_AuditLog" set xid = '${future}', horizon = '${future}'; update svc_log.floor set removed = '890000000000'; commit`)
  }

  it('the log works like a new one, and keeps its history', async () => {
    await restore()
    await run(db, adoptRestoredEventsSql())
    const page = await pullRound(db, cursorAt('3:3:'))
    expect(page.resync).toBe(true)
    await waitFor(async () => !(await pullRound(db, await currentCursor(db))).resync)
    const now = await currentCursor(db)
    await append(null)
    expect(await pullRound(db, now)).toMatchObject({ resync: false, events: [{ entityId: '1' }] })
    expect((await db.query('select from "svc_AuditLog"')).rowCount).toBe(4)
    await expect(db.query('update "svc_AuditLog" set changes = null')).rejects.toThrow('append-only')
  })

  it('a cursor from before is told to start over, adopted or not, also in the middle of a round', async () => {
    await restore()
    for (const cursor of [
      cursorAt(`${future}:${future}:`),
      { kind: 'event', snapshot: '3:3:', upTo: `${future}:${future}:`, position: '1' } as const,
      { kind: 'snapshot', snapshot: '3:3:', upTo: `${future}:${future}:`, position: '5' } as const,
    ]) {
      await db.query(`update svc_log.floor set removed = '0'`)
      expect((await pullRound(db, cursor)).resync).toBe(true)
    }
  })

  it('an ordinary start changes nothing', async () => {
    await append(null, 2)
    const before = (await db.query('select * from "svc_AuditLog" order by position')).rows
    await run(db, adoptRestoredEventsSql())
    expect((await db.query('select * from "svc_AuditLog" order by position')).rows).toEqual(before)
    expect((await db.query('select removed from svc_log.floor')).rows).toEqual([{ removed: '0' }])
  })
})
