import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'
import { logIndexesSql } from '../src/events/log-table.ts'

export const version = '0.1.25'
export const name = 'index of requests and times'
export const description =
  'Finds the events of a request by its id and its time in one index, whatever PostgreSQL expects of either.'
export const type = 'upgrade'

/** A fresh database has these indexes already. */
export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of logIndexesSql) await sql(statement)
  await sql('drop index if exists "svc_AuditLog_request_idx"')
  return { success: true }
}
