/** Migrations: scripts that change an installation's database in the order of their versions, and the record of them. */
import packageJson from '../../../../package.json' with { type: 'json' }
import { compareVersions, isInitialRelease, isVersion } from '../../../adapters/version-order.ts'
import type { CatalogOptions, CollectionDefinition } from '../../../catalog/catalog.ts'
import * as manager from '../../../catalog/change.ts'
import { createCollections } from '../../../catalog/change.ts'
import { listOf } from '../../../catalog/definitions.ts'
import type { DefinitionChange } from '../../../catalog/merge.ts'
import { readDefinitions } from '../../../catalog/store.ts'
import { systemCollections } from '../../../catalog/system-definitions.ts'
import { type Config, ConfigError } from '../../../config/config.ts'
import { readerOf } from '../../../db/pools.ts'
import { type Reader, rawQuery, sql, type Tx } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { appendEvent } from '../../../events/commit.ts'
import { type DirectSession, type MigrationContext, openDirectSession } from '../../../events/direct-session.ts'
import { type Actor, type DomainEvent, systemActor } from '../../../events/types.ts'
import { type HandedOut, handOut } from './handed-out.ts'
import { type LintSubject, lintSql, type MigrationFinding, readSubject } from './lint.ts'
import {
  type Ending,
  findMigration,
  hasMigrationTable,
  joined,
  type LoadedScript,
  lastBatch,
  loadScripts,
  loadSystemScripts,
  type Migration,
  type MigrationRecord,
  type MigrationRow,
  type MigrationSelection,
  markable,
  pendingOf,
  type RunDirection,
  type Runnable,
  ranBy,
  retryable,
  selectRun,
  storeBaseline,
  storeCompleted,
  storeCompletedWithoutFile,
  storedRows,
  storeEnding,
  storeRollingBack,
  storeRunning,
  systemVersions,
} from './records.ts'
import { finishRun, type MigrationHost, type MigrationRunner, migrationsOf, withRunner } from './runner.ts'

export { createMigration, migrationScript } from './create.ts'
export { lintSql, type MigrationFinding, readSubject } from './lint.ts'
export {
  failedMigrations,
  hasMigrationTable,
  type MigrationRecord,
  migrationTypes,
  pendingOf,
  statusOf,
} from './records.ts'
export { findInterrupted, type MigrationHost, type MigrationRunner, readOnce, withRunner } from './runner.ts'

type RunResult = {
  readonly results: readonly MigrationRecord[]
  readonly summary: { readonly total: number; readonly completed: number; readonly failed: number }
}

/** Runs what is selected as one batch, in order, up to the first that fails. */
export async function runMigrations(runner: MigrationRunner, selection: MigrationSelection): Promise<RunResult> {
  return runBatch(runner, selectRun(await migrationsOf(runner), selection))
}

/**
 * The program's own scripts that this database has not seen; part of every setup, which fails with them. One that has
 * failed is tried again: it ran in a transaction, so nothing of it has happened.
 */
export async function runSystemMigrations(runner: MigrationRunner): Promise<void> {
  const rows = (await hasMigrationTable(runner.session)) ? await storedRows(runner.session) : []
  const missing = pendingOf(joined(await loadSystemScripts(), rows)).filter(({ script }) => script !== undefined)
  throwFailed((await runBatch(runner, missing as Runnable[])).results)
}

/** The program's scripts that are not completed in this database; empty when the schema is up to date. */
export async function pendingSystemMigrations(db: Reader): Promise<readonly string[]> {
  const rows = await storedRows(db)
  const pending = pendingOf(joined(await loadSystemScripts(), rows)).flatMap(({ script }) => script?.version ?? [])
  return [...new Set([...pending, ...missingDeveloped(rows)])]
}

/** The newest of the program's scripts: what a database is brought to. */
export async function newestSystemVersion(): Promise<string> {
  return (await loadSystemScripts()).at(-1)!.version
}

/**
 * Runs the user's pending migrations, after any process that already does: the step of a start with MIGRATIONS_AUTO_RUN.
 *
 * @throws AppError when one fails or has failed before: a process must not serve with a schema that it does not fit
 */
