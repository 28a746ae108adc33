import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Api, type Call, call, startApi } from '../support/api.ts'
import { connect } from '../support/log.ts'
import { mulberry } from '../support/random.ts'
import { longestWaitMs, waitFor } from '../support/wait.ts'

/**
 * With nothing configured: what is asked for again and again and costs something comes from memory, and is never older than
 * any write that was acknowledged before, by whatever process. Two web processes and psql on one database.
 */

const seed = Number(process.env.TEST_SEED ?? Date.now() % 1_000_000)
/** Enough for a report to cost clearly more than a look at the log, on any machine. */
const rowsOfTally = 60_000
let api: Api
let other: Api
let psql: pg.Client
let ids: string[]

const sums = { aggregate: { sum: { function: 'sum', field: 'value' } }, groupBy: ['bucket'], sort: ['bucket'] }
/** Costs a look at every row. */
const list = `/items/tally?filter=${encodeURIComponent('{"text":{"contains":"needle"}}')}&sort=text&fields=value,bucket`

beforeAll(async () => {
  api = await startApi()
  const number = { type: 'Integer' }
  const fields = { value: number, bucket: number, text: { type: 'String' } }
  for (const collectionName of ['tally', 'quiet']) {
    const made = await api.admin('POST', '/schemas', { collectionName, schema: { fields } })
    expect(made.status, made.text).toBe(201)
  }
  psql = await connect(api.database.url)
  await psql.query(
    `insert into tally (id, value, bucket, text) select gen_random_uuid(), 0, i % 10,
      case when i % 1000 < 10 then 'needle ' || i else repeat(md5(i::text), 4) end from generate_series(0, $1::int - 1) i`,
    [rowsOfTally],
  )
  ids = (await psql.query(`select id from tally where text like 'needle%' order by text limit 20`)).rows.map(
    (row) => row.id,
  )
  other = await startApi({}, api.database)
})
afterAll(() => psql.end())

const stateOf = async (ask: () => ReturnType<Call>) => (await ask()).headers['x-cache']

/** Asks until the answer comes from memory; on a busy machine a look may cost as much as the read for a while. */
const warm = (ask: () => ReturnType<Call>) =>
  waitFor(async () => {
    const answer = await ask()
    expect(answer.status, answer.text).toBe(200)
    return answer.headers['x-cache'] === 'HIT' && answer
  })

async function never(ask: () => ReturnType<Call>) {
  for (let times = 0; times < 40; times += 1) expect(await stateOf(ask)).toBe('BYPASS')
}

const report = (by: Api = api) => by.admin('POST', '/reports/tally', sums)
const total = async (by: Api) => {
  const { status, text, body, headers } = await report(by)
  expect(status, text).toBe(200)
  const sum = body.data.reduce((whole: number, group: any) => whole + Number(group.sum), 0)
  return { sum, state: String(headers['x-cache']) }
}
const listed = async (by: Api) => {
  const { status, text, body, headers } = await by.admin('GET', list)
  expect(status, text).toBe(200)
  return { sum: body.data.reduce((whole: number, row: any) => whole + row.value, 0), state: String(headers['x-cache']) }
}

it('a report and a list come from memory when they are repeated, byte for byte, and are counted', async () => {
  for (const ask of [() => report(), () => api.admin('GET', list)]) {
    const first = await ask()
    expect(first.headers['x-cache']).toBe('BYPASS')
    const before = api.runtime.dataCache.stats()
    const kept = await warm(ask)
    expect([kept.text, kept.headers.etag]).toEqual([first.text, first.headers.etag])
    const after = api.runtime.dataCache.stats()
    expect([after.hits - before.hits, after.entries - before.entries]).toEqual([1, 1])
  }
  const { text } = await api.admin('GET', '/metrics')
  expect(text).toMatch(/daybook_cache_lookups_total\{outcome="hits"\} [1-9]/)
  expect(text).toMatch(/daybook_cache_lookups_total\{outcome="refused"\} \d/)
})

