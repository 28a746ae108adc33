import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { type Config, ConfigError, loadEnv, parseConfig, secretKeyFile } from '../config/config.ts'
import { freePort, probePort, startEmbedded } from '../db/embedded/embedded.ts'
import { EmbeddedError } from '../db/embedded/host.ts'
import { moduleFile } from '../language/child-process.ts'
import { makeDirectory } from '../language/directories.ts'
import { compiledDirectory } from '../process/start-up.ts'
import { workersWithWork } from '../workers/names.ts'
import { type Child, type ChildOptions, startChild, supervise } from './children.ts'
import { type Admin, addressOf, banner, docsAddress, type Output, openOutput } from './output.ts'

type Launch = {
  readonly output: Output
  /** The processes, in the order of their start; the parts of a stage stop together. */
  readonly stages: Child[][]
  /** Settled once, by the first signal or the first failure. */
  readonly ending: PromiseWithResolvers<LaunchEnding>
  readonly aborted: AbortSignal
}

/** Why the launcher ends; exit code 0 when it was told to. */
type LaunchEnding = { code: number; reason?: string }

/**
 * Starts everything, waits for a signal or a failure, stops everything: web first, so that no request is lost, then
 * the workers, PostgreSQL last. A second signal doesn't wait.
 *
 * @param dir where .env is looked for
 * @returns the exit code: 0 after a signal, 1 after a failure, whose reason has then been shown
 */
export async function launch(dir: string, processEnv: NodeJS.ProcessEnv): Promise<number> {
  const output = openOutput(processEnv.NODE_ENV === 'production' && !process.stdout.isTTY)
  const abort = new AbortController()
  const it: Launch = { output, stages: [], ending: Promise.withResolvers(), aborted: abort.signal }
  listenForSignals(it)
  const unwatch = watchNpm(processEnv, () => {
    output.note('warn')('npm is gone')
    it.ending.resolve({ code: 0 })
  })
  bringUp(it, dir, processEnv).catch((error) => it.ending.resolve({ code: 1, reason: describe(error) }))
  const { code, reason } = await it.ending.promise
  abort.abort()
  unwatch()
  if (reason) output.complain(reason)
  if (code === 0) output.say('\nStopping. A second Ctrl-C does not wait.')
  for (const stage of it.stages.toReversed()) await Promise.all(stage.map((part) => part.stop()))
  if (code === 0) output.say('Stopped.')
  return code
}

async function bringUp(it: Launch, dir: string, processEnv: NodeJS.ProcessEnv): Promise<void> {
  const given = loadEnv(dir, processEnv)
  const config = parseConfig(given, { allowMissingSecret: true })
  const port = await usablePort(config.server)
  const consoleBuilt = config.console.enabled ? buildConsole(it) : undefined
  const env: NodeJS.ProcessEnv = {
    NODE_COMPILE_CACHE: compiledDirectory,
    ...realtimeUnlessDecided(given),
    ...processEnv,
    PORT: String(port),
    SECRET_KEY: await secretKey(config),
  }
  if (config.database.url === undefined) {
    env.DATABASE_URL = await startDatabase(it, config)
    // In production nothing is kept beside the data unless the operator asks for it; running the server here does.
    if (config.storage.defaultService === undefined)
      Object.assign(env, {
        STORAGE_SERVICES_ENABLED: 'local',
        LOCAL_STORAGE_DRIVER: 'LOCAL',
        LOCAL_STORAGE_PATH: join(config.database.dataDir, 'files'),
      })
  }
  const admin = await setUp(it, env)
  it.aborted.throwIfAborted()
  // The workers stop after the web process, whose last requests may still need them, but start after it as well:
  // the first answer comes sooner.
  const workers: Child[] = []
  it.stages.push(workers)
  it.stages.push([keepRunning(it, { name: 'web', script: 'api/main', env })])
  const url = addressOf(config.server.host, port)
  await untilReady(it, url)
  const names = workersWithWork(config)
  workers.push(...names.map((name) => keepRunning(it, { name, script: 'workers/main', args: [name], env })))
  await consoleBuilt
  it.output.say(banner({ url, docs: await docsAddress(url), config, admin }))
}

