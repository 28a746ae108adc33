import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.4.1'
export const name = 'ends of sessions'
export const description = 'Sessions end with what they stand on, and know when they were last used.'
export const type = 'upgrade'

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of [...lastUse, ...ends]) await sql(statement)
  return { success: true }
}

/** The column stays: the definition of a new installation has it. */
export async function down({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql('drop trigger svc_end_sessions on "svc_User"')
  await sql('drop trigger svc_end_sessions on "svc_UserRole"')
  await sql('drop function svc_end_sessions_of_user, svc_end_sessions_of_role')
  return { success: true }
}

// New installations have the column since their first migration.
const lastUse = [
  `alter table "svc_Sessions" add column if not exists "lastUsedAt" timestamptz`,
  `update "svc_SchemaDefinition"
   set schema = jsonb_set(schema::jsonb, '{fields,lastUsedAt}', '{"type": "DateTime", "SystemGenerated": "true"}')
   where "collectionName" = 'svc_Sessions' and schema::jsonb #> '{fields,lastUsedAt}' is null`,
]

// An ended session stays ended: without these, one of a suspended user would live again when the user is reinstated.
const ends = [
  `create function svc_end_sessions_of_user() returns trigger language plpgsql as $$
     begin delete from "svc_Sessions" where "user_Id" = old.id; return null; end
   $$`,
  `create trigger svc_end_sessions after update of status on "svc_User"
   for each row when (old.status = 'active' and new.status is distinct from 'active')
   execute function svc_end_sessions_of_user()`,
  `create function svc_end_sessions_of_role() returns trigger language plpgsql as $$
     begin
       if tg_op = 'UPDATE' and (old."user_Id", old."tenant_Id") is not distinct from (new."user_Id", new."tenant_Id") then
         return null;
       end if;
       delete from "svc_Sessions" where "user_Id" = old."user_Id" and "tenant_Id" is not distinct from old."tenant_Id";
       return null;
     end
   $$`,
  `create trigger svc_end_sessions after delete or update of "user_Id", "tenant_Id" on "svc_UserRole"
   for each row execute function svc_end_sessions_of_role()`,
]
