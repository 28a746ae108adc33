import type { Reader } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { appendEvent } from '../../../events/commit.ts'
import { type DomainEvent, systemActor } from '../../../events/types.ts'
import { missingDeveloped } from './baseline.ts'
import { execute } from './execute.ts'
import { hasMigrationTable, lastBatch, storeCompleted, storedRows } from './queries.ts'
import {
  findMigration,
  joined,
  type Migration,
  type MigrationRecord,
  type MigrationSelection,
  pendingOf,
  type Runnable,
  runnable,
  selectRun,
} from './records.ts'
import {
  findInterrupted,
  finishRun,
  type MigrationHost,
  type MigrationRunner,
  migrationsOf,
  withRunner,
} from './runner.ts'
import { loadSystemScripts } from './scripts.ts'

export type RunResult = {
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
 * The step of a process's start after setup: with MIGRATIONS_AUTO_RUN it runs the pending migrations, after any process
 * that already does; without, it only finds interrupted ones.
 *
 * @throws AppError when one fails or has failed before: a process must not serve with a schema that it does not fit
 */
export async function migrateAtStart(host: MigrationHost): Promise<void> {
  if (!host.config.migrations.autoRun) return findInterrupted(host)
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
  const record = await rollback(runner, found as Runnable, reason)
  if (record.status === 'failed') throw rollbackFailed(version, record.errorMessage ?? 'it has failed')
  return record
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
    results.push(await rollback(runner, member as Runnable, reason))
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
  await execute(runner, { script, direction: 'down', batch: record.batch ?? 0, reason })
  const [after] = await recordsOf(runner, [{ script, record }])
  return after!
}

/** The records of these as they are now, in the given order. */
async function recordsOf({ session }: MigrationRunner, of: readonly Runnable[]): Promise<MigrationRecord[]> {
  if (of.length === 0) return []
  const now = joined(
    of.map(({ script }) => script),
    await storedRows(session),
  )
  return of.map(({ script }) => findMigration(now, script.version).record)
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
 * @throws AppError 404 for an unknown version, 409 unless it is pending or rolled back
 */
export async function markCompleted(
  runner: MigrationRunner,
  version: string,
  metadata: object,
): Promise<MigrationRecord> {
  const migration = runnable(findMigration(await migrationsOf(runner), version))
  if (migration.script.isSystem) throw new AppError(409, `Migration ${version} belongs to the program: setup runs it`)
  return mark(runner, migration, metadata)
}

/** Records every pending migration of the user, up to one if that is named, as done. 400 for an unknown one. */
export async function markAllCompleted(runner: MigrationRunner, toVersion: string | undefined): Promise<RunResult> {
  const selected = selectRun(await migrationsOf(runner), { toVersion }).filter(({ script }) => !script.isSystem)
  const results: MigrationRecord[] = []
  for (const migration of selected) results.push(await mark(runner, migration, {}))
  return { results, summary: summaryOf(results, 'completed') }
}

async function mark(runner: MigrationRunner, { script, record }: Runnable, metadata: object): Promise<MigrationRecord> {
  const { version } = script
  const event: DomainEvent = { type: 'migration.marked_completed', data: { version } }
  await runner.session.transaction({ ...systemActor, userAgent: `migration ${version}` }, async (tx) => {
    await storeCompleted(tx, script, metadata)
    await appendEvent(tx, runner.requester ?? systemActor, event)
  })
  const [after] = await recordsOf(runner, [{ script, record }])
  return after!
}
