import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'
import { misfitsSql } from '../src/events/log-table.ts'

export const version = '0.1.27'
export const name = 'images that fit'
export const description = 'Tells which values of the log no longer fit their columns, so that the others can be read.'
export const type = 'upgrade'

/** A fresh database has the function already. */
export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql(misfitsSql)
  return { success: true }
}
