import type { Catalog } from '../src/catalog/catalog.ts'
import { type Definitions, definitionsOf, withSchema } from '../src/catalog/definitions.ts'
import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.6.0'
export const name = 'settings'
export const description = "A tenant's settings may leave every key to the installation; no two have one app_url."
export const type = 'upgrade'

/** Keys that had to have a value, so that a tenant could not inherit them. */
const inherited = ['project_name', 'smtp_enabled', 'smtp_secure']

export async function up({ db, sql, schemaManager }: MigrationContext): Promise<MigrationResult> {
  await schemaManager.changeDefinitions(db, optionalKeys)
  await sql(`alter table "svc_Settings" add constraint "svc_Settings_installation_complete" check
    ("tenant_Id" is not null or (project_name is not null and smtp_enabled is not null and smtp_secure is not null))`)
  await sql('create unique index "svc_Settings_app_url_unique" on "svc_Settings" (lower(app_url))')
  return { success: true }
}

function optionalKeys(catalog: Catalog): Definitions {
  const definitions = definitionsOf(catalog)
  const schema = definitions.get('svc_Settings')!
  const fields = { ...schema.fields }
  for (const key of inherited) {
    const { allowNull: _, ...field } = fields[key]!
    fields[key] = field
  }
  return withSchema(definitions, 'svc_Settings', { ...schema, fields })
}
