import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'
import { insertSeedsSql, seedsJson } from '../src/features/templates/seeds.ts'

export const version = '0.6.2'
export const name = 'templates'
export const description = 'The mail templates that every installation starts with, as records.'
export const type = 'upgrade'

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql(insertSeedsSql, [seedsJson()])
  return { success: true }
}
