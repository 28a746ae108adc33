import { setTimeout as delay } from 'node:timers/promises'
import pino from 'pino'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { rawQuery, type Tx } from '../../src/db/sql.ts'
import { retrySetAside, skipEvent } from '../../src/db/unlogged/consumers.ts'
import {
  type Consumer,
  type ConsumerPage,
  consumerStates,
  imagesOf,
  moveTo,
  nextLimit,
  setAsideEvents,
} from '../../src/events/consumer.ts'
import { type Consumers, openConsumers } from '../../src/workers/consumers.ts'
import { type Api, startApi } from '../support/api.ts'
import { waitFor } from '../support/wait.ts'

/*
 * A consumer in these tests writes a row of `seen` for each event that it handles, in the transaction of its page: what is
 * in the table is what was handled, and how often.
 */

let api: Api
const open: Consumers[] = []
const timing = { leaseMs: 800, lookMs: 20, keepMs: 100 }

beforeAll(async () => {
  api = await startApi()
  await api.sql('create table seen (consumer text, position bigint, action text, entity text, retried boolean)')
  const fields = { id: { type: 'Integer', primaryKey: true }, note: { type: 'String', allowNull: true } }
  for (const name of ['thing', 'other'])
    expect((await api.admin('POST', '/schemas', { collectionName: name, schema: { fields } })).status).toBe(201)
})

afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one.stop(2000)))
  await api.sql('delete from svc_log.consumer; truncate seen; delete from thing; delete from other')
})

afterAll(() => Promise.all(open.map((one) => one.stop(0))))

type Options = Partial<Pick<Consumer, 'onFailure' | 'wants'>> & {
  before?: (page: ConsumerPage, tx: Tx) => unknown
  after?: (page: ConsumerPage, tx: Tx) => unknown
}

const consumerOf = (name: string, { before, after, wants, onFailure = 'set-aside' }: Options = {}): Consumer => ({
  name,
  wants: wants ?? (() => ({ collections: ['thing'] })),
  onFailure,
  handle: async (tx, page) => {
    await before?.(page, tx)
    const { events, isRetry } = page
    await tx.any(
      rawQuery(
        'insert into seen select $1, p, a, e, $5 from unnest($2::bigint[], $3::text[], $4::text[]) x (p, a, e)',
        [
          name,
          events.map(({ position }) => position),
          events.map(({ action }) => action),
          events.map(({ entity }) => entity),
          isRetry,
        ],
      ),
    )
    await after?.(page, tx)
    return undefined
  },
})

const host = async (consumer: Consumer, more: Partial<typeof timing> = {}) => {
  const opened = await openConsumers(api.runtime, [consumer], { ...timing, ...more })
  open.push(opened)
  await waitFor(async () => (await stateOf(consumer.name))?.held)
  return opened
}
const stateOf = async (name: string) => (await consumerStates(api.runtime.db)).find((state) => state.name === name)
const seen = async (consumer: string) =>
  await api.sql(
    'select position::int as position, action, entity, retried from seen where consumer = $1 order by position',
    [consumer],
  )
const insert = (from: number, to: number, table = 'thing') =>
  api.sql(`insert into ${table} (id) select generate_series($1::int, $2::int)`, [from, to])
const events = (entity = 'thing', after = 0n) =>
  api.sql(
    'select position::int as position from "svc_AuditLog" where entity = $1 and position > $2 order by position',
    [entity, String(after)],
  )
const positions = (rows: readonly { position: number }[]) => rows.map(({ position }) => position)

