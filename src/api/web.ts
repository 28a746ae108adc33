import { setTimeout as delay, setImmediate } from 'node:timers/promises'
import { openLogger } from '../adapters/logger.ts'
import { ConfigError, loadEnv, parseConfig } from '../config/config.ts'
import { sql } from '../db/sql.ts'
import { loadExtensions } from '../extensions/extensions.ts'
import { checkRegisteredRole } from '../features/accounts/auth/auth.ts'
import { findInterrupted } from '../features/data/migrations/migrations.ts'
import { senderOf } from '../features/messaging/mail/mail.ts'
import { watchFaults } from '../process/faults.ts'
import { openRuntime, type Runtime } from '../process/runtime.ts'
import { exitWithParent, growWithWork } from '../process/start-up.ts'
import { type SetupResult, setUpAndMigrate } from '../setup/setup.ts'
import { buildServer } from './server.ts'

/** The web process, which main.ts starts: HTTP and, when enabled, the realtime channel. */
async function main(): Promise<void> {
  // Before anything else: a process that has lost its launcher by now would not hear of it later.
  exitWithParent()
  const env = loadEnv(process.cwd(), process.env)
  const config = parseConfig(env, { requireDatabase: true })
  const log = openLogger({ level: config.log.level, name: 'web', warnStack: config.log.warnStack })
  for (const warning of config.warnings) log.warn(warning)
  if (config.migrations.autoRun) await setUpAndMigrate({ config, log, env }, tellAdministrator)
  const runtime = await openRuntime({ config, log, name: 'web', worker: false, env })
  if (!config.migrations.autoRun) await findInterrupted(runtime)
  checkVerificationMail(runtime)
  checkRegisteredRole(runtime)
  await warnAboutSuperuser(runtime)
  // Until there is something to drain.
  let endAfterFault = (): void => process.exit(1)
  watchFaults(log, () => endAfterFault())
  const app = await buildServer(runtime, await loadExtensions(runtime))
  const end = openEnd(log, async () => {
    await backlogAccepted()
    await app.close()
    await runtime.close()
  })
  const { shutdownTimeoutMs } = config.server
  stopOnSignal(() => end({ code: 0, withinMs: shutdownTimeoutMs }))
  endAfterFault = () => end({ code: 1, withinMs: Math.min(shutdownTimeoutMs, longestAfterFaultMs) })
  await app.listen({ host: config.server.host, port: config.server.port })
  growWithWork()
  log.info({ address: app.addresses() }, 'ready')
}

/**
 * The system has taken connections for us that we have yet to see; those would be reset. After one turn of the event loop
 * they have been seen.
 */
async function backlogAccepted(): Promise<void> {
  await setImmediate()
  await setImmediate()
}

/** Only the creator of the account knows its password; it is printed once, and not to the log. */
function tellAdministrator(result: SetupResult): void {
  if (result.admin !== undefined) process.stdout.write(`${JSON.stringify(result)}\n`)
}

/** Requiring verification without a way to send it would lock every new user out. */
function checkVerificationMail(runtime: Runtime): void {
  if (!runtime.config.auth.verificationNeedsSettingsSmtp || senderOf(runtime, undefined) !== undefined) return
  throw new ConfigError(
    'REQUIRE_EMAIL_VERIFICATION: no mail sender is configured, neither by MAIL_SENDERS_ENABLED nor in the settings',
  )
}

/** Said here, not by every process: they all sign in alike. */
async function warnAboutSuperuser({ reserved, log }: Runtime): Promise<void> {
  const { role, superuser } = await reserved.one<{ role: string; superuser: boolean }>(
    sql`select rolname as role, rolsuper as superuser from pg_roles where rolname = current_user`,
  )
  if (superuser)
    log.warn(
      { role },
      'DATABASE_URL signs in as a superuser: anybody who gets the program to run SQL can also read files and run programs; see docs/operating.md#the-database-role',
    )
}

/** After a fault one of the running requests may never end, and until the process has ended no other takes its place. */
const longestAfterFaultMs = 10_000

/** Drains and ends the process: no new connection, running requests finish. Once, however often it is asked for. */
function openEnd(log: Runtime['log'], stop: () => Promise<void>) {
  let isEnding = false
  return ({ code, withinMs }: { readonly code: 0 | 1; readonly withinMs: number }): void => {
    if (isEnding) return
    isEnding = true
    void delay(withinMs, undefined, { ref: false }).then(() => {
      log.error(`not everything has ended within ${withinMs} ms (SHUTDOWN_TIMEOUT)`)
      process.exit(1)
    })
    stop().then(
      () => process.exit(code),
      (error: unknown) => {
        log.error({ err: error }, 'the process could not end in order')
        process.exit(1)
      },
    )
  }
}

/** The first signal drains. The second one ends at once. */
function stopOnSignal(drain: () => void): void {
  let isAsked = false
  const onSignal = () => {
    if (isAsked) process.exit(1)
    isAsked = true
    drain()
  }
  process.on('SIGTERM', onSignal).on('SIGINT', onSignal)
}

try {
  await main()
} catch (error) {
  const { code, address, port } = error as { code?: string; address?: string; port?: number }
  const message =
    error instanceof ConfigError
      ? error.message
      : code === 'EADDRINUSE'
        ? `PORT: ${address}:${port} is taken by another program`
        : `The server could not start: ${(error as Error).message}`
  process.stderr.write(`${message}\n`)
  process.exit(1)
}
