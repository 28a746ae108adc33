import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmod, chown, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe } from 'vitest'
import { freePort } from '../../src/db/embedded/embedded.ts'
import { afterProcesses } from './postgres.ts'
import { withClient } from './server.ts'
import { waitFor } from './wait.ts'

/** Debian keeps it where only root looks. */
const program = ['pgbouncer', '/usr/sbin/pgbouncer'].find((path) => spawnSync(path, ['--version']).status === 0)

/** Whether this machine has a PgBouncer to test with. */
export const hasPgbouncer = program !== undefined

/** `describe` for tests that need PgBouncer: skipped, with a hint, where there is none. */
export const describeWithPgbouncer = describe.skipIf(!hasPgbouncer)

/** Whether it keeps names of prepared statements, which it does from 1.21 on where it is told how many. */
export const keepsNames = isAtLeast(1, 21)

export type TestPgbouncer = {
  /** Of the same database, through it. */
  readonly url: string
  /** A command of its console, such as `show pools`. */
  console(command: string): Promise<any[]>
  stop(): Promise<void>
}

/** Settings of its section `[pgbouncer]`, over those of here. */
export type PgbouncerSettings = Readonly<Record<string, string | number>>

/**
 * Starts a PgBouncer in front of a database, on a free port of 127.0.0.1: in transaction mode, four connections, and
 * nothing told that it would not do by itself. Stopped after the test file, and by the end of the process that runs it.
 */
export async function startPgbouncer(url: string, settings: PgbouncerSettings = {}): Promise<TestPgbouncer> {
  const port = await freePort()
  const directory = await mkdtemp(join(tmpdir(), 'daybook-pgbouncer-'))
  const file = join(directory, 'pgbouncer.ini')
  await writeFile(file, configuration(url, { listen_port: port, ...settings }), { mode: 0o600 })
  const user = otherUser()
  if (user !== undefined) await chown(file, user.uid, user.gid)
  await chmod(directory, 0o755)
  // Its input ends with this process, however that ends.
  const script = '"$0" -q "$1" & read -r _; kill -9 $!; wait'
  const child = spawn('sh', ['-c', script, program!, file], {
    cwd: '/',
    stdio: ['pipe', 'ignore', 'ignore'],
    ...user,
  })
  const pooled = new URL(url)
  pooled.hostname = '127.0.0.1'
  pooled.port = String(port)
  const stop = async () => {
    await end(child)
    await rm(directory, { recursive: true, force: true })
  }
  afterProcesses(stop)
  await waitFor(() => answers(port), { what: 'pgbouncer to listen' })
  const ofConsole = new URL(pooled)
  ofConsole.pathname = '/pgbouncer'
  return {
    url: pooled.href,
    console: (command) => withClient(ofConsole.href, async (client) => (await client.query(command)).rows),
    stop,
  }
}

/** Every client is let in as the user of the address. */
function configuration(url: string, settings: PgbouncerSettings): string {
  const { hostname, port, pathname, username, password } = new URL(url)
  const quoted = (text: string) => `'${decodeURIComponent(text).replaceAll("'", "''")}'`
  const server = `host=${hostname} port=${port || 5432} user=${quoted(username)} password=${quoted(password)}`
  const lines = Object.entries({
    listen_addr: '127.0.0.1',
    unix_socket_dir: '',
    auth_type: 'any',
    pool_mode: 'transaction',
    default_pool_size: 4,
    max_client_conn: 500,
    ...settings,
  }).map(([name, value]) => `${name} = ${value}`)
  return ['[databases]', `${pathname.slice(1)} = ${server}`, '[pgbouncer]', ...lines, ''].join('\n')
}

/** It refuses to run as root. */
function otherUser(): { readonly uid: number; readonly gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined
  const idOf = (option: string) => Number(spawnSync('id', [option, 'nobody'], { encoding: 'utf8' }).stdout)
  return { uid: idOf('-u'), gid: idOf('-g') }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.stdin!.end()
  await exited
}

async function answers(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect').finally(() => socket.destroy())
  return true
}

function isAtLeast(major: number, minor: number): boolean {
  if (program === undefined) return false
  const said = spawnSync(program, ['--version'], { encoding: 'utf8' }).stdout
  const [, ownMajor = 0, ownMinor = 0] = (/(\d+)\.(\d+)/.exec(said) ?? []).map(Number)
  return ownMajor > major || (ownMajor === major && ownMinor >= minor)
}

const installing = 'Debian, Ubuntu: apt-get install pgbouncer; macOS: brew install pgbouncer'
if (!hasPgbouncer)
  process.stderr.write(`pgbouncer is not installed: the tests that need PgBouncer are skipped (${installing})\n`)
