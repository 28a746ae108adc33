import { randomBytes } from 'node:crypto'
import { mkdtempSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import pg from 'pg'
import { startEmbedded } from '../../src/db/embedded/embedded.ts'
import { dropDatabase } from '../drop-database.ts'

export type Place = {
  readonly databaseUrl: string
  /** Empty, in the system's temporary directory. */
  readonly directory: string
  /** For people. */
  readonly description: string
}

/**
 * An empty database for the demo alone: on the server of DATABASE_URL, whose own data stay untouched, or on an embedded
 * one. Every removal is put on `cleanup` before the thing is made, so that an interruption finds it.
 */
export async function openPlace(
  serverUrl: string | undefined,
  say: (text: string) => void,
  cleanup: AsyncDisposableStack,
): Promise<Place> {
  const directory = mkdtempSync(join(tmpdir(), 'daybook-demo-'))
  cleanup.defer(() => rm(directory, { recursive: true, force: true }))
  const databaseUrl =
    serverUrl === undefined ? await startServer(directory, say, cleanup) : await createDatabase(serverUrl, cleanup)
  const [row] = await query<{ server_version: string }>(databaseUrl, 'show server_version')
  const { host, pathname } = new URL(databaseUrl)
  const where = serverUrl === undefined ? 'embedded' : `database ${pathname.slice(1)} on ${host}`
  return { databaseUrl, directory, description: `PostgreSQL ${row?.server_version}, ${where}` }
}

/** Runs one statement on a connection of its own. */
export async function query<Row extends pg.QueryResultRow>(
  url: string,
  text: string,
  values: unknown[] = [],
): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url, application_name: 'daybook demo' })
  await client.connect()
  try {
    return (await client.query<Row>(text, values)).rows
  } finally {
    await client.end()
  }
}

async function startServer(
  directory: string,
  say: (text: string) => void,
  cleanup: AsyncDisposableStack,
): Promise<string> {
  const starting = startEmbedded({ dataDir: directory, log: { info: say, warn: say } })
  cleanup.defer(async () => {
    const [outcome] = await Promise.allSettled([starting])
    if (outcome.status === 'rejected') return
    await outcome.value.stop('immediate')
    // Not always below our directory: where the server's user can't enter that one, the rows have a place of their own.
    await rm(dirname(outcome.value.clusterDir), { recursive: true, force: true })
  })
  return (await starting).url
}

async function createDatabase(serverUrl: string, cleanup: AsyncDisposableStack): Promise<string> {
  const name = `daybook_demo_${randomBytes(5).toString('hex')}`
  const url = new URL(serverUrl)
  url.pathname = `/${name}`
  const creating = query(serverUrl, `create database ${name}`)
  cleanup.defer(async () => {
    const [outcome] = await Promise.allSettled([creating])
    if (outcome.status === 'fulfilled') await dropDatabase(serverUrl, name)
  })
  await creating.catch((error: Error & { code?: string }) => {
    throw new Error(`DATABASE_URL: no database for the demo can be made there: ${error.message || error.code}`)
  })
  return url.href
}
