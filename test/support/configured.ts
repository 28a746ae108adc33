import pino from 'pino'
import { onTestFinished } from 'vitest'
import { buildServer } from '../../src/api/server.ts'
import type { App } from '../../src/http/http.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { testConfig } from './prepare.ts'

/** Another web process on the same database, with other variables, until the test that asks for it ends. */
export async function configured(database: { url: string }, env: Readonly<Record<string, string>>): Promise<App> {
  const config = testConfig(database.url, env)
  const runtime = await openRuntime({ config, log: pino({ level: 'silent' }), name: 'web', worker: false })
  onTestFinished(() => runtime.close())
  const app = await buildServer(runtime)
  onTestFinished(() => app.close())
  await app.ready()
  return app
}
