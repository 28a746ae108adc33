import { toStored } from '../src/catalog/definitions.ts'
import { systemCollections } from '../src/catalog/system-definitions.ts'
import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'
import { requestColumnsSql } from '../src/events/log-table.ts'

export const version = '0.1.3'
export const name = 'requests of the log'
export const description = 'The log has its own id of each request, the agent that made it, and what caused it.'
export const type = 'upgrade'

export async function up({ db, sql, schemaManager }: MigrationContext): Promise<MigrationResult> {
  for (const statement of requestColumnsSql()) await sql(statement)
  await schemaManager.renewLogFunctions(db)
  const { schema } = systemCollections.find(({ collectionName }) => collectionName === 'svc_AuditLog')!
  // A database that is made today has it already.
  await sql(
    `update "svc_SchemaDefinition" set schema = $1::jsonb, "updatedAt" = now()
     where "collectionName" = 'svc_AuditLog' and schema is distinct from $1::jsonb`,
    [JSON.stringify(toStored(schema))],
  )
  return { success: true }
}
