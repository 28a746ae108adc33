import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'
import { sealTablesSql } from '../src/events/seals/seals.ts'

export const version = '0.1.4'
export const name = 'log seals'
export const description = 'The chain of seals over the log.'
export const type = 'upgrade'

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of sealTablesSql()) await sql(statement)
  return { success: true }
}
