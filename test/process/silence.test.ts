import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { type Cluster, type Member, startCluster } from '../support/cluster.ts'
import { openDatabaseLine } from '../support/database-line.ts'
import { createDatabase } from '../support/postgres.ts'
import { administrator } from '../support/prepare.ts'
import { connect } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

const note = { collectionName: 'note', schema: { fields: { text: { type: 'Text' } } } }

async function start(env: Record<string, string> = {}) {
  const line = await openDatabaseLine((await createDatabase()).url)
  const cluster = await startCluster({ database: { url: line.url }, env })
  const web = cluster.web[0]!
  await web.call('POST', '/schemas', note)
  const socket = await connect(web.address, cluster.token)
  await socket.subscribe('note')
  return { line, web, socket }
}

it('changes are told when the lines that they come by swallow everything', async () => {
  const { line, web, socket } = await start()
  await web.call('POST', '/items/note', { text: 'before' })
  await socket.frame(({ data }) => data.text === 'before')
  expect(line.swallow(/daybook (web feed|feed|listen)/)).toBeGreaterThan(2)
  await web.call('POST', '/items/note', { text: 'after' })
  await socket.frame(({ data }) => data.text === 'after')
  await waitFor(async () => (await web.call('GET', '/ready')).body.realtime.source === 'wal')
  expect((await web.call('GET', '/ready')).status).toBe(200)
})

it('a process that tells changes too late is not ready, and says so', async () => {
  const { line, web, socket } = await start({ REALTIME_MAX_LAG: '2000' })
  line.keepSwallowing(/daybook web feed/)
  const body = await waitFor(async () => {
    const ready = await web.call('GET', '/ready')
    return ready.status === 503 && ready.body
  })
  expect(body).toMatchObject({ status: 'not ready', database: { ok: true }, realtime: { ok: false } })
  expect(body.realtime.reason).toMatch(/changes have not been read for \d+ ms/)
  await web.call('POST', '/items/note', { text: 'late' })
  line.keepSwallowing(undefined)
  await socket.frame(({ data }) => data.text === 'late')
  await waitFor(async () => (await web.call('GET', '/ready')).status === 200)
})

it('SIGTERM ends the process in its time whatever is silent', async () => {
  const { line, web } = await start({ SHUTDOWN_TIMEOUT: '9000' })
  const waiting = web.call('POST', '/items/note', { text: 'x' })
  waiting.catch(() => undefined)
  await waiting
  line.keepSwallowing(/daybook/)
  const stuck = web.call('GET', '/items/note')
  stuck.catch(() => undefined)
  const { code, signal } = await web.kill('SIGTERM')
  expect([signal, code === 0 || code === 1]).toEqual([null, true])
})

