import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { cursorAt, encodeCursor } from '../../src/events/cursor.ts'
import { logDoors } from '../../src/events/log.ts'
import { expireEvents } from '../../src/events/retention.ts'
import { keepCommitments, pruneLinks, raiseSealFloor, sealLag } from '../../src/events/seals/seals.ts'
import { asSuperuser, clearLog, connect } from '../support/log.ts'
import { createSealedLog, headNow, inTransaction, keysOf, openSealer, readerFor, verify } from '../support/seals.ts'
import { settled } from '../support/settled.ts'

let url: string
let db: pg.Client
/** A superuser, whom no trigger stops. */
let root: pg.Client

beforeAll(async () => {
  url = await createSealedLog()
  db = await connect(url)
  root = await connect(asSuperuser(url))
  await root.query('set session_replication_role = replica')
})

afterAll(async () => {
  await db.end()
  await root.end()
})

beforeEach(async () => {
  await clearLog(db)
  await db.query(
    `truncate svc_log.seal, svc_log.erased_part, svc_log.seal_state; insert into svc_log.seal_state default values;
     update svc_log.floor set removed = '0', "upTo" = '-infinity'`,
  )
})

const append = (count: number, at = 'clock_timestamp()') =>
  db.query(
    `insert into "svc_AuditLog" (entity, "entityId", action, changes, ipaddress, "userAgent", "userId", "createdAt")
     select 'notes', i::text, 'create', jsonb_build_object('after', jsonb_build_object('id', i, 'title', 'n' || i)),
       '192.0.2.1', 'browser', '00000000-0000-4000-8000-000000000001', ${at}
     from generate_series(1, $1::int) i`,
    [count],
  )
const positions = async (): Promise<string[]> =>
  (await db.query('select position from "svc_AuditLog" order by position')).rows.map(({ position }) => position)
/** Twelve events that are sealed, in links of five. */
const sealed = async () => {
  const sealer = openSealer(db, keysOf(), 5)
  await sealer.seal()
  await append(12)
  await sealer.seal()
  return { sealer, all: await positions(), head: await headNow(db) }
}
const good = { problems: [], found: 0, unsealed: 0 }

describe('sealed events', () => {
  it('are found as they were sealed, by every holder of the key', async () => {
    const { head } = await sealed()
    expect(await verify(db, { heads: [head] })).toMatchObject({
      ...good,
      verified: 12,
      erased: 0,
      head: { number: head.number, hash: head.hash },
      heads: { compared: 1, tooOld: 0 },
    })
    const other = keysOf({ SECRET_KEY: 'another key for tests, of no worth either' })
    expect((await verify(db, { keys: other })).problems[0]).toMatchObject({ kind: 'link', link: 1 })
  })

  it('count as unsealed until they are', async () => {
    const { sealer } = await sealed()
    await append(3)
    expect(await verify(db)).toMatchObject({ ...good, verified: 12, unsealed: 3 })
    await sealer.seal()
    expect(await verify(db)).toMatchObject({ ...good, verified: 15 })
  })

  it('wait until they are, in the middle of a round too', async () => {
    const sealer = openSealer(db, keysOf(), 5)
    await sealer.seal()
    const waited = async () => (await sealLag(readerFor(db))).seconds
    expect(await waited()).toBe(0)
    await append(12)
    for (let page = 0; page < 3; page += 1) {
      expect(await waited()).toBeGreaterThan(0)
      await sealer.seal(1)
    }
    expect(await waited()).toBe(0)
  })

  it('include those that were there before sealing began, and those that were passed over', async () => {
    await append(1200)
    const sealer = openSealer(db, keysOf(), 500)
    await sealer.seal()
    await append(1)
    await sealer.seal()
    await append(7)
    // A consumer that was reset, or off for a while.
    sealer.goOnAt(undefined)
    await sealer.seal()
    await append(2)
    await sealer.seal()
    expect(await verify(db)).toMatchObject({ ...good, verified: 1210 })
  })

  it.each([
    ['few', 1],
    ['many', 20],
  ])('may have %s positions between them that were never used', async (_what, unused) => {
    const sealer = openSealer(db)
    await sealer.seal()
    for (let n = 0; n < 5; n += 1) {
      await append(4)
      await db.query(`select nextval('"svc_AuditLog_position"') from generate_series(1, $1::int)`, [unused])
    }
    await sealer.seal()
    const { rows } = await db.query(`select cardinality(positions) as n from svc_log.seal where kind = 'events'`)
    expect(rows).toEqual([{ n: 20 }])
    expect(await verify(db)).toMatchObject({ ...good, verified: 20 })
    const all = await positions()
    await root.query(`update "svc_AuditLog" set action = 'update' where position = $1`, [all[9]])
    expect((await verify(db)).problems).toMatchObject([{ kind: 'changed', position: all[9] }])
  })

  it('are sealed once, also when their consumer is set back', async () => {
    const { rows } = await db.query('select pg_current_snapshot()::text as now')
    const { sealer } = await sealed()
    sealer.goOnAt(encodeCursor(cursorAt(rows[0].now)))
    await sealer.seal()
    await append(1)
    await sealer.seal()
    expect(await verify(db)).toMatchObject({ ...good, verified: 13 })
  })

  it('of one round have links of one day each', async () => {
    const sealer = openSealer(db)
    await sealer.seal()
    await append(4, `timestamptz '2026-01-01 00:00+00' + i * interval '8 hours'`)
    await sealer.seal()
    const { rows } = await db.query(`select day::text from svc_log.seal where kind = 'events' order by number`)
    expect(rows.map(({ day }) => day)).toEqual(['2026-01-01', '2026-01-02'])
    expect(await verify(db)).toMatchObject({ ...good, verified: 4 })
  })
})