/** The console follows changes over the realtime channel, so a start of everything has it, and every row rule with it. */
function realtimeUnlessDecided(given: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const isDecided = given.SOCKET_ENABLED !== undefined || given.REALTIME_ROW_LEVEL_SCOPING !== undefined
  return isDecided ? {} : { SOCKET_ENABLED: 'true', REALTIME_ROW_LEVEL_SCOPING: 'true' }
}

const sameKeyPressMs = 500
const forcedExitCode = 130

function listenForSignals({ ending, stages }: Launch): void {
  let first: number | undefined
  const onSignal = () => {
    first ??= Date.now()
    // npm passes on the Ctrl-C that the terminal has sent us already: one key press arrives as two signals.
    if (Date.now() - first > sameKeyPressMs) forceEnd(stages)
    ending.resolve({ code: 0 })
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal)
}

/** PostgreSQL recovers from this; its guardian sees to it that it ends after us (db/embedded/embedded.ts). */
function forceEnd(stages: readonly Child[][]): never {
  for (const part of stages.flat()) part.kill()
  process.exit(forcedExitCode)
}

/** Starts the embedded server and returns its address. */
async function startDatabase(it: Launch, { database }: Config): Promise<string> {
  const log = { info: it.output.note('info'), warn: it.output.note('warn') }
  const starting = startEmbedded({ dataDir: database.dataDir, log, signal: it.aborted })
  // Noted before it is up, so that a Ctrl-C meanwhile finds it. A start that fails leaves nothing to stop.
  const stop = (mode?: 'immediate') =>
    starting.then(
      (server) => server.stop(mode),
      () => undefined,
    )
  it.stages.push([{ stop: () => stop(), kill: () => void stop('immediate') }])
  const server = await starting
  void server.ended.then((log) => it.ending.resolve({ code: 1, reason: `PostgreSQL has ended: ${log}` }))
  return server.url
}

const consoleBuild = join(import.meta.dirname, '../../console/build.ts')

/**
 * Builds the console where this is a checkout and its sources are newer than what was built. Without it everything else
 * works, so a failure is a warning, and `/console` says what to run.
 */
async function buildConsole(it: Launch): Promise<void> {
  if (!existsSync(consoleBuild)) return
  const build = startChild({
    name: 'console',
    script: consoleBuild,
    args: ['--if-stale'],
    env: { ...process.env, NODE_COMPILE_CACHE: compiledDirectory },
    onLine: (text) => it.output.line('console', text),
  })
  it.stages.push([build])
  const how = await build.ended
  if (how !== 'exit code 0' && !it.aborted.aborted)
    it.output.note('warn')(`the console was not built (${how}); run npm run build:console to see why`)
}

/** Runs the release step. Its last line says whether an administrator was made; a failure it explains itself. */
async function setUp(it: Launch, env: NodeJS.ProcessEnv): Promise<Admin> {
  it.aborted.throwIfAborted()
  let admin: Admin
  let explained = false
  const onLine = (text: string) => {
    if (text.startsWith('{"admin":')) admin = JSON.parse(text).admin
    else if (text !== '{}') it.output.line('setup', text)
  }
  const onError = (text: string) => {
    explained = true
    it.output.complain(text)
  }
  const setup = startChild({ name: 'setup', script: scriptPath('setup/main'), env, onLine, onError })
  it.stages.push([setup])
  const how = await setup.ended
  if (how !== 'exit code 0') throw new StartError(explained ? '' : `Setup failed (${how}); its lines above say why.`)
  return admin
}

function keepRunning(
  { output, ending }: Launch,
  options: Pick<ChildOptions, 'name' | 'script' | 'args' | 'env'>,
): Child {
  const { name, script } = options
  const part = supervise({
    ...options,
    script: scriptPath(script),
    onLine: (text) => output.line(name, text),
    onRestart: (how) => output.note('warn')(`${name} ended (${how}); starting it again`),
  })
  part.failed.catch((error: Error) => ending.resolve({ code: 1, reason: error.message }))
  return part
}

