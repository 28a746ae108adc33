import { isDeepStrictEqual } from 'node:util'
import pino from 'pino'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openRuntime, type Runtime } from '../../src/process/runtime.ts'
import { samplesOf } from '../support/exposition.ts'
import { createDatabase, startPrivateServer } from '../support/postgres.ts'
import { testConfig, testEnv } from '../support/prepare.ts'
import { startProcess, waitFor } from '../support/processes.ts'

const script = 'src/workers/main.ts'
const token = 'only-those-who-watch-know-it'
let runtime: Runtime
let url: string

beforeAll(async () => {
  ;({ url } = await createDatabase())
  runtime = await openRuntime({ config: testConfig(url), log: pino({ level: 'silent' }), name: 'test', worker: false })
})
afterAll(() => runtime?.close())

it('a worker shows what it has done to the holder of METRICS_TOKEN', async () => {
  const worker = startProcess(script, ['mail'], { ...testEnv(url), METRICS_PORT: '0', METRICS_TOKEN: token })
  const { port } = await worker.waitForLine(({ msg }) => msg === 'metrics are shown')
  const get = (path: string, secret?: string, method = 'GET') =>
    fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      headers: secret === undefined ? {} : { authorization: `Bearer ${secret}` },
    })
  expect((await get('/metrics')).status).toBe(401)
  expect((await get('/metrics', 'guess-after-guess')).status).toBe(401)
  expect((await get('/', token)).status).toBe(404)
  const health = await get('/health')
  expect([health.status, await health.json()]).toEqual([200, { status: 'ok' }])
  const ready = await get('/ready')
  expect([ready.status, await ready.json()]).toEqual([200, { status: 'ready', database: { ok: true } }])
  expect((await get('/metrics', token, 'POST')).status).toBe(405)

  await (await runtime.boss()).send('mail-sweep', {})
  const samples = await waitFor(async () => {
    const now = samplesOf(await (await get('/metrics', token)).text())
    return now.get('daybook_job_duration_seconds_count{queue="mail-sweep",outcome="completed"}') === 1 && now
  })
  expect(samples.get('daybook_pool_connections_max{pool="write"}')).toBeGreaterThanOrEqual(1)
  expect(samples.get('process_start_time_seconds')).toBeGreaterThan(0)
  expect(samples.has('daybook_database_up')).toBe(false)

  const second = startProcess(script, ['mail'], { ...testEnv(url), METRICS_PORT: String(port), METRICS_TOKEN: token })
  expect(await second.exited).toMatchObject({ code: 1 })
  expect(second.lines.map(({ text }) => text).join('\n')).toContain(`METRICS_PORT: 127.0.0.1:${port}`)

  expect(await worker.kill()).toEqual({ code: 0, signal: null })
})

it('a worker says why it is not ready, without the place of its database, and tells its log once', async () => {
  const server = await startPrivateServer()
  const env = { ...testEnv(server.url), METRICS_PORT: '0', METRICS_TOKEN: token, TASK_SHUTDOWN_WAIT_TIME: '5' }
  const worker = startProcess(script, ['mail'], env)
  const { port } = await worker.waitForLine(({ msg }) => msg === 'metrics are shown')
  await worker.waitForLine(({ msg }) => msg === 'ready')
  const ready = async () => (await fetch(`http://127.0.0.1:${port}/ready`)).json()
  await server.stop('immediate')
  const away = { status: 'not ready', database: { ok: false, reason: 'connection refused' } }
  for (let times = 0; times < 3; times += 1) await waitFor(async () => isDeepStrictEqual(await ready(), away))
  await server.start()
  await waitFor(async () => isDeepStrictEqual(await ready(), { status: 'ready', database: { ok: true } }))
  await worker.waitForLine(({ msg }) => msg === 'works again, after: a readiness check failed')
  const told = worker.lines
    .filter(({ msg }) => msg === 'a readiness check failed')
    .map(({ err }) => JSON.stringify(err))
  expect(told).toEqual([...new Set(told)])
  expect(await worker.kill()).toEqual({ code: 0, signal: null })
})
