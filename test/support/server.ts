import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmod, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import pino from 'pino'
import { dropDatabase } from '../../scripts/drop-database.ts'
import { startEmbedded } from '../../src/db/embedded/embedded.ts'
import { prepareDatabase, testFiles } from './prepare.ts'

/** The server that all test files share, and the database on it that theirs are copies of. */
export type TestServer = {
  /** Address of a database to connect to for creating others; its role may create databases and replicate. */
  url: string
  /** Name of the database with the system schema; nothing may be connected to it. */
  template: string
  /** What the names of all databases of this run begin with. */
  prefix: string
  /** What an embedded server with the system schema keeps, stopped, for servers of single test files; none where the server is not embedded. */
  seed: string | undefined
}

/**
 * Starts the server of a test run and prepares the template: TEST_DATABASE_URL if set, a container with
 * TEST_POSTGRES=container (image TEST_POSTGRES_IMAGE, default postgres:18), otherwise the embedded one.
 */
export async function startTestServer(): Promise<TestServer & { stop(): Promise<void> }> {
  const { url, seed, stop } = await startServer()
  const prefix = `daybook_test_${randomBytes(3).toString('hex')}_`
  const template = `${prefix}template`
  const end = async () => {
    await dropDatabases(url, prefix).finally(stop)
    await removeFiles(prefix)
  }
  try {
    const source = seed === undefined ? '' : `template ${new URL(url).pathname.slice(1)}`
    // A database that is copied accepts no connection.
    const other = seed === undefined ? url : urlOf(url, 'postgres')
    await withClient(other, (client) => client.query(`create database ${template} ${source}`))
    if (seed === undefined) await prepareDatabase(urlOf(url, template))
    return { url, template, prefix, seed, stop: end }
  } catch (error) {
    await end()
    throw error
  }
}

/** The address of another database on the same server. */
export function urlOf(url: string, database: string): string {
  const other = new URL(url)
  other.pathname = `/${database}`
  return other.href
}

export async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url, application_name: 'daybook test support' })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

type Server = { url: string; seed?: string; stop(): Promise<void> }

function startServer(): Promise<Server> {
  const { TEST_DATABASE_URL, TEST_POSTGRES = 'embedded' } = process.env
  if (TEST_DATABASE_URL) return Promise.resolve({ url: TEST_DATABASE_URL, stop: async () => undefined })
  if (TEST_POSTGRES === 'container') return startContainer()
  if (TEST_POSTGRES === 'embedded') return startThrowaway()
  throw new Error(`TEST_POSTGRES is ${TEST_POSTGRES}: it can be embedded or container`)
}

async function startThrowaway(): Promise<Server> {
  const dataDir = await mkdtemp(join(tmpdir(), 'daybook-tests-'))
  // Open to the server's own OS user, or its data would be kept elsewhere and stay behind.
  await chmod(dataDir, 0o755)
  const seed = `${dataDir}-seed`
  // Room for the processes of all test files that run at the same time, whose thousands of connections spend a millisecond
  // each on hashing a password that cannot be guessed. Databases are copied within the kernel.
  const settings = { max_connections: '400', scram_iterations: '1', file_copy_method: 'clone', max_wal_size: '256MB' }
  const start = () => startEmbedded({ dataDir, log: pino({ level: 'warn' }), durable: false, settings })
  const first = await start()
  await prepareDatabase(first.url).finally(() => first.stop())
  await copyTree(dataDir, seed)
  // What a server of a test file has logged is its own.
  await rm(join(seed, 'postgres.log'))
  const server = await start()
  const stop = async () => {
    await server.stop()
    for (const place of [dataDir, seed]) await rm(place, { recursive: true })
  }
  return { url: server.url, seed, stop }
}

/** With owners and times: PostgreSQL reads what belongs to its own user. */
export async function copyTree(from: string, to: string): Promise<void> {
  await promisify(execFile)('cp', ['-a', from, to])
}

async function startContainer(): Promise<Server> {
  // 250 modules that nothing else needs.
  const { PostgreSqlContainer } = await import('@testcontainers/postgresql')
  const container = await new PostgreSqlContainer(process.env.TEST_POSTGRES_IMAGE ?? 'postgres:18')
    .withCommand(['postgres', ...['wal_level=logical', 'max_connections=400', 'fsync=off'].flatMap((s) => ['-c', s])])
    .start()
  return { url: container.getConnectionUri(), stop: async () => void (await container.stop()) }
}

async function removeFiles(prefix: string): Promise<void> {
  const names = await readdir(testFiles).catch(() => [])
  for (const name of names) if (name.startsWith(prefix)) await rm(join(testFiles, name), { recursive: true })
}

async function dropDatabases(url: string, prefix: string): Promise<void> {
  await withClient(url, async (client) => {
    const { rows } = await client.query('select datname from pg_database where starts_with(datname, $1)', [prefix])
    for (const { datname } of rows) await dropDatabase(url, datname)
  })
}