const readyLimitMs = 60_000

async function untilReady({ aborted }: Launch, url: string): Promise<void> {
  const limit = Date.now() + readyLimitMs
  for (;;) {
    const answer = await fetch(`${url}/ready`).catch(notListening)
    if (answer?.ok) return
    const state = await answer?.text()
    if (Date.now() > limit) throw new StartError(`The web process does not get ready: ${state ?? 'it does not listen'}`)
    await delay(50, undefined, { signal: aborted })
  }
}

/** `fetch` rejects with a TypeError when there is no connection. */
function notListening(error: Error): undefined {
  if (!(error instanceof TypeError)) throw error
}

function scriptPath(script: string): string {
  return moduleFile(join(import.meta.dirname, '..'), script)
}

function describe(error: unknown): string {
  const known = [StartError, ConfigError, EmbeddedError].some((kind) => error instanceof kind)
  if (known || (error instanceof Error && 'syscall' in error)) return (error as Error).message
  return String((error as Error).stack)
}

/** A fault of the surroundings, told in one sentence that names the variable; no stack is shown for it. */
class StartError extends Error {
  override readonly name = 'StartError'
}

/**
 * The port of PORT, or a free one for 0. Better to know now than after the database has been made.
 *
 * @throws StartError when it is taken or can't be had
 */
async function usablePort({ host, port }: Config['server']): Promise<number> {
  try {
    if (port === 0) return await freePort(host)
    await probePort(port, host)
    return port
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    throw new StartError(problems[code]?.(port, host) ?? `HOST, PORT: ${message}`)
  }
}

const problems: Record<string, (port: number, host: string) => string> = {
  EADDRINUSE: (port, host) =>
    `PORT: ${port} on ${host} is taken by another process. Stop that one or set PORT to another number.`,
  EACCES: (port) => `PORT: this user may not listen on ${port}. Set PORT to a number above 1023.`,
  EADDRNOTAVAIL: (_port, host) => `HOST: ${host} is no address of this machine.`,
  ENOTFOUND: (_port, host) => `HOST: the name ${host} is not known.`,
}

/** SECRET_KEY, or outside production a key that is made once and kept, so that sessions survive a restart. */
async function secretKey({ auth, database }: Config): Promise<string> {
  if (auth.secretKey !== '') return auth.secretKey
  const file = secretKeyFile(database.dataDir)
  await makeDirectory(database.dataDir)
  try {
    await writeFile(file, `${randomBytes(48).toString('base64url')}\n`, { flag: 'wx', mode: 0o600 })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  return (await readFile(file, 'utf8')).trim()
}

const lookMs = 500

/**
 * Calls `onGone` once when the npm that runs this process is gone: a signal to npm ends npm and its shell, and nobody
 * passes it on. Without npm a parent may end and leave its child running, as a shell does after `nohup … &`, so then
 * nothing is watched. Returns how to stop.
 */
function watchNpm(env: NodeJS.ProcessEnv, onGone: () => void): () => void {
  if (env.npm_lifecycle_event === undefined) return () => undefined
  const before = keepers()
  const timer = setInterval(() => {
    if (keepers() === before) return
    clearInterval(timer)
    onGone()
  }, lookMs).unref()
  return () => clearInterval(timer)
}

/** Our parent, and where that is the shell which npm puts between, also its parent: npm. It changes when one has gone. */
function keepers(): string {
  const parent = process.ppid
  return isShell(parent) ? `${parent} ${parentOf(parent)}` : String(parent)
}

/** Unknown where there is no /proc; there npm alone can go unnoticed, not its shell. */
function isShell(pid: number): boolean {
  return /^\S*sh\0-c\0/.test(read(`/proc/${pid}/cmdline`))
}

/** The second word after the command's name, which may hold blanks and brackets (proc(5)). */
function parentOf(pid: number): string | undefined {
  const status = read(`/proc/${pid}/stat`)
  return status.slice(status.lastIndexOf(')') + 2).split(' ')[1]
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    if (!['ENOENT', 'ESRCH', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error
    return ''
  }
}
