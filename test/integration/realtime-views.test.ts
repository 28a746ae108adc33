import pg from 'pg'
import { afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { parseCursor, parseSnapshot } from '../../src/events/cursor.ts'
import { logDoors } from '../../src/events/log.ts'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { closeSockets, connect, type TestSocket } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let address: string
let token: string

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true', REALTIME_ROW_LEVEL_SCOPING: 'true' })
  address = await api.app.listen({ host: '127.0.0.1', port: 0 })
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const schemas = {
    team: { fields: { name: { type: 'String' } } },
    task: {
      fields: {
        title: { type: 'String' },
        owner: { type: 'UUID' },
        tags: { type: 'Array_String' },
        points: { type: 'Integer' },
        secret: { type: 'String' },
        team: { relType: 'BelongsTo', target: 'team', foreignKey: 'team_Id' },
      },
    },
  }
  for (const [collectionName, schema] of Object.entries(schemas)) {
    const made = await api.admin('POST', '/schemas', { collectionName, schema })
    if (made.status !== 201) throw new Error(made.text)
  }
})

afterEach(closeSockets)

const create = async (row: object): Promise<string> => (await api.admin('POST', '/items/task', row)).body.data.id
const told = ({ frames }: TestSocket) => frames.map(({ action, data }) => [action, data.title ?? data])
const marked = async (client: TestSocket, row: object) => {
  const title = `marker ${Math.random()}`
  await create({ ...row, title })
  await client.frame(({ data }) => data.title === title)
  client.frames.splice(client.frames.findIndex(({ data }) => data.title === title))
}
const subscribe = (client: TestSocket, more: object = {}) => client.emit('subscribe', { collection: 'task', ...more })