export async function runPending(host: MigrationHost): Promise<void> {
  await withRunner(host, { requester: systemActor, busy: 'wait' }, async (runner) => {
    throwFailed((await runMigrations(runner, {})).results)
  })
}

/** The preview of a run: its records, none of which is stored, nothing executed. */
export function previewRun(migrations: readonly Migration[], selection: MigrationSelection): RunResult {
  const results = selectRun(migrations, selection).map(({ record }) => ({
    ...record,
    metadata: { ...record.metadata, dryRun: true },
  }))
  return { results, summary: { total: results.length, completed: 0, failed: 0 } }
}

/**
 * Rolls one migration back by its `down`.
 *
 * @throws AppError 400 `Failed to rollback migration`, its details say why: unknown, not completed, without down, the
 *   program's own, or failed; a failed one has become `failed`
 */
export async function rollbackOne(
  runner: MigrationRunner,
  version: string,
  reason: string | undefined,
): Promise<MigrationRecord> {
  const found = (await migrationsOf(runner)).find(({ record }) => record.version === version)
  const problem = found === undefined ? 'it is not known' : rollbackProblem(found)
  if (problem !== undefined) throw rollbackFailed(version, problem)
  const { record, ending } = await rollback(runner, found as Runnable, reason)
  if (ending.error !== undefined) throw rollbackFailed(version, ending.error.message)
  return record
}

/**
 * Does again what has failed: the run of a migration, as a batch of its own, or its rollback. It may fail again, which its
 * record says.
 *
 * @throws AppError 404 for an unknown version, 409 for one that has not failed, without its file, or of the program
 */
export async function retryFailed(
  runner: MigrationRunner,
  version: string,
  reason: string | undefined,
): Promise<MigrationRecord> {
  const { direction, ...migration } = retryable(findMigration(await migrationsOf(runner), version))
  if (direction === 'down') return (await rollback(runner, migration, reason)).record
  return (await runBatch(runner, [migration])).results[0]!
}

/**
 * Rolls back every migration of the last batch, the newest first, up to the first that fails. The program's own ones
 * make no batch of the user's.
 *
 * @throws AppError 400 when there is none, or one of them cannot be rolled back: then nothing is
 */
export async function rollbackBatch(runner: MigrationRunner, reason: string | undefined): Promise<RunResult> {
  const ofUser = (await migrationsOf(runner)).filter(
    ({ record, script }) => record.status === 'completed' && record.batch !== null && script?.isSystem !== true,
  )
  const last = Math.max(...ofUser.map(({ record }) => record.batch!))
  const members = ofUser.filter(({ record }) => record.batch === last).toReversed()
  if (members.length === 0) throw rollbackFailed('of the last batch', 'there is none')
  for (const member of members) {
    const problem = rollbackProblem(member)
    if (problem !== undefined) throw rollbackFailed(member.record.version, problem)
  }
  const results: MigrationRecord[] = []
  for (const member of members) {
    results.push((await rollback(runner, member as Runnable, reason)).record)
    if (results.at(-1)!.status === 'failed') break
  }
  return { results, summary: summaryOf(results, 'rolled_back') }
}

async function runBatch(runner: MigrationRunner, selected: readonly Runnable[]): Promise<RunResult> {
  const isFirst = !(await hasMigrationTable(runner.session))
  const batch = isFirst ? 1 : (await lastBatch(runner.session)) + 1
  const versions: string[] = []
  for (const [i, { script }] of selected.entries()) {
    const place = `${i + 1} of ${selected.length}`
    versions.push(script.version)
    if ((await execute(runner, { script, direction: 'up', batch, place })).status === 'failed') break
  }
  await finishRun(
    runner,
    selected.map(({ script }) => script),
  )
  const results = await recordsOf(
    runner,
    selected.filter(({ script }) => versions.includes(script.version)),
  )
  return { results, summary: summaryOf(results, 'completed') }
}

