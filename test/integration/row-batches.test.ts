import fc from 'fast-check'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { waitFor } from '../support/wait.ts'

/** Rows of several requests that come together are written by one statement, and only its speed tells. */

let api: Api
let other: pg.Client

const statuses = (answers: readonly Answer[]) => answers.map(({ status }) => status)
const numberWritten = (answers: readonly { readonly status: number }[]): number =>
  answers.filter(({ status }) => status === 201).length

const many = <T>(count: number, make: (n: number) => T): T[] => Array.from({ length: count }, (_, n) => make(n))
const requestIds = (answers: readonly Answer[]) => answers.map(({ headers }) => headers['x-request-id'])

type Event = { xid: string; action: string; id: string; request: string; user: string; own: string; changes: any }

const events = (entity: string): Promise<Event[]> =>
  api.sql(
    `select xid::text as xid, action, "entityId" as id, "requestId" as request, "userId" as "user", "logRequestId" as own, changes
     from "svc_AuditLog" where entity = $1 and type = 'data' order by position`,
    [entity],
  )

beforeAll(async () => {
  api = await startApi()
  const fields = { name: { type: 'String', unique: true }, count: { type: 'Integer' }, owner: { type: 'String' } }
  const collections = {
    thing: { fields },
    watched: { fields },
    trashed: { fields, paranoid: true },
    owned: { fields },
    parent: { fields },
    child: {
      fields: {
        name: { type: 'String' },
        parent: { relType: 'BelongsTo', target: 'parent', foreignKey: 'parent_Id', onDelete: 'CASCADE' },
      },
    },
    mixed: {
      fields: {
        text: { type: 'String' },
        long: { type: 'BigInt' },
        price: { type: 'Decimal' },
        tags: { type: 'Array_String' },
        more: { type: 'JSON' },
        at: { type: 'DateTime' },
        yes: { type: 'Boolean' },
      },
    },
  }
  for (const [collectionName, schema] of Object.entries(collections)) {
    const made = await api.admin('POST', '/schemas', { collectionName, schema })
    if (made.status !== 201) throw new Error(made.text)
  }
  other = new pg.Client({ connectionString: api.database.url })
  await other.connect()
})

afterAll(() => other?.end())

const create = (collection: string, count: number, name = collection) =>
  Promise.all(many(count, (n) => api.admin('POST', `/items/${collection}`, { name: `${name} ${n}`, count: n })))

describe('rows that are created together', () => {
  it('share transactions, and the log tells whose each is', async () => {
    const { call, id } = await api.user([{ collection: 'thing', action: 'create', fields: ['*'] }])
    const makers = many(60, (n) => (n % 2 === 0 ? call : api.admin))
    const answers = await Promise.all(makers.map((make, n) => make('POST', '/items/thing', { name: `made ${n}` })))
    expect(statuses(answers)).toEqual(answers.map(() => 201))
    const logged = await events('thing')
    expect(logged).toHaveLength(60)
    expect(new Set(logged.map(({ xid }) => xid)).size).toBeLessThan(60)
    expect(new Set(logged.map(({ own }) => own)).size).toBe(60)
    for (const [n, answer] of answers.entries()) {
      const event = logged.find(({ id }) => id === answer.body.data.id)!
      expect(event).toMatchObject({ action: 'create', request: answer.headers['x-request-id'] })
      expect(event.changes.after).toMatchObject({ id: answer.body.data.id, name: `made ${n}` })
      expect(event.user === id).toBe(n % 2 === 0)
    }
  })

  it('fail one by one: what one of them breaks costs the others nothing', async () => {
    const names = many(40, (n) => (n % 10 === 3 ? 'taken' : `free ${n}`))
    const answers = await Promise.all(names.map((name) => api.admin('POST', '/items/thing', { name })))
    const refused = answers.filter(({ status }) => status === 409)
    expect(refused).toHaveLength(3)
    for (const { body } of refused) expect(body.error.code).toBe('UNIQUE_VIOLATION')
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(37)
    const [{ rows }] = await api.sql(
      `select count(*)::int as rows from thing where name like 'free %' or name = 'taken'`,
    )
    const logged = await events('thing')
    const asked = new Set(requestIds(answers))
    expect(rows).toBe(37)
    expect(logged.filter(({ request }) => asked.has(request))).toHaveLength(37)
  })

  it('hold what they would hold alone, whatever their values', async () => {
    const text = fc.string({ maxLength: 12, unit: 'binary' }).filter((s) => !s.includes('\0'))
    const rows = fc.record({
      text: fc.option(fc.oneof(text, fc.constantFrom('null', '{}', '"', '\\', '$1'))),
      long: fc.option(fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n).map(String)),
      price: fc.option(fc.integer().map((cents) => `${cents}.5000`)),
      tags: fc.option(fc.array(text, { maxLength: 3 })),
      more: fc.option(fc.jsonValue({ maxDepth: 2 })),
      at: fc.option(fc.constantFrom('2026-01-02T03:04:05.678Z', '1969-12-31T23:59:59.999Z')),
      yes: fc.option(fc.boolean()),
    })
    await fc.assert(
      fc.asyncProperty(rows, async (row) => {
        const alone = await api.admin('POST', '/items/mixed', row)
        const together = await Promise.all(many(12, () => api.admin('POST', '/items/mixed', row)))
        expect(new Set(statuses([alone, ...together]))).toEqual(new Set([alone.status]))
        if (alone.status !== 201) return
        const ids = [alone, ...together].map(({ body }) => body.data.id)
        const kinds = await api.sql(
          `select distinct (to_jsonb(m) - 'id' - 'createdAt' - 'updatedAt')::text from mixed m where id = any($1)`,
          [ids],
        )
        expect(kinds).toHaveLength(1)
        // Of all of them but the first, by what was read together.
        const changed = await Promise.all(
          ids.map((id) => api.admin('PATCH', `/items/mixed/${id}`, { ...row, text: 'x' })),
        )
        expect(new Set(statuses(changed))).toEqual(new Set([200]))
        const after = await api.sql(
          `select distinct (to_jsonb(m) - 'id' - 'createdAt' - 'updatedAt')::text from mixed m where id = any($1)`,
          [ids],
        )
        expect(after).toHaveLength(1)
      }),
      { numRuns: 25 },
    )
  })
})

