import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Cursor, cursorAt, encodeCursor, parseCursor } from '../../src/events/cursor.ts'
import {
  currentCursor,
  type LogEvent,
  type PullOptions,
  positionsOf,
  pullRound,
  type Summarized,
} from '../../src/events/log-reader.ts'
import { clearLog, collectionOf, connect, createLogDatabase, createLogged } from '../support/log.ts'

let url: string
let db: pg.Client
const open: pg.Client[] = []

/** A session of its own, closed after the file. */
const session = async () => {
  const client = await connect(url)
  open.push(client)
  return client
}

beforeAll(async () => {
  url = await createLogDatabase()
  db = await session()
  for (const name of ['items', 'others'])
    await createLogged(
      db,
      collectionOf(name, { id: { kind: 'integer' }, version: { kind: 'integer' } }),
      'id integer primary key, version integer',
    )
})

afterAll(() => Promise.all(open.map((client) => client.end())))

beforeEach(async () => {
  await db.query('truncate items, others')
  await clearLog(db)
})

/** All pages of a round, every cursor through its encoding. */
async function round(
  cursor: Cursor,
  options: PullOptions = {},
): Promise<{ events: LogEvent[]; cursor: Cursor; pages: number; summaries: (Summarized | undefined)[] }> {
  const events: LogEvent[] = []
  const summaries: (Summarized | undefined)[] = []
  for (let pages = 1; ; pages += 1) {
    const page = await pullRound(db, cursor, options)
    if (page.resync) throw new Error('resync')
    events.push(...page.events)
    summaries.push(page.summarized)
    cursor = parseCursor(encodeCursor(page.cursor))
    if (!page.more) return { events, cursor, pages, summaries }
  }
}

const ids = (events: readonly LogEvent[]) => events.map(({ entityId }) => Number(entityId))
const upsert = (client: pg.Client, id: number, version: number) =>
  client.query('insert into items values ($1, $2) on conflict (id) do update set version = excluded.version', [
    id,
    version,
  ])

