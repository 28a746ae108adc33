import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { ConfigError, embeddedDatabase, loadEnv, parseConfig, parseInstallation } from '../config/config.ts'
import type { Env } from '../config/variable.ts'
import { type EmbeddedServer, isServed, startEmbedded } from '../db/embedded/embedded.ts'
import { DirectoryInUse } from '../db/embedded/host.ts'
import type { Runtime } from '../process/runtime.ts'

type InstallationOptions = {
  /** Makes the embedded database where the directory has none; otherwise its lack is for `work` to find. */
  readonly create?: boolean
}

/**
 * Runs a command on the installation of this directory, with the variables of its processes. Without DATABASE_URL the database is the
 * embedded one: that of a running `daybook start`, or one that runs as long as the command does. Commands without a `daybook start`
 * run one after the other.
 */
export async function onInstallation<T>(
  work: (env: Env) => Promise<T>,
  { create = false }: InstallationOptions = {},
): Promise<T> {
  const env = loadEnv(process.cwd(), process.env)
  const { database } = parseConfig(env, { allowMissingSecret: true })
  const { dataDir } = database
  if (database.url !== undefined) return work(env)
  if (!create && !existsSync(join(dataDir, 'postgres'))) return work(env)
  const server = ownServers.has(dataDir) ? undefined : await serverOfCommand(dataDir)
  if (server === undefined) return work({ ...env, DATABASE_URL: embeddedDatabase(dataDir) })
  ownServers.add(dataDir)
  try {
    return await work({ ...env, DATABASE_URL: server.url })
  } finally {
    ownServers.delete(dataDir)
    await server.stop()
  }
}

/** Directories whose server this process runs: a part of a command would otherwise wait for the command itself. */
const ownServers = new Set<string>()

/** Undefined where `daybook start` runs one. */
async function serverOfCommand(dataDir: string): Promise<EmbeddedServer | undefined> {
  if (await isServed(dataDir)) return undefined
  const say = (message: string) => void process.stderr.write(`${message}\n`)
  try {
    return await startEmbedded({ dataDir, log: { info: say, warn: say }, isBrief: true })
  } catch (error) {
    // It has begun meanwhile.
    if (error instanceof DirectoryInUse) return undefined
    throw error
  }
}

/**
 * Gives this process the variables of a process that serves: the embedded database that `daybook start` runs and the key that it keeps, where
 * the environment names none.
 *
 * @throws {ConfigError} where the database is the embedded one and does not run
 */
export async function joinInstallation(): Promise<void> {
  const env = loadEnv(process.cwd(), process.env)
  const { database, server } = parseConfig(env, { allowMissingSecret: true })
  if (database.url !== undefined) return
  if (!(await isServed(database.dataDir)))
    throw new ConfigError(
      'DATABASE_URL: it is not set, and no database runs here: daybook start runs one with all processes, or set it to a PostgreSQL server',
    )
  const all = { ...env, DATABASE_URL: embeddedDatabase(database.dataDir) }
  const { auth } = parseInstallation(all, { secretKey: true })
  process.env.DATABASE_URL = all.DATABASE_URL
  if (auth.secretKey !== '' && server.environment !== 'production') process.env.SECRET_KEY = auth.secretKey
}

type CommandOptions = {
  /** Instead of that of requests. */
  readonly transactionTimeoutMs?: number
}

/** Runs a command with a runtime on the installation's database; its log goes to standard error. */
export function withRuntime(
  work: (runtime: Runtime) => Promise<void>,
  { transactionTimeoutMs }: CommandOptions = {},
): Promise<number> {
  return onInstallation(async (env) => {
    // Here, because commands that start a process need neither before it.
    const { openLogger } = await import('../adapters/logger.ts')
    const { openRuntime } = await import('../process/runtime.ts')
    const given = parseInstallation(env, { secretKey: true })
    const config =
      transactionTimeoutMs === undefined ? given : { ...given, database: { ...given.database, transactionTimeoutMs } }
    const log = openLogger({ level: config.log.level, name: 'daybook', stderr: true })
    const runtime = await openRuntime({ config, log, name: 'cli', worker: false })
    try {
      await work(runtime)
      return 0
    } finally {
      await runtime.close()
    }
  })
}
