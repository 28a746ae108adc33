import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { logTriggersSql } from '../../src/catalog/log-triggers.ts'
import { type Cursor, parseCursor } from '../../src/events/cursor.ts'
import { type Feed, type FeedOptions, openFeed, type Subscription } from '../../src/events/feed.ts'
import { publicationName } from '../../src/events/log.ts'
import { currentCursor, type LogEvent } from '../../src/events/log-reader.ts'
import { publicationSql } from '../../src/events/log-table.ts'
import { expireEvents } from '../../src/events/retention.ts'
import { collectionOf, connect, createLogDatabase, createLogged, run, silent } from '../support/log.ts'
import { waitFor } from '../support/wait.ts'

let url: string
let db: pg.Client
let pool: pg.Pool
const cleanups: (() => unknown)[] = []

beforeAll(async () => {
  url = await createLogDatabase()
  db = await connect(url)
  pool = new pg.Pool({ connectionString: url, max: 4 })
  const fields = { id: { kind: 'integer' }, version: { kind: 'integer' }, text: { kind: 'text' } } as const
  await createLogged(db, collectionOf('items', fields), 'id integer primary key, version integer, text text')
})

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
  await db.query('truncate items')
  await db.query(`update svc_log.floor set removed = '0'`)
})

afterAll(async () => {
  await pool.end()
  await db.end()
})

function open(options: Partial<FeedOptions> = {}): Feed {
  const feed = openFeed({ db: pool, directUrl: url, log: silent, walEnabled: true, ...options })
  cleanups.push(() => feed.close())
  return feed
}

async function openLive(options: Partial<FeedOptions> = {}): Promise<Feed> {
  const feed = open(options)
  await waitFor(() => feed.status().source === 'wal', { what: 'the feed to follow the WAL' })
  return feed
}

async function session(config: pg.ClientConfig = {}): Promise<pg.Client> {
  const client = await connect(url, config)
  cleanups.push(() => client.end())
  return client
}

type Listener = Subscription & { events: LogEvent[]; batches: number; errors: string[]; resume: string | undefined }

async function listen(feed: Feed, from: Cursor | 'now' = 'now'): Promise<Listener> {
  const heard = {
    events: [] as LogEvent[],
    batches: 0,
    errors: [] as string[],
    resume: undefined as string | undefined,
  }
  const onEvents = (batch: readonly LogEvent[], resume: string) => {
    heard.events.push(...batch)
    heard.batches += 1
    heard.resume = resume
  }
  const subscription = feed.subscribe(from, onEvents, (reason) => heard.errors.push(reason))
  await subscription.started
  return Object.assign(heard, subscription)
}

const ids = (events: readonly LogEvent[]) => events.map(({ entityId }) => Number(entityId))
const insert = (id: number, client: pg.Client = db) => client.query('insert into items values ($1, 1)', [id])
const bump = (id: number, client: pg.Client = db) =>
  client.query('insert into items values ($1, 1) on conflict (id) do update set version = items.version + 1', [id])
const slots = async (): Promise<number> =>
  (await db.query('select from pg_replication_slots where database = current_database()')).rowCount!
const walSenders = async (): Promise<number[]> =>
  (
    await db.query(`select pid from pg_stat_activity where backend_type = 'walsender' and datname = current_database()`)
  ).rows.map(({ pid }) => pid)

/** Every event of the log after a position, to compare with what was heard: all, once, per item in order. */
async function expectComplete(events: readonly LogEvent[], after: bigint): Promise<void> {
  const { rows } = await db.query(
    'select position::text from "svc_AuditLog" e where position > $1 order by e.position',
    [after],
  )
  const sorted = events.map(({ position }) => position).sort((a, b) => Number(BigInt(a) - BigInt(b)))
  expect(sorted).toEqual(rows.map(({ position }) => position))
  const latest = new Map<string, bigint>()
  for (const { entityId, position } of events) {
    expect(BigInt(position)).toBeGreaterThan(latest.get(entityId!) ?? 0n)
    latest.set(entityId!, BigInt(position))
  }
}

