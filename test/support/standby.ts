import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, copyFile, cp, mkdir, mkdtemp, realpath, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { promisify } from 'node:util'
import pino from 'pino'
import { afterAll } from 'vitest'
import { type EmbeddedServer, type StopMode, startEmbedded } from '../../src/db/embedded/embedded.ts'
import type { PrivateServer } from './postgres.ts'
import { withClient } from './server.ts'
import { waitFor } from './wait.ts'

/** A real streaming standby of a private server. */
export type Standby = {
  readonly url: string
  readonly pid: number
  /** It still receives the log and shows nothing new. */
  pause(): Promise<void>
  resume(): Promise<void>
  /** Waits until it shows everything that has been committed by now. */
  catchUp(): Promise<void>
  /** A superuser's statement. */
  sql(text: string): Promise<any[]>
  stop(mode?: StopMode): Promise<void>
  start(): Promise<void>
}

/** Settings of a server that standbys are made of: it keeps the log that they need to begin with. */
export const primarySettings = { wal_keep_size: '512MB' }

/**
 * Makes a standby by a base backup that needs nothing installed: the files of the running server between
 * `pg_backup_start()` and `pg_backup_stop()`, which is what pg_basebackup does. Ended after the test file.
 */
export async function startStandby(primary: PrivateServer): Promise<Standby> {
  const dataDir = await mkdtemp(join(tmpdir(), 'daybook-standby-'))
  await chmod(dataDir, 0o755)
  let running: EmbeddedServer | undefined
  cleanups.push(async () => {
    await running?.stop('immediate')
    await rm(dataDir, { recursive: true })
  })
  await copyFile(join(primary.dataDir, 'database-url'), join(dataDir, 'database-url'))
  await backUp(primary, join(dataDir, 'postgres'))
  const settings = {
    primary_conninfo: conninfo(primary.url),
    hot_standby_feedback: 'on',
    wal_receiver_status_interval: '1',
  }
  const options = { dataDir, log: pino({ level: 'warn' }), settings }
  running = await startEmbedded(options)
  const { url } = running
  const sql = (text: string) => asSuperuser(url, text)
  return {
    url,
    sql,
    get pid() {
      return running!.pid
    },
    pause: async () => {
      await sql('select pg_wal_replay_pause()')
      await waitFor(async () => (await sql('select pg_get_wal_replay_pause_state() as state'))[0].state === 'paused')
    },
    resume: async () => void (await sql('select pg_wal_replay_resume()')),
    catchUp: async () => {
      const [{ end }] = await asSuperuser(primary.url, 'select pg_current_wal_flush_lsn() as end')
      await waitFor(async () => (await sql(`select pg_last_wal_replay_lsn() >= '${end}' as there`))[0].there)
    },
    stop: async (mode) => {
      await running?.stop(mode)
      running = undefined
    },
    start: async () => {
      running ??= await startEmbedded(options)
    },
  }
}

async function backUp(primary: PrivateServer, target: string): Promise<void> {
  const source = await realpath(join(primary.dataDir, 'postgres'))
  const { uid, gid } = await stat(source)
  await withClient(superuserOf(primary.url), async (client) => {
    await client.query(`select pg_backup_start('standby', true)`)
    await cp(source, target, { recursive: true, filter: (path) => !leftOut.has(relative(source, path)) })
    const { rows } = await client.query('select labelfile from pg_backup_stop(false)')
    await writeFile(join(target, 'backup_label'), rows[0].labelfile)
  })
  await writeFile(join(target, 'standby.signal'), '')
  for (const name of emptied) await mkdir(join(target, name), { mode: 0o700 })
  await promisify(execFile)('chown', ['-R', `${uid}:${gid}`, target])
}

/** What a base backup does without: the standby fetches the log itself, and the slots are the primary's. */
const emptied = ['pg_wal', 'pg_replslot', 'pg_stat_tmp', 'pg_dynshmem', 'pg_notify', 'pg_subtrans']
const leftOut: ReadonlySet<string> = new Set([...emptied, 'postmaster.pid', 'postmaster.opts'])

/** The embedded server's superuser has the application's password (see `startEmbedded`). */
function superuserOf(url: string): string {
  const own = new URL(url)
  own.username = 'postgres'
  return own.href
}

function conninfo(url: string): string {
  const { hostname, port, password } = new URL(superuserOf(url))
  return `host=${hostname} port=${port} user=postgres password=${password} application_name=standby`
}

async function asSuperuser(url: string, text: string): Promise<any[]> {
  return (await withClient(superuserOf(url), (client) => client.query(text))).rows
}

const cleanups: (() => Promise<void>)[] = []

// Registered after the primary's own, and hooks run in reverse: the standby ends first.
afterAll(async () => {
  for (const cleanup of cleanups) await cleanup()
})

/**
 * Freezes whatever serves a standby's clients now; later connections are answered. Gives what lets them go on.
 */
export async function freeze(standby: Standby): Promise<() => void> {
  const rows = await standby.sql(
    `select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()`,
  )
  for (const { pid } of rows) process.kill(pid, 'SIGSTOP')
  return () => {
    for (const { pid } of rows) if (existsSync(`/proc/${pid}`)) process.kill(pid, 'SIGCONT')
  }
}
