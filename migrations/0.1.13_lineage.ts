import { holdTableSql } from '../src/db/unlogged/holds.ts'
import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'
import { lineageSql } from '../src/events/log-table.ts'

export const version = '0.1.13'
export const name = 'lineage'
export const description =
  'The history of the database that cursors belong to, what is held, and the backups that were made.'
export const type = 'upgrade'

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of [...lineageSql(), ...tables]) await sql(statement)
  return { success: true }
}

const tables = [
  holdTableSql,
  `create table if not exists svc_log.backup (
    id uuid primary key,
    place text not null,
    "startedAt" timestamptz not null default clock_timestamp(),
    "endedAt" timestamptz,
    bytes bigint,
    error text
  )`,
]