it(`an answer holds every acknowledged write of anybody, and none that was not committed (seed ${seed})`, async () => {
  const random = mulberry(seed)
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)]!
  const states: Record<string, number> = {}
  let model = (await total(api)).sum
  const readAll = async () => {
    const by = random() < 0.5 ? [api, other] : [other, api]
    for (const way of [total, listed])
      for (const one of by) {
        const { sum, state } = await way(one)
        states[state] = (states[state] ?? 0) + 1
        expect(sum, `seed ${seed}, ${way.name}`).toBe(model)
      }
  }
  const set = `update tally set value = value + $1 where id = $2`
  const writes: (() => Promise<void>)[] = [
    async () => {
      const by = Math.floor(random() * 5) - 2
      await psql.query(set, [by, pick(ids)])
      model += by
    },
    async () => {
      const id = pick(ids)
      const [{ value }] = (await psql.query('select value from tally where id = $1', [id])).rows
      const answer = await pick([api, other]).admin('PATCH', `/items/tally/${id}`, { value: value + 3 })
      expect(answer.status).toBe(200)
      model += 3
    },
    async () => {
      await psql.query('begin')
      await psql.query(set, [1000, pick(ids)])
      await readAll()
      await psql.query('rollback')
    },
    // A change that commits after looks which could not see it has the number of before them.
    async () => {
      await psql.query('begin')
      await psql.query('savepoint s')
      await psql.query(set, [7, pick(ids)])
      await readAll()
      const patched = await api.admin('PATCH', `/items/quiet/${quietId}`, { value: Math.floor(random() * 1e6) })
      expect(patched.status).toBe(200)
      await readAll()
      await psql.query('commit')
      model += 7
    },
    async () => {
      await psql.query(
        `with gone as (delete from tally where id = $1 returning value, bucket, text)
        insert into tally (id, value, bucket, text) select $1, value + 1, bucket, text from gone`,
        [pick(ids)],
      )
      model += 1
    },
  ]
  const created = await api.admin('POST', '/items/quiet', { value: 1 })
  const quietId = created.body.data.id
  const endsAt = performance.now() + Number(process.env.TEST_SECONDS ?? 12) * 1000
  let rounds = 0
  for (; performance.now() < endsAt; rounds += 1) {
    if (random() < 0.5) await pick(writes)()
    await readAll()
  }
  process.stdout.write(`automatic cache, seed ${seed}: ${rounds} rounds, ${JSON.stringify(states)}\n`)
  expect(states.HIT).toBeGreaterThan(0)
})

it('under concurrency no answer is older than what its caller was told, by any writer', async () => {
  await psql.query('update tally set value = 0 where value <> 0')
  const own = ids.slice(0, 4)
  const told = own.map(() => 0)
  const states: Record<string, number> = {}
  const found = `/items/tally?filter=${encodeURIComponent(`{"id":{"in":${JSON.stringify(own)}},"text":{"contains":"needle"}}`)}&fields=id,value`
  const grouped = { ...sums, filter: { value: { gte: 0 } } }
  await warm(() => report())
  const caller = async (place: number) => {
    const client = await connect(api.database.url)
    try {
      for (let i = 1; i <= 150; i += 1) {
        const by = i % 2 === 0 ? api : other
        if (i % 10 === place) {
          if (place % 2 === 0) await client.query('update tally set value = $1 where id = $2', [i, own[place]])
          else await by.admin('PATCH', `/items/tally/${own[place]}`, { value: i })
          told[place] = i
        } else {
          const least = [...told]
          const asked = await (i % 3 === 0 ? by.admin('POST', '/reports/tally', grouped) : by.admin('GET', found))
          const state = String(asked.headers['x-cache'])
          states[state] = (states[state] ?? 0) + 1
          if (i % 3 === 0) {
            const sum = asked.body.data.reduce((whole: number, group: any) => whole + Number(group.sum), 0)
            expect(sum).toBeGreaterThanOrEqual(least.reduce((whole, value) => whole + value, 0))
          } else {
            const values = new Map(asked.body.data.map((row: any) => [row.id, row.value]))
            for (const [n, id] of own.entries()) expect(values.get(id)).toBeGreaterThanOrEqual(least[n]!)
          }
        }
      }
    } finally {
      await client.end()
    }
  }
  await Promise.all(own.map((_, place) => caller(place)))
  process.stdout.write(`automatic cache, concurrent: ${JSON.stringify(states)}\n`)
})