async function rollback(runner: MigrationRunner, { script, record }: Runnable, reason: string | undefined) {
  const ending = await execute(runner, { script, direction: 'down', batch: record.batch ?? 0, reason })
  const [after] = await recordsOf(runner, [{ script, record }])
  return { record: after!, ending }
}

/** The records of these as they are now, in the given order. */
async function recordsOf({ session }: MigrationRunner, of: readonly Migration[]): Promise<MigrationRecord[]> {
  if (of.length === 0) return []
  const now = joined(
    of.flatMap(({ script }) => script ?? []),
    await storedRows(session),
  )
  return of.map(({ record }) => findMigration(now, record.version).record)
}

function summaryOf(results: readonly MigrationRecord[], done: 'completed' | 'rolled_back'): RunResult['summary'] {
  const count = (wanted: string) => results.filter(({ status }) => status === wanted).length
  return { total: results.length, completed: count(done), failed: count('failed') }
}

function rollbackProblem({ record, script }: Migration): string | undefined {
  if (record.status !== 'completed') return `its status is ${record.status}`
  if (script === undefined) return 'its file is missing'
  if (script.isSystem) return 'it belongs to the program, whose processes need it'
  return script.down === undefined ? 'it has no down function' : undefined
}

function rollbackFailed(version: string, problem: string): AppError {
  return new AppError(400, 'Failed to rollback migration', { details: `${version}: ${problem}` })
}

/** A migration that keeps a start from going on. */
function throwFailed(results: readonly MigrationRecord[]): void {
  const failed = results.find(({ status }) => status === 'failed')
  if (failed !== undefined) throw new AppError(409, `Migration ${failed.version} failed: ${failed.errorMessage}`)
}

/**
 * Records a migration as done without running it.
 *
 * @throws AppError 404 for an unknown version, 409 unless it is pending, rolled back or failed
 */
export async function markCompleted(
  runner: MigrationRunner,
  version: string,
  metadata: object,
): Promise<MigrationRecord> {
  const migration = markable(findMigration(await migrationsOf(runner), version))
  if (migration.script?.isSystem) throw new AppError(409, `Migration ${version} belongs to the program: setup runs it`)
  return mark(runner, migration, metadata)
}

/** Records every pending migration of the user, up to one if that is named, as done. 400 for an unknown one. */
export async function markAllCompleted(runner: MigrationRunner, toVersion: string | undefined): Promise<RunResult> {
  const selected = selectRun(await migrationsOf(runner), { toVersion }).filter(({ script }) => !script.isSystem)
  const results: MigrationRecord[] = []
  for (const migration of selected) results.push(await mark(runner, migration, {}))
  return { results, summary: summaryOf(results, 'completed') }
}

async function mark(runner: MigrationRunner, migration: Migration, metadata: object): Promise<MigrationRecord> {
  const { script, record } = migration
  const { version } = record
  const event: DomainEvent = { type: 'migration.marked_completed', data: { version } }
  await runner.session.transaction({ ...systemActor, userAgent: `migration ${version}` }, async (tx) => {
    await (script === undefined
      ? storeCompletedWithoutFile(tx, version, metadata)
      : storeCompleted(tx, script, metadata))
    await appendEvent(tx, runner.requester ?? systemActor, event)
  })
  const [after] = await recordsOf(runner, [migration])
  return after!
}

/** A dry run's record with the SQL that `up` would execute and what that would stop. */
export type RunPreview = MigrationRecord & {
  readonly sql: RecordedRun['statements']
  readonly sqlProblem: string | null
  readonly findings: readonly MigrationFinding[]
}

type PreviewResult = { readonly results: readonly RunPreview[]; readonly summary: RunResult['summary'] }

/**
 * A dry run that shows SQL: every selected script's statements, recorded without being executed, and the linter's
 * findings about them. Each script is read against the database as it is now, without the ones before it; but the
 * definitions that a change by difference starts from are those that the ones before it leave.
 */
