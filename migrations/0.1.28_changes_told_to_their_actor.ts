import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'
import { notifySql } from './schema/notifications.ts'

export const version = '0.1.28'
export const name = 'changes told to their actor'
export const description = 'Tells who changes roles, permissions, settings or collections that they have changed.'
export const type = 'upgrade'

/** A fresh database has the function already. */
export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql(notifySql)
  return { success: true }
}
