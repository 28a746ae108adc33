import { randomBytes } from 'node:crypto'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import pg from 'pg'
import { dropDatabase } from '../scripts/drop-database.ts'
import { startEmbedded } from '../src/db/embedded/embedded.ts'

/** An empty database that is gone when the run is over. */
export type Place = {
  readonly url: string
  /** Of the server, where it runs beside us and its processor time can be told. */
  readonly serverPid: number | undefined
}

/** Settings of a dedicated database server on a small machine; crash safety stays on. */
const settings = {
  shared_buffers: '512MB',
  effective_cache_size: '2GB',
  work_mem: '16MB',
  maintenance_work_mem: '256MB',
  random_page_cost: '1.1',
  max_wal_size: '4GB',
  checkpoint_timeout: '30min',
  jit: 'off',
}

/** A database on the server at `serverUrl`, or on an embedded one; `cleanup` removes what was made. */
export async function openPlace(serverUrl: string | undefined, cleanup: AsyncDisposableStack): Promise<Place> {
  if (serverUrl !== undefined) return { url: await createDatabase(serverUrl, cleanup), serverPid: undefined }
  const dataDir = await mkdtemp(join(tmpdir(), 'daybook-bench-'))
  cleanup.defer(() => rm(dataDir, { recursive: true, force: true }))
  // Open to the server's own OS user, or its data would be kept elsewhere.
  await chmod(dataDir, 0o755)
  const quiet = { info: () => undefined, warn: (text: string) => process.stderr.write(`${text}\n`) }
  const server = await startEmbedded({ dataDir, log: quiet as never, settings })
  cleanup.defer(async () => {
    await server.stop('immediate')
    await rm(dirname(server.clusterDir), { recursive: true, force: true })
  })
  return { url: server.url, serverPid: server.pid }
}

/** A directory for files that is gone when the run is over. */
export async function openFiles(cleanup: AsyncDisposableStack): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'daybook-bench-files-'))
  cleanup.defer(() => rm(directory, { recursive: true, force: true }))
  return directory
}

/** Statements of the bench itself, on one connection that lasts for the run. */
export async function openSql(url: string, cleanup: AsyncDisposableStack): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: 'daybook bench' })
  await client.connect()
  cleanup.defer(() => client.end())
  return client
}

async function createDatabase(serverUrl: string, cleanup: AsyncDisposableStack): Promise<string> {
  const name = `daybook_bench_${randomBytes(4).toString('hex')}`
  const client = new pg.Client({ connectionString: serverUrl })
  await client.connect()
  await client.query(`create database ${name}`).finally(() => client.end())
  cleanup.defer(() => dropDatabase(serverUrl, name))
  const url = new URL(serverUrl)
  url.pathname = `/${name}`
  return url.href
}
