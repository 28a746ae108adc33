import { systemCollections } from '../src/catalog/system-collections.ts'
import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.4.3'
export const name = 'factors and keys'
export const description = 'Two-factor enrolments, passkeys, API keys, and the challenges of signing in.'
export const type = 'upgrade'

const collections = ['svc_TwoFactor', 'svc_Passkey', 'svc_ApiKey']

/** A database that was set up with these collections in the system schema has them already. */
export async function up({ db, sql, schemaManager }: MigrationContext): Promise<MigrationResult> {
  const rows = await sql(
    'select "collectionName" as name from "svc_SchemaDefinition" where "collectionName" = any($1)',
    [collections],
  )
  const known = new Set((rows as readonly { name: string }[]).map((row) => row.name))
  const missing = systemCollections.filter(
    ({ collectionName }) => collections.includes(collectionName) && !known.has(collectionName),
  )
  if (missing.length > 0) await schemaManager.createCollections(db, missing)
  for (const statement of statements) await sql(statement)
  return { success: true }
}

const statements = [
  // Not a collection: five minutes of a sign-in, read by nobody but the sign-in itself.
  `create table "svc_Challenge" (
    identifier text primary key,
    "user_Id" uuid references "svc_User" (id) on delete cascade,
    data jsonb not null,
    attempts smallint not null default 0,
    "expiresAt" timestamptz not null
  )`,
  `create index "svc_Challenge_expiresAt_idx" on "svc_Challenge" ("expiresAt")`,
  `create index "svc_Challenge_user_idx" on "svc_Challenge" ("user_Id")`,
  // A revoked key must be forgotten everywhere like an ended session.
  `create trigger svc_notify_delete after delete on "svc_ApiKey" referencing old table as changed
   for each statement execute function svc_notify_sessions('session', 'id')`,
]
