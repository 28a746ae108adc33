import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.2.1'
export const name = 'system rules'
export const description = 'The named rules that every installation has (spec/permissions.md §4).'
export const type = 'data'

const own = { userCreated_Id: { eq: '$CURRENT_USER' } }

const rules = [
  { name: 'Read_All', description: 'Every item', conditions: {} },
  { name: 'Read_Own', description: 'Items that the caller has created', conditions: own },
  { name: 'Update_Own', description: 'Items that the caller has created', conditions: own },
  { name: 'Delete_Own', description: 'Items that the caller has created', conditions: own },
  {
    name: 'Own_Tenant',
    description: "Items of the caller's tenant",
    conditions: { tenant_Id: { eq: '$CURRENT_TENANT' } },
  },
]

/** A rule of somebody's own with one of these names keeps it: permissions refer to rules by id. */
export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const { name, description, conditions } of rules)
    await sql(
      `insert into "svc_ACL" (name, description, fields, conditions, system) values ($1, $2, '["*"]', $3::jsonb, true)
       on conflict (name) do nothing`,
      [name, description, JSON.stringify(conditions)],
    )
  return { success: true }
}
