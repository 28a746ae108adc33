import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'

export const version = '0.1.23'
export const name = 'images in one go'
export const description = 'Makes the image of a created or deleted row in one go, which costs bulk writes less.'
export const type = 'upgrade'

export async function up({ db, schemaManager }: MigrationContext): Promise<MigrationResult> {
  await schemaManager.renewLogFunctions(db)
  return { success: true }
}