describe('a kept answer is for its caller alone', () => {
  const readTally = (more: object = {}) => [{ collection: 'tally', action: 'read', fields: '*', ...more }]
  const by = (who: { call: Call }) => () => who.call('GET', list)

  it('of another role, with other fields or rows', async () => {
    await warm(() => api.admin('GET', list))
    const narrow = await api.user(readTally({ fields: ['bucket', 'text'] }))
    expect((await narrow.call('GET', list)).status).toBe(403)
    const hidden = list.replace('&fields=value,bucket', '')
    const buckets = await warm(() => narrow.call('GET', hidden))
    expect(Object.keys(buckets.body.data[0])).not.toContain('value')
    expect(Object.keys((await api.admin('GET', hidden)).body.data[0])).toContain('value')
    const few = await api.user(readTally({ conditions: { bucket: 3 } }))
    const rows = (await warm(by(few))).body.data
    expect(new Set(rows.map((row: any) => row.bucket))).toEqual(new Set([3]))
  })

  it('of another user, where the rule names one', async () => {
    const rule = readTally({ conditions: { text: { contains: '$CURRENT_USER.lastName' } } })
    const [one, two] = [await api.user(rule), await api.user(rule)]
    await api.admin('PATCH', `/items/svc_User/${one.id}`, { lastName: 'needle 1' })
    await api.admin('PATCH', `/items/svc_User/${two.id}`, { lastName: 'nobody' })
    expect((await warm(by(one))).body.data).not.toEqual([])
    expect((await two.call('GET', list)).body.data).toEqual([])
    await api.admin('PATCH', `/items/svc_User/${one.id}`, { lastName: 'nobody' })
    expect((await one.call('GET', list)).body.data).toEqual([])
  })

  it('and is refused as soon as the permission is gone', async () => {
    const reader = await api.user(readTally())
    await warm(by(reader))
    const [row] = (await api.admin('GET', `/permissions?filter={"role_Id":"${reader.roleId}"}`)).body.data
    await api.admin('DELETE', `/permissions/${row.id}`)
    expect((await reader.call('GET', list)).status).toBe(403)
    const there = call(other.app, reader.token)
    await expect.poll(async () => (await there('GET', list)).status, { timeout: 1000 }).toBe(403)
  })
})

it('counts no longer when a collection has changed, and after TRUNCATE', async () => {
  for (const one of [api, other]) await warm(() => report(one))
  const schema = {
    fields: {
      value: { type: 'Integer' },
      bucket: { type: 'Integer' },
      text: { type: 'String' },
      more: { type: 'Integer', defaultValue: 5 },
    },
  }
  const changed = await api.admin('PATCH', '/schemas/tally', { schema })
  expect(changed.status, changed.text).toBe(200)
  for (const one of [api, other]) expect(await stateOf(() => report(one))).not.toBe('HIT')
  for (const one of [api, other]) await warm(() => report(one))
  await psql.query('begin')
  await psql.query('delete from tally where not (id = any($1))', [ids])
  await psql.query('commit')
  for (const one of [api, other]) expect((await one.admin('GET', list)).body.data).toHaveLength(ids.length)
  await psql.query('truncate tally')
  for (const one of [api, other]) expect((await report(one)).body.data).toEqual([])
})

