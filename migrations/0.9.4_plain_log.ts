import { renewLogFunctions } from '../src/catalog/log-functions.ts'
import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'
import { plainLogColumnsSql } from '../src/events/log-table.ts'

export const version = '0.9.4'
export const name = 'plain log'
export const description = 'The log without generated columns and with an index less: a write costs less.'
export const type = 'upgrade'

export async function up({ db, sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of plainLogColumnsSql()) await sql(statement)
  await renewLogFunctions(db)
  return { success: true }
}
