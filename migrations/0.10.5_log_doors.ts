import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'
import { logGuardSql } from '../src/events/log-table.ts'

export const version = '0.10.5'
export const name = 'log doors'
export const description = 'The guard of the log opens to the text of a statement, and no longer to a setting.'
export const type = 'upgrade'

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of logGuardSql()) await sql(statement)
  return { success: true }
}
