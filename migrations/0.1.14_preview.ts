import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'

export const version = '0.1.14'
export const name = 'preview'
export const description = 'What an administrator looks at in a session: the view of a user, or of a role.'
export const type = 'upgrade'

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  // No collection, and beside the session: gone with it. It outlives what it names, so that a preview of somebody who was
  // deleted does not silently become the administrator's own view.
  await sql(`create table if not exists "svc_Preview" (
    "session_Id" uuid primary key references "svc_Sessions" (id) on delete cascade,
    "user_Id" uuid,
    "role_Id" uuid,
    "tenant_Id" uuid,
    "startedAt" timestamptz not null default now(),
    check (num_nonnulls("user_Id", "role_Id") = 1)
  )`)
  return { success: true }
}
