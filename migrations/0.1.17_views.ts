import { readDefinitions } from '../src/catalog/store.ts'
import { systemCollections } from '../src/catalog/system-definitions.ts'
import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'

export const version = '0.1.17'
export const name = 'views'
export const description = 'What people have set pages of the console to, for themselves or for a role.'
export const type = 'upgrade'

export async function up({ db, schemaManager }: MigrationContext): Promise<MigrationResult> {
  const stored = new Set((await readDefinitions(db)).map(({ collectionName }) => collectionName))
  const missing = systemCollections.filter(({ collectionName }) => collectionName === 'svc_View')
  if (!stored.has('svc_View')) await schemaManager.createCollections(db, missing)
  return { success: true }
}