const lastPosition = async (): Promise<bigint> =>
  BigInt((await db.query('select coalesce(max(position), 0)::text as last from "svc_AuditLog"')).rows[0].last)
const eventsAfter = async (position: bigint): Promise<number> =>
  (await db.query('select from "svc_AuditLog" where position > $1', [position])).rowCount!

/** Writes to ten shared items until stopped, one to three changes per transaction, in a fixed order of items. */
function writeUntilStopped(clients: readonly pg.Client[]): () => Promise<void> {
  let running = true
  const write = async (client: pg.Client, seed: number) => {
    for (let i = 0; running; i += 1) {
      await client.query('begin')
      for (const id of [(seed + i) % 5, 5 + ((seed * 3 + i) % 5)].slice(0, 1 + (i % 2))) await bump(id, client)
      await client.query((seed + i) % 9 === 0 ? 'rollback' : 'commit')
    }
  }
  const done = Promise.all(clients.map(write))
  return async () => {
    running = false
    await done
  }
}

describe.each<[string, (options?: Partial<FeedOptions>) => Promise<Feed>]>([
  ['the WAL', (options = {}) => openLive(options)],
  ['polling', async (options = {}) => open({ ...options, walEnabled: false })],
])('over %s, the feed', (_, start) => {
  it('delivers what is committed after the subscription, and only that', async () => {
    await insert(1)
    const feed = await start()
    const listener = await listen(feed)
    await insert(2)
    await db.query('begin')
    await insert(3)
    await db.query('rollback')
    await insert(4)
    await waitFor(() => ids(listener.events).includes(4))
    expect(ids(listener.events)).toEqual([2, 4])
    expect(listener.events[0]).toMatchObject({ type: 'data', entity: 'items', action: 'create', tenantId: null })
  })

  it('serves many subscribers from many cursors', async () => {
    const feed = await start()
    const begin = await currentCursor(db)
    await insert(1)
    const [early, late] = [await listen(feed, begin), await listen(feed)]
    await insert(2)
    const resumed = await listen(feed, parseCursor(await early.started))
    await insert(3)
    await waitFor(() => [early, late, resumed].every(({ events }) => ids(events).includes(3)))
    expect([early, late, resumed].map(({ events }) => ids(events))).toEqual([
      [1, 2, 3],
      [2, 3],
      [1, 2, 3],
    ])
  })

  it('shares one statement among subscribers at the same place', async () => {
    let statements = 0
    const counting = {
      query: (text: string, values?: unknown[]) => {
        statements += 1
        return pool.query(text, values)
      },
    }
    const feed = await start({ db: counting })
    const listeners = await Promise.all(Array.from({ length: 20 }, () => listen(feed)))
    await insert(1)
    await waitFor(() => listeners.every(({ events }) => events.length === 1))
    const before = statements
    for (let id = 2; id <= 20; id += 1) {
      await insert(id)
      await waitFor(() => listeners.every(({ events }) => events.length === id))
    }
    expect(listeners.map(({ batches }) => batches)).toEqual(listeners.map(() => listeners[0]!.batches))
    // Far fewer than one each, however often the clock has rung meanwhile.
    expect(statements - before).toBeLessThan(19 * 20)
  })

  it('resumes after the last batch without gap or repeat', async () => {
    const feed = await start()
    const first = await listen(feed)
    await insert(1)
    await waitFor(() => first.events.length === 1)
    first.close()
    await insert(2)
    const second = await listen(feed, parseCursor(first.resume))
    await insert(3)
    await waitFor(() => second.events.length === 2)
    expect(ids(first.events)).toEqual([1])
    expect(ids(second.events)).toEqual([2, 3])
  })

  it('loses and repeats nothing under concurrent writers, while subscribers come and go', async () => {
    const feed = await start()
    const after = await lastPosition()
    const constant = await listen(feed)
    const stop = writeUntilStopped(await Promise.all([1, 2, 3, 4].map(() => session())))
    let passing = await listen(feed, parseCursor(await constant.started))
    const heard: LogEvent[] = []
    for (let i = 0; i < 10; i += 1) {
      const count = passing.events.length
      await waitFor(() => passing.events.length > count + 20)
      passing.close()
      heard.push(...passing.events)
      passing = await listen(feed, parseCursor(passing.resume))
    }
    await stop()
    const total = await eventsAfter(after)
    await waitFor(() => constant.events.length === total && heard.length + passing.events.length === total)
    await expectComplete(constant.events, after)
    await expectComplete([...heard, ...passing.events], after)
  })

  it('waits for a slow subscriber, which does not hold up the others', async () => {
    const feed = await start()
    const fast = await listen(feed)
    const gate = Promise.withResolvers<void>()
    const slow: LogEvent[] = []
    let active = 0
    const subscription = feed.subscribe(
      'now',
      async (batch) => {
        active += 1
        expect(active).toBe(1)
        slow.push(...batch)
        await gate.promise
        active -= 1
      },
      () => undefined,
    )
    await subscription.started
    await insert(1)
    await waitFor(() => slow.length === 1)
    for (let id = 2; id <= 200; id += 1) await insert(id)
    await waitFor(() => fast.events.length === 200)
    expect(slow).toHaveLength(1)
    gate.resolve()
    await waitFor(() => slow.length === 200)
    expect(ids(slow)).toEqual(ids(fast.events))
  })

  it.each([
    [
      'throws',
      () => {
        throw new Error('poison')
      },
    ],
    ['rejects', () => Promise.reject(new Error('poison'))],
  ])('ends the subscription of a subscriber that %s, and no other', async (_how, poison) => {
    const feed = await start()
    const healthy = await listen(feed)
    const errors: string[] = []
    let calls = 0
    const poisoned = feed.subscribe(
      'now',
      () => {
        calls += 1
        return poison()
      },
      (reason) => errors.push(reason),
    )
    await poisoned.started
    await insert(1)
    await waitFor(() => errors.length > 0)
    await insert(2)
    await waitFor(() => healthy.events.length === 2)
    expect(errors).toEqual(['resync'])
    expect(calls).toBe(1)
  })

  it('says resync for a cursor that is older than the log', async () => {
    const feed = await start()
    const old = await currentCursor(db)
    await db.query(`insert into "svc_AuditLog" (entity, action, "createdAt") values ('items', 'create', '2001-01-01')`)
    await expireEvents(db, new Date('2002-01-01'))
    const listener = await listen(feed, old)
    await waitFor(() => listener.errors.length > 0)
    expect(listener).toMatchObject({ errors: ['resync'], events: [] })
  })

  it('delivers a transaction of thirty thousand changes in bounded batches, and small ones beside it', async () => {
    const feed = await start()
    const after = await lastPosition()
    let largest = 0
    const positions: string[] = []
    const subscription = feed.subscribe(
      'now',
      (batch) => {
        largest = Math.max(largest, batch.length)
        for (const { position } of batch) positions.push(position)
      },
      () => undefined,
    )
    await subscription.started
    const small = await session()
    const big = db.query('insert into items select i, 1 from generate_series(1000, 30999) i')
    for (let id = 0; id < 50; id += 1) await insert(id, small)
    await big
    await waitFor(() => positions.length === 30_050)
    expect(largest).toBeLessThanOrEqual(1000)
    expect(new Set(positions).size).toBe(30_050)
    expect(await eventsAfter(after)).toBe(30_050)
  })

  it('goes on through DDL and TRUNCATE', async () => {
    const feed = await start()
    const listener = await listen(feed)
    await insert(1)
    await db.query('alter table items add column extra text')
    const fields = { id: { kind: 'integer' }, version: { kind: 'integer' }, extra: { kind: 'text' } } as const
    await run(db, logTriggersSql(collectionOf('items', fields)))
    await db.query(`update items set extra = repeat('x', 100000)`)
    await db.query('alter table items drop column extra, alter column version type bigint')
    await run(db, logTriggersSql(collectionOf('items', { id: { kind: 'integer' }, version: { kind: 'bigint' } })))
    await db.query('update items set version = 7')
    await db.query('alter table "svc_AuditLog" add column note text')
    await insert(2)
    await db.query('alter table "svc_AuditLog" drop column note')
    await db.query('truncate items')
    await createLogged(db, collectionOf('fresh', { id: { kind: 'integer' } }), 'id integer primary key')
    await db.query('insert into fresh values (1)')
    await db.query('drop table fresh')
    await waitFor(() => listener.events.some(({ entity }) => entity === 'fresh'))
    expect(listener.events.map(({ entity, action, entityId }) => `${entity} ${action} ${entityId}`)).toEqual([
      'items create 1',
      'items update 1',
      'items update 1',
      'items create 2',
      'items delete 1',
      'items delete 2',
      'fresh create 1',
    ])
  })

  it('closes at once, and delivers nothing after that', async () => {
    const feed = await start()
    const listener = await listen(feed)
    await feed.close()
    await insert(1)
    const other = await listen(open({ walEnabled: false }), parseCursor(await listener.started))
    await waitFor(() => other.events.length === 1)
    expect(listener).toMatchObject({ events: [], errors: [] })
    expect(await waitFor(async () => (await walSenders()).length === 0)).toBe(true)
  })
})

