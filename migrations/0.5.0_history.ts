import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'
import { historySql } from '../src/events/log-table.ts'

export const version = '0.5.0'
export const name = 'history'
export const description = 'How far back the log reaches, and the check of every read of the past.'
export const type = 'upgrade'

// Events that are gone already were older than all that are left.
export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of historySql()) await sql(statement)
  await sql(`update svc_log.floor set "upTo" = coalesce((select min("createdAt") from "svc_AuditLog"), now())
    where removed > '0' and "upTo" = '-infinity'`)
  return { success: true }
}

export async function down({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql('drop function svc_log.reach(xid8, xid8, timestamptz)')
  await sql('alter table svc_log.floor drop column "upTo"')
  return { success: true }
}
