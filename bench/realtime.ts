import type pg from 'pg'
import { io, type Socket } from 'socket.io-client'
import { type Call, callerOf, expectStatus } from '../scripts/http.ts'
import { type Account, password } from './daybook.ts'
import { meterOf, residentBytes } from './meter.ts'
import type { Server } from './processes.ts'

/*
 * The cost of the realtime channel: the delay of a change, the number of subscribers it can serve, and the memory of an
 * idle one. Latencies are in milliseconds, ascending.
 */

/** A web process with SOCKET_ENABLED, REALTIME_ROW_LEVEL_SCOPING and limits out of the way, and its database. */
export type Target = {
  readonly server: Server
  /** With connections enough to write at the rate asked for. */
  readonly sql: pg.Pool
  readonly admin: Account
}

const collection = 'bench_change'

/** The wake-up of the feed: `wal`, or `poll` while the replication slot waits for others' transactions. */
export async function feedSource({ server }: Target): Promise<string> {
  const answer = await callerOf(server.url)<{ realtime: { source: string } }>('GET', '/ready')
  return expectStatus(answer, 200).realtime.source
}

/** The collection of the other figures: a row has an owner, and the sending time in it. */
export async function prepareRealtime(target: Target): Promise<void> {
  const fields = {
    owner: { type: 'UUID' },
    slot: { type: 'Integer' },
    at: { type: 'Double' },
    text: { type: 'String' },
  }
  const definition = { collectionName: collection, schema: { fields } }
  expectStatus(await asAdmin(target)('POST', '/schemas', definition), 201)
}

/**
 * From just before the INSERT is sent until its change is with the last subscriber, and the same without the INSERT:
 * from its acknowledgement, which may be negative.
 */
export async function commitToSocket(
  target: Target,
  subscribers: number,
  changes: number,
): Promise<{ whole: Float64Array; afterCommit: Float64Array }> {
  const clients = await joinAll(target, subscribers)
  const whole: number[] = []
  const afterCommit: number[] = []
  for (let i = 0; i < changes; i += 1) {
    const arrived = Promise.all(clients.map((socket) => next(socket)))
    const sent = performance.now()
    await insert(target, [{ slot: i }])
    const committed = performance.now()
    await arrived
    whole.push(performance.now() - sent)
    afterCommit.push(performance.now() - committed)
    // Changes that come alone: under load many share a batch.
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  close(clients)
  return { whole: ascending(whole), afterCommit: ascending(afterCommit) }
}

export type RowRules = {
  readonly subscribers: number
  /** Accounts that the subscribers belong to. */
  readonly users: number
  /** Changes that are written per second, and for how many seconds. */
  readonly perSecond: number
  readonly seconds: number
}

/**
 * Subscribers whose role may read rows with `owner = $CURRENT_USER`, each with a filter of its own as well, while rows are
 * written at a steady rate, each for one of them. `missing` have not arrived half a minute after the last one was written.
 */
export async function rowRules(
  target: Target,
  { subscribers, users, perSecond, seconds }: RowRules,
): Promise<{ latencies: Float64Array; missing: number; perSecond: number; cores: number }> {
  const owners = await makeUsers(target, users)
  const perUser = Math.ceil(subscribers / users)
  const latencies: number[] = []
  const clients: Socket[] = []
  for (const { token } of owners)
    for (let slot = 0; slot < perUser; slot += 1) {
      const socket = await join(target.server.url, token, { filter: { slot } })
      socket.on(`${collection}:create`, ({ data }) => latencies.push(now() - data.at))
      clients.push(socket)
    }
  // The writers' connections are open before the first change that counts.
  await Promise.all(Array.from({ length: 200 }, () => insert(target, [{ slot: 0 }])))
  const expected = perSecond * seconds
  const meter = meterOf(target.server.pid)
  const before = meter() ?? Number.NaN
  const began = performance.now()
  const writes: Promise<void>[] = []
  for (let i = 0; i < expected; i += 1) {
    const wait = began + (i * 1000) / perSecond - performance.now()
    if (wait > 1) await new Promise((resolve) => setTimeout(resolve, wait))
    const { id } = owners[i % owners.length]!
    writes.push(insert(target, [{ owner: id, slot: Math.floor(i / owners.length) % perUser }]))
  }
  await Promise.all(writes)
  const wrote = (performance.now() - began) / 1000
  await until(() => latencies.length >= expected, 30_000)
  const used = (meter() ?? Number.NaN) - before
  close(clients)
  return {
    latencies: ascending(latencies),
    missing: expected - latencies.length,
    perSecond: expected / wrote,
    cores: used / wrote,
  }
}

/** Messages per second to all subscribers together, of changes that all of them see, from one transaction. */
export async function fanOut(target: Target, { subscribers, changes }: FanOut): Promise<number> {
  const rows = Array.from({ length: changes }, (_, slot) => ({ slot }))
  return spread(await joinAll(target, subscribers), changes, () => insert(target, rows))
}

/** The same of `message` from a socket.io server that does nothing else. */
export async function plainFanOut(url: string, message: object, { subscribers, changes }: FanOut): Promise<number> {
  const clients = await Promise.all(Array.from({ length: subscribers }, () => open(url, '')))
  return spread(clients, changes, () => clients[0]!.emit('go', message, changes))
}

export type FanOut = { readonly subscribers: number; readonly changes: number }

/** Messages per second from the call of `send` until every client has as many as there are changes. */
async function spread(clients: readonly Socket[], changes: number, send: () => unknown): Promise<number> {
  const arrived = Promise.all(clients.map((socket) => many(socket, `${collection}:create`, changes)))
  const began = performance.now()
  await send()
  await arrived
  const seconds = (performance.now() - began) / 1000
  close(clients)
  return (clients.length * changes) / seconds
}

/** Bytes of resident memory of the web process with so many idle, signed-in connections, and what each has added. */
export async function idleConnections(
  { server, admin }: Target,
  count: number,
): Promise<{ each: number; all: number }> {
  const before = residentBytes(server.pid) ?? Number.NaN
  const clients: Socket[] = []
  for (let i = 0; i < count; i += 100)
    clients.push(...(await Promise.all(Array.from({ length: 100 }, () => open(server.url, admin.token)))))
  const after = residentBytes(server.pid) ?? Number.NaN
  close(clients)
  return { each: (after - before) / count, all: after }
}

/** The text of one change as clients get it, for a plain server to send the same bytes. */
export async function exampleMessage(target: Target): Promise<object> {
  const socket = await join(target.server.url, target.admin.token)
  const arrived = new Promise<object>((resolve) => socket.once(`${collection}:create`, resolve))
  await insert(target, [{ slot: 1 }])
  const message = await arrived
  socket.close()
  return message
}

/** A socket that has connected. */
async function open(url: string, token: string): Promise<Socket> {
  const socket = io(url, { path: '/realtime', auth: { token }, transports: ['websocket'], forceNew: true })
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('connect_error', reject)
  })
  return socket
}

