import { AppError } from '../../errors.ts'
import { appendEvent } from '../../events/commit.ts'
import { type DomainEvent, systemActor } from '../../events/types.ts'
import { findMigration, type MigrationRecord, type Runnable, runnable, selectRun } from './migrations.ts'
import { storeCompleted } from './queries.ts'
import { type RunResult, recordsOf, summaryOf } from './run.ts'
import { migrationsOf, type Runner } from './runner.ts'

/**
 * Records a migration as done without running it.
 *
 * @throws AppError 404 for an unknown version, 409 unless it is pending or rolled back
 */
export async function markCompleted(runner: Runner, version: string, metadata: object): Promise<MigrationRecord> {
  const migration = runnable(findMigration(await migrationsOf(runner), version))
  if (migration.script.isSystem) throw new AppError(409, `Migration ${version} belongs to the program: setup runs it`)
  return mark(runner, migration, metadata)
}

/** Records every pending migration of the user, up to one if that is named, as done. 400 for an unknown one. */
export async function markAllCompleted(runner: Runner, toVersion: string | undefined): Promise<RunResult> {
  const selected = selectRun(await migrationsOf(runner), { toVersion }).filter(({ script }) => !script.isSystem)
  const results: MigrationRecord[] = []
  for (const migration of selected) results.push(await mark(runner, migration, {}))
  return { results, summary: summaryOf(results, 'completed') }
}

async function mark(runner: Runner, { script, record }: Runnable, metadata: object): Promise<MigrationRecord> {
  const { version } = script
  const event: DomainEvent = { type: 'migration.marked_completed', data: { version } }
  await runner.session.transaction({ ...systemActor, userAgent: `migration ${version}` }, async (tx) => {
    await storeCompleted(tx, script, metadata)
    await appendEvent(tx, runner.requester ?? systemActor, event)
  })
  const [after] = await recordsOf(runner, [{ script, record }])
  return after!
}