describe('while the database can’t be read, the feed', () => {
  it('keeps its subscribers and goes on when it can', async () => {
    let broken = false
    const fragile = {
      query: (text: string, values?: unknown[]) => (broken ? pool.query('select 1 / 0') : pool.query(text, values)),
    }
    const feed = open({ db: fragile, walEnabled: false })
    const listener = await listen(feed)
    broken = true
    await insert(1)
    await waitFor(() => feed.status().lagMs > 0)
    broken = false
    await waitFor(() => listener.events.length === 1)
    await waitFor(() => feed.status().lagMs === 0)
    expect(listener.errors).toEqual([])
  })
})

describe('the WAL', () => {
  it('is read over one temporary slot, which goes with the feed', async () => {
    const feed = await openLive()
    const listeners = [await listen(feed), await listen(feed)]
    const { rows } = await db.query(
      'select slot_name as slot, temporary, plugin from pg_replication_slots where database = current_database()',
    )
    expect(rows).toEqual([{ slot: expect.any(String), temporary: true, plugin: 'pgoutput' }])
    expect(await walSenders()).toHaveLength(1)
    const { slot } = rows[0]
    expect(feed.status()).toEqual({
      source: 'wal',
      slot,
      lagMs: expect.any(Number),
      walAvailable: true,
      reason: undefined,
    })
    await insert(1)
    await waitFor(() => listeners.every(({ events }) => events.length === 1))
    await feed.close()
    await waitFor(async () => (await slots()) === 0)
  })

  it('moves its slot along, so that the server need not keep what has been read', async () => {
    const feed = await openLive()
    const listener = await listen(feed)
    await db.query('insert into items select i, 1 from generate_series(1, 2000) i')
    await waitFor(() => listener.events.length === 2000)
    const { rows } = await db.query('select pg_current_wal_lsn()::text as lsn')
    await waitFor(
      async () =>
        (
          await db.query(
            'select from pg_replication_slots where database = current_database() and confirmed_flush_lsn >= $1::pg_lsn',
            [rows[0].lsn],
          )
        ).rowCount === 1,
    )
  })

  it('is not waited for: while a transaction holds up the slot, polling serves, and the change is seamless', async () => {
    const blocker = await session()
    await blocker.query('begin')
    await insert(777, blocker)
    const after = await lastPosition()
    const feed = open()
    await waitFor(() => feed.status().reason?.includes('slot'), { what: 'the slot to be waited for' })
    expect(feed.status()).toMatchObject({ source: 'starting', walAvailable: false })
    const listener = await listen(feed)
    const stop = writeUntilStopped(await Promise.all([1, 2, 3].map(() => session())))
    await waitFor(() => listener.events.length > 50)
    expect(feed.status().source).toBe('starting')
    await blocker.query('commit')
    await waitFor(() => feed.status().source === 'wal')
    const count = listener.events.length
    await waitFor(() => listener.events.length > count + 50)
    await stop()
    await waitFor(async () => listener.events.length === (await eventsAfter(after)))
    expect(ids(listener.events)).toContain(777)
    await expectComplete(listener.events, after)
  })

  it('that is still waiting for its slot is given up at once, on the server too', async () => {
    const blocker = await session()
    await blocker.query('begin')
    await insert(1, blocker)
    const feed = open()
    await waitFor(() => feed.status().reason?.includes('slot'))
    await waitFor(async () => (await walSenders()).length === 1)
    await feed.close()
    await waitFor(async () => (await walSenders()).length === 0)
    await blocker.query('rollback')
  })

  it('connects again when its connection is killed, again and again, and nothing is lost', async () => {
    const feed = await openLive()
    const after = await lastPosition()
    const listener = await listen(feed)
    const stop = writeUntilStopped(await Promise.all([1, 2, 3].map(() => session())))
    for (let kills = 0; kills < 3; kills += 1) {
      const [victim] = await waitFor(async () => feed.status().source === 'wal' && (await walSenders()))
      const count = listener.events.length
      await db.query('select pg_terminate_backend($1)', [victim])
      await waitFor(async () => !(await walSenders()).includes(victim!))
      await waitFor(() => listener.events.length > count + 20)
    }
    await waitFor(() => feed.status().source === 'wal')
    await stop()
    await waitFor(async () => listener.events.length === (await eventsAfter(after)))
    await expectComplete(listener.events, after)
    expect(listener.errors).toEqual([])
  })

  it('answers a server that cuts silent connections early', async () => {
    const feed = await openLive({ directUrl: withOptions('-c wal_sender_timeout=1500ms') })
    const [pid] = await walSenders()
    const { rows } = await db.query(`select extract(epoch from clock_timestamp())::float8 as now`)
    await waitFor(
      async () =>
        (await db.query('select where extract(epoch from clock_timestamp()) > $1', [rows[0].now + 4])).rowCount === 1,
    )
    expect(await walSenders()).toEqual([pid])
    expect(feed.status().source).toBe('wal')
  })

  it.each([
    [
      'the publication is missing',
      `drop publication ${publicationName}`,
      () => run(db, publicationSql()),
      'publication',
    ],
  ])('is not read when %s: the feed polls and says why', async (_what, breakIt, repair, word) => {
    await db.query(breakIt)
    cleanups.push(repair)
    const feed = open()
    await waitFor(() => feed.status().source === 'poll')
    expect(feed.status()).toMatchObject({ walAvailable: false, reason: expect.stringContaining(word) })
    const listener = await listen(feed)
    await insert(1)
    await waitFor(() => listener.events.length === 1)
  })

  it('is not read when it is switched off', async () => {
    expect(open({ walEnabled: false }).status()).toMatchObject({
      source: 'poll',
      walAvailable: false,
      reason: 'REALTIME_WAL_CONSUMER_ENABLED is false',
    })
    expect(await walSenders()).toEqual([])
  })

  it('is tried again when the address does not answer', async () => {
    const feed = open({ directUrl: 'postgres://nobody@127.0.0.1:1/none' })
    await waitFor(() => feed.status().reason?.includes('ECONNREFUSED'))
    const listener = await listen(feed)
    await insert(1)
    await waitFor(() => listener.events.length === 1)
  })

  it('can be closed at any moment of its start', async () => {
    for (let i = 0; i < 12; i += 1) {
      const feed = open()
      for (let turn = 0; turn < i * i; turn += 1) await new Promise((resolve) => setImmediate(resolve))
      await feed.close()
    }
    await waitFor(async () => (await walSenders()).length === 0 && (await slots()) === 0)
  })
})

function withOptions(options: string): string {
  const address = new URL(url)
  address.searchParams.set('options', options)
  return address.href
}
