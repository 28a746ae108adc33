import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.4.0'
export const name = 'code tries'
export const description = 'How many one-time codes may still be guessed. Not a collection.'
export const type = 'upgrade'

/** Logged to the WAL, unlike other counters: a crash of the server must not give a guesser new tries. */
export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql(`create table "svc_CodeTry" (
    key text primary key,
    "left" integer not null,
    "endsAt" timestamptz not null
  ) with (fillfactor = 70)`)
  await sql(`create index "svc_CodeTry_endsAt_idx" on "svc_CodeTry" ("endsAt")`)
  return { success: true }
}

export async function down({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql('drop table "svc_CodeTry"')
  return { success: true }
}
