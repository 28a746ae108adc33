/**
 * What the realtime channel costs: how long a change takes to its subscribers, how many of them it can serve, and what
 * an idle one weighs. Each function works on a running web process and answers figures; nothing is asserted.
 */
import { readFileSync } from 'node:fs'
import type pg from 'pg'
import { io, type Socket } from 'socket.io-client'

/** A web process with SOCKET_ENABLED, REALTIME_ROW_LEVEL_SCOPING and limits out of the way, and its database. */
export type Target = {
  readonly url: string
  readonly pid: number
  /** With connections enough to write at the rate asked for. */
  readonly sql: pg.Pool
  /** Of an administrator. */
  readonly token: string
  /** Calls the API as the administrator; rejects for anything but a 2xx. */
  // biome-ignore lint/suspicious/noExplicitAny: the answers of many routes
  call(method: string, path: string, body?: unknown): Promise<any>
  /** A session of an account. */
  signIn(email: string, password: string): Promise<string>
}

/** Milliseconds; `ms` sorted. */
export type Latency = { readonly p50: number; readonly p95: number; readonly p99: number; readonly count: number }

const collection = 'bench_change'

/** What rings for the feed: `wal`, or `poll` while the replication slot waits for others' transactions. */
export async function feedSource({ url }: Target): Promise<string> {
  const answer = await fetch(`${url}/ready`)
  return ((await answer.json()) as { realtime: { source: string } }).realtime.source
}

/** The collection of the other figures: a row has an owner, and the sending time in it. */
export async function prepareRealtime({ call }: Target): Promise<void> {
  const fields = {
    owner: { type: 'UUID' },
    slot: { type: 'Integer' },
    at: { type: 'Double' },
    text: { type: 'String' },
  }
  await call('POST', '/schemas', { collectionName: collection, schema: { fields } })
}

/**
 * From just before the INSERT is sent until its change is with the last subscriber, and the same without the INSERT:
 * from its acknowledgement, which may be negative.
 */
export async function commitToSocket(
  target: Target,
  subscribers: number,
  changes = 300,
): Promise<{ whole: Latency; afterCommit: Latency }> {
  const clients = await Promise.all(Array.from({ length: subscribers }, () => join(target.url, target.token)))
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
  return { whole: latencyOf(whole), afterCommit: latencyOf(afterCommit) }
}

/**
 * Subscribers whose role may read rows with `owner = $CURRENT_USER`, each with a filter of its own as well, while rows are
 * written at a steady rate, each for one of them.
 */
export async function rowRules(
  target: Target,
  { subscribers = 500, users = 25, perSecond = 300, seconds = 10 } = {},
): Promise<{ latency: Latency; delivered: number; expected: number; perSecond: number; cpu: number }> {
  const owners = await makeUsers(target, users)
  const perUser = Math.ceil(subscribers / users)
  const latencies: number[] = []
  const clients: Socket[] = []
  for (const { token } of owners)
    for (let slot = 0; slot < perUser; slot += 1) {
      const socket = await join(target.url, token, { filter: { slot } })
      socket.on(`${collection}:create`, ({ data }) => latencies.push(now() - data.at))
      clients.push(socket)
    }
  const expected = perSecond * seconds
  const cpu = cpuSeconds(target.pid)
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
  const used = (cpuSeconds(target.pid) - cpu) / wrote
  close(clients)
  return {
    latency: latencyOf(latencies),
    delivered: latencies.length,
    expected,
    perSecond: expected / wrote,
    cpu: used,
  }
}

/** Messages per second to all subscribers together, of changes that everybody sees, from one transaction. */
export async function fanOut(target: Target, subscribers = 500, changes = 200): Promise<number> {
  const clients = await Promise.all(Array.from({ length: subscribers }, () => join(target.url, target.token)))
  const arrived = Promise.all(clients.map((socket) => many(socket, `${collection}:create`, changes)))
  const began = performance.now()
  await insert(
    target,
    Array.from({ length: changes }, (_, slot) => ({ slot })),
  )
  await arrived
  const seconds = (performance.now() - began) / 1000
  close(clients)
  return (subscribers * changes) / seconds
}

/** Bytes of resident memory that an idle, signed-in connection costs the web process. */
export async function idleConnections(target: Target, count = 5000): Promise<{ perConnection: number; total: number }> {
  const before = residentBytes(target.pid)
  const clients: Socket[] = []
  for (let i = 0; i < count; i += 100)
    clients.push(...(await Promise.all(Array.from({ length: 100 }, () => open(target.url, target.token)))))
  const total = residentBytes(target.pid)
  close(clients)
  return { perConnection: (total - before) / count, total }
}

/** The text of one change as clients get it, for a plain server to send the same bytes. */
export async function exampleMessage(target: Target): Promise<object> {
  const socket = await join(target.url, target.token)
  const arrived = new Promise<object>((resolve) => socket.once(`${collection}:create`, resolve))
  await insert(target, [{ slot: 1 }])
  const message = await arrived
  socket.close()
  return message
}

/** A socket that has connected. */
export async function open(url: string, token: string): Promise<Socket> {
  const socket = io(url, { path: '/realtime', auth: { token }, transports: ['websocket'], forceNew: true })
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('connect_error', reject)
  })
  return socket
}

/** Resolves when an event has come so often. */
export function many(socket: Socket, name: string, count: number): Promise<void> {
  let left = count
  return new Promise((resolve) => {
    socket.on(name, () => {
      left -= 1
      if (left === 0) resolve()
    })
  })
}

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

async function makeUsers({ call, signIn }: Target, count: number) {
  const create = async (name: string, row: object) => (await call('POST', `/items/${name}`, row)).data.id as string
  const role_Id = await create('svc_Role', { name: 'bench watcher' })
  const rule = { role_Id, collection, action: 'read', fields: '*', conditions: { owner: '$CURRENT_USER' } }
  await call('POST', '/permissions', rule)
  const password = 'password of a watcher'
  const users: { id: string; token: string }[] = []
  for (let i = 0; i < count; i += 1) {
    const email = `watcher${i}@bench.example`
    const account = { firstName: 'W', lastName: `${i}`, email, password, emailVerified: true }
    const id = await create('svc_User', account)
    await create('svc_UserRole', { user_Id: id, role_Id })
    users.push({ id, token: await signIn(email, password) })
  }
  return users
}

function close(sockets: readonly Socket[]): void {
  for (const socket of sockets) socket.close()
}

function latencyOf(ms: readonly number[]): Latency {
  const sorted = [...ms].sort((a, b) => a - b)
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99), count: sorted.length }
}

async function until(condition: () => boolean, ms: number): Promise<void> {
  const limit = performance.now() + ms
  while (!condition() && performance.now() < limit) await new Promise((resolve) => setTimeout(resolve, 20))
}

/** Linux only, as are the next. */
function residentBytes(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) * 1024
}

function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ')
  return (Number(fields[11]) + Number(fields[12])) / 100
}
