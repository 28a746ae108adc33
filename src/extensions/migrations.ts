/** The context and the result of a user's migration script (docs/migrations.md): `daybook/migrations`. */
export type { MigrationContext, MigrationResult, MigrationScript, MigrationType } from '../events/direct-session.ts'
