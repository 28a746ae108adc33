import { systemCollections } from '../src/catalog/system-collections.ts'
import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.10.4'
export const name = 'pages'
export const description = 'Collections for the pages of a user interface and their blocks.'
export const type = 'upgrade'

const added = ['svc_Page', 'svc_Block']

// An empty database has them already: its first migration creates every collection of this version.
export async function up({ db, sql, schemaManager }: MigrationContext): Promise<MigrationResult> {
  const stored = await sql('select "collectionName" from "svc_SchemaDefinition"')
  const known = new Set((stored as readonly { collectionName: string }[]).map((row) => row.collectionName))
  const missing = systemCollections.filter(
    ({ collectionName }) => added.includes(collectionName) && !known.has(collectionName),
  )
  if (missing.length > 0) await schemaManager.createCollections(db, missing)
  return { success: true }
}
