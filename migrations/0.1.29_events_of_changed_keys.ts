import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'

export const version = '0.1.29'
export const name = 'events of changed keys'
export const description = 'Logs each row once where a statement and its cascades change it several times.'
export const type = 'upgrade'

/** A fresh database has the functions already. */
export async function up({ db, schemaManager }: MigrationContext): Promise<MigrationResult> {
  await schemaManager.renewLogFunctions(db)
  return { success: true }
}
