import { systemCollections } from '../src/catalog/system-collections.ts'
import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.8.1'
export const name = 'task order'
export const description = 'An index in the very order in which tasks are claimed.'
export const type = 'upgrade'

export async function up({ db, schemaManager }: MigrationContext): Promise<MigrationResult> {
  const tasks = systemCollections.find(({ collectionName }) => collectionName === 'svc_Tasks')!
  await schemaManager.updateCollection(db, tasks)
  return { success: true }
}
