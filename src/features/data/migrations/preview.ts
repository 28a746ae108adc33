import { readerOf } from '../../../db/pools.ts'
import { rawQuery, sql, type Tx } from '../../../db/sql.ts'
import { type DirectSession, openDirectSession } from '../../../events/direct-session.ts'
import { systemActor } from '../../../events/types.ts'
import { contextOf } from './execute.ts'
import { lintSql, type MigrationFinding, readSubject } from './lint.ts'
import type { LintSubject } from './lint-rules.ts'
import { storedRows } from './queries.ts'
import { joined, type MigrationRecord, type MigrationSelection, type Runnable, selectRun } from './records.ts'
import type { RunResult } from './run.ts'
import type { MigrationHost } from './runner.ts'
import { type LoadedScript, loadScripts } from './scripts.ts'

/** A dry run's record with the SQL that `up` would execute and what that would stop. */
export type Preview = MigrationRecord & {
  readonly sql: RecordedRun['statements']
  readonly sqlProblem: string | null
  readonly findings: readonly MigrationFinding[]
}

type PreviewResult = { readonly results: readonly Preview[]; readonly summary: RunResult['summary'] }

/**
 * A dry run that shows SQL: every selected script's statements, recorded without being executed, and the linter's
 * findings about them. Each script is read against the database as it is now, without the ones before it.
 */
export async function previewSql(host: MigrationHost, selection: MigrationSelection): Promise<PreviewResult> {
  const session = await openDirectSession(host.config)
  try {
    const lockTimeout = String(host.config.migrations.lockTimeoutMs)
    await session.any(sql.unsafe`select set_config('lock_timeout', ${lockTimeout}, false)`)
    const selected = selectRun(joined(await loadScripts(host.config), await storedRows(session)), selection)
    const subject = await readSubject(session, host.config)
    const results: Preview[] = []
    for (const migration of selected) results.push(await preview(host, session, migration, subject))
    return { results, summary: { total: results.length, completed: 0, failed: 0 } }
  } finally {
    await session.close()
  }
}

async function preview(
  host: MigrationHost,
  session: DirectSession,
  { record, script }: Runnable,
  subject: Omit<LintSubject, 'inTransaction'>,
): Promise<Preview> {
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
 * against anybody and nothing is stored; but the script's own code runs, hence only for who asks for SQL.
 */
async function recordUp(host: MigrationHost, session: DirectSession, script: LoadedScript): Promise<RecordedRun> {
  const statements: string[] = []
  return session.transaction(systemActor, async (tx) => {
    // For the session too, so that a script that ends the transaction does not get another kind of it.
    await tx.any(sql.unsafe`select set_config('default_transaction_read_only', 'on', false)`)
    await tx.any(sql.unsafe`set transaction read only`)
    const recording: Tx = { ...readerOf((text, values) => tried(tx, statements, text, values)), isTransaction: true }
    const runner = { ...host, session: { ...session, transaction: recordedBy(recording) } }
    const problem = await problemOf(() => script.up(contextOf(runner, script, recording, () => undefined)))
    return { statements, problem }
  })
}

async function tried(tx: Tx, statements: string[], text: string, values: readonly unknown[]) {
  await tx.any(sql.unsafe`savepoint recording`)
  try {
    return { rows: [...(await tx.any<unknown>(rawQuery(text, values)))] }
  } catch {
    // Refused because it writes, or because it builds on what was refused before: either way it belongs to the script.
    await tx.any(sql.unsafe`rollback to savepoint recording`)
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
