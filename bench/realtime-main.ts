/**
 * `node bench/realtime-main.ts`, with TEST_DATABASE_URL naming a server: makes a database of its own, starts a web process
 * on it, prints the figures of realtime.ts, and removes everything. IDLE, SUBSCRIBERS and RATE set sizes.
 */
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { resolve } from 'node:path'
import { createInterface } from 'node:readline'
import pg from 'pg'
import {
  commitToSocket,
  exampleMessage,
  fanOut,
  feedSource,
  idleConnections,
  many,
  open,
  prepareRealtime,
  rowRules,
  type Target,
} from './realtime.ts'

const root = resolve(import.meta.dirname, '..')
const password = randomBytes(15).toString('base64url')
const { TEST_DATABASE_URL, IDLE = '5000', SUBSCRIBERS = '500', RATE = '300' } = process.env
if (TEST_DATABASE_URL === undefined) throw new Error('TEST_DATABASE_URL names no server')

await using cleanup = new AsyncDisposableStack()
const target = await openTarget(TEST_DATABASE_URL)
await prepareRealtime(target)
const idle = await idleConnections(target, Number(IDLE))
print(`${IDLE} idle connections`, { kB: idle.perConnection / 1024, totalMB: idle.total / 2 ** 20 })
const subscribers = Number(SUBSCRIBERS)
for (const count of [1, 50])
  print(
    `commit to socket, ${count} subscribers, ms, by ${await feedSource(target)}`,
    await commitToSocket(target, count),
  )
print(`${subscribers} subscribers with row rules, ms`, await rowRules(target, { subscribers, perSecond: Number(RATE) }))
const [ours, plain] = [await fanOut(target, subscribers), await plainFanOut(await exampleMessage(target), subscribers)]
print('fan-out, messages/s', { ours: Math.round(ours), plain: Math.round(plain), ratio: ours / plain })

function print(what: string, figures: object): void {
  const text = JSON.stringify(figures, (_key, value) =>
    typeof value === 'number' ? Math.round(value * 100) / 100 : value,
  )
  process.stdout.write(`${what}: ${text}\n`)
}

async function plainFanOut(message: object, count: number): Promise<number> {
  const { url } = await start('bench/realtime-plain.ts', {})
  const clients = await Promise.all(Array.from({ length: count }, () => open(url, '')))
  const changes = 200
  const arrived = Promise.all(clients.map((socket) => many(socket, 'bench_change:create', changes)))
  const began = performance.now()
  clients[0]!.emit('go', message, changes)
  await arrived
  for (const socket of clients) socket.close()
  return (count * changes) / ((performance.now() - began) / 1000)
}

async function openTarget(serverUrl: string): Promise<Target> {
  const url = await makeDatabase(serverUrl)
  const env = {
    NODE_ENV: 'production',
    LOG_LEVEL: 'info',
    PORT: '0',
    HOST: '127.0.0.1',
    DATABASE_URL: url,
    SECRET_KEY: randomBytes(32).toString('hex'),
    ADMIN_EMAIL: 'admin@bench.example',
    ADMIN_PASSWORD: password,
    RATE_LIMIT_DISABLED: 'true',
    AUTH_RATE_LIMIT_DISABLED: 'true',
    CONNECTION_LIMIT: '0',
    SOCKET_ENABLED: 'true',
    REALTIME_ROW_LEVEL_SCOPING: 'true',
    SOCKET_LIMIT_PER_USER: '100000',
    SOCKET_LIMIT_PER_ADDRESS: '0',
    SOCKET_CONNECT_LIMIT: '0',
  }
  const [code] = await once(run('src/setup.ts', env), 'close')
  if (code !== 0) throw new Error(`the setup ended with ${code}`)
  const web = await start('src/api/main.ts', env)
  const sql = new pg.Pool({ connectionString: url, max: 8 })
  cleanup.defer(() => sql.end())
  const signIn = async (email: string, word: string) =>
    (await fetchJson(`${web.url}/auth/login`, 'POST', { email, password: word })).token as string
  const token = await signIn('admin@bench.example', password)
  const call: Target['call'] = (method, path, body) => fetchJson(`${web.url}${path}`, method, body, token)
  return { ...web, sql, token, call, signIn }
}

// biome-ignore lint/suspicious/noExplicitAny: the answers of many routes
async function fetchJson(url: string, method: string, body?: unknown, token?: string): Promise<any> {
  const headers = {
    'content-type': 'application/json',
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
  }
  const answer = await fetch(url, { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) })
  if (!answer.ok) throw new Error(`${method} ${url}: ${answer.status} ${await answer.text()}`)
  return answer.json()
}

async function start(script: string, env: Readonly<Record<string, string>>): Promise<{ url: string; pid: number }> {
  const child = run(script, env)
  const closed = once(child, 'close')
  cleanup.defer(async () => {
    child.kill('SIGTERM')
    await closed
  })
  for await (const line of createInterface({ input: child.stdout! })) {
    if (!line.includes('"msg":"ready"')) continue
    const { address } = JSON.parse(line) as { address: { port: number }[] }
    return { url: `http://127.0.0.1:${address[0]!.port}`, pid: child.pid! }
  }
  throw new Error(`${script} has ended`)
}

function run(script: string, env: Readonly<Record<string, string>>) {
  const { PATH = '', HOME = '' } = process.env
  const child = spawn(process.execPath, [resolve(root, script)], {
    env: { PATH, HOME, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  return child
}

async function makeDatabase(serverUrl: string): Promise<string> {
  const name = `daybook_bench_${randomBytes(4).toString('hex')}`
  const onServer = async (text: string) => {
    const client = new pg.Client({ connectionString: serverUrl })
    await client.connect()
    await client.query(text).finally(() => client.end())
  }
  await onServer(`create database ${name}`)
  cleanup.defer(() => onServer(`drop database ${name} with (force)`))
  const url = new URL(serverUrl)
  url.pathname = `/${name}`
  return url.href
}
