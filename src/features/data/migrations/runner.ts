import { adoptTenants } from '../../../catalog/change.ts'
import type { Config } from '../../../config/config.ts'
import { requireSetUp } from '../../../db/needs.ts'
import type { ReservedReads } from '../../../db/pools.ts'
import { sql } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { type DirectSession, openDirectSession } from '../../../events/direct-session.ts'
import { type Actor, systemActor } from '../../../events/types.ts'
import {
  hasMigrationTable,
  joined,
  type LoadedScript,
  loadScripts,
  type Migration,
  type RunDirection,
  runningVersions,
  storedRows,
  storeInterrupted,
} from './records.ts'

/** The capabilities that migrations take from their process: the API, setup or the command line. */
export type MigrationHost = {
  readonly config: Config
  /** Progress and failures. */
  readonly log: { info(fields: object, message: string): void; warn(fields: object, message: string): void }
  /** The `env` of the scripts' context. */
  readonly env: Readonly<Record<string, string | undefined>>
}

/** The one process that may run migrations now, of all processes: it holds the lock. */
export type MigrationRunner = MigrationHost & {
  readonly session: DirectSession
  /** In whose name the domain events are; undefined for setup's own scripts, which may come before the log. */
  readonly requester: Actor | undefined
}

type RunnerOptions = {
  readonly requester: Actor | undefined
  /** While another process is the runner: wait for it, as a start does, or get a 409. */
  readonly busy: 'wait' | 'refuse'
}

const lockName = 'daybook migrations'

/**
 * Makes this the one runner of the database for the time of `work`: an advisory lock on a connection of its own, which
 * ends with the process that holds it. Migrations that are `running` at that moment were interrupted and become
 * `failed`.
 *
 * No statement of a migration waits longer than MIGRATIONS_LOCK_TIMEOUT for a lock, since everybody else queues behind it.
 *
 * @throws AppError 409 when another process runs migrations and `busy` says not to wait
 */
export async function withRunner<T>(
  host: MigrationHost,
  options: RunnerOptions,
  work: (runner: MigrationRunner) => Promise<T>,
): Promise<T> {
  const { config, log, env } = host
  const session = await openDirectSession(config)
  try {
    if (options.busy === 'wait') await session.lock(lockName)
    else if (!(await session.tryLock(lockName))) throw busy()
    const lockTimeout = String(config.migrations.lockTimeoutMs)
    await session.any(sql`select set_config('lock_timeout', ${lockTimeout}, false)`)
    await failInterrupted(session, log)
    return await work({ config, log, env, session, requester: options.requester })
  } finally {
    await session.close()
  }
}

/** Everything that is known, as the runner sees it. */
export async function migrationsOf({
  session,
  config,
}: Pick<MigrationRunner, 'session' | 'config'>): Promise<readonly Migration[]> {
  await requireSetUp(session)
  return joined(await loadScripts(config), await storedRows(session))
}

/** Everything that is known, for a process without pools. */
export async function readOnce({ config }: MigrationHost): Promise<readonly Migration[]> {
  const session = await openDirectSession(config)
  try {
    return await migrationsOf({ session, config })
  } finally {
    await session.close()
  }
}

/** The end of every run of user scripts: tables that they made by SQL get their tenant too. */
export async function finishRun({ session, config }: MigrationRunner, scripts: readonly LoadedScript[]): Promise<void> {
  if (config.tenancy.enabled && scripts.some(({ isSystem }) => !isSystem))
    await session.transaction(systemActor, adoptTenants)
}

/**
 * At a process's start: finds the migrations that a killed runner has left `running`. Does nothing
 * while another process is the runner.
 */
export async function findInterrupted({ config, log, reserved }: MigrationHost & ReservedReads): Promise<void> {
  if ((await runningVersions(reserved)).length === 0) return
  const session = await openDirectSession(config)
  try {
    if (await session.tryLock(lockName)) await failInterrupted(session, log)
  } finally {
    await session.close()
  }
}

async function failInterrupted(session: DirectSession, log: MigrationHost['log']): Promise<void> {
  if (!(await hasMigrationTable(session))) return
  for (const { version, direction } of await runningVersions(session)) {
    const message = interrupted[direction ?? 'up']
    log.warn({ version }, `migration ${version}: ${message}`)
    await session.transaction(systemActor, (tx) => storeInterrupted(tx, version, message))
  }
}

const interrupted: Readonly<Record<RunDirection, string>> = {
  up: 'Its process has ended before it did. In a transaction it has changed nothing; without one, look at its changes. Then retry it, or set its status to pending or to completed',
  down: 'The process that rolled it back has ended before it did. In a transaction the rollback has changed nothing; without one, look at its changes. Then retry the rollback, or set its status to completed or to pending',
}

function busy(): AppError {
  return new AppError(409, 'Migrations are being run by another process', {
    code: 'MIGRATIONS_RUNNING',
    headers: { 'retry-after': '5' },
  })
}