describe('tampering is named', () => {
  const change = (set: string, position: string) =>
    root.query(`update "svc_AuditLog" set ${set} where position = $1`, [position])

  it.each([
    ['images', `changes = '{"after": {"id": 7, "title": "forged"}}'`],
    ['who it was', `"userId" = null`],
    ['an address', `ipaddress = '192.0.2.9'`],
    ['its action', `action = 'update'`],
    ['its time', `"createdAt" = "createdAt" - interval '1 microsecond'`],
    ['a false erasure', `changes = '{"erased": true}'`],
  ])('a changed event: %s', async (_what, set) => {
    const { all } = await sealed()
    await change(set, all[6]!)
    expect(await verify(db)).toMatchObject({
      found: 1,
      problems: [{ kind: 'changed', position: all[6] }],
      verified: 11,
    })
  })

  it('an event that was removed', async () => {
    const { all } = await sealed()
    await root.query('delete from "svc_AuditLog" where position = any($1)', [[all[2], all[8]]])
    expect((await verify(db)).problems).toMatchObject([
      { kind: 'removed', position: all[2] },
      { kind: 'removed', position: all[8] },
    ])
  })

  it('two events that changed places', async () => {
    const { all } = await sealed()
    await root.query(
      `update "svc_AuditLog" e set position = other.position, id = other.id from "svc_AuditLog" other
       where (e.position, other.position) in (($1::bigint, $2::bigint), ($2, $1))`,
      [all[3], all[9]],
    )
    expect((await verify(db)).problems).toMatchObject([
      { kind: 'reordered', position: all[3], says: expect.stringContaining(all[9]!) },
      { kind: 'reordered', position: all[9] },
    ])
  })

  it('a month that was dropped', async () => {
    const { all } = await sealed()
    const { rows } = await db.query(`select tableoid::regclass::text as name from "svc_AuditLog" limit 1`)
    await root.query(`drop table ${rows[0].name}`)
    const { problems, found } = await verify(db)
    expect(problems[0]).toMatchObject({ kind: 'removed', position: all[0] })
    expect(found).toBe(12)
    await db.query(`create table ${rows[0].name} partition of "svc_AuditLog" for values from (date_trunc('month', now(), 'UTC'))
      to (date_trunc('month', now(), 'UTC') + interval '1 month')`)
  })

  describe('an event that was inserted', () => {
    const insert = (columns: string, values: string) =>
      root.query(
        `insert into "svc_AuditLog" (entity, action, ${columns}) select 'notes', 'create', ${values}
         from "svc_AuditLog" order by position limit 1 returning position`,
      )
    const nextToFirst = `(encode(int8send((position - 1) << 16 | 32768), 'hex') || '8000000000000000')::uuid`

    it('as if it were old, which is never read', async () => {
      const { all } = await sealed()
      await insert('position, id, xid, horizon', `position - 1, ${nextToFirst}, xid, horizon`)
      expect((await verify(db)).problems).toMatchObject([{ kind: 'inserted', position: String(BigInt(all[0]!) - 1n) }])
    })

    it('as if it were new, with an old time, before and after it is sealed', async () => {
      const { sealer } = await sealed()
      const { rows } = await insert('"createdAt"', `"createdAt" - interval '1 hour'`)
      const named = {
        kind: 'inserted',
        position: rows[0].position,
        says: expect.stringContaining('its transaction began'),
      }
      expect((await verify(db)).problems).toMatchObject([named])
      await sealer.seal()
      expect((await verify(db)).problems).toMatchObject([named])
    })

    it('with a position of old, before and after it is sealed', async () => {
      const sealer = openSealer(db)
      await sealer.seal()
      await append(3, `clock_timestamp() - interval '2 hours'`)
      await append(3, `clock_timestamp() - interval '1 hour'`)
      await sealer.seal()
      const { rows } = await insert('position, id', `position - 1, ${nextToFirst}`)
      const named = { kind: 'inserted', position: rows[0].position, says: expect.stringContaining('long given out') }
      expect((await verify(db)).problems).toMatchObject([named])
      await sealer.seal()
      expect((await verify(db)).problems).toMatchObject([named])
    })

    it('beside another of the same position', async () => {
      const { all } = await sealed()
      await insert('position, id, xid, "createdAt"', `position, id, xid, "createdAt" + interval '1 second'`)
      expect((await verify(db)).problems).toMatchObject([{ kind: 'inserted', position: all[0] }])
    })
  })

  it('a link that is gone, and whose events it was about', async () => {
    const { all } = await sealed()
    await root.query(
      `delete from svc_log.seal where number = (select number from svc_log.seal where kind = 'events' order by number offset 1 limit 1)`,
    )
    const { problems } = await verify(db)
    expect(problems).toContainEqual(
      expect.objectContaining({ kind: 'link', says: expect.stringContaining('are gone') }),
    )
    expect(problems[0]).toMatchObject({ position: all[5] })
  })

  it.each(['marks', 'salts'])('a link whose %s were changed', async (column) => {
    const { all } = await sealed()
    await root.query(
      `update svc_log.seal set ${column} = set_byte(${column}, 0, get_byte(${column}, 0) # 1) where number = (select number from svc_log.seal where kind = 'events' order by number offset 1 limit 1)`,
    )
    expect((await verify(db)).problems).toMatchObject([{ kind: 'changed', position: all[5] }])
  })

  it('links that were removed from the end: by a kept head, and only by that', async () => {
    const { head } = await sealed()
    await root.query('delete from svc_log.seal where number = $1', [head.number])
    expect((await verify(db)).found).toBe(0)
    expect((await verify(db, { heads: [head] })).problems).toMatchObject([{ kind: 'head', link: head.number }])
  })

  it('a chain that was rewritten with the database alone', async () => {
    const { all, head } = await sealed()
    await root.query(`update "svc_AuditLog" set changes = '{"after": {"title": "forged"}}' where position = $1`, [
      all[5],
    ])
    const [real] = keysOf()
    const unsigned = { ...real, sign: () => Buffer.alloc(64) }
    const [other] = keysOf({ SECRET_KEY: 'the key of somebody else altogether' })
    for (const key of [unsigned, other]) {
      await root.query('truncate svc_log.seal, svc_log.seal_state; insert into svc_log.seal_state default values')
      const forger = openSealer(root, [key], 5)
      forger.goOnAt(Buffer.from('s/3:3://0').toString('base64url'))
      await forger.seal()
      const forged = await verify(db)
      expect(forged.problems[0]).toMatchObject({ kind: 'link' })
      const compared = (await verify(db, { heads: [head] })).problems
      expect(compared).toContainEqual(expect.objectContaining({ kind: 'head', link: head.number }))
    }
    // The installation goes on where it finds the chain, and does not vouch for what it finds.
    const sealer = openSealer(db)
    await sealer.seal()
    await append(2)
    await sealer.seal()
    expect((await headNow(db)).key).toBe(real.id)
    expect((await verify(db)).problems).toMatchObject([{ kind: 'link', says: expect.stringContaining(other.id) }])
  })
})