/** A transaction that is open until the test ends it. */
const begin = async (statement: string) => {
  const client = new pg.Client({ connectionString: api.database.url })
  await client.connect()
  onTestFinished(() => client.end())
  await client.query('begin')
  await client.query(statement)
  return client
}
const waiting = `from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
const waitsForLock = async () => (await api.sql(`select ${waiting}`)).length > 0

describe('filter', () => {
  it('delivers a row while it matches, and its id when it no longer does', async () => {
    const client = await connect(address, token)
    expect(await subscribe(client, { filter: { points: { gte: 5 } } })).toMatchObject({ status: 'success' })
    const low = await create({ title: 'low', points: 1 })
    const high = await create({ title: 'high', points: 7 })
    await api.admin('PATCH', `/items/task/${low}`, { points: 6 })
    await api.admin('PATCH', `/items/task/${high}`, { points: 2 })
    await api.admin('DELETE', `/items/task/${high}`)
    await api.admin('DELETE', `/items/task/${low}`)
    await client.frame(({ action }) => action === 'delete')
    expect(told(client)).toEqual([
      ['create', 'high'],
      ['update', 'low'],
      ['remove', { id: high }],
      ['delete', 'low'],
    ])
  })

  it('compares moments as answers show them, as lists, rules and reports do', async () => {
    const shared = await create({ title: 'shared', points: 1 })
    await api.sql(`update task set "createdAt" = '2024-05-01T10:00:00.747123Z' where id = $1`, [shared])
    const { createdAt } = (await api.admin('GET', `/items/task/${shared}`)).body.data
    expect(createdAt).toBe('2024-05-01T10:00:00.747Z')
    const { call } = await api.user([{ collection: 'task', action: 'read', fields: '*', conditions: { createdAt } }])
    const rows = await call(
      'GET',
      `/items/task?fields=title&filter=${JSON.stringify({ createdAt: { lte: createdAt } })}`,
    )
    expect(rows.body.data).toEqual([{ title: 'shared' }])
    const aggregate = { last: { function: 'max', field: 'createdAt' } }
    const report = { aggregate, groupBy: ['title'], filter: { createdAt }, having: { last: { in: [createdAt] } } }
    expect((await call('POST', '/reports/task', report)).body.data).toEqual([{ title: 'shared', last: createdAt }])
    const [same, later] = [await connect(address, token), await connect(address, token)]
    await subscribe(same, { filter: { OR: [{ createdAt: { in: [createdAt] } }, { points: 9 }] } })
    await subscribe(later, { filter: { OR: [{ createdAt: { gt: createdAt }, points: 1 }, { points: 9 }] } })
    await api.admin('PATCH', `/items/task/${shared}`, { tags: ['seen'] })
    await create({ title: 'end', points: 9 })
    for (const client of [same, later]) await client.frame(({ data }) => data.title === 'end')
    expect([told(same), told(later)]).toEqual([
      [
        ['update', 'shared'],
        ['create', 'end'],
      ],
      [['create', 'end']],
    ])
  })

  it('is one statement per batch for all who filter alike, whatever they filter for', async () => {
    const owners = Array.from({ length: 20 }, (_, i) => `00000000-0000-4000-8000-0000000000${10 + i}`)
    const clients = await Promise.all(owners.map(() => connect(address, token)))
    const tags = (i: number) => [`t${i}`, 'a"\\,{b}']
    for (const [i, client] of clients.entries())
      expect(await subscribe(client, { filter: { owner: owners[i], tags: { arraycontains: tags(i) } } })).toMatchObject(
        {
          status: 'success',
        },
      )
    const run = vi.spyOn(api.runtime.feedDb, 'run')
    await api.sql(
      `insert into task (title, owner, tags) select 'of ' || o, o, array['t' || n - 1, 'a"\\,{b}', 'more'] from unnest($1::uuid[]) with ordinality x(o, n)`,
      [owners],
    )
    await Promise.all(clients.map((client, i) => client.frame(({ data }) => data.owner === owners[i])))
    const statements = statementsFor(run.mock.calls, owners[0]!)
    run.mockRestore()
    expect(statements.map(([, [, viewers]]) => viewers)).toEqual([`{${owners.map((owner) => `"${owner}"`)}}`])
    expect(clients.map((client) => client.frames.length)).toEqual(owners.map(() => 1))
  })

  /** Those that evaluated changes for a viewer with this value. */
  const statementsFor = (calls: readonly (readonly unknown[])[], value: string) =>
    (calls as [string, unknown[]][]).filter(
      ([text, values]) => text.includes('$viewers') && JSON.stringify(values).includes(value),
    )

  it('is within what the subscriber may read: each user sees its own rows, by one statement', async () => {
    const rule = { collection: 'task', action: 'read', fields: 'title,owner', conditions: { owner: '$CURRENT_USER' } }
    const [one, two] = [await api.user([rule]), await api.user([rule])]
    const clients = [await connect(address, one.token), await connect(address, two.token)] as const
    for (const client of clients)
      expect(await subscribe(client, { filter: { title: { startsWith: 'x' } } })).toMatchObject({ status: 'success' })
    const run = vi.spyOn(api.runtime.feedDb, 'run')
    await api.sql(`insert into task (title, owner) select t, o from unnest($1::uuid[]) o, unnest(array['x', 'y']) t`, [
      [one.id, two.id],
    ])
    await Promise.all(clients.map((client) => client.frame(() => true)))
    const statements = statementsFor(run.mock.calls, one.id)
    run.mockRestore()
    expect(statements).toHaveLength(1)
    expect(clients.map(({ frames }) => frames.map(({ data }) => [data.title, data.owner]))).toEqual([
      [['x', one.id]],
      [['x', two.id]],
    ])
  })

  it('is about fields of any name, also those that the statement itself uses', async () => {
    const names = ['position', 'action', 'n', 'p1', 'after', 'before', 'viewers', 'visible', 'key', 'e', 't', 'v']
    const fields = Object.fromEntries(names.map((name) => [name, { type: 'Integer' }]))
    expect((await api.admin('POST', '/schemas', { collectionName: 'named', schema: { fields } })).status).toBe(201)
    const client = await connect(address, token)
    const filter = { position: 3, n: 2, v: { gte: 1 } }
    expect(await client.emit('subscribe', { collection: 'named', filter })).toMatchObject({ status: 'success' })
    const row = { ...Object.fromEntries(names.map((name, i) => [name, i + 1])), position: 3, n: 2 }
    const { id } = (await api.admin('POST', '/items/named', row)).body.data
    await api.admin('PATCH', `/items/named/${id}`, { n: 4 })
    await client.frame(({ action }) => action === 'remove')
    expect(client.frames.map(({ action, data }) => [action, data])).toEqual([
      ['create', expect.objectContaining({ ...row, id })],
      ['remove', { id }],
    ])
  })

  it('over a relation hears resync when the related row changes', async () => {
    const team = (await api.admin('POST', '/items/team', { name: 'red' })).body.data.id
    const client = await connect(address, token)
    await subscribe(client, { filter: { 'team.name': 'red' } })
    await create({ title: 'in', team_Id: team })
    await client.frame(({ data }) => data.title === 'in')
    await api.admin('PATCH', `/items/team/${team}`, { name: 'blue' })
    await waitFor(() => client.notices.some(({ name, body }) => name === 'resync' && body.collection === 'task'))
  })

  it('over a relation hears no resync of a change from before it, delivered late', async () => {
    const early = await connect(address, token)
    expect(await early.emit('subscribe', { collection: 'team' })).toMatchObject({ status: 'success' })
    const read = api.runtime.feedDb.run
    const { promise: late, resolve: go } = Promise.withResolvers<void>()
    const run = vi.spyOn(api.runtime.feedDb, 'run').mockImplementation(async (text, ...rest) => {
      if (text.includes('$viewers') && text.includes('"team"')) await late
      return read(text, ...rest)
    })
    onTestFinished(() => run.mockRestore())
    const team = (await api.admin('POST', '/items/team', { name: 'green' })).body.data.id
    await waitFor(() => run.mock.calls.some(([text]) => text.includes('$viewers')))
    const client = await connect(address, token)
    expect(await subscribe(client, { filter: { 'team.name': 'green' } })).toMatchObject({ status: 'success' })
    go()
    await early.frame(({ data }) => data.name === 'green')
    await create({ title: 'in', team_Id: team })
    await client.frame(({ data }) => data.title === 'in')
    expect(client.notices.map(({ name }) => name)).not.toContain('resync')
  })

  it.each([
    [{ filter: { nothing: 1 } }, /unknown field/],
    [{ filter: 'text' }, /Invalid query parameters: filter/],
    [{ filter: { points: { like: {} } } }, /Invalid query parameters/],
    [{ fields: ['nothing'] }, /Invalid query parameters: fields/],
    [{ fields: ['team.name'] }, /relations of "task" are not part of a change/],
    [{ fields: { a: 1 } }, /Invalid query parameters: fields/],
    [{ snapshot: 'perhaps' }, /Invalid query parameters: snapshot/],
  ])('%j is refused', async (more, message) => {
    const client = await connect(address, token)
    expect(await subscribe(client, more)).toEqual({
      status: 'error',
      code: 'BAD_REQUEST',
      message: expect.stringMatching(message),
    })
    await marked(await subscribed(), {})
    expect(client.frames).toEqual([])
  })

  const subscribed = async () => {
    const client = await connect(address, token)
    await subscribe(client)
    return client
  }
})

describe('fields', () => {
  it('are those asked for and the primary key, in changes of every kind', async () => {
    const client = await connect(address, token)
    await subscribe(client, { fields: 'title' })
    const id = await create({ title: 'a', points: 3, secret: 'canary' })
    await api.admin('DELETE', `/items/task/${id}`)
    await client.frame(({ action }) => action === 'delete')
    expect(client.frames.map(({ data }) => data)).toEqual([
      { id, title: 'a' },
      { id, title: 'a' },
    ])
  })

  it('and filters that the subscriber may not read are refused, and end when the permission changes', async () => {
    const user = await api.user([{ collection: 'task', action: 'read', fields: 'title,points' }])
    const client = await connect(address, user.token)
    const denied = { status: 'error', code: 'FORBIDDEN', message: "You don't have permission to read field: secret" }
    expect(await subscribe(client, { fields: ['secret'] })).toEqual(denied)
    expect(await subscribe(client, { filter: { secret: { startsWith: 'c' } } })).toEqual(denied)
    expect(await subscribe(client, { filter: { OR: [{ points: 1 }, { secret: 'c' }] } })).toEqual(denied)
    expect(await subscribe(client, { filter: { points: { gt: 1 } } })).toMatchObject({ status: 'success' })
    await api.sql(`update "svc_Permission" set fields = '"title"' where "role_Id" = $1`, [user.roleId])
    await api.admin('POST', '/permissions/reload')
    const notice = await waitFor(() => client.notices.find(({ name }) => name === 'unsubscribed'))
    expect(notice.body).toEqual({ collection: 'task', reason: "You don't have permission to read field: points" })
    const watcher = await connect(address, token)
    await subscribe(watcher)
    await marked(watcher, { points: 9 })
    expect(client.frames).toEqual([])
  })
})

describe('a collection that changes', () => {
  it('shows its new fields, ends what asks for a lost one, and tells TRUNCATE row by row', async () => {
    const define = (fields: object) => ({
      collectionName: 'thing',
      schema: { fields: { name: { type: 'String' }, ...fields } },
    })
    await api.admin('POST', '/schemas', define({ old: { type: 'Integer' } }))
    const [all, filtered, chosen] = [
      await connect(address, token),
      await connect(address, token),
      await connect(address, token),
    ]
    await all.subscribe('thing')
    await filtered.emit('subscribe', { collection: 'thing', filter: { old: { gt: 1 } } })
    await chosen.emit('subscribe', { collection: 'thing', fields: ['old'] })
    await api.sql(`insert into thing (name, old) values ('before', 5)`)
    for (const client of [all, filtered, chosen]) await client.frame(() => true)
    expect((await api.admin('PATCH', '/schemas/thing?drop=true', define({ fresh: { type: 'Integer' } }))).status).toBe(
      200,
    )
    await waitFor(() => all.notices.some(({ name }) => name === 'resync'))
    await all.subscribe('thing')
    await api.sql(`insert into thing (name, fresh) values ('after', 7)`)
    expect((await all.frame(({ data }) => data.name === 'after')).data).toMatchObject({ fresh: 7 })
    for (const client of [filtered, chosen])
      expect(await waitFor(() => client.notices.find(({ name }) => name === 'unsubscribed'))).toMatchObject({
        body: { collection: 'thing', reason: expect.any(String) },
      })
    await api.sql('truncate thing')
    await waitFor(() => all.frames.filter(({ action }) => action === 'delete').length === 2)
    expect(filtered.frames).toHaveLength(1)
  })
})

describe('a definition that changes', () => {
  /** Of a process that shows everybody who may read a collection all of its rows. */
  let unscoped: string
  beforeAll(async () => {
    const { app } = await startApi({ SOCKET_ENABLED: 'true' }, api.database)
    unscoped = await app.listen({ host: '127.0.0.1', port: 0 })
  })

  const first = {
    name: { type: 'String' },
    n: { type: 'Integer' },
    old: { type: 'Integer' },
    sum: { type: 'VIRTUAL', calculated: 'n + 1' },
  }
  const { old: _, ...rest } = first
  it.each<[what: string, name: string, fields: object, row: object]>([
    [
      'a field with a default',
      'added',
      { ...first, more: { type: 'Integer', allowNull: false, defaultValue: 7 } },
      { more: 7 },
    ],
    ['another calculation', 'calculated', { ...first, sum: { type: 'VIRTUAL', calculated: 'n + 2' } }, { sum: '3' }],
    ['another type', 'typed', { ...first, old: { type: 'Decimal' } }, { old: '5' }],
    ['a field less', 'lessened', rest, { name: 'x' }],
  ])('by %s asks those who follow its rows to read again, once, and nobody else', async (_what, name, fields, row) => {
    const define = (own: object) => ({ collectionName: name, schema: { fields: own } })
    expect((await api.admin('POST', '/schemas', define(first))).status).toBe(201)
    await api.admin('POST', `/items/${name}`, { name: 'x', n: 1, old: 5 })
    const clients = await Promise.all([unscoped, address, address].map((to) => connect(to, token)))
    const [plain, filtered, other] = clients as [TestSocket, TestSocket, TestSocket]
    const { cursor } = await plain.subscribe(name)
    await filtered.emit('subscribe', { collection: name, filter: { name: 'x' } })
    for (const client of clients) await subscribe(client)
    await marked(other, {})
    await plain.frame(() => true)
    for (const client of clients) client.frames.length = 0

    const position = await api.position()
    expect((await api.admin('PATCH', `/schemas/${name}?drop=true`, define(fields))).status).toBe(200)
    expect((await api.log(position)).map(({ type, entityId, action }) => [type, entityId, action])).toEqual([
      ['data', name, 'update'],
      ['schema', name, 'changed'],
    ])
    await marked(other, {})
    for (const client of [plain, filtered]) {
      await waitFor(() => client.notices.some((notice) => notice.name === 'resync'))
      expect(client.notices.slice(1)).toEqual([{ name: 'resync', body: { collection: name } }])
    }
    expect(other.notices).toHaveLength(1)

    await filtered.emit('subscribe', { collection: name, snapshot: true })
    const seen = await waitFor(() => filtered.notices.find((notice) => notice.name === `${name}:snapshot`))
    expect(seen!.body.data).toEqual([expect.objectContaining(row)])

    for (const to of [unscoped, address]) {
      const later = await connect(to, token)
      expect(await later.subscribe(name, cursor)).toMatchObject({ status: 'success' })
      await waitFor(() => later.notices.some((notice) => notice.name === 'resync'))
    }
  })

  it('to nothing ends what followed it', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'brief', schema: { fields: { n: { type: 'Integer' } } } })
    const client = await connect(address, token)
    await client.subscribe('brief')
    await api.admin('DELETE', '/schemas/brief')
    const ended = await waitFor(() => client.notices.find(({ name }) => name === 'unsubscribed'))
    expect(ended!.body).toEqual({ collection: 'brief', reason: 'No permission to subscribe to this collection' })
  })
})

describe('an event that is erased before it is delivered', () => {
  it('asks its subscribers to read again: no message tells what it changed', async () => {
    const client = await connect(address, token)
    await subscribe(client)
    await api.sql(`${logDoors.erase} begin; insert into task (title) values ('secret');
      update "svc_AuditLog" set changes = '{"erased": true}'
        where xid = pg_current_xact_id() and entity = 'task'; commit`)
    await waitFor(() => client.notices.some(({ name }) => name === 'resync'))
    expect(client.frames).toEqual([])
    expect(client.notices.slice(1)).toEqual([{ name: 'resync', body: { collection: 'task' } }])
  })
})

describe('a statement of the feed that fails', () => {
  it('because its connection is lost is repeated, and no client notices', async () => {
    const [client, other] = [await connect(address, token), await connect(address, token)]
    for (const [socket, wish] of [
      [client, { filter: { or: [{ 'team.name': 'grey' }, { points: 7 }] } }],
      [other, { filter: { points: 7 } }],
    ] as const)
      expect(await subscribe(socket, wish)).toMatchObject({ status: 'success' })
    await create({ title: 'before', points: 7 })
    await client.frame(({ data }) => data.title === 'before')
    const lock = await begin('lock table team in access exclusive mode')
    await api.sql(`update task set title = 'meanwhile' where title = 'before'`)
    for (const _time of [1, 2])
      await waitFor(async () => (await api.sql(`select pg_terminate_backend(pid) ${waiting}`)).length > 0)
    await lock.query('commit')
    await create({ title: 'after', points: 7 })
    for (const socket of [client, other]) {
      await socket.frame(({ data }) => data.title === 'after')
      expect(told(socket).map(([action, title]) => `${action} ${title}`)).toEqual([
        'create before',
        'update meanwhile',
        'create after',
      ])
      expect(socket.notices.map(({ name }) => name)).toEqual(['connected'])
    }
  })

  it('whenever it is run shows nothing and says that it has failed', async () => {
    const schema = { fields: { name: { type: 'String' } } }
    expect((await api.admin('POST', '/schemas', { collectionName: 'poisoned', schema })).status).toBe(201)
    const client = await connect(address, token)
    expect(await client.subscribe('poisoned')).toMatchObject({ status: 'success' })
    await api.sql(`begin; insert into poisoned (name) values ('a'); alter table poisoned drop column name; commit`)
    await waitFor(() => client.notices.some(({ name }) => name === 'resync'))
    expect(client.notices.at(-1)!.body).toEqual({ collection: 'poisoned', reason: 'failed' })
  })
})

it('shows null for a value that no longer fits its field', async () => {
  const schema = { fields: { name: { type: 'String' } } }
  expect((await api.admin('POST', '/schemas', { collectionName: 'retyped', schema })).status).toBe(201)
  const client = await connect(address, token)
  expect(await client.subscribe('retyped')).toMatchObject({ status: 'success' })
  await api.sql(`begin; insert into retyped (name) values ('no number');
    alter table retyped alter name type integer using 0; commit`)
  expect((await client.frame(() => true)).data).toMatchObject({ name: null })
})

describe('a filter that cannot be evaluated', () => {
  const number = 'Invalid query parameters: A text cannot be read as the type that it is for'

  it('is refused with a snapshot, as a report is, and is no fault of the server', async () => {
    await create({ title: 'no number' })
    const client = await connect(address, token)
    const asNumber = { filter: { title: { eq: 1, cast: 'integer' } }, snapshot: true }
    const refused = { status: 'error', code: 'BAD_REQUEST', message: number }
    const logged = vi.spyOn(api.runtime.log, 'error')
    expect(await subscribe(client, asNumber)).toEqual(refused)
    expect(logged).not.toHaveBeenCalled()
    logged.mockRestore()
  })

  it('ends its own subscription once, and costs others nothing', async () => {
    const clients = await Promise.all(Array.from({ length: 4 }, () => connect(address, token)))
    const [broken, ...others] = clients as [TestSocket, ...TestSocket[]]
    const pattern = (regex: string) => ({ filter: { title: { regex } } })
    expect(await subscribe(broken, pattern('('))).toMatchObject({ status: 'success' })
    for (const [n, client] of others.entries())
      expect(await subscribe(client, pattern(`^(matching|${n})`))).toMatchObject({ status: 'success' })
    const cast = await connect(address, token)
    expect(await subscribe(cast, { filter: { title: { eq: 1, cast: 'integer' } } })).toMatchObject({
      status: 'success',
    })
    const logged = vi.spyOn(api.runtime.log, 'error')
    for (const n of [1, 2]) await create({ title: `matching ${n}` })
    for (const client of others) {
      await client.frame(({ data }) => data.title === 'matching 2')
      expect(told(client)).toEqual([
        ['create', 'matching 1'],
        ['create', 'matching 2'],
      ])
      expect(client.notices.map(({ name }) => name)).toEqual(['connected'])
    }
    const pieces = [
      [broken, 'Invalid query parameters: A regular expression is malformed'],
      [cast, number],
    ] as const
    for (const [client, reason] of pieces) {
      await waitFor(() => client.notices.length > 1)
      expect(client.notices.slice(1)).toEqual([{ name: 'unsubscribed', body: { collection: 'task', reason } }])
      expect(client.frames).toEqual([])
    }
    expect(logged).not.toHaveBeenCalled()
    logged.mockRestore()
  })
})

describe('snapshot', () => {
  const rowsOf = ({ notices }: TestSocket) =>
    notices.filter(({ name }) => name === 'task:snapshot').flatMap(({ body }) => body.data)

  it('is the rows of a read, then what happens from that point on', async () => {
    await api.sql('truncate task')
    await api.sql(`insert into task (title, points) select 'row ' || n, n from generate_series(1, 3000) n`)
    const user = await api.user([
      { collection: 'task', action: 'read', fields: '*', conditions: { points: { gt: 100 } } },
    ])
    const client = await connect(address, user.token)
    const answer = await subscribe(client, {
      snapshot: true,
      fields: ['title', 'points'],
      filter: { points: { lte: 2000 } },
    })
    expect(answer).toEqual({ status: 'success', cursor: expect.any(String), snapshot: 1900 })
    const list = await user.call('GET', `/items/task?fields=id,title,points&limit=-1&filter={"points":{"lte":2000}}`)
    const byId = (a: any, b: any) => (a.id < b.id ? -1 : 1)
    expect(rowsOf(client).sort(byId)).toEqual(list.body.data.sort(byId))
    const pieces = client.notices.filter(({ name }) => name === 'task:snapshot').map(({ body }) => body)
    expect(pieces.map(({ index }) => index)).toEqual(pieces.map((_piece, i) => i))
    expect(pieces.map(({ more }) => more)).toEqual([...pieces.slice(1).map(() => true), false])
    await create({ title: 'later', points: 500 })
    await client.frame(({ data }) => data.title === 'later')
  })

  it('of nothing is one empty piece', async () => {
    const client = await connect(address, token)
    expect(await subscribe(client, { snapshot: true, filter: { points: -1 } })).toMatchObject({ snapshot: 0 })
    expect(client.notices.filter(({ name }) => name === 'task:snapshot').map(({ body }) => body)).toEqual([
      {
        ...{ collection: 'task', index: 0, data: [], more: false, key: 'id', numbers: ['points'] },
        orders: { tags: 'none', createdAt: 'date', updatedAt: 'date' },
      },
    ])
  })

  it('is not sent where the log still tells what was missed, and is where it does not', async () => {
    const first = await connect(address, token)
    const { cursor } = await subscribe(first, { snapshot: true, filter: { points: { gt: 2999 } } })
    first.close()
    await create({ title: 'missed', points: 5000 })
    const second = await connect(address, token)
    const resumed = await subscribe(second, { since: cursor, snapshot: true, filter: { points: { gt: 2999 } } })
    expect(resumed).toEqual({ status: 'success', cursor: expect.any(String) })
    expect(second.frames.map(({ data }) => data.title)).toEqual(['missed'])
    expect(rowsOf(second)).toEqual([])
    const { xmin } = parseSnapshot(parseCursor(cursor).snapshot)!
    // The process itself reads on from later than that: only this subscriber has lost its place.
    await api.settled()
    await marked(second, { points: 5001 })
    onTestFinished(async () => void (await api.sql(`update svc_log.floor set removed = '0'`)))
    await api.sql(`update svc_log.floor set removed = $1`, [String(xmin)])
    const third = await connect(address, token)
    const again = await subscribe(third, { since: cursor, snapshot: true, filter: { points: { gt: 2999 } } })
    expect(again).toMatchObject({ status: 'success', snapshot: 3 })
    expect(again.cursor).not.toBe(cursor)
  })

  describe('is never turned back by going on from a change', () => {
    const titles = ({ frames }: TestSocket) => frames.map(({ action, data }) => `${action} ${data.title ?? data.id}`)
    it.each([
      ['changed', `update task set title = 'newer' where title = 'older'`, {}],
      ['deleted', `delete from task where title = 'older'`, {}],
      ['left what is seen', `update task set points = 99 where title = 'older'`, { filter: { points: { lt: 50 } } }],
    ])('of a row that was %s by a transaction older than the one before it', async (_, last, filter) => {
      await api.sql('truncate task')
      await api.sql(`insert into task (title, points) values ('first', 1), ('second', 1)`)
      const newer = await begin(`insert into team (name) values ('of the newer one')`)
      const open = await begin(`update task set title = 'late' where title = 'second'`)
      await api.sql(`update task set title = 'older' where title = 'first'`)
      await newer.query(last)
      await newer.query('commit')
      const first = await connect(address, token)
      expect(await subscribe(first, { snapshot: true, ...filter })).toMatchObject({ status: 'success' })
      await create({ title: 'after', points: 1 })
      const { cursor } = await first.frame(({ data }) => data.title === 'after')
      first.close()
      const second = await connect(address, token)
      expect(await subscribe(second, { since: cursor, ...filter })).toMatchObject({ status: 'success' })
      await open.query('commit')
      await second.frame(({ data }) => data.title === 'late')
      expect(titles(second)).toEqual(['update late'])
    })

    it('that came of the batch in which the snapshot was taken', async () => {
      await api.sql('truncate task')
      await api.sql(`insert into task (title, points) values ('first', 1), ('second', 1), ('third', 1)`)
      const other = await connect(address, token)
      expect(await subscribe(other, { filter: { 'team.name': 'green' } })).toMatchObject({ status: 'success' })
      // A follower of teams waits here, and the feed with it.
      const lock = await begin('lock table team in access exclusive mode')
      await api.sql(`update task set title = 'held up' where title = 'third'`)
      await waitFor(waitsForLock)
      const open = await begin(`update task set title = 'unseen' where title = 'first'`)
      await api.sql(`update task set title = 'seen' where title = 'second'`)
      const first = await connect(address, token)
      expect(await subscribe(first, { snapshot: true })).toMatchObject({ snapshot: 3 })
      await open.query('commit')
      await lock.query('commit')
      const { cursor } = await first.frame(({ data }) => data.title === 'unseen')
      expect(titles(first)).toEqual(['update unseen'])
      first.close()
      const second = await connect(address, token)
      await subscribe(second, { since: cursor })
      await create({ title: 'after', points: 1 })
      await second.frame(({ data }) => data.title === 'after')
      expect(titles(second)).toEqual(['create after'])
    })
  })

  it('and the changes after it are the table, while many write', async () => {
    const rounds = Number(process.env.TEST_SNAPSHOTS ?? 15)
    await api.sql('truncate task')
    await api.sql(`insert into task (title, points) select 'row ' || n, 0 from generate_series(1, 300) n`)
    const stop = new AbortController()
    const writers = [0, 1, 2].map((writer) => writeUntil(stop.signal, writer))
    const copies: { client: TestSocket; condition: string }[] = []
    for (let round = 0; round < rounds; round += 1) {
      const client = await connect(address, token)
      const filter = round % 2 === 0 ? undefined : { points: { lt: 50 } }
      const { status } = await subscribe(client, {
        snapshot: true,
        fields: ['title', 'points'],
        ...(filter && { filter }),
      })
      expect(status).toBe('success')
      // A few stay to the end, the others only show that a beginning is whole.
      if (round % 5 < 2 && copies.length < 50) copies.push({ client, condition: filter ? 'where points < 50' : '' })
      else client.close()
    }
    stop.abort()
    await Promise.all(writers)
    const end = await create({ title: 'end', points: 1 })
    for (const { client } of copies) await client.frame(({ data }) => data.id === end)
    for (const { client, condition } of copies) {
      const positions = client.frames.map(({ position }) => position)
      expect(new Set(positions).size).toBe(positions.length)
      const table = await api.sql(`select id::text, title, points from task ${condition}`)
      const expected = new Map(table.map(({ id, title, points }) => [id, `${title} ${points}`]))
      expect(copyOf(client)).toEqual(expected)
    }
  })

  /** What a client holds that takes the snapshot and then every change in turn. */
  function copyOf({ notices, frames }: TestSocket): Map<string, string> {
    const text = ({ title, points }: any) => `${title} ${points}`
    const rows = new Map<string, string>(rowsOf({ notices } as TestSocket).map((row) => [row.id, text(row)]))
    for (const { action, data } of frames)
      if (action === 'delete' || action === 'remove') rows.delete(data.id)
      else rows.set(data.id, text(data))
    return rows
  }

  async function writeUntil(signal: AbortSignal, writer: number): Promise<void> {
    for (let i = 0; !signal.aborted; i += 1) {
      const pick = `(select id from task offset floor(random() * 100) limit 1)`
      if (i % 3 === 0) await api.sql(`update task set points = $1 where id = ${pick}`, [(i * 7 + writer) % 100])
      else if (i % 3 === 1) await api.sql(`delete from task where id = ${pick}`)
      else await api.sql(`insert into task (title, points) values ($1, $2)`, [`w${writer} ${i}`, i % 100])
    }
  }
})
