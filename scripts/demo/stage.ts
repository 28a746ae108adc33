import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type pg from 'pg'
import { query } from './database.ts'
import { openSmtpSink, type SmtpSink } from './smtp-sink.ts'
import { until } from './wait.ts'

/** What the story plays on: real processes on a real database, and a real SMTP server. */
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
  sql<Row extends pg.QueryResultRow>(text: string, values?: unknown[]): Promise<Row[]>
  /** The last lines of every process, for whoever looks for a fault. */
  lastWords(): string
  /** Ends everything at once. */
  close(): Promise<void>
}

/** One process of Daybook, which can be started again after its end. */
export type Part = {
  readonly name: string
  /** Resolves when it says that it is ready. */
  start(): Promise<void>
  /** SIGSTOP: it hangs until it is killed. */
  freeze(): void
  /** SIGKILL. */
  kill(): Promise<void>
  /** SIGTERM: it finishes what it does. Resolves with its exit code. */
  stop(): Promise<number | null>
  lines(): readonly string[]
}

export type StageOptions = {
  /** An empty database, or one on which setup has run with this administrator; it gets the demo's collections. */
  readonly databaseUrl: string
  /** Working directory of the processes, so that no .env of a checkout counts. */
  readonly directory: string
  readonly administrator?: Stage['administrator']
}

/**
 * Opens the SMTP server, runs the release step and starts the web process and the mail
 * worker. `close` is handed out first, so that whoever is interrupted meanwhile can end what there is.
 */
export async function openStage(options: StageOptions, onOpen: (close: () => Promise<void>) => void): Promise<Stage> {
  const { databaseUrl, directory, administrator = newAdministrator() } = options
  const smtp = await openSmtpSink()
  const port = await freePort()
  const env = { ...process.env, ...variables({ databaseUrl, port, smtp, administrator }) }
  const web = partOf('web', ['api/main.ts'], { env, cwd: directory })
  const mailWorker = partOf('mail', ['workers/main.ts', 'mail'], { env, cwd: directory })
  const close = async () => {
    await Promise.all([web.kill(), mailWorker.kill(), smtp.close()])
  }
  onOpen(close)
  const run = (script: string) => runScript(join(root, script), { env, cwd: directory })
  const setup = await run('src/setup.ts')
  assert.equal(setup.code, 0, `setup failed:\n${setup.output}`)
  await Promise.all([web.start(), mailWorker.start()])
  return {
    url: `http://127.0.0.1:${port}`,
    administrator,
    web,
    mailWorker,
    smtp,
    run,
    sql: (text, values) => query(databaseUrl, text, values),
    lastWords: () =>
      [web, mailWorker].flatMap(({ name, lines }) => lines().map((line) => `${name}: ${line}`)).join('\n'),
    close,
  }
}

const root = join(import.meta.dirname, '../..')

function newAdministrator(): Stage['administrator'] {
  return { email: 'admin@daybook.example', password: randomBytes(15).toString('base64url') }
}

/** Chosen here, so that the process can be found again where it was. */
async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address() as { port: number }
  probe.close()
  await once(probe, 'close')
  return port
}

type Facts = { databaseUrl: string; port: number; smtp: SmtpSink; administrator: Stage['administrator'] }

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
    MAIL_SENDERS_ENABLED: 'demo',
    DEMO_SMTP_HOST: '127.0.0.1',
    DEMO_SMTP_PORT: String(smtp.port),
    DEMO_SMTP_USER: 'demo',
    DEMO_SMTP_PASS: 'demo',
    DEMO_FROM_ADDRESS: 'noreply@daybook.example',
  }
}

type Surroundings = { readonly env: NodeJS.ProcessEnv; readonly cwd: string }

const keptLines = 15

function partOf(name: string, [script, ...args]: [string, ...string[]], surroundings: Surroundings): Part {
  const lines: string[] = []
  let child: ChildProcess | undefined
  let exited: Promise<unknown> = Promise.resolve()
  const signal = async (name: NodeJS.Signals) => {
    child?.kill(name)
    await exited
    return child?.exitCode ?? null
  }
  const onLine = (text: string) => {
    lines.push(text)
    lines.splice(0, lines.length - keptLines)
  }
  return {
    name,
    start: async () => {
      const started = startScript(join(root, 'src', script), args, surroundings)
      child = started
      exited = once(started, 'close')
      let ready = false
      for (const output of [started.stdout!, started.stderr!])
        createInterface({ input: output }).on('line', (text) => {
          onLine(text)
          ready ||= text.includes('"msg":"ready"')
        })
      await until(`${name} to be ready`, () => ready || hasEnded(started))
      if (!ready) throw new Error(`${name} has ended instead of getting ready:\n${lines.join('\n')}`)
    },
    freeze: () => void child?.kill('SIGSTOP'),
    kill: async () => void (await signal('SIGKILL')),
    stop: () => signal('SIGTERM'),
    lines: () => lines,
  }
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null
}

async function runScript(path: string, surroundings: Surroundings): Promise<{ code: number | null; output: string }> {
  const child = startScript(path, [], surroundings)
  let output = ''
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (text) => (output += text))
  const [code] = await once(child, 'close')
  return { code, output }
}

/**
 * In a session of its own, where the terminal's Ctrl-C does not reach it, and with a channel to us: a process of Daybook
 * ends when the one that started it is gone.
 */
function startScript(path: string, args: readonly string[], { env, cwd }: Surroundings): ChildProcess {
  return spawn(process.execPath, [path, ...args], {
    env,
    cwd,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  })
}