it('rows of callers whose rules name them share transactions, and no caller writes those of another', async () => {
  const conditions = { OR: [{ owner: '$CURRENT_USER' }, { name: { in: ['everybody’s'] } }] }
  const actions = ['create', 'update', 'delete'] as const
  const rules = actions.map((action) => ({ collection: 'owned', action, fields: ['*'], conditions }))
  const users = [await api.user(rules), await api.user(rules), await api.user(rules)]
  // One role, so that the rules are the same but for whom they name.
  await api.sql('update "svc_UserRole" set "role_Id" = $1 where "user_Id" = any($2::uuid[])', [
    users[0]!.roleId,
    users.map(({ id }) => id),
  ])
  const make = (by: (typeof users)[number], owner: (typeof users)[number], n: number) =>
    by.call('POST', '/items/owned', { name: `own ${n}`, owner: owner.id })
  const made = await Promise.all(many(36, (n) => make(users[n % 3]!, users[n % 3]!, n)))
  expect(new Set(statuses(made))).toEqual(new Set([201]))
  const ids = made.map(({ body }, n) => ({ id: body.data.id as string, owner: users[n % 3]! }))
  const foreign = await Promise.all(many(18, (n) => make(users[n % 3]!, users[n % 2]!, 100 + n)))
  expect(statuses(foreign)).toEqual(many(18, (n) => (n % 3 === n % 2 ? 201 : 403)))
  for (const { user, changes } of await events('owned')) expect(changes.after.owner).toBe(user)
  const tries = ids.flatMap(({ id, owner }) => users.map((by) => ({ id, by, isOwn: by === owner })))
  const changed = await Promise.all(tries.map(({ id, by }, n) => by.call('PATCH', `/items/owned/${id}`, { count: n })))
  expect(statuses(changed)).toEqual(tries.map(({ isOwn }) => (isOwn ? 200 : 403)))
  const gone = await Promise.all(tries.map(({ id, by }) => by.call('DELETE', `/items/owned/${id}`)))
  expect(statuses(gone).map((status) => status < 300)).toEqual(tries.map(({ isOwn }) => isOwn))
  const logged = await events('owned')
  expect(logged).toHaveLength(3 * ids.length + foreign.filter(({ status }) => status === 201).length)
  const share = (all: typeof logged, action: string) =>
    Object.values(Object.groupBy(all, ({ xid, action }) => `${xid} ${action}`)).some(
      (group) => group![0]!.action === action && new Set(group!.map(({ user }) => user)).size > 1,
    )
  // On a busy machine the rows of one round may come one by one.
  await waitFor(async () => {
    const all = await events('owned')
    if (actions.every((action) => share(all, action))) return true
    const more = await Promise.all(many(36, (n) => make(users[n % 3]!, users[n % 3]!, 200 + all.length + n)))
    const each = (method: string, body?: object) =>
      Promise.all(more.map((row, n) => users[n % 3]!.call(method, `/items/owned/${row.body.data.id}`, body)))
    await each('PATCH', { count: 1 })
    await each('DELETE')
    return false
  })
})

