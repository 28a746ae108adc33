import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.4.2'
export const name = 'rate limits'
export const description = 'Counters that all processes share. Not a collection.'
export const type = 'upgrade'

// Unlogged: what a crash of the server would lose is a few minutes of counting, and each count costs no WAL. Room in
// the pages lets a count be updated in place. `added` is what the last statement has brought (db/unlogged.ts).
export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql(`create unlogged table "svc_RateLimit" (
    key text primary key,
    count bigint not null,
    added integer not null,
    "endsAt" timestamptz not null
  ) with (fillfactor = 70)`)
  await sql(`create index "svc_RateLimit_endsAt_idx" on "svc_RateLimit" ("endsAt")`)
  return { success: true }
}

export async function down({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql('drop table "svc_RateLimit"')
  return { success: true }
}
