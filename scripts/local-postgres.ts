import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync } from 'node:fs'
import { chown, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import pg from 'pg'
import { freePort } from '../src/db/embedded/embedded.ts'

/** A server of the PostgreSQL that this machine has installed, on a directory of its own. */
export type LocalPostgres = {
  /** Of a superuser; the database `postgres`. */
  readonly url: string
  readonly version: number
  /** Where `pg_dump` and `pg_restore` of the same version are. */
  readonly binDir: string
  stop(): Promise<void>
}

const home = '/usr/lib/postgresql'
const needed = ['initdb', 'postgres', 'pg_dump', 'pg_restore']
const execute = promisify(execFile)
const environment = { PATH: '/usr/bin:/bin', LC_ALL: 'C' }

/** The oldest version that is installed whole and that Daybook runs on; undefined where there is none. */
export function localVersion(): number | undefined {
  const versions = existsSync(home) ? readdirSync(home).map(Number) : []
  return versions
    .filter((version) => version >= 15 && needed.every((tool) => existsSync(join(home, String(version), 'bin', tool))))
    .sort((a, b) => a - b)[0]
}

/** Starts the server of {@link localVersion}. As root it runs as the user `postgres`, which comes with the programs. */
export async function startLocalPostgres(
  version: number,
  settings: Readonly<Record<string, string>> = {},
): Promise<LocalPostgres> {
  const binDir = join(home, String(version), 'bin')
  const account: Account = process.getuid?.() === 0 ? await accountOf('postgres') : {}
  const dir = await mkdtemp(join(tmpdir(), 'daybook-local-'))
  if (account.uid !== undefined) await chown(dir, account.uid, account.gid)
  const dataDir = join(dir, 'data')
  const options = { ...account, cwd: '/', env: environment }
  await execute(join(binDir, 'initdb'), ['-D', dataDir, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8'], options)
  const port = await freePort()
  const all = {
    ...{ port: String(port), listen_addresses: '127.0.0.1', unix_socket_directories: '', wal_level: 'logical' },
    ...settings,
  }
  const args = Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const server = spawn(join(binDir, 'postgres'), ['-D', dataDir, ...args], { ...options, stdio: 'ignore' })
  const ended = once(server, 'exit')
  const stop = async () => {
    server.kill('SIGINT')
    await ended
    await rm(dir, { recursive: true })
  }
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`
  try {
    await Promise.race([answering(url), ended.then(() => Promise.reject(new Error(`PostgreSQL ${version} has ended`)))])
  } catch (error) {
    await stop()
    throw error
  }
  return { url, version, binDir, stop }
}

type Account = { readonly uid: number; readonly gid: number } | { readonly uid?: never; readonly gid?: never }

async function accountOf(name: string): Promise<Account> {
  const number = async (flag: string) => Number((await execute('id', [flag, name])).stdout)
  return { uid: await number('-u'), gid: await number('-g') }
}

const patienceMs = 30_000

async function answering(url: string): Promise<void> {
  for (const limit = performance.now() + patienceMs; ; ) {
    const client = new pg.Client({ connectionString: url })
    try {
      await client.connect()
      await client.end()
      return
    } catch (error) {
      if (performance.now() > limit) throw error
      await delay(50)
    }
  }
}
