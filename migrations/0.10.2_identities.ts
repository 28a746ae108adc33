import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'
import { insertSeedsSql, seedsJson } from '../src/features/templates/seeds.ts'

export const version = '0.10.2'
export const name = 'identities'
export const description =
  'The last administrator stays; keys end with what they stand on, links and codes with the address they were mailed to.'
export const type = 'upgrade'

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of [...administrators, endsOfUser(everything), ...keys, ...addresses]) await sql(statement)
  await sql(insertSeedsSql, [seedsJson(['email_change', 'email_change_notice'])])
  return { success: true }
}

/** The templates stay, since somebody may have changed them; nothing sends them any more. */
export async function down({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql('drop trigger svc_keep_administrator on "svc_User"')
  await sql('drop trigger svc_keep_administrator_update on "svc_UserRole"')
  await sql('drop trigger svc_keep_administrator_delete on "svc_UserRole"')
  await sql('drop trigger svc_end_keys on "svc_UserRole"')
  await sql('drop trigger svc_end_secrets on "svc_User"')
  await sql('drop function svc_keep_administrator, svc_end_keys_of_role, svc_end_secrets_of_address')
  await sql(endsOfUser(sessions))
  return { success: true }
}

// Asked after the whole statement, and about memberships that go by a cascade too, so deleted users and tenants need no
// trigger of their own. Only whoever takes an administrator away asks who is left, and two who do so at the same time wait for
// each other: the second sees what the first has done. The role itself can't be deleted while anybody has it.
const administrators = [
  `create function svc_keep_administrator() returns trigger language plpgsql as $$
     declare
       administrator constant uuid := (select id from "svc_Role" where name = 'administrator');
     begin
       if tg_level = 'STATEMENT' then
         perform from gone where gone."role_Id" = administrator;
       elsif tg_table_name = 'svc_User' then
         perform from "svc_UserRole" ur where ur."user_Id" = old.id and ur."role_Id" = administrator;
       else
         perform from "svc_Role" r where r.id = old."role_Id" and r.id = administrator;
       end if;
       if not found then return null; end if;
       perform pg_advisory_xact_lock(hashtextextended('the last administrator', 0));
       perform from "svc_UserRole" ur join "svc_User" u on u.id = ur."user_Id"
       where ur."role_Id" = administrator and u.status = 'active' limit 1;
       if not found then raise exception using errcode = 'SV409', message = 'this is the last active administrator'; end if;
       return null;
     end
   $$`,
  `create trigger svc_keep_administrator after update of status on "svc_User"
   for each row when (old.status = 'active' and new.status is distinct from 'active')
   execute function svc_keep_administrator()`,
  `create trigger svc_keep_administrator_update after update of "user_Id", "role_Id" on "svc_UserRole"
   for each row when ((old."user_Id", old."role_Id") is distinct from (new."user_Id", new."role_Id"))
   execute function svc_keep_administrator()`,
  `create trigger svc_keep_administrator_delete after delete on "svc_UserRole" referencing old table as gone
   for each statement execute function svc_keep_administrator()`,
]

/** What the trigger of 0.4.1 does when a user is not active any more. */
const endsOfUser = (
  ends: string,
) => `create or replace function svc_end_sessions_of_user() returns trigger language plpgsql as $$
     begin ${ends} return null; end
   $$`

const sessions = 'delete from "svc_Sessions" where "user_Id" = old.id;'

const secretsOf = (...addresses: string[]) =>
  `delete from "svc_Verification" where identifier in (${addresses.flatMap((address) =>
    ['email-verification', 'magic-link', 'password-reset'].map((purpose) => `'${purpose}:' || ${address}`),
  )});`

const challenges = 'delete from "svc_Challenge" where "user_Id" = old.id;'

const wantedAddress = `delete from "svc_Challenge" where identifier = 'email-change:' || old.id;`

// What is ended stays ended: whatever is only refused while its user is suspended would live again afterwards. A sign-in that
// waits for its second factor stays, to be told why it is refused.
const everything = `${sessions} delete from "svc_ApiKey" where "user_Id" = old.id; ${wantedAddress} ${secretsOf('old.email')}`

const keys = [
  `create function svc_end_keys_of_role() returns trigger language plpgsql as $$
     begin
       if tg_op = 'DELETE' or (old."user_Id", old."tenant_Id") is distinct from (new."user_Id", new."tenant_Id") then
         delete from "svc_ApiKey" where "user_Id" = old."user_Id" and "tenant_Id" is not distinct from old."tenant_Id";
       elsif old."role_Id" is distinct from new."role_Id" then
         delete from "svc_ApiKey" where "user_Id" = old."user_Id" and "tenant_Id" is not distinct from old."tenant_Id"
           and "role_Id" = old."role_Id";
       end if;
       return null;
     end
   $$`,
  `create trigger svc_end_keys after delete or update of "user_Id", "role_Id", "tenant_Id" on "svc_UserRole"
   for each row execute function svc_end_keys_of_role()`,
  // Those that wait to live again.
  `delete from "svc_ApiKey" k where not exists (
     select from "svc_User" u join "svc_UserRole" ur on ur."user_Id" = u.id
     where u.id = k."user_Id" and u.status = 'active' and ur."tenant_Id" is not distinct from k."tenant_Id"
       and (k."role_Id" is null or k."role_Id" = ur."role_Id"))`,
]

const addresses = [
  `create function svc_end_secrets_of_address() returns trigger language plpgsql as $$
     begin ${secretsOf('old.email', 'new.email')} ${challenges} return null; end
   $$`,
  `create trigger svc_end_secrets after update of email on "svc_User"
   for each row when (old.email is distinct from new.email) execute function svc_end_secrets_of_address()`,
]
