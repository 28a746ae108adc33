import pino from 'pino'
import { expect, it, onTestFinished } from 'vitest'
import { buildServer } from '../../src/api/server.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { startPrivateServer } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

it('a web process says why it is not ready, and does not blame the migrations, which it could not ask about', async () => {
  const server = await startPrivateServer()
  const logged: { msg: string; part?: string; err?: { message: string } }[] = []
  const log = pino({ level: 'warn' }, { write: (line: string) => logged.push(JSON.parse(line)) })
  const runtime = await openRuntime({ config: testConfig(server.url), log, name: 'web', worker: false })
  onTestFinished(() => runtime.close())
  const app = await buildServer(runtime)
  onTestFinished(() => app.close())
  const ready = async () => (await app.inject('/ready')).json()
  expect(await ready()).toMatchObject({
    status: 'ready',
    database: { ok: true, pooler: false },
    migrations: { ok: true, pending: [] },
  })

  await server.stop('immediate')
  const away = await waitFor(async () => {
    const body = await ready()
    return body.database.reason === 'connection refused' && body
  })
  expect(away).toMatchObject({
    status: 'not ready',
    database: { ok: false, reason: 'connection refused' },
    migrations: { ok: null, reason: 'connection refused' },
    notifications: { ok: true, live: false },
  })
  const told = logged.filter(({ msg }) => msg === 'a readiness check failed')
  expect(new Set(told.map(({ part }) => part))).toEqual(new Set(['database']))
  expect(told.map(({ err }) => err?.message)).toEqual([...new Set(told.map(({ err }) => err?.message))])

  await server.start()
  await waitFor(async () => (await ready()).status === 'ready')
})