describe('a consumer', () => {
  it('handles what is written from its registration on, once, by any writer', async () => {
    await insert(1, 5)
    const start = await api.position()
    await host(consumerOf('all'))
    await api.sql('update thing set note = $1 where id = 3', ['by SQL'])
    expect((await api.admin('POST', '/items/thing', { id: 6 })).status).toBe(201)
    await api.sql('delete from thing where id = 1')
    await insert(1, 3, 'other')
    const expected = positions(await events('thing', start))
    await waitFor(async () => (await seen('all')).length >= expected.length)
    expect((await seen('all')).map(({ action }) => action)).toEqual(['update', 'create', 'delete'])
    expect(positions(await seen('all'))).toEqual(expected)
  })

  it('wants actions of collections, and is asked before every page', async () => {
    let wanted = { collections: ['thing'], actions: ['delete'] }
    let asked = 0
    const wants = () => {
      asked += 1
      return wanted
    }
    await host(consumerOf('some', { wants }))
    await insert(1, 3)
    await api.sql('delete from thing where id = 2')
    await waitFor(async () => (await seen('some')).length === 1)
    wanted = { collections: ['other'], actions: ['create'] }
    // A page may have been asked for by the old ones, and not be read yet.
    const before = asked
    await waitFor(() => asked > before)
    await insert(4, 6)
    await insert(4, 6, 'other')
    await waitFor(async () => (await seen('some')).length === 4)
    expect((await seen('some')).map(({ entity, action }) => `${action} ${entity}`)).toEqual([
      'delete thing',
      ...Array(3).fill('create other'),
    ])
  })

  it('reads a page again, without a failure, where the page shows that other events are wanted', async () => {
    let collections = ['thing']
    const { handle, ...rest } = consumerOf('growing', { wants: () => ({ collections }) })
    const growing: Consumer = {
      ...rest,
      prepare: async (page) => {
        if (collections.length === 2) return (tx) => handle!(tx, page)
        collections = ['thing', 'other']
        return 'read-again'
      },
    }
    const lines: string[] = []
    const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) })
    const opened = await openConsumers({ ...api.runtime, log }, [growing], timing)
    open.push(opened)
    await waitFor(async () => (await stateOf('growing'))?.held)
    await api.sql('with t as (insert into thing (id) values (1)) insert into other (id) values (2)')
    await waitFor(async () => (await seen('growing')).length === 2)
    expect((await seen('growing')).map(({ entity }) => entity).sort()).toEqual(['other', 'thing'])
    expect(lines).toEqual([])
  })

  it('handles 20,000 events of one transaction in pages, each once', async () => {
    const sizes: number[] = []
    await host(consumerOf('many', { before: ({ events }) => sizes.push(events.length) }))
    await insert(1, 20_000)
    await waitFor(async () => (await api.sql('select count(*)::int as n from seen'))[0].n === 20_000)
    const [{ n, distinct }] = await api.sql(
      'select count(*)::int as n, count(distinct position)::int as distinct from seen',
    )
    expect({ n, distinct }).toEqual({ n: 20_000, distinct: 20_000 })
    expect(Math.max(...sizes)).toBeLessThanOrEqual(500)
  })

  it('passes an open transaction, and handles its events when it commits', async () => {
    await host(consumerOf('patient'))
    const slow = await import('pg').then(({ default: pg }) => new pg.Client({ connectionString: api.database.url }))
    await slow.connect()
    try {
      await slow.query('begin')
      await slow.query('insert into thing (id) values (1000)')
      await insert(1, 3)
      await waitFor(async () => (await seen('patient')).length === 3)
      await slow.query('commit')
      await waitFor(async () => (await seen('patient')).length === 4)
      expect(positions(await seen('patient')).length).toBe(new Set(positions(await seen('patient'))).size)
    } finally {
      await slow.end()
    }
  })

  it('costs the log nothing while nothing happens, and stores no place', async () => {
    await host(consumerOf('idle', { wants: () => ({}) }))
    await insert(1, 1)
    await waitFor(async () => (await seen('idle')).length > 0)
    await waitFor(async () => (await stateOf('idle'))!.lagSeconds === 0)
    const before = await waitFor(async () => {
      const first = await stateOf('idle')
      await delay(250)
      return (await stateOf('idle'))!.advancedAt.getTime() === first!.advancedAt.getTime() && first
    })
    const position = await api.position()
    // Longer than several looks, leases and stores of places.
    await delay(1000)
    expect(await api.position()).toBe(position)
    expect((await stateOf('idle'))!.advancedAt).toEqual(before!.advancedAt)
  })

  it('keeps its place now and then where it wants nothing of what is written', async () => {
    await host(consumerOf('unwanting'))
    const before = await stateOf('unwanting')
    await insert(1, 3, 'other')
    await waitFor(async () => (await stateOf('unwanting'))!.advancedAt > before!.advancedAt)
    await waitFor(async () => (await stateOf('unwanting'))!.lagSeconds === 0)
    expect(await seen('unwanting')).toEqual([])
  })

  it('learns that an event was erased before it was handled', async () => {
    const images: unknown[] = []
    const { stop } = await host(consumerOf('early'))
    await stop(2000)
    await api.sql(`insert into thing (id, note) values (77, 'secret'), (78, 'public')`)
    const erased = await api.admin('DELETE', '/items/thing/77/history')
    expect(erased.status, erased.text).toBe(200)
    await host(
      consumerOf('early', {
        after: async ({ events }, tx) => {
          const found = await imagesOf(
            tx,
            events.map(({ position }) => position),
          )
          images.push(...events.map(({ entityId, position }) => [entityId, found.get(position)]))
        },
      }),
    )
    await waitFor(() => images.length === 2)
    expect(images).toEqual([
      ['77', null],
      ['78', { after: expect.objectContaining({ id: 78, note: 'public' }) }],
    ])
  })
})