it('services that take connections and say nothing hold up neither requests nor the end of a process', async () => {
  const far = await startSilent()
  const mailServer = await startSilent()
  const env = { ...silentServices(far), FAR_SMTP_PORT: String(mailServer.port) }
  const cluster = await startCluster({ workers: ['mail', 'webhooks'], env })
  const web = cluster.web[0]!
  const ask = async (method: string, path: string, body?: unknown) => {
    const { status, text, body: answered } = await web.call(method, path, body)
    expect(status, text).toBeLessThan(300)
    return answered
  }
  await ask('POST', '/schemas', note)
  await ask('POST', '/webhooks', { name: 'to nobody', url: `${far.url}/hook`, collections: ['note'] })
  for (const text of ['a', 'b', 'c']) await ask('POST', '/items/note', { text })
  expect((await ask('GET', '/items/note?sort=text')).data.map(({ text }: { text: string }) => text)).toEqual([
    'a',
    'b',
    'c',
  ])
  await ask('POST', '/auth/login', administrator)
  await ask('POST', '/auth/password/reset', { email: administrator.email, link: 'https://app.example/reset' })
  const upload = uploadTo(web.address, cluster.token, 'far')
  const wanted = [/^POST \/hook/, /^PUT \/bucket\//, /^POST \/v1\/traces/, /hello/, /application_name/]
  await waitFor(() => wanted.every((start) => far.heard().some((text) => start.test(text))))
  // It waits to be greeted.
  await waitFor(() => mailServer.heard().length === 1)
  expect(await mailsOf(cluster, ['active'])).toBe(1)
  expect(await ask('GET', '/ready')).toMatchObject({
    status: 'ready',
    realtime: { ok: true, rooms: { shared: true, available: false } },
    replicas: { ok: true, serving: 0 },
  })
  const ends = await Promise.all([web, ...cluster.workers].map((one: Member) => one.kill('SIGTERM')))
  expect(ends.map(({ signal }) => signal)).toEqual([null, null, null])
  // What was not done is there for the next one.
  await waitFor(async () => (await mailsOf(cluster, ['created', 'retry'])) === 1)
  const deliveries = await cluster.sql('select status, count(*)::int as n from "svc_WebhookDelivery" group by status')
  expect(deliveries).toEqual([{ status: 'pending', n: 3 }])
  expect(await upload).toMatch(/fetch failed|^50\d$/)
})

const mailsOf = async (cluster: Cluster, states: readonly string[]): Promise<number> =>
  (await cluster.sql(`select from pgboss.job where name = 'mail' and state::text = any($1)`, [states])).length

async function uploadTo(address: string, token: string, storage: string): Promise<string> {
  const body = new FormData()
  body.append('storage', storage)
  body.append('file', new Blob(['abc']), 'a.txt')
  const headers = { authorization: `Bearer ${token}` }
  return fetch(`${address}/files`, { method: 'POST', headers, body }).then(
    ({ status }) => String(status),
    (error: Error) => error.message,
  )
}

/** A port that takes every connection and never says a word, as each service that a process may have. */
async function startSilent() {
  const said = new Map<Socket, string>()
  const server = createServer((socket) => {
    said.set(socket, '')
    socket.on('error', () => undefined)
    socket.on('data', (data) => said.set(socket, `${said.get(socket)}${data.toString('latin1')}`))
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  onTestFinished(() => {
    server.close()
    for (const socket of said.keys()) socket.destroy()
  })
  const { port } = server.address() as AddressInfo
  const redis = `redis://127.0.0.1:${port}`
  return { port, url: `http://127.0.0.1:${port}`, redis, heard: () => [...said.values()] }
}

const silentServices = ({ port, url, redis }: { port: number; url: string; redis: string }) => ({
  ...{ SHUTDOWN_TIMEOUT: '3000', TASK_SHUTDOWN_WAIT_TIME: '1' },
  ...{ RATE_LIMIT_DISABLED: 'false', AUTH_RATE_LIMIT_DISABLED: 'false', RATE_LIMIT_REDIS_URL: redis },
  ...{ SYSTEM_CACHE_ADAPTER: 'redis', SYSTEM_CACHE_REDIS_URL: redis },
  ...{ DATA_CACHE_ADAPTER: 'redis', DATA_CACHE_REDIS_URL: redis },
  ...{ SOCKET_REDIS_ENABLED: 'true', SOCKET_REDIS_URL: redis },
  ...{ DATABASE_READ_REPLICA_ENABLED: 'true', DATABASE_READ_REPLICA_URLS: `postgres://a:b@127.0.0.1:${port}/x` },
  ...{ OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_BSP_SCHEDULE_DELAY: '100' },
  ...{ MAIL_SENDERS_ENABLED: 'far', FAR_SMTP_HOST: '127.0.0.1' },
  ...{ FAR_SMTP_SECURE: 'false', FAR_SMTP_USER: 'user', FAR_SMTP_PASS: 'password', FAR_FROM_ADDRESS: 'us@far.example' },
  ...{ STORAGE_SERVICES_ENABLED: 'local,far', FAR_STORAGE_DRIVER: 'S3', FAR_STORAGE_ENDPOINT: url },
  ...{ FAR_STORAGE_REGION: 'here', FAR_STORAGE_BUCKET: 'bucket' },
  ...{ FAR_STORAGE_ACCESS_KEY_ID: 'id', FAR_STORAGE_SECRET_ACCESS_KEY: 'key' },
  ...{ SSRF_ALLOW_PRIVATE_URL_FETCH: 'true', AUTH_APP_URL: 'https://app.example' },
})