/** Resolves when an event has come so often. */
function many(socket: Socket, name: string, count: number): Promise<void> {
  let left = count
  return new Promise((resolve) => {
    socket.on(name, () => {
      left -= 1
      if (left === 0) resolve()
    })
  })
}

const joinAll = ({ server, admin }: Target, count: number): Promise<Socket[]> =>
  Promise.all(Array.from({ length: count }, () => join(server.url, admin.token)))

async function join(url: string, token: string, more: object = {}): Promise<Socket> {
  const socket = await open(url, token)
  const { status, message } = await socket.emitWithAck('subscribe', { collection, ...more })
  if (status !== 'success') throw new Error(message)
  return socket
}

const next = (socket: Socket) => new Promise<void>((resolve) => socket.once(`${collection}:create`, () => resolve()))

async function insert({ sql }: Target, rows: readonly { owner?: string; slot: number }[]): Promise<void> {
  await sql.query(
    `insert into ${collection} (owner, slot, at, text)
      select (r->>'owner')::uuid, (r->>'slot')::int, $2, repeat('x', 200) from jsonb_array_elements($1::jsonb) r`,
    [JSON.stringify(rows), now()],
  )
}

const now = () => performance.timeOrigin + performance.now()

async function makeUsers(target: Target, count: number) {
  const call = asAdmin(target)
  const create = async (name: string, row: object) =>
    expectStatus(await call<{ data: { id: string } }>('POST', `/items/${name}`, row), 201).data.id
  const role_Id = await create('svc_Role', { name: 'bench watcher' })
  const rule = { role_Id, collection, action: 'read', fields: '*', conditions: { owner: '$CURRENT_USER' } }
  expectStatus(await call('POST', '/permissions', rule), 201)
  const makeUser = async (i: number) => {
    const email = `watcher${i}@bench.example`
    const account = { firstName: 'W', lastName: `${i}`, email, password, emailVerified: true }
    const id = await create('svc_User', account)
    await create('svc_UserRole', { user_Id: id, role_Id })
    return { id, token: await tokenOf(target, email) }
  }
  const users: { id: string; token: string }[] = []
  // Passwords are hashed in the threads of the web process.
  for (let i = 0; i < count; i += atOnce)
    users.push(...(await Promise.all(Array.from({ length: Math.min(atOnce, count - i) }, (_, k) => makeUser(i + k)))))
  return users
}

const atOnce = 4

const asAdmin = ({ server, admin }: Target): Call => callerOf(server.url, admin.token)

async function tokenOf({ server }: Target, email: string): Promise<string> {
  const answer = await callerOf(server.url)<{ token: string }>('POST', '/auth/login', { email, password })
  return expectStatus(answer, 200).token
}

function close(sockets: readonly Socket[]): void {
  for (const socket of sockets) socket.close()
}

const ascending = (ms: readonly number[]): Float64Array => Float64Array.from(ms).sort()

async function until(condition: () => boolean, ms: number): Promise<void> {
  const limit = performance.now() + ms
  while (!condition() && performance.now() < limit) await new Promise((resolve) => setTimeout(resolve, 20))
}
