/** Migrations: scripts that change an installation's database in the order of their versions, and the record of them. */
export { adoptDeveloped, createBaseline, isPartlyDeveloped, refuseNewer } from './baseline.ts'
export { createMigration, migrationScript } from './create.ts'
export { lintSql, type MigrationFinding, readSubject } from './lint.ts'
export { type MigrationRecord, pendingOf, statusOf } from './records.ts'
export {
  migrateAtStart,
  newestSystemVersion,
  type Preview,
  pendingSystemMigrations,
  previewRun,
  previewSql,
  rollbackBatch,
  rollbackOne,
  runMigrations,
  runSystemMigrations,
} from './run.ts'
export { type MigrationHost, type MigrationRunner, readOnce, withRunner } from './runner.ts'
export { migrationTypes } from './scripts.ts'