describe('seals that an installation makes by itself', () => {
  it('erasing an item leaves everything else of it provable', async () => {
    const { sealer, all } = await sealed()
    const erase = (named: boolean) =>
      inTransaction(db, async (tx) => {
        const where = `e.type = 'data' and e.entity = 'notes' and e."entityId" = '7'`
        await keepCommitments(tx, { part: 'images', where, values: [] })
        await db.query(`${logDoors.erase} update "svc_AuditLog" e set changes = '{"erased": true}' where ${where}`)
        if (named)
          await db.query(
            `insert into "svc_AuditLog" (type, entity, "entityId", action, changes)
             values ('history', 'svc_AuditLog', 'notes', 'erased', '{"collection": "notes", "item": "7", "events": 1}')`,
          )
      })
    await erase(false)
    expect((await verify(db)).problems).toMatchObject([
      { kind: 'changed', position: all[6], says: expect.stringContaining('no history.erased') },
    ])
    await erase(true)
    expect(await verify(db)).toMatchObject({ ...good, verified: 12, erased: 1, unsealed: 1 })
    await sealer.seal()
    expect(await verify(db)).toMatchObject({ ...good, verified: 13, erased: 1 })
    await root.query(`update "svc_AuditLog" set "userId" = null where position = $1`, [all[6]])
    expect((await verify(db)).problems).toMatchObject([{ kind: 'changed', position: all[6] }])
  })

  it('erasing where a user came from leaves the images provable', async () => {
    const { sealer, all } = await sealed()
    const user = '00000000-0000-4000-8000-000000000001'
    await inTransaction(db, async (tx) => {
      const where = `e."userId" = $1::uuid`
      await keepCommitments(tx, { part: 'origin', where, values: [user] })
      await db.query(
        `${logDoors.erase} update "svc_AuditLog" e set ipaddress = null, "userAgent" = null where ${where}`,
        [user],
      )
      await db.query(
        `insert into "svc_AuditLog" (type, entity, "entityId", action, changes)
         values ('history', 'svc_AuditLog', 'svc_User', 'erased', $1)`,
        [{ collection: 'svc_User', item: user, events: 0 }],
      )
    })
    await sealer.seal()
    expect(await verify(db)).toMatchObject({ ...good, verified: 13, erased: 12 })
    await root.query(`update "svc_AuditLog" set changes = '{}' where position = $1`, [all[4]])
    expect((await verify(db)).problems).toMatchObject([{ kind: 'changed', position: all[4] }])
    // Nor can an address be invented for what was forgotten.
    await root.query(`update "svc_AuditLog" set ipaddress = '192.0.2.7' where position = $1`, [all[2]])
    expect((await verify(db)).problems[0]).toMatchObject({ kind: 'changed', position: all[2] })
  })

  it('the kept commitments do not reveal erased content', async () => {
    const { all } = await sealed()
    await inTransaction(db, (tx) =>
      keepCommitments(tx, { part: 'images', where: 'e.position = $1::bigint', values: [all[6]] }),
    )
    const { rows } = await db.query(
      `select substr(salts, 33, 32) as salts from svc_log.seal where range @> $1::bigint and kind = 'events'`,
      [all[6]],
    )
    const [images, origin] = [rows[0].salts.subarray(0, 16), rows[0].salts.subarray(16)]
    expect(images).toEqual(Buffer.alloc(16))
    expect(origin).not.toEqual(Buffer.alloc(16))
  })

  it('retention removes whole days, says so first, and leaves the rest provable', async () => {
    const sealer = openSealer(db, keysOf(), 5)
    await sealer.seal()
    await append(8, `timestamptz '2026-01-01 00:00+00' + i * interval '1 hour'`)
    await append(8, `timestamptz '2026-01-02 00:00+00' + i * interval '1 hour'`)
    await sealer.seal()
    const old = await headNow(db)
    await append(3)
    await sealer.seal()
    const head = await headNow(db)
    const raise = () => inTransaction(db, (tx) => raiseSealFloor(tx, keysOf(), new Date('2026-01-02T05:00:00Z')))
    expect(await raise()).toEqual(new Date('2026-01-02'))
    const { number } = await headNow(db)
    expect(await raise()).toEqual(new Date('2026-01-02'))
    expect((await headNow(db)).number).toBe(number)
    // Killed here, nothing is gone yet.
    expect(await verify(db, { heads: [head, old] })).toMatchObject({ ...good, verified: 11, floor: '2026-01-02' })
    // Other databases of the server hold back what the sealer's place can be told to have seen.
    await settled(db)
    await sealer.seal()
    await expireEvents({ query: (text, values) => db.query(text, values as unknown[]) }, new Date('2026-01-02'))
    expect(await verify(db, { heads: [head, old] })).toMatchObject({ ...good, verified: 11 })
    const { count } = (await db.query(`select count(*)::int from svc_log.seal`)).rows[0]
    expect(await pruneLinks(readerFor(db))).toBeGreaterThan(0)
    expect((await db.query(`select count(*)::int from svc_log.seal`)).rows[0].count).toBeLessThan(count)
    await append(1)
    await sealer.seal()
    const after = await verify(db, { heads: [old, head] })
    expect(after).toMatchObject({ ...good, verified: 12, heads: { compared: 2 } })
    // One more day, after which the older head has nothing left to prove.
    await inTransaction(db, (tx) => raiseSealFloor(tx, keysOf(), new Date('2026-01-03')))
    await expireEvents({ query: (text, values) => db.query(text, values as unknown[]) }, new Date('2026-01-03'))
    await pruneLinks(readerFor(db))
    expect(await verify(db, { heads: [old, head] })).toMatchObject({
      ...good,
      verified: 4,
      heads: { compared: 1, tooOld: 1 },
    })
  })

  it('more days are gone than the floor says: named', async () => {
    const sealer = openSealer(db, keysOf(), 5)
    await sealer.seal()
    await append(3, `timestamptz '2026-01-01 00:00+00' + i * interval '1 hour'`)
    await append(3, `timestamptz '2026-01-02 00:00+00' + i * interval '1 hour'`)
    await sealer.seal()
    const all = await positions()
    await inTransaction(db, (tx) => raiseSealFloor(tx, keysOf(), new Date('2026-01-02')))
    await expireEvents({ query: (text, values) => db.query(text, values as unknown[]) }, new Date('2026-01-03'))
    expect((await verify(db)).problems[0]).toMatchObject({ kind: 'removed', position: all[3] })
    // A floor of the attacker's own is not signed.
    const [real] = keysOf()
    await inTransaction(db, (tx) =>
      raiseSealFloor(tx, [{ ...real, sign: () => Buffer.alloc(64) }], new Date('2026-01-03')),
    )
    expect((await verify(db)).problems[0]).toMatchObject({ kind: 'link', says: expect.stringContaining('rewritten') })
  })

  it('a new SECRET_KEY vouches for the one before', async () => {
    const { sealer, head } = await sealed()
    const next = { SECRET_KEY: 'the key that comes after the one of the tests' }
    const both = keysOf({ ...next, SECRET_KEY_PREVIOUS: 'a key for tests only, of no worth to anybody' })
    expect(both.map(({ id }) => id)).toContain(head.key)
    const later = openSealer(db, both)
    await later.seal()
    await append(2)
    await later.seal()
    // The old key is forgotten; the chain has it from the new one.
    expect(await verify(db, { keys: keysOf(next), heads: [head] })).toMatchObject({ ...good, verified: 14 })
    void sealer
  })
})