export async function previewSql(host: MigrationHost, selection: MigrationSelection): Promise<PreviewResult> {
  const session = await openDirectSession(host.config)
  try {
    const known = await migrationsOf({ session, config: host.config })
    const lockTimeout = String(host.config.migrations.lockTimeoutMs)
    await session.any(sql`select set_config('lock_timeout', ${lockTimeout}, false)`)
    const selected = selectRun(known, selection)
    const subject = await readSubject(session, host.config)
    const results: RunPreview[] = []
    const planned: Planned = { definitions: await readDefinitions(session), changed: new Set() }
    for (const migration of selected) results.push(await preview({ ...host, planned }, session, migration, subject))
    return { results, summary: { total: results.length, completed: 0, failed: 0 } }
  } finally {
    await session.close()
  }
}

/** The definitions as the changes by difference that were previewed so far leave them, and the collections that they changed. */
type Planned = { definitions: readonly CollectionDefinition[]; readonly changed: Set<string> }

type Previewing = MigrationHost & { readonly planned: Planned }

async function preview(
  host: Previewing,
  session: DirectSession,
  { record, script }: Runnable,
  subject: Omit<LintSubject, 'inTransaction'>,
): Promise<RunPreview> {
  const { statements, problem = null } = await recordUp(host, session, script)
  const findings = await lintSql(statements, { ...subject, inTransaction: script.transaction !== false })
  const metadata = { ...record.metadata, dryRun: true }
  return { ...record, metadata, sql: statements, sqlProblem: problem, findings }
}

type RecordedRun = {
  /** Texts of the statements that change something, in order, values left out. */
  readonly statements: readonly string[]
  /** Why `up` did not come to its end; then there may be more statements. */
  readonly problem: string | undefined
}

/**
 * Calls a script's `up` on a transaction that may only read, and notes what it would have changed. PostgreSQL itself says
 * what that is: a statement that it refuses there is noted, left undone, and answered with no rows. So nothing is locked
 * against anybody and nothing is stored; but the script's own code runs, hence only on request.
 */
async function recordUp(host: Previewing, session: DirectSession, script: LoadedScript): Promise<RecordedRun> {
  const statements: string[] = []
  return session.transaction(systemActor, async (tx) => {
    // For the session too, so that a script that ends the transaction does not get another kind of it.
    await tx.any(sql`select set_config('default_transaction_read_only', 'on', false)`)
    await tx.any(sql`set transaction read only`)
    const recording: Tx = { ...readerOf((text, values) => tried(tx, statements, text, values)), isTransaction: true }
    const runner = { ...host, session: { ...session, transaction: recordedBy(recording) } }
    const given = handOut(recording)
    const problem = await problemOf(() =>
      given.used(() => script.up(contextOf(runner, script, given, () => undefined))),
    )
    return { statements, problem }
  })
}

async function tried(tx: Tx, statements: string[], text: string, values: readonly unknown[]) {
  await tx.any(sql`savepoint recording`)
  try {
    return { rows: [...(await tx.any<unknown>(rawQuery(text, values)))] }
  } catch {
    // Refused because it writes, or because it builds on what was refused before: either way it belongs to the script.
    await tx.any(sql`rollback to savepoint recording`)
    statements.push(text.trim())
    return { rows: [] }
  }
}

/** Transactions that the script's context would open join the one that is there. */
function recordedBy(tx: Tx): DirectSession['transaction'] {
  return (_actor, work) => work(tx)
}