describe('an event that fails', () => {
  const bad = (id: string) => ({
    before: ({ events }: ConsumerPage) => {
      if (events.some(({ entityId }) => entityId === id)) throw new Error(`no ${id}, please`)
    },
  })

  it('is set aside with its reason while the others are handled, and may be tried again', async () => {
    let isMended = false
    await host(consumerOf('robust', { before: (page) => isMended || bad('7').before(page) }))
    await insert(1, 10)
    await waitFor(async () => (await seen('robust')).length === 9)
    const [aside] = await setAsideEvents(api.runtime.db, 10)
    expect(aside).toMatchObject({
      consumer: 'robust',
      entity: 'thing',
      action: 'create',
      reason: 'no 7, please',
      attempts: 1,
    })
    expect(await stateOf('robust')).toMatchObject({ state: 'running', setAside: 1 })
    expect(await retrySetAside(api.runtime, 'robust', undefined)).toBe(1)
    await waitFor(async () => (await setAsideEvents(api.runtime.db, 10))[0]?.attempts === 2)
    isMended = true
    await retrySetAside(api.runtime, 'robust', undefined)
    await waitFor(async () => (await seen('robust')).length === 10)
    expect((await seen('robust')).filter(({ retried }) => retried)).toHaveLength(1)
    expect(await setAsideEvents(api.runtime.db, 10)).toEqual([])
  })

  it('halts a consumer that wants it so, until it is skipped', async () => {
    await host(consumerOf('strict', { ...bad('4'), onFailure: 'halt' }))
    await insert(1, 6)
    await waitFor(async () => (await stateOf('strict'))!.state === 'halted')
    expect(await stateOf('strict')).toMatchObject({ reason: 'no 4, please', held: false })
    expect(await seen('strict')).toHaveLength(3)
    const { failedPosition } = (await stateOf('strict'))!
    expect(await skipEvent(api.runtime, 'strict')).toBe(failedPosition)
    await waitFor(async () => (await seen('strict')).length === 5)
    expect(await setAsideEvents(api.runtime.db, 10)).toMatchObject([{ consumer: 'strict', reason: 'no 4, please' }])
    expect(await skipEvent(api.runtime, 'strict')).toBeUndefined()
  })

  it('shows and moves by the routes for administrators what the commands show and move', async () => {
    const consumer = { ...bad('4'), onFailure: 'halt' as const }
    const { stop } = await host(consumerOf('routed', consumer))
    await insert(1, 5)
    await waitFor(async () => (await stateOf('routed'))!.state === 'halted')
    const before = await api.position()
    const list = async () => (await api.admin('GET', '/ops/consumers')).body
    const { failedPosition } = (await list()).data[0]
    expect((await list()).data).toMatchObject([
      { name: 'routed', state: 'halted', reason: expect.any(String), setAside: 0, failedPosition: expect.any(String) },
    ])
    const act = (deed: string, body: object = {}, name = 'routed') =>
      api.admin('POST', `/ops/consumers/${name}/${deed}`, body)
    expect((await act('skip')).body.message).toContain(`after position ${failedPosition}`)
    await waitFor(async () => (await seen('routed')).length === 4)
    expect((await list()).setAside).toMatchObject([
      { consumer: 'routed', position: failedPosition, entity: 'thing', action: 'create', attempts: 1 },
    ])
    expect((await act('skip')).status).toBe(409)
    expect((await act('retry', { position: '1' })).body.events).toBe(0)
    expect((await act('forget', { position: failedPosition })).body).toEqual({
      message: '1 events are not handled',
      events: 1,
    })
    expect((await list()).setAside).toEqual([])
    await stop(2000)
    expect((await act('reset', { to: 'yesterday' })).status).toBe(400)
    expect((await act('reset', { to: '' })).status).toBe(400)
    expect((await act('reset', { to: 'now' })).body).toEqual({ message: 'routed goes on at now' })
    for (const deed of ['skip', 'retry', 'forget']) expect((await act(deed, {}, 'nobody')).status).toBe(404)
    expect((await act('reset', { to: 'now' }, 'nobody')).status).toBe(404)
    expect((await act('retry', { position: '1; drop table thing' })).status).toBe(400)
    expect(await api.position()).toBe(before)
    const { call } = await api.user()
    expect((await call('POST', '/ops/consumers/routed/reset', { to: 'beginning' })).status).toBe(403)
  })

  it('leaves nothing of what its handler wrote', async () => {
    await host(consumerOf('clean', { after: bad('2').before }))
    await insert(1, 3)
    await waitFor(async () => (await stateOf('clean'))!.setAside === 1)
    await waitFor(async () => (await seen('clean')).length === 2)
    expect((await seen('clean')).length).toBe(2)
  })
})

