// A suspension deletes sessions, keys and links: if they were only refused, they would work again afterwards. A sign-in
// that waits for its second factor stays, so that its next step can say why it is refused.
const endsOfUser = [
  'delete from "svc_Sessions" where "user_Id" = old.id;',
  'delete from "svc_ApiKey" where "user_Id" = old.id;',
  `delete from "svc_Challenge" where identifier = 'email-change:' || old.id;`,
  secretsOf('old.email'),
].join(' ')

/** Sessions end when their user is suspended or loses the role. */
const endsOfSessions = [
  `create function svc_end_sessions_of_user() returns trigger language plpgsql as $$
     begin ${endsOfUser} return null; end
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

/** API keys end when their user loses the role. */
const endsOfKeys = [
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
]

/** Links and codes end with the address they were mailed to. */
const endsOfSecrets = [
  `create function svc_end_secrets_of_address() returns trigger language plpgsql as $$
     begin ${secretsOf('old.email', 'new.email')} delete from "svc_Challenge" where "user_Id" = old.id; return null; end
   $$`,
  `create trigger svc_end_secrets after update of email on "svc_User"
   for each row when (old.email is distinct from new.email) execute function svc_end_secrets_of_address()`,
]

// A statement that takes an administrator away looks at its end for another active one. Two such statements wait for each
// other, so the second sees the result of the first. The triggers also fire for memberships that a cascade deletes, so
// deleted users and tenants need no trigger of their own. The role itself cannot be deleted while anybody has it.
const lastAdministrator = [
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

// The administrator's view as a user or a role sees it. The row goes with its session, but stays when the named user or
// role is deleted: otherwise the preview would silently become the administrator's own view.
const previews = [
  `create table "svc_Preview" (
    "session_Id" uuid primary key references "svc_Sessions" (id) on delete cascade,
    "user_Id" uuid,
    "role_Id" uuid,
    "tenant_Id" uuid,
    "startedAt" timestamptz not null default now(),
    check (num_nonnulls("user_Id", "role_Id") = 1)
  )`,
]

export const accounts = [...endsOfSessions, ...endsOfKeys, ...endsOfSecrets, ...lastAdministrator, ...previews]

function secretsOf(...addresses: string[]): string {
  const identifiers = addresses.flatMap((address) =>
    ['email-verification', 'magic-link', 'password-reset'].map((purpose) => `'${purpose}:' || ${address}`),
  )
  return `delete from "svc_Verification" where identifier in (${identifiers});`
}
