import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'
import { consumerTablesSql } from '../src/events/log-table.ts'

export const version = '0.1.1'
export const name = 'log consumers'
export const description = 'Where each consumer of the log is, and what it has set aside.'
export const type = 'upgrade'

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of consumerTablesSql()) await sql(statement)
  return { success: true }
}