it('an answer that names the time is kept until a row crosses it, by any writer', async () => {
  const filter = { text: { contains: 'needle' }, updatedAt: { lte: '$NOW' } }
  const path = `/items/tally?sort=text&fields=text&filter=${encodeURIComponent(JSON.stringify(filter))}`
  const ask = (by: Api) => by.admin('GET', path)
  /** Asks each until it has answered after the crossing: `rows` are answered before it, one more after. Resolves with the lengths from memory. */
  const hitsUntil = async (crossing: number, rows: number): Promise<readonly number[]> => {
    const crossed = new Set<Api>()
    const hits: number[] = []
    while (crossed.size < 2)
      for (const one of [api, other]) {
        const began = one.runtime.clock().getTime()
        const { body, headers } = await ask(one)
        if (headers['x-cache'] === 'HIT') hits.push(body.data.length)
        if (one.runtime.clock().getTime() < crossing) expect(body.data).toHaveLength(rows)
        if (began < crossing) continue
        expect(body.data).toHaveLength(rows + 1)
        crossed.add(one)
      }
    return hits
  }
  await psql.query(`insert into tally (id, value, bucket, text, "updatedAt")
    select gen_random_uuid(), 0, 0, repeat('x', 100), now() from generate_series(1, 20000)`)
  await psql.query(`insert into tally (id, value, bucket, text, "updatedAt")
    values (gen_random_uuid(), 0, 0, 'needle', now() - interval '1 day')`)
  for (const one of [api, other]) expect((await warm(() => ask(one))).body.data).toHaveLength(1)
  // How long it takes until an answer comes from memory depends on what else the machine does: a row that was crossed before shows
  // nothing, and one with more time follows.
  let rows = 1
  let hits: readonly number[] = []
  for (let waitMs = 1000; !hits.includes(rows - 1); waitMs *= 2) {
    expect(waitMs).toBeLessThan(longestWaitMs)
    const crossing = api.runtime.clock().getTime() + waitMs
    await psql.query(
      `insert into tally (id, value, bucket, text, "updatedAt")
      values (gen_random_uuid(), 0, 0, 'needle too', to_timestamp($1::float8 / 1000))`,
      [crossing],
    )
    hits = await hitsUntil(crossing, rows)
    rows += 1
  }
  for (const one of [api, other]) expect((await warm(() => ask(one))).body.data).toHaveLength(rows)
})

describe('nothing is kept', () => {
  it('of single items, of the past and of the moment, with a place in the log, and where it is refused', async () => {
    const { id } = (await api.admin('POST', '/items/quiet', { value: 1 })).body.data
    const now = new Date(Date.now() - 1000).toISOString()
    for (const path of [
      `/items/quiet/${id}`,
      `/items/quiet?asOf=${now}`,
      '/items/quiet?filter={"createdAt":{"ne":"$NOW"}}',
      '/items/quiet?changesCursor=true',
      '/items/quiet?cache=false',
      '/items/svc_User',
      '/items/svc_AuditLog?limit=1',
    ])
      await never(() => api.admin('GET', path))
    const { call: reader } = await api.user([
      { collection: 'quiet', action: 'read', fields: '*', conditions: { createdAt: { ne: '$NOW' } } },
    ])
    await never(() => reader('GET', '/items/quiet'))
    const made = await api.admin('POST', '/schemas', {
      collectionName: 'private',
      schema: { fields: { a: { type: 'Integer' } }, cache: false },
    })
    expect(made.status, made.text).toBe(201)
    await never(() => api.admin('GET', '/items/private'))
  })

  it('when DATA_CACHE_AUTO is off; what is asked for is', async () => {
    const without = await startApi({ DATA_CACHE_AUTO: 'false' }, api.database)
    await never(() => report(without))
    const ask = () => without.admin('POST', '/reports/tally?cache=true', sums)
    expect([await stateOf(ask), await stateOf(ask)]).toEqual(['MISS', 'HIT'])
  })
})