async function problemOf(up: () => ReturnType<LoadedScript['up']>): Promise<string | undefined> {
  try {
    const result = await up()
    return result?.success === true ? undefined : (result?.message ?? 'The script says that it did not succeed')
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

type ScriptExecution = {
  readonly script: LoadedScript
  readonly direction: RunDirection
  /** Of an up: migrations that are run together share it. */
  readonly batch: number
  /** For people who watch: `2 of 7`. */
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
async function execute(runner: MigrationRunner, execution: ScriptExecution): Promise<Ending> {
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
    const what = execution.direction === 'up' ? 'migration' : 'rollback of migration'
    runner.log.warn({ version: script.version, err: error }, `${what} ${script.version} failed: ${error.message}`)
    const ending: Ending = { status: 'failed', direction: execution.direction, elapsedMs: elapsed(), error }
    await session.transaction(actor, (tx) => storeEnding(tx, script.version, ending))
    return ending
  } finally {
    stop()
  }
}

function announce(tx: Tx, { script, direction, batch }: ScriptExecution): Promise<void> {
  return direction === 'up' ? storeRunning(tx, script, batch) : storeRollingBack(tx, script.version)
}

/** Calls the script's function; what it returns as metadata. */
async function call(runner: MigrationRunner, { script, direction, reason }: ScriptExecution, db: Tx): Promise<object> {
  const log = (message: string) => runner.log.info({ version: script.version }, message)
  const run = direction === 'up' ? script.up : script.down!
  const given = handOut(db)
  const result = await given.used(() => run(contextOf(runner, script, given, log)))
  if (result?.success !== true) throw new Error(result?.message ?? 'The script says that it did not succeed')
  if (result.message !== undefined) log(result.message)
  return { ...result.metadata, ...(reason !== undefined && { rollbackReason: reason }) }
}

type Success = { readonly metadata: object; readonly elapsedMs: number }

async function record(tx: Tx, runner: MigrationRunner, execution: ScriptExecution, success: Success): Promise<Ending> {
  const { script, direction } = execution
  const ending: Ending = { status: direction === 'up' ? 'completed' : 'rolled_back', ...success }
  await storeEnding(tx, script.version, ending)
  if (runner.requester !== undefined) await appendEvent(tx, runner.requester, eventOf(execution))
  return ending
}

function eventOf({ script: { version }, direction, batch, reason }: ScriptExecution): DomainEvent {
  return direction === 'up'
    ? { type: 'migration.run', data: { version, batch } }
    : { type: 'migration.rolled_back', data: { version, ...(reason !== undefined && { reason }) } }
}

const progressMs = 10_000

/** Tells every ten seconds that a long one is still at it. */
function reportProgress(
  runner: MigrationRunner,
  { script, direction, place = '1 of 1' }: ScriptExecution,
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

type ContextRunner = Pick<MigrationRunner, 'session' | 'config' | 'env'> & { readonly planned?: Planned }

/** The context of a script's functions. `db` is its transaction, or its session without one. */
function contextOf(
  runner: ContextRunner,
  script: LoadedScript,
  { db, keep }: HandedOut,
  log: MigrationContext['log'],
): MigrationContext {
  return {
    db,
    sql: (text, values) => db.any(rawQuery(text, values)),
    schemaManager: script.isSystem ? manager : managerFor(runner, script, keep),
    env: runner.env,
    log,
  }
}

/**
 * The manager as this installation's collections need it: with MULTI_TENANT they get their tenant. A script without a
 * transaction gets one for each change, since a definition and its table must change together.
 */
function managerFor(
  { session, config, planned }: ContextRunner,
  script: LoadedScript,
  keep: HandedOut['keep'],
): typeof manager {
  const defaults = { multiTenant: config.tenancy.enabled }
  const actor = { ...systemActor, userAgent: `migration ${script.version}` }
  const within = <T>(tx: Tx, work: (tx: Tx) => Promise<T>): Promise<T> =>
    keep(script.transaction === false ? session.transaction(actor, work) : work(tx))
  return {
    ...manager,
    changeDefinitions: (db, edit, options = defaults) =>
      within(db, (tx) => manager.changeDefinitions(tx, edit, options)),
    changeByDifference: (db, change, options = defaults) =>
      within(db, (tx) =>
        planned === undefined
          ? manager.changeByDifference(tx, change, options)
          : planDifference(tx, planned, change, options),
      ),
    executeChange: (db, edit, options = defaults, guard = undefined) =>
      within(db, (tx) => manager.executeChange(tx, edit, options, guard)),
    createCollections: (db, definitions, options = defaults) =>
      within(db, (tx) => manager.createCollections(tx, definitions, options)),
    updateCollection: (db, definition, options = defaults) =>
      within(db, (tx) => manager.updateCollection(tx, definition, options)),
    deleteCollection: (db, name, options = defaults) => within(db, (tx) => manager.deleteCollection(tx, name, options)),
    adoptCollection: (db, definition) => within(db, (tx) => manager.adoptCollection(tx, definition)),
    adoptTenants: (db) => within(db, manager.adoptTenants),
    renewLogFunctions: (db) => within(db, manager.renewLogFunctions),
  }
}

async function planDifference(tx: Tx, planned: Planned, change: DefinitionChange, options: CatalogOptions) {
  const { definitions: stored, changed } = planned
  const present = { stored, hasRows: (collection: string) => !changed.has(collection) }
  const plan = await manager.previewDifference(tx, present, change, options)
  planned.definitions = listOf(plan.next)
  for (const { collection } of plan.changes) changed.add(collection)
  return plan.changes
}

/**
 * Gives an installation from before migrations were recorded, which has svc_User and no svc_Migration, that table, and
 * records every script up to MIGRATIONS_UPGRADE_BASELINE as done without a run. By default and for `true` this is the
 * newest of the program's own. Does nothing to any other database.
 *
 * @throws ConfigError for a version that is none, and for a database whose svc_User is not the program's
 */
export async function createBaseline({ session, config, log }: MigrationRunner): Promise<void> {
  if (!(await isUpgrade(session))) return
  await checkSchema(session)
  const scripts = await loadScripts(config)
  const baseline = baselineOf(config, scripts)
  const done = scripts.filter(({ version }) => compareVersions(version, baseline) <= 0)
  await session.transaction({ ...systemActor, userAgent: 'migration baseline' }, async (tx) => {
    await createTable(tx)
    for (const script of done) await storeCompleted(tx, script, { baseline, ...(script.isSystem && ranBy) })
    if (!done.some(({ version }) => version === baseline)) await storeBaseline(tx, baseline)
  })
  log.info({ version: baseline }, `upgraded installation: ${done.length} migrations up to ${baseline} count as done`)
}

async function isUpgrade(db: Reader): Promise<boolean> {
  const { upgrade } = await db.one<{ upgrade: boolean }>(
    sql`select to_regclass('"svc_User"') is not null and to_regclass('"svc_Migration"') is null as upgrade`,
  )
  return upgrade
}

/** Records cannot replace these: collections, log and the functions of their triggers. */
async function checkSchema(db: Reader): Promise<void> {
  const { ours } = await db.one<{ ours: boolean }>(sql`
    select to_regclass('"svc_SchemaDefinition"') is not null and to_regclass('"svc_AuditLog"') is not null
           and to_regprocedure('svc_notify()') is not null as ours`)
  if (!ours)
    throw new ConfigError(
      'DATABASE_URL: this database has a table svc_User without the schema of Daybook around it: set up an empty database and import the data',
    )
}

function baselineOf({ migrations }: Config, scripts: readonly LoadedScript[]): string {
  const { upgradeBaseline } = migrations
  if (typeof upgradeBaseline !== 'string') return scripts.findLast(({ isSystem }) => isSystem)!.version
  if (isVersion(upgradeBaseline)) return upgradeBaseline
  throw new ConfigError(
    'MIGRATIONS_UPGRADE_BASELINE: this is neither true nor a version like 0.1.0 or 20241224_001_add_column',
  )
}

/** A definition that outlived its table describes nothing. */
async function createTable(tx: Tx): Promise<void> {
  await tx.any(sql`delete from "svc_SchemaDefinition" where "collectionName" = 'svc_Migration'`)
  await createCollections(
    tx,
    systemCollections.filter(({ collectionName }) => collectionName === 'svc_Migration'),
  )
}

/**
 * Refuses a database that a newer program has set up: it has system migrations that this program does not know, and so
 * changes that this program does not know.
 *
 * @throws {ConfigError}
 */
export async function refuseNewer(db: Reader): Promise<void> {
  if (!(await hasMigrationTable(db))) return
  const rows = await db.any<{ version: string; name: string; program: string }>(sql`
    select version, name, metadata->>'setUpBy' as program from "svc_Migration"
    where status = 'completed' and metadata->>'setUpBy' is not null order by version`)
  const known = systemVersions()
  const unknown = rows.filter((row) => isInitialRelease(row.version) && !known.has(row.version) && !isDeveloped(row))
  if (unknown.length === 0) return
  throw new ConfigError(
    `DATABASE_URL: Daybook ${unknown.at(-1)!.program} has set this database up (migration ${unknown.map(({ version }) => version).join(', ')}), and this is ${packageJson.version}: run the newer version again, or restore the backup from before the upgrade (docs/upgrade.md)`,
  )
}

/** The migrations of the development versions, in their order: 0.1.0 is all of them at once. */
const developed: ReadonlyMap<string, string> = new Map([
  ['0.1.0', 'schema'],
  ['0.1.1', 'log consumers'],
  ['0.1.2', 'webhooks'],
  ['0.1.3', 'requests of the log'],
  ['0.1.4', 'log seals'],
  ['0.1.5', 'files'],
  ['0.1.7', 'workflows'],
  ['0.1.10', 'oauth'],
  ['0.1.12', 'scope_of_executions'],
  ['0.1.13', 'lineage'],
  ['0.1.14', 'preview'],
  ['0.1.17', 'views'],
  ['0.1.20', 'file usage'],
  ['0.1.21', 'parallel uploads'],
  ['0.1.22', 'row batches'],
  ['0.1.23', 'images in one go'],
])

/** The last of them: a database that has it has the schema of 0.1.0. */
const lastDeveloped = [...developed.keys()].at(-1)!

/** Whether a database whose newest migration is this one lacks some of the development migrations. */
export const isPartlyDeveloped = (newest: string): boolean =>
  developed.has(newest) && newest !== lastDeveloped && newest !== '0.1.0'

/** The name of 0.1.0 in databases that only the first development versions have set up. */
const firstName = 'system schema'

/** The development migrations that a database of a development version lacks; none for every other database. */
function missingDeveloped(rows: readonly Pick<MigrationRow, 'version' | 'name' | 'status'>[]): readonly string[] {
  const ofThem = rows.filter(isDeveloped)
  const done = new Set(
    ofThem.flatMap(({ version, name, status }) =>
      status === 'completed' && developed.get(version) === name ? version : [],
    ),
  )
  return ofThem.length === 0 ? [] : [...developed.keys()].filter((version) => !done.has(version))
}

/**
 * Recognises a database that all development migrations have made: it has the schema of 0.1.0, and only that is recorded
 * from then on. Does nothing to any other database.
 *
 * @throws ConfigError for a database that lacks some of them, and changes nothing
 */
export async function adoptDeveloped({ session, log }: MigrationRunner): Promise<void> {
  const rows = (await hasMigrationTable(session)) ? await storedRows(session) : []
  const ofThem = rows.filter(isDeveloped)
  if (ofThem.length === 0) return
  const missing = missingDeveloped(rows)
  if (missing.length > 0)
    throw new ConfigError(
      `DATABASE_URL: a development version made this database, and its migrations ${missing.join(', ')} are missing: set it up once with the last development version, whose newest migration is ${lastDeveloped}, or set up an empty database and import the data`,
    )
  const { version, name, description, checksum } = (await loadSystemScripts())[0]!
  const replaced = ofThem.map((row) => row.version).filter((other) => other !== version)
  await session.transaction({ ...systemActor, userAgent: 'migration baseline' }, async (tx) => {
    await tx.any(sql`delete from "svc_Migration" where version = any(${sql.array(replaced, 'text')})`)
    await tx.any(sql`
      update "svc_Migration" set name = ${name}, description = ${description ?? null}, checksum = ${checksum}, "updatedAt" = now()
      where version = ${version}`)
  })
  log.info({ version }, `the ${developed.size} migrations of the development versions count as ${version}`)
}

function isDeveloped({ version, name }: Pick<MigrationRow, 'version' | 'name'>): boolean {
  return developed.get(version) === name || (version === '0.1.0' && name === firstName)
}