describe('rows that are changed together', () => {
  let ids: string[]

  beforeEach(async () => {
    await api.sql('delete from thing')
    ids = (await create('thing', 30)).map(({ body }) => body.data.id)
  })

  const change = (id: string, body: object, by = api.admin) => by('PATCH', `/items/thing/${id}`, body)

  it('share transactions, and those that the caller may not change are refused alone', async () => {
    const own = { name: { in: many(30, (n) => `thing ${n}`).filter((_, n) => n % 3 !== 0) } }
    const { call, id } = await api.user([{ collection: 'thing', action: 'update', fields: ['count'], conditions: own }])
    const before = (await events('thing')).length
    const answers = await Promise.all(ids.map((id, n) => change(id, { count: 100 + n }, call)))
    expect(statuses(answers)).toEqual(many(30, (n) => (n % 3 === 0 ? 403 : 200)))
    const logged = (await events('thing')).slice(before)
    expect(logged).toHaveLength(20)
    expect(new Set(logged.map(({ xid }) => xid)).size).toBeLessThan(20)
    for (const [n, answer] of answers.entries()) {
      const mine = logged.filter(({ request }) => request === answer.headers['x-request-id'])
      expect(mine.map(({ id, user }) => [id, user])).toEqual(n % 3 === 0 ? [] : [[ids[n], id]])
      if (n % 3 !== 0) expect(mine[0]!.changes).toMatchObject({ after: { count: 100 + n }, before: { count: n } })
    }
    const rows = await api.sql(`select count from thing order by array_position($1::uuid[], id)`, [ids])
    expect(rows.map(({ count }) => count)).toEqual(many(30, (n) => (n % 3 === 0 ? n : 100 + n)))
  })

  it('of one row are made one after the other', async () => {
    const [id] = ids as [string]
    const answers = await Promise.all(many(40, (n) => change(id, { count: 1000 + n })))
    expect(new Set(statuses(answers))).toEqual(new Set([200]))
    const logged = (await events('thing')).filter((event) => event.id === id && event.action === 'update')
    expect(logged).toHaveLength(40)
    for (const [n, { changes }] of logged.entries())
      if (n > 0) expect(changes.before.count).toBe(logged[n - 1]!.changes.after.count)
    expect(new Set(logged.map(({ xid }) => xid)).size).toBe(40)
  })

  it('do not wait for a lock that only one of them waits for', async () => {
    await other.query('begin')
    await other.query('select from thing where id = $1 for update', [ids[7]])
    let isLast = false
    const last = change(ids[7]!, { count: -7 }).finally(() => {
      isLast = true
    })
    const answers = ids.flatMap((id, n) => (n === 7 ? [] : [change(id, { count: -n })]))
    try {
      expect(new Set(statuses(await Promise.all(answers)))).toEqual(new Set([200]))
      expect(isLast).toBe(false)
    } finally {
      await other.query('rollback')
    }
    expect((await last).status).toBe(200)
  })

  it('are undone one by one by their places in the log', async () => {
    await Promise.all(ids.map((id, n) => change(id, { count: 500 + n })))
    const shared = Object.values(Object.groupBy(await events('thing'), ({ xid }) => xid)).findLast(
      (group) => group!.length > 1 && group!.every(({ changes }) => changes.after?.count >= 500),
    )!
    const [one] = shared
    const [{ position }] = await api.sql(
      `select position::text from "svc_AuditLog" where "entityId" = $1 and xid = $2::xid8`,
      [one!.id, one!.xid],
    )
    const undone = await api.admin('POST', '/log/undo', { position })
    expect(undone.status).toBe(200)
    const rows = await api.sql('select id, count from thing where id = any($1::uuid[])', [shared.map(({ id }) => id)])
    for (const { id, count } of rows) expect(count < 500).toBe(id === one!.id)
  })
})

