import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.3.0'
export const name = 'idempotency keys'
export const description = 'Answers of requests that may be repeated, and the refusal of references that lead nowhere.'
export const type = 'upgrade'

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of [...keys, refer]) await sql(statement)
  return { success: true }
}

export async function down({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql('drop table "svc_IdempotencyKey"')
  await sql('drop function svc_refer')
  return { success: true }
}

// One row per commit of a request, written by that commit; the first one holds the answer too. Not a collection.
const keys = [
  `create table "svc_IdempotencyKey" (
    caller text not null,
    key text not null,
    step smallint not null,
    fingerprint text not null,
    result text,
    status smallint,
    "contentType" text,
    body text,
    "expiresAt" timestamptz not null,
    primary key (caller, key, step)
  )`,
  `create index "svc_IdempotencyKey_expiresAt_idx" on "svc_IdempotencyKey" ("expiresAt")`,
]

// Ends a statement that points at a row which is missing or not the caller's to see; the message is the relation.
const refer = `create function svc_refer(allowed boolean, relation text) returns boolean language plpgsql as $$
  begin
    if allowed then return true; end if;
    raise exception using errcode = 'SV400', message = relation;
  end
$$`
