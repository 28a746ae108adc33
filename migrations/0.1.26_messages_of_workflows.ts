import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'
import { messagesSql } from './schema/workflows.ts'

export const version = '0.1.26'
export const name = 'messages of workflows'
export const description = 'Keeps the id of a signed message with the execution that it began, so it begins no other.'
export const type = 'upgrade'

/** A fresh database has the table already. */
export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of messagesSql) await sql(statement)
  return { success: true }
}
