import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.6.1'
export const name = 'development mail'
export const description = 'What the development inbox shows. Not a collection, and empty in production.'
export const type = 'upgrade'

// Apart from svc_EmailLog, because these texts hold the secrets that the database otherwise never sees.
export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql(`create unlogged table "svc_DevelopmentMail" (
    "emailLogId" uuid primary key references "svc_EmailLog" (id) on delete cascade,
    subject text not null,
    html text not null,
    text text not null,
    "keptAt" timestamptz not null default now()
  )`)
  return { success: true }
}

export async function down({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql('drop table "svc_DevelopmentMail"')
  return { success: true }
}
