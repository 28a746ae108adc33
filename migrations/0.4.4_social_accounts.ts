import { systemCollections } from '../src/catalog/system-collections.ts'
import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.4.4'
export const name = 'social accounts'
export const description = 'One account per identity at a provider.'
export const type = 'upgrade'

/** Changes nothing where the system schema has brought the index already. */
export async function up({ db, schemaManager }: MigrationContext): Promise<MigrationResult> {
  const definition = systemCollections.find(({ collectionName }) => collectionName === 'svc_Account')
  await schemaManager.updateCollection(db, definition!)
  return { success: true }
}
