import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import pg from 'pg'
import { afterAll } from 'vitest'
import { createDatabase } from './postgres.ts'
import { testEnv } from './prepare.ts'
import { startProcess, type TestProcess } from './processes.ts'

export type TaskBed = {
  readonly url: string
  readonly extensionsDir: string
  sql(text: string, values?: unknown[]): Promise<any[]>
  /** Begins a transaction with this statement; gives what rolls it back. */
  begin(text: string, values?: unknown[]): Promise<() => Promise<void>>
  /** A task of this type, by default due now; gives its id. */
  add(type: string, more?: Record<string, unknown>): Promise<number>
  row(id: number): Promise<Record<string, any>>
  start(env?: Record<string, string>): Promise<TestProcess>
  /** Ends every worker that still runs, but for one. */
  stopAll(spared?: TestProcess): Promise<void>
}

const closers: (() => Promise<unknown>)[] = []

// Registered after postgres.ts's own, and hooks run in reverse.
afterAll(async () => {
  for (const close of closers) await close()
})

/** A database, a directory with these extensions, and task workers as real processes on both. */
export async function taskBed(files: Readonly<Record<string, string>>): Promise<TaskBed> {
  const { url } = await createDatabase()
  const extensionsDir = await mkdtemp(join(tmpdir(), 'daybook-tasks-'))
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(join(extensionsDir, name)), { recursive: true })
    await writeFile(join(extensionsDir, name), content)
  }
  const pool = new pg.Pool({ connectionString: url, max: 2 })
  closers.push(
    () => pool.end(),
    () => rm(extensionsDir, { recursive: true }),
  )
  let workers: TestProcess[] = []
  const sql = async (text: string, values: unknown[] = []) => (await pool.query(text, values)).rows
  return {
    url,
    extensionsDir,
    sql,
    begin: async (text, values = []) => {
      const client = await pool.connect()
      await client.query('begin')
      await client.query(text, values)
      return async () => {
        await client.query('rollback')
        client.release()
      }
    },
    add: async (type, more = {}) => {
      const row = { type, ...more }
      const names = Object.keys(row)
      const [{ id }] = await sql(
        `insert into "svc_Tasks" (${names.map((name) => `"${name}"`)}) values (${names.map((_, i) => `$${i + 1}`)}) returning id`,
        Object.values(row),
      )
      return id
    },
    row: async (id) => (await sql('select * from "svc_Tasks" where id = $1', [id]))[0],
    start: async (env = {}) => {
      const worker = startProcess('src/workers/main.ts', ['tasks'], {
        ...testEnv(url),
        EXTENSIONS_DIR: extensionsDir,
        TASK_SERVICE_ENABLED: 'true',
        ...env,
      })
      workers.push(worker)
      await worker.waitForLine(({ msg }) => msg === 'ready')
      return worker
    },
    stopAll: async (spared) => {
      const ended = workers.filter((worker) => worker !== spared)
      workers = workers.filter((worker) => worker === spared)
      await Promise.all(ended.map(({ kill }) => kill('SIGKILL')))
    },
  }
}
