import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'
import { logIndexesSql } from '../src/events/log-table.ts'

export const version = '0.1.24'
export const name = 'index of requests'
export const description = 'Finds the events of a request by its id, however much others write at the same time.'
export const type = 'upgrade'

/** A fresh database has these indexes already. */
export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of logIndexesSql) await sql(statement)
  await sql('drop index if exists "svc_AuditLog_createdAt_action_idx"')
  return { success: true }
}
