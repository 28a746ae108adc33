import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.9.2'
export const name = 'write marks'
export const description = 'How far a read replica must be to show somebody the own writes. Not a collection.'
export const type = 'upgrade'

// Unlogged: a mark costs no WAL, and after a crash of the server, which empties it, the missing row `floor` says so: then
// only the primary answers until there is one again (db/write-marks.ts).
export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql(`create unlogged table "svc_WriteMark" (
    caller text primary key,
    position bigint not null,
    "notedAt" timestamptz not null default clock_timestamp()
  ) with (fillfactor = 70)`)
  return { success: true }
}

export async function down({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql('drop table "svc_WriteMark"')
  return { success: true }
}
