/** What a migration script of the user's is given and gives back (docs/migrations.md): `daybook/migrations`. */
export type { MigrationContext, MigrationResult, MigrationScript, MigrationType } from '../events/direct-session.ts'
