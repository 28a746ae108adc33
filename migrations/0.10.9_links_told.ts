import { renewLogFunctions } from '../src/catalog/log-functions.ts'
import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.10.9'
export const name = 'links told'
export const description = 'A change of many-to-many links is told as a change of the items that they link.'
export const type = 'upgrade'

export async function up({ db }: MigrationContext): Promise<MigrationResult> {
  await renewLogFunctions(db)
  return { success: true }
}