describe('a round', () => {
  it('has what was committed since the cursor, and nothing twice', async () => {
    const start = await currentCursor(db)
    await upsert(db, 1, 1)
    const first = await round(start)
    expect(ids(first.events)).toEqual([1])
    await upsert(db, 2, 1)
    const second = await round(first.cursor)
    expect(ids(second.events)).toEqual([2])
    expect((await round(second.cursor)).events).toEqual([])
    expect(ids((await round(start)).events)).toEqual([1, 2])
  })

  it('has the facts of an event and no images', async () => {
    const start = await currentCursor(db)
    await upsert(db, 1, 1)
    const [event] = (await round(start)).events
    expect(event).toEqual({
      position: expect.stringMatching(/^\d+$/),
      xid: expect.stringMatching(/^\d+$/),
      type: 'data',
      entity: 'items',
      entityId: '1',
      action: 'create',
      userId: null,
      tenantId: null,
      createdAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      cursor: expect.stringMatching(/^[\w-]+$/),
    })
  })

  it('can be limited to collections', async () => {
    const start = await currentCursor(db)
    await upsert(db, 1, 1)
    await db.query('insert into others values (9)')
    expect(ids((await round(start, { collections: ['others'] })).events)).toEqual([9])
    expect(ids((await round(start, { collections: [] })).events)).toEqual([])
  })

  it('keeps to its snapshot while it is paged, however much is written meanwhile', async () => {
    const start = await currentCursor(db)
    await db.query('insert into items select i, 1 from generate_series(1, 10) i')
    let page = await pullRound(db, start, { limit: 4 })
    const seen: number[] = []
    for (let meanwhile = 100; ; meanwhile += 1) {
      if (page.resync) throw new Error('resync')
      seen.push(...ids(page.events))
      if (!page.more) break
      await upsert(db, meanwhile, 1)
      page = await pullRound(db, page.cursor, { limit: 4 })
    }
    expect(seen).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    expect(ids((await round(page.cursor)).events)).toEqual([100, 101])
  })

  it('pages through ten thousand events, and through gaps between them', async () => {
    const start = await currentCursor(db)
    const [a, b] = [await session(), await session()]
    await a.query('begin')
    await a.query('insert into items select i, 1 from generate_series(1, 2000) i')
    await b.query('insert into others select i from generate_series(1, 6000) i')
    const behind = (await round(start)).cursor
    await a.query('insert into items select i, 1 from generate_series(2001, 4000) i')
    await a.query('commit')
    const all = await round(start, { limit: 300 })
    expect(all.events).toHaveLength(10_000)
    expect(all.pages).toBe(34)
    // Only the transaction that was open: its events lie before and after six thousand that are known already.
    const rest = await round(behind, { limit: 300 })
    expect(ids(rest.events)).toEqual(Array.from({ length: 4000 }, (_, i) => i + 1))
    expect(rest.pages).toBe(14)
  })

  it('tells in brief the same events, and the day of each in UTC, from page to page', async () => {
    const start = await currentCursor(db)
    await db.query(`set time zone 'Pacific/Auckland'`)
    await db.query(`insert into "svc_AuditLog" (entity, "entityId", action, "createdAt")
      select 'items', i::text, 'create', timestamptz '2026-01-31 23:59:59.999Z' + i % 3 * interval '1 ms'
      from generate_series(1, 1200) i`)
    const whole = await round(start)
    const counted = {
      each: ([asked]: readonly string[]) => `nullif(e."entityId"::int, ${asked}::int)`,
      ofRun: { values: 'array_agg(value order by position)' },
      once: `select 'once'`,
      values: [700],
      runLength: 100,
    }
    const brief = await round(start, { brief: counted, limit: 250 })
    const told = ({ position, createdAt }: LogEvent) => [position, createdAt.slice(0, 10)]
    expect(brief.events.map(told)).toEqual(whole.events.map(told))
    expect(new Set(brief.events.map(({ createdAt }) => createdAt))).toEqual(new Set(['2026-01-31', '2026-02-01']))
    expect(brief.pages).toBe(5)
    const runs = brief.summaries.flatMap((each) => each!.runs)
    const values = runs.flatMap((run) => run.values as (number | null)[]).map((value) => value ?? 700)
    expect(values.sort((a, b) => a - b)).toEqual(Array.from({ length: 1200 }, (_, i) => i + 1))
    expect(runs.filter(({ isComplete }) => !isComplete)).toHaveLength(1)
    for (const { first, last, count, latest, day, positions } of runs) {
      expect(BigInt(first) / 100n).toBe(BigInt(last) / 100n)
      expect(positionsOf({ first, count, positions }).readBigInt64BE((count - 1) * 8)).toBe(BigInt(last))
      expect(latest.slice(0, 10)).toBe(day)
    }
    expect(brief.summaries[0]!.once).toBe('once')
    expect((await round(brief.cursor, { brief: counted })).events).toEqual([])
    await db.query('reset time zone')
  })

  it('ends where it is told to', async () => {
    const start = await currentCursor(db)
    await upsert(db, 1, 1)
    const middle = (await round(start)).cursor
    await upsert(db, 2, 1)
    if (middle.kind !== 'snapshot') throw new Error('a round ends at a snapshot')
    const part = await round(start, { upTo: middle.snapshot })
    expect(ids(part.events)).toEqual([1])
    expect(part.cursor).toEqual(middle)
  })
})

describe('three interleaved transactions', () => {
  /**
   * X takes the lower position for item 1 and commits last; Y and Z commit in between. By position alone X is lost, by
   * transaction id below xmin Z's older version comes after X's newer one.
   */
  it('arrive complete and in order, where a reader of "position > last" loses one', async () => {
    const [x, y, z] = [await session(), await session(), await session()]
    const start = await currentCursor(db)
    await x.query('begin')
    await x.query('select pg_current_xact_id()')
    await y.query('begin')
    await upsert(y, 2, 1)
    await z.query('begin')
    await upsert(z, 1, 1)
    await z.query('commit')
    let last = 0n
    const naive = async () => {
      const { rows } = await db.query(
        'select position, "entityId" from "svc_AuditLog" where position > $1 order by position',
        [last],
      )
      last = rows.reduce((max, row) => (BigInt(row.position) > max ? BigInt(row.position) : max), last)
      return rows.map((row) => Number(row.entityId))
    }
    const first = await round(start)
    const naiveFirst = await naive()
    await upsert(x, 1, 2)
    await x.query('commit')
    await y.query('commit')
    const second = await round(first.cursor)
    const naiveSecond = await naive()

    expect([...naiveFirst, ...naiveSecond]).toEqual([1, 1])
    expect(ids(first.events)).toEqual([1])
    expect(ids(second.events).sort()).toEqual([1, 2])
    const ofItem = [...first.events, ...second.events].filter(({ entityId }) => entityId === '1')
    expect(ofItem.map(({ action }) => action)).toEqual(['create', 'update'])
    const byXid = ofItem.toSorted((a, b) => Number(BigInt(a.xid) - BigInt(b.xid)))
    expect(byXid.map(({ action }) => action)).toEqual(['update', 'create'])
  })
})

