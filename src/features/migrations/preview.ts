import { type DirectSession, openDirectSession } from '../../db/migrate.ts'
import { sql } from '../../db/sql.ts'
import { type Finding, lintSql } from './lint.ts'
import type { Subject } from './lint-rules.ts'
import { joined, type MigrationRecord, type Runnable, type Selection, selectRun } from './migrations.ts'
import { storedRows } from './queries.ts'
import { type Recording, recordUp } from './recording.ts'
import type { RunResult } from './run.ts'
import type { Host } from './runner.ts'
import { loadScripts } from './scripts.ts'
import { readSubject } from './subject.ts'

/** A dry run's record with the SQL that `up` would execute and what that would stop. */
export type Preview = MigrationRecord & {
  readonly sql: Recording['statements']
  readonly sqlProblem: string | null
  readonly findings: readonly Finding[]
}

export type PreviewResult = { readonly results: readonly Preview[]; readonly summary: RunResult['summary'] }

/**
 * A dry run that shows SQL: every selected script's statements, recorded without being executed, and the linter's
 * findings about them. Each script is read against the database as it is now, without the ones before it.
 */
export async function previewSql(host: Host, selection: Selection): Promise<PreviewResult> {
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
  host: Host,
  session: DirectSession,
  { record, script }: Runnable,
  subject: Omit<Subject, 'inTransaction'>,
): Promise<Preview> {
  const { statements, problem = null } = await recordUp(host, session, script)
  const findings = await lintSql(statements, { ...subject, inTransaction: script.transaction !== false })
  const metadata = { ...record.metadata, dryRun: true }
  return { ...record, metadata, sql: statements, sqlProblem: problem, findings }
}
