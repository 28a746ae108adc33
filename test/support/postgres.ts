import { randomBytes } from 'node:crypto'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { afterAll, inject } from 'vitest'
import {
  type EmbeddedOptions,
  type EmbeddedServer,
  type StopMode,
  startEmbedded,
} from '../../src/db/embedded/embedded.ts'
import { prepareDatabase } from './prepare.ts'
import { copyTree, urlOf, withClient } from './server.ts'
import { waitFor } from './wait.ts'

export type TestDatabase = {
  url: string
  name: string
  /** Removes it. Fails when a connection is still open: some pool was not closed. */
  drop(): Promise<void>
}

/**
 * A database of its own with the system schema and the default administrator, as `node src/setup/main.ts` leaves it.
 * Dropped after the test file unless the test does so; a connection that is open then fails the file.
 */
export function createDatabase(): Promise<TestDatabase> {
  return create(`template ${inject('server').template}`)
}

/** The same without anything in it; `options` are of `create database`. */
export function createEmptyDatabase(options = ''): Promise<TestDatabase> {
  return create(`template template0 ${options}`)
}

/** What another one holds, to which nothing may be connected. */
export function copyDatabase({ name }: TestDatabase): Promise<TestDatabase> {
  return create(`template ${name}`)
}

/** A server for one test file, to be stopped, crashed and started again. `url` stays the same. */
export type PrivateServer = {
  readonly url: string
  readonly pid: number
  readonly dataDir: string
  start(): Promise<void>
  /** `immediate` is what a crash of the server looks like to its clients. */
  stop(mode?: StopMode): Promise<void>
}

/**
 * Starts an embedded server on a directory of its own, crash-safe, its database prepared by setup: once in each run, as to make one
 * takes two seconds of processor time.
 */
export async function startPrivateServer(settings: EmbeddedOptions['settings'] = {}): Promise<PrivateServer> {
  const { seed } = inject('server')
  const dataDir = await mkdtemp(join(tmpdir(), 'daybook-private-'))
  if (seed !== undefined) await copyTree(`${seed}/.`, dataDir)
  // Open to the server's own OS user, or its data would be kept elsewhere and stay behind.
  await chmod(dataDir, 0o755)
  const options = { dataDir, log: pino({ level: 'warn' }), settings }
  let running: EmbeddedServer | undefined = await startEmbedded(options)
  const { url } = running
  cleanups.push(async () => {
    await running?.stop('immediate')
    await rm(dataDir, { recursive: true })
  })
  if (seed === undefined) await prepareDatabase(url)
  const current = () => running ?? fail('the private server is stopped')
  return {
    url,
    dataDir,
    get pid() {
      return current().pid
    },
    async start() {
      running ??= await startEmbedded(options)
    },
    async stop(mode) {
      const server = current()
      running = undefined
      await server.stop(mode)
    },
  }
}

/** By copying files: that takes half the processor time, and puts nothing into the WAL that others decode. */
async function create(source: string): Promise<TestDatabase> {
  const server = inject('server')
  const name = `${server.prefix}${randomBytes(5).toString('hex')}`
  await withClient(server.url, (client) => client.query(`create database ${name} ${source} strategy file_copy`))
  let dropped = false
  const drop = async () => {
    if (dropped) return
    dropped = true
    await dropUnused(server.url, name)
  }
  cleanups.push(drop)
  return { url: urlOf(server.url, name), name, drop }
}

/** A closed pool's sessions end a moment later, hence the wait. The end of the run drops what is still in use. */
async function dropUnused(serverUrl: string, name: string): Promise<void> {
  const statement = 'select application_name, state, query from pg_stat_activity where datname = $1'
  await withClient(serverUrl, async (client) => {
    const sessions = async () => (await client.query(statement, [name])).rows
    const leaked = await waitFor(async () => (await sessions()).length === 0).then(() => [], sessions)
    if (leaked.length > 0) fail(`connections to ${name} were left open: ${JSON.stringify(leaked)}`)
    await client.query(`drop database ${name}`)
  })
}

/** To be done when the hooks of the file and of what it imports are done. */
export function atEnd(cleanup: () => Promise<void>): void {
  cleanups.push(cleanup)
}

const cleanups: (() => Promise<void>)[] = []

/** Has something in front of a server stopped when the processes of the test file have ended, as databases are dropped. */
export function afterProcesses(cleanup: () => Promise<void>): void {
  cleanups.push(cleanup)
}

// Registered when the test file imports this module, so it runs after all hooks of the file itself.
afterAll(async () => {
  const outcomes = await Promise.allSettled(cleanups.reverse().map((cleanup) => cleanup()))
  const failed = outcomes.filter((outcome) => outcome.status === 'rejected').map((outcome) => outcome.reason)
  if (failed.length > 0) throw new AggregateError(failed, failed.map(String).join('\n'))
})

function fail(message: string): never {
  throw new Error(message)
}
