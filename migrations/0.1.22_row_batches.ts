import { oneByOneSql } from '../src/catalog/log-triggers.ts'
import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'
import { consumerTablesSql, lineageSql } from '../src/events/log-table.ts'

export const version = '0.1.22'
export const name = 'row batches'
export const description = 'Lets one statement write rows of several requests, each logged as its own.'
export const type = 'upgrade'

export async function up({ db, sql, schemaManager }: MigrationContext): Promise<MigrationResult> {
  // Functions whose names no collection's function can have.
  for (const statement of [oneByOneSql, ...lineageSql(), ...consumerTablesSql()]) await sql(statement)
  await schemaManager.renewLogFunctions(db)
  return { success: true }
}