it('rows that are deleted together share transactions, and a second time they are refused', async () => {
  for (const collection of ['watched', 'trashed']) {
    const ids = (await create(collection, 24)).map(({ body }) => body.data.id as string)
    const twice = [...ids, ...ids.slice(0, 6)]
    const answers = await Promise.all(twice.map((id) => api.admin('DELETE', `/items/${collection}/${id}`)))
    const gone = answers.filter(({ status }) => status < 300)
    expect([gone.length, answers.filter(({ status }) => status === 403).length]).toEqual([24, 6])
    const ends = (await events(collection)).filter(({ action }) => action !== 'create')
    expect(ends.map(({ id }) => id).toSorted()).toEqual(ids.toSorted())
    expect(new Set(ends.map(({ xid }) => xid)).size).toBeLessThan(24)
    expect(new Set(ends.map(({ request }) => request))).toEqual(new Set(requestIds(gone)))
  }
})

it('logs consequences of a row in the database under its own request', async () => {
  const parents = (await create('parent', 16)).map(({ body }) => body.data.id as string)
  const children = await Promise.all(
    parents.map((parent_Id, n) => api.admin('POST', '/items/child', { name: `child ${n}`, parent_Id })),
  )
  expect(new Set(statuses(children))).toEqual(new Set([201]))
  const answers = await Promise.all(parents.map((id) => api.admin('DELETE', `/items/parent/${id}`)))
  expect(statuses(answers).every((status) => status < 300)).toBe(true)
  const gone = (await events('child')).filter(({ action }) => action === 'delete')
  expect(gone).toHaveLength(16)
  for (const [n, id] of parents.entries())
    expect(gone.find(({ changes }) => changes.before.parent_Id === id)!.request).toBe(
      answers[n]!.headers['x-request-id'],
    )
})

it('a table with a trigger that is not ours gets its rows one by one', async () => {
  await api.sql(`create function follow() returns trigger language plpgsql as $$ begin
    insert into watched (id, name, "createdAt", "updatedAt") values (gen_random_uuid(), 'after ' || new.name, now(), now()); return new; end $$`)
  await api.sql('create trigger follow before insert on thing for each row execute function follow()')
  const answers = await create('thing', 24, 'followed')
  expect(new Set(statuses(answers))).toEqual(new Set([201]))
  const made = (await events('thing')).filter(({ changes }) => changes.after?.name.startsWith('followed'))
  const after = (await events('watched')).filter(({ changes }) => changes.after?.name.startsWith('after followed'))
  expect([made.length, after.length]).toEqual([24, 24])
  for (const { request, changes, xid } of made) {
    const follower = after.find((event) => event.changes.after.name === `after ${changes.after.name}`)!
    expect([follower.request, follower.xid]).toEqual([request, xid])
  }
  expect(new Set(made.map(({ xid }) => xid)).size).toBe(24)
  await api.sql('drop trigger follow on thing')
})

it('keeps every acknowledged row once and no refused one, while connections die', async () => {
  let killed = 0
  const killTwo = async () => {
    const { rowCount } = await other.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where datname = current_database() and application_name like '%hot%' and pid <> pg_backend_pid() limit 2`,
    )
    killed += rowCount ?? 0
  }
  const answers: { name: string; status: number }[] = []
  let killing = Promise.resolve()
  await Promise.all(
    many(16, async (client) => {
      for (let n = 0; n < 25; n += 1) {
        const name = `storm ${client}-${n}`
        answers.push({ name, status: (await api.admin('POST', '/items/watched', { name })).status })
        // So often as rows are written, however fast the machine is.
        if (numberWritten(answers) % 8 === 0 && answers.at(-1)!.status === 201) killing = killing.then(killTwo)
      }
    }),
  )
  await killing
  expect(killed).toBeGreaterThan(5)
  await waitFor(async () => (await api.admin('GET', '/ready')).status === 200)
  const rows = new Set((await api.sql(`select name from watched where name like 'storm %'`)).map(({ name }) => name))
  const logged = (await events('watched')).flatMap(({ changes }) =>
    changes.after?.name.startsWith('storm ') ? [changes.after.name] : [],
  )
  expect(logged.toSorted()).toEqual([...rows].toSorted())
  for (const { name, status } of answers) {
    expect([201, 503]).toContain(status)
    if (status === 201) expect(rows.has(name)).toBe(true)
  }
  expect(numberWritten(answers)).toBeGreaterThan(100)
})