describe('the chain has one end', () => {
  it('several processes seal side by side, and some are killed in the middle', async () => {
    const sealers = await Promise.all([1, 2, 3].map(() => connect(url)))
    await openSealer(db).seal()
    const { rows } = await db.query('select pg_current_snapshot()::text as now')
    const begin = encodeCursor(cursorAt(rows[0].now))
    await append(60)
    const outcomes = await Promise.allSettled(
      sealers.map(async (client, i) => {
        const sealer = openSealer(client, keysOf(), 7)
        sealer.goOnAt(begin)
        const { pid } = (await client.query('select pg_backend_pid() as pid')).rows[0]
        client.on('error', () => undefined)
        if (i === 0) setTimeout(() => void root.query('select pg_terminate_backend($1)', [pid]), 20)
        await sealer.seal()
      }),
    )
    const failed = outcomes.filter((outcome) => outcome.status === 'rejected')
    expect(failed.length, String(failed.map(({ reason }) => reason))).toBeLessThanOrEqual(1)
    expect(await verify(db)).toMatchObject({ ...good, verified: 60 })
    const { numbers } = (await db.query(`select array_agg(number::int order by number) as numbers from svc_log.seal`))
      .rows[0]
    expect(numbers).toEqual(numbers.map((_: number, i: number) => i + 1))
    await Promise.all(sealers.map((client) => client.end().catch(() => undefined)))
  })

  it('and nothing is sealed from what an erasure is just removing', async () => {
    const eraser = await connect(url)
    const sealer = openSealer(db)
    await sealer.seal()
    await append(5)
    let isSealed = false
    let sealing: Promise<void> | undefined
    await inTransaction(eraser, async (tx) => {
      const where = `e."entityId" = '3'`
      await keepCommitments(tx, { part: 'images', where, values: [] })
      sealing = sealer.seal().then(() => {
        isSealed = true
      })
      await eraser.query(`${logDoors.erase} update "svc_AuditLog" e set changes = '{"erased": true}' where ${where}`)
      const { rows } = await eraser.query(`select count(*)::int from pg_locks where not granted`)
      expect(isSealed, String(rows[0].count)).toBe(false)
    })
    await sealing
    expect(await verify(db)).toMatchObject({ ...good, verified: 5, erased: 0 })
    await eraser.end()
  })

  it('nor from what was erased after it was read', async () => {
    const sealer = openSealer(db)
    await sealer.seal()
    await append(1)
    await sealer.seal()
    await append(5)
    await sealer.seal(1, () =>
      inTransaction(db, async (tx) => {
        const where = `e."entityId" = '3'`
        await keepCommitments(tx, { part: 'images', where, values: [] })
        await db.query(`${logDoors.erase} update "svc_AuditLog" e set changes = '{"erased": true}' where ${where}`)
      }),
    )
    expect(await verify(db)).toMatchObject({ ...good, verified: 6, erased: 0 })
  })

  it('an event that is changed after it was read is sealed as it was', async () => {
    const sealer = openSealer(db)
    await sealer.seal()
    await append(1)
    await sealer.seal()
    await append(5)
    const second = (await positions())[2]
    await sealer.seal(1, () => root.query(`update "svc_AuditLog" set action = 'delete' where position = ${second}`))
    expect((await verify(db)).problems).toEqual([expect.objectContaining({ kind: 'changed', position: second })])
  })

  it('events far from those that were sealed last, and with holes between them', async () => {
    const sealer = openSealer(db)
    await sealer.seal()
    for (const step of [1, 30_000, 400_000]) {
      await db.query(`select setval('"svc_AuditLog_position"', nextval('"svc_AuditLog_position"') + $1)`, [step])
      await append(3)
      await db.query(`select nextval('"svc_AuditLog_position"')`)
      await append(4)
    }
    await sealer.seal()
    expect(await verify(db)).toMatchObject({ ...good, verified: 21 })
    await append(3)
    await sealer.seal()
    expect(await verify(db)).toMatchObject({ ...good, verified: 24 })
  })
})
