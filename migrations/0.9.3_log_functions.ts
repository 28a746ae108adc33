import { renewLogFunctions } from '../src/catalog/log-functions.ts'
import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.9.3'
export const name = 'log functions'
export const description = 'Appending to the log costs less where one row is written.'
export const type = 'upgrade'

export async function up({ db }: MigrationContext): Promise<MigrationResult> {
  await renewLogFunctions(db)
  return { success: true }
}
