import pino from 'pino'
import { expect, it, onTestFinished } from 'vitest'
import { buildServer } from '../../src/api/server.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { startPrivateServer } from '../support/postgres.ts'
import { administrator, testConfig } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

it('while the database is away no caller is taken for another', async () => {
  const server = await startPrivateServer()
  const config = testConfig(server.url, { DATABASE_POOL_ACQUIRE: '1000' })
  const runtime = await openRuntime({ config, log: pino({ level: 'silent' }), name: 'web', worker: false })
  onTestFinished(() => runtime.close())
  const app = await buildServer(runtime)
  onTestFinished(() => app.close())
  const login = await app.inject({ method: 'POST', url: '/auth/login', payload: administrator })
  const get = (url: string, token: string) => app.inject({ url, headers: { authorization: `Bearer ${token}` } })
  const { token } = login.json()
  expect((await get('/auth/check', token)).statusCode).toBe(200)

  await server.stop('immediate')
  await waitFor(async () => (await get('/auth/check', token)).statusCode === 503)
  for (const url of ['/auth/check', '/auth/me', '/items/svc_User', '/schemas', '/'])
    expect((await get(url, token)).statusCode, url).toBe(503)
  const refused = await app.inject({ method: 'POST', url: '/auth/login', payload: administrator })
  expect(refused.statusCode).toBe(503)
  expect((await get('/auth/check', 'garbage')).statusCode).toBe(401)

  await server.start()
  await waitFor(async () => (await get('/auth/check', token)).statusCode === 200)
})