describe('an event’s cursor', () => {
  it('finds everything that its holder has not seen, and nothing else', async () => {
    const slow = await session()
    await slow.query('begin')
    await upsert(slow, 1, 1)
    await upsert(db, 2, 1)
    const seen = (await round(cursorAt('3:3:'))).events
    expect(ids(seen)).toEqual([2])
    await upsert(db, 3, 1)
    await slow.query('commit')
    const resumed = await round(parseCursor(seen[0]!.cursor))
    expect(ids(resumed.events)).toEqual([1, 3])
  })

  it('goes on after it in its round, and then until now', async () => {
    await db.query('insert into items select i, 1 from generate_series(1, 30) i')
    const events = (await round(cursorAt('3:3:'))).events
    await db.query('insert into items select i, 1 from generate_series(31, 45) i')
    const resumed = await round(parseCursor(events[9]!.cursor), { limit: 7 })
    expect(ids(resumed.events)).toEqual(Array.from({ length: 35 }, (_, i) => i + 11))
    expect(resumed.pages).toBe(6)
  })
})

describe('under twelve concurrent writers', () => {
  const writers = 12
  const writes = 60

  /** Each writes to shared items in transactions of one to three changes, some of them rolled back. */
  async function write(client: pg.Client, seed: number): Promise<void> {
    for (let i = 0; i < writes; i += 1) {
      await client.query('begin')
      const items = [(seed * 7 + i) % 10, 10 + ((seed * 3 + i) % 10), 20 + ((seed + i) % 10)].slice(
        0,
        1 + ((seed + i) % 3),
      )
      for (const id of items)
        await client.query(
          'insert into items values ($1, 1) on conflict (id) do update set version = items.version + 1',
          [id],
        )
      await client.query((seed + i) % 7 === 0 ? 'rollback' : 'commit')
    }
  }

  it('nothing is lost, nothing comes twice, and every item’s versions are in order', async () => {
    const start = await currentCursor(db)
    const clients = await Promise.all(Array.from({ length: writers }, session))
    let running = true
    const done = Promise.all(clients.map(write)).finally(() => {
      running = false
    })
    const events: LogEvent[] = []
    let cursor = start
    while (running) {
      const next = await round(cursor, { limit: 5 })
      events.push(...next.events)
      cursor = next.cursor
    }
    await done
    const last = await round(cursor)
    events.push(...last.events)
    const { rows } = await db.query(
      `select position::text, "entityId", (changes #>> '{after,version}')::int as version from "svc_AuditLog" order by "svc_AuditLog".position`,
    )
    expect(rows.length).toBeGreaterThan(writers * writes)
    expect(events.map(({ position }) => position).sort()).toEqual(rows.map(({ position }) => position).sort())

    const version = new Map(rows.map((row) => [row.position, row.version]))
    const latest = new Map<string, number>()
    for (const { entityId, position } of events) {
      expect(version.get(position)).toBe((latest.get(entityId!) ?? 0) + 1)
      latest.set(entityId!, version.get(position)!)
    }
    // A client that resumes from any event gets everything after it, and nothing else.
    const all = (some: readonly LogEvent[]) => some.map(({ position }) => position).sort()
    for (let i = 0; i < events.length; i += 97)
      expect(all((await round(parseCursor(events[i]!.cursor))).events)).toEqual(all(events.slice(i + 1)))
  })
})
