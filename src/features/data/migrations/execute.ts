import * as manager from '../../../catalog/change.ts'
import { rawQuery, type Tx } from '../../../db/sql.ts'
import { appendEvent } from '../../../events/commit.ts'
import type { MigrationContext } from '../../../events/direct-session.ts'
import { type Actor, type DomainEvent, systemActor } from '../../../events/types.ts'
import {
  type Ending,
  hasMigrationTable,
  type RunDirection,
  storeEnding,
  storeRollingBack,
  storeRunning,
} from './queries.ts'
import { ranBy } from './records.ts'
import type { MigrationRunner } from './runner.ts'
import type { LoadedScript } from './scripts.ts'

type Execution = {
  readonly script: LoadedScript
  readonly direction: RunDirection
  /** Of an up: migrations that are run together share it. */
  readonly batch: number
  /** For whoever watches: `2 of 7`. */
  readonly place?: string
  /** Of a down: why, in the requester's words. */
  readonly reason?: string | undefined
}

/**
 * Runs one script and says so in its row: `running` before, seen by everybody; then script, row and event in one
 * transaction; `failed` with the message when it throws or says that it did not succeed. A script that opts out of the
 * transaction runs first and is recorded after.
 *
 * Rejects only when the outcome could not be recorded. The row then stays `running` and the next runner finds it.
 */
export async function execute(runner: MigrationRunner, execution: Execution): Promise<Ending> {
  const { session } = runner
  const { script } = execution
  const started = performance.now()
  const elapsed = () => performance.now() - started
  const actor: Actor = { ...systemActor, userAgent: `migration ${script.version}` }
  // The program's first script makes the table that it is recorded in.
  const announced = await hasMigrationTable(session)
  if (announced) await session.transaction(actor, (tx) => announce(tx, execution))
  const conclude = async (tx: Tx, metadata: object) => {
    if (!announced) await announce(tx, execution)
    return record(tx, runner, execution, {
      metadata: { ...metadata, ...(script.isSystem && ranBy) },
      elapsedMs: elapsed(),
    })
  }
  const stop = reportProgress(runner, execution, elapsed)
  try {
    if (script.transaction !== false)
      return await session.transaction(actor, async (tx) => conclude(tx, await call(runner, execution, tx)))
    const metadata = await session.untransacted(actor, (db) => call(runner, execution, db))
    return await session.transaction(actor, (tx) => conclude(tx, metadata))
  } catch (cause) {
    const error = cause instanceof Error ? cause : new Error(String(cause))
    if (!announced) throw error
    runner.log.warn({ version: script.version, err: error }, `migration ${script.version} failed: ${error.message}`)
    const ending: Ending = { status: 'failed', elapsedMs: elapsed(), error }
    await session.transaction(actor, (tx) => storeEnding(tx, script.version, ending))
    return ending
  } finally {
    stop()
  }
}

function announce(tx: Tx, { script, direction, batch }: Execution): Promise<void> {
  return direction === 'up' ? storeRunning(tx, script, batch) : storeRollingBack(tx, script.version)
}

/** Calls the script's function; what it returns as metadata. */
async function call(runner: MigrationRunner, { script, direction, reason }: Execution, db: Tx): Promise<object> {
  const log = (message: string) => runner.log.info({ version: script.version }, message)
  const run = direction === 'up' ? script.up : script.down!
  const result = await run(contextOf(runner, script, db, log))
  if (result?.success !== true) throw new Error(result?.message ?? 'The script says that it did not succeed')
  if (result.message !== undefined) log(result.message)
  return { ...result.metadata, ...(reason !== undefined && { rollbackReason: reason }) }
}

type Success = { readonly metadata: object; readonly elapsedMs: number }

async function record(tx: Tx, runner: MigrationRunner, execution: Execution, success: Success): Promise<Ending> {
  const { script, direction } = execution
  const ending: Ending = { status: direction === 'up' ? 'completed' : 'rolled_back', ...success }
  await storeEnding(tx, script.version, ending)
  if (runner.requester !== undefined) await appendEvent(tx, runner.requester, eventOf(execution))
  return ending
}

function eventOf({ script: { version }, direction, batch, reason }: Execution): DomainEvent {
  return direction === 'up'
    ? { type: 'migration.run', data: { version, batch } }
    : { type: 'migration.rolled_back', data: { version, ...(reason !== undefined && { reason }) } }
}

const progressMs = 10_000

/** Tells every ten seconds that a long one is still at it. */
function reportProgress(
  runner: MigrationRunner,
  { script, direction, place = '1 of 1' }: Execution,
  elapsed: () => number,
): () => void {
  const verb = direction === 'up' ? 'run' : 'roll back'
  runner.log.info({ version: script.version }, `migration ${place}: ${verb} ${script.version} (${script.name})`)
  const timer = setInterval(
    () =>
      runner.log.info(
        { version: script.version },
        `${script.version} has been at it for ${Math.round(elapsed() / 1000)} s`,
      ),
    progressMs,
  )
  timer.unref()
  return () => clearInterval(timer)
}

type ContextRunner = Pick<MigrationRunner, 'session' | 'config' | 'env'>

/** The context of a script's functions. `db` is its transaction, or its session without one. */
export function contextOf(
  runner: ContextRunner,
  script: LoadedScript,
  db: Tx,
  log: MigrationContext['log'],
): MigrationContext {
  return {
    db,
    sql: (text, values) => db.any(rawQuery(text, values)),
    schemaManager: script.isSystem ? manager : managerFor(runner, script),
    env: runner.env,
    log,
  }
}

/**
 * The manager as this installation's collections need it: with MULTI_TENANT they get their tenant. A script without a
 * transaction gets one for each change, since a definition and its table must change together.
 */
function managerFor({ session, config }: ContextRunner, script: LoadedScript): typeof manager {
  const defaults = { multiTenant: config.tenancy.enabled }
  const actor = { ...systemActor, userAgent: `migration ${script.version}` }
  const within = <T>(tx: Tx, work: (tx: Tx) => Promise<T>): Promise<T> =>
    script.transaction === false ? session.transaction(actor, work) : work(tx)
  return {
    ...manager,
    changeDefinitions: (db, edit, options = defaults) =>
      within(db, (tx) => manager.changeDefinitions(tx, edit, options)),
    executeChange: (db, edit, options = defaults, guard = undefined) =>
      within(db, (tx) => manager.executeChange(tx, edit, options, guard)),
    createCollections: (db, definitions, options = defaults) =>
      within(db, (tx) => manager.createCollections(tx, definitions, options)),
    updateCollection: (db, definition, options = defaults) =>
      within(db, (tx) => manager.updateCollection(tx, definition, options)),
    deleteCollection: (db, name, options = defaults) => within(db, (tx) => manager.deleteCollection(tx, name, options)),
    adoptCollection: (db, definition) => within(db, (tx) => manager.adoptCollection(tx, definition)),
    adoptTenants: (db) => within(db, manager.adoptTenants),
  }
}
