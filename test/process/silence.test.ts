import { expect, it } from 'vitest'
import { startCluster } from '../support/cluster.ts'
import { openDatabaseLine } from '../support/database-line.ts'
import { createDatabase } from '../support/postgres.ts'
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
