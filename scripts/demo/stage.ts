import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import type { QueryResultRow } from 'pg'
import { freePort } from '../../src/db/embedded/embedded.ts'
import { query } from './database.ts'
import { type Part, partOf, runScript } from './processes.ts'
import { openSmtpSink, type SmtpSink } from './smtp-sink.ts'

/** The stage of the story: real processes on a real database, and a real SMTP server. */
export type Stage = {
  /** Address of the API. */
  readonly url: string
  readonly administrator: { readonly email: string; readonly password: string }
  readonly web: Part
  readonly mailWorker: Part
  readonly smtp: SmtpSink
  /** Runs a script of the project to its end. */
  run(script: string): Promise<{ readonly code: number | null; readonly output: string }>
  /** A statement on the database, as from psql. */
  sql<Row extends QueryResultRow>(text: string, values?: unknown[]): Promise<Row[]>
  /** The last lines of the processes, for a user who looks for a fault. */
  lastWords(): string
}

export type StageOptions = {
  /** An empty database. */
  readonly databaseUrl: string
  /** Working directory of the processes, so that no .env of a checkout counts. */
  readonly directory: string
}

/**
 * Opens the SMTP server, runs the release step and starts the web process and the mail worker. `cleanup` ends them at
 * once, also when the opening fails half-way.
 */
export async function openStage(
  { databaseUrl, directory }: StageOptions,
  cleanup: AsyncDisposableStack,
): Promise<Stage> {
  const administrator = { email: 'admin@daybook.example', password: randomBytes(15).toString('base64url') }
  const smtp = await openSmtpSink()
  cleanup.defer(smtp.close)
  const port = await freePort()
  const where = { env: { ...process.env, ...variables({ databaseUrl, port, smtp, administrator }) }, cwd: directory }
  const web = partOf('web', ['src/api/main.ts'], where)
  const mailWorker = partOf('mail', ['src/workers/main.ts', 'mail'], where)
  const parts = [web, mailWorker]
  cleanup.defer(async () => void (await Promise.all(parts.map((part) => part.kill()))))
  const setup = await runScript('src/setup/main.ts', where)
  assert.equal(setup.code, 0, `setup failed:\n${setup.output}`)
  await Promise.all(parts.map((part) => part.start()))
  return {
    url: `http://127.0.0.1:${port}`,
    administrator,
    web,
    mailWorker,
    smtp,
    run: (script) => runScript(script, where),
    sql: (text, values) => query(databaseUrl, text, values),
    lastWords: () => parts.flatMap((part) => part.lines().map((line) => `${part.name}: ${line}`)).join('\n'),
  }
}

type Facts = Pick<Stage, 'smtp' | 'administrator'> & { readonly databaseUrl: string; readonly port: number }

/** An empty variable counts as unset, whatever the shell that started us has in it. */
function variables({ databaseUrl, port, smtp, administrator }: Facts): Record<string, string> {
  return {
    NODE_ENV: 'development',
    LOG_LEVEL: 'info',
    HOST: '127.0.0.1',
    PORT: String(port),
    DATABASE_URL: databaseUrl,
    DATABASE_DIRECT_URL: '',
    SECRET_KEY: randomBytes(32).toString('hex'),
    ADMIN_EMAIL: administrator.email,
    ADMIN_PASSWORD: administrator.password,
    AUTH_APP_URL: 'https://app.example',
    REQUIRE_EMAIL_VERIFICATION: 'true',
    SOCKET_ENABLED: 'true',
    REALTIME_ROW_LEVEL_SCOPING: 'true',
    // All of the demo is one client.
    RATE_LIMIT: '10000',
    MAIL_SENDERS_ENABLED: 'demo',
    DEMO_SMTP_HOST: '127.0.0.1',
    DEMO_SMTP_PORT: String(smtp.port),
    DEMO_SMTP_USER: 'demo',
    DEMO_SMTP_PASS: 'demo',
    DEMO_FROM_ADDRESS: 'noreply@daybook.example',
  }
}