describe('several processes', () => {
  it('have one that works for a consumer, and another one when it stops', async () => {
    const first = await host(consumerOf('shared'))
    const second = await host(consumerOf('shared'))
    for (let i = 1; i <= 20; i += 1) await insert(i, i)
    await waitFor(async () => (await seen('shared')).length === 20)
    await first.stop(2000)
    await insert(21, 30)
    await waitFor(async () => (await seen('shared')).length === 30)
    await second.stop(2000)
    expect(new Set(positions(await seen('shared'))).size).toBe(30)
  })

  it('undo a page of one that has lost its lease while it handled it', async () => {
    let isFirst = true
    await host(
      consumerOf('stolen', {
        after: async () => {
          if (!isFirst) return
          isFirst = false
          // As another process would that finds the lease ended.
          await api.sql(
            `update svc_log.consumer set token = gen_random_uuid(), "leaseUntil" = now() + interval '0.5 s'`,
          )
        },
      }),
    )
    await insert(1, 5)
    await waitFor(async () => (await seen('stolen')).length === 5)
    expect(positions(await seen('stolen'))).toEqual(positions(await events()).slice(-5))
  })
})

describe('a consumer that lags', () => {
  const expire = async (days: number, bytes = 2 ** 40) => {
    const { expireEvents } = await import('../../src/events/retention.ts')
    const { default: pg } = await import('pg')
    const client = new pg.Client({ connectionString: api.database.url })
    await client.connect()
    try {
      return await expireEvents(client, new Date(Date.now() + 60_000), { forConsumers: { days, bytes } })
    } finally {
      await client.end()
    }
  }

  it('keeps what it has yet to read, up to the bound, and is stopped beyond it', async () => {
    const { stop } = await host(consumerOf('slow'))
    await insert(1, 5)
    await waitFor(async () => (await seen('slow')).length === 5)
    await stop(2000)
    await insert(6, 10)
    await api.settled()
    await expire(7)
    expect((await stateOf('slow'))!.state).toBe('running')
    expect((await stateOf('slow'))!.lagSeconds).toBeGreaterThan(0)
    await expire(7, 0)
    expect(await stateOf('slow')).toMatchObject({ state: 'stopped', reason: 'log removed' })
    await host(consumerOf('bystander'))
    await moveTo(api.runtime, 'slow', 'now')
    const again = await openConsumers(api.runtime, [consumerOf('slow')], timing)
    open.push(again)
    await waitFor(async () => (await stateOf('slow'))!.held)
    await insert(11, 12)
    await waitFor(async () => (await seen('slow')).length === 7)
  })

  it('can be told where to go on: at the beginning, a moment or a cursor', async () => {
    const { stop } = await host(consumerOf('told'))
    await insert(1, 3)
    await waitFor(async () => (await seen('told')).length === 3)
    const moment = (await api.sql('select clock_timestamp() as now'))[0].now as Date
    await insert(4, 5)
    await waitFor(async () => (await seen('told')).length === 5)
    const handled = async (ids: readonly number[]) => {
      const wanted = positions(
        await api.sql(
          `select max(position)::int as position from "svc_AuditLog" where entity = 'thing' and "entityId" = any($1) group by "entityId"`,
          [ids.map(String)],
        ),
      )
      const all = positions(await seen('told'))
      return Math.min(...wanted.map((position) => all.filter((one) => one === position).length))
    }
    await moveTo(api.runtime, 'told', moment.toISOString())
    await waitFor(async () => (await handled([4, 5])) === 2)
    await moveTo(api.runtime, 'told', 'beginning')
    await waitFor(async () => (await handled([1, 2, 3])) >= 2 && (await handled([4, 5])) === 3)
    await stop(2000)
    await expect(moveTo(api.runtime, 'nobody', 'now')).rejects.toThrow('There is no consumer "nobody"')
    await expect(moveTo(api.runtime, 'told', 'somewhere')).rejects.toThrow('"somewhere" is not a time such as')
  })
})

it('pages shrink when they take long and grow when they are quick', () => {
  expect([
    nextLimit(500, 1200, 500),
    nextLimit(1, 5000, 500),
    nextLimit(100, 600, 500),
    nextLimit(100, 400, 500),
    nextLimit(400, 10, 500),
    nextLimit(400, 10, 2000),
  ]).toEqual([250, 1, 100, 200, 500, 800])
})
