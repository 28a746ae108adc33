import { renewLogFunctions } from '../src/catalog/log-functions.ts'
import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.9.5'
export const name = 'one-row updates'
export const description = 'Appending to the log costs less where one row is changed.'
export const type = 'upgrade'

export async function up({ db }: MigrationContext): Promise<MigrationResult> {
  await renewLogFunctions(db)
  return { success: true }
}
