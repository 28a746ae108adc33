import { systemCollections } from '../src/catalog/system-definitions.ts'
import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'
import { logTableSql } from '../src/events/log-table.ts'
import { insertSeedsSql, seedsJson } from '../src/features/messaging/templates/templates.ts'

export const version = '0.1.0'
export const name = 'schema'
export const description = 'The log, the system collections, their functions and triggers, and the tables of processes.'
export const type = 'upgrade'

/** Creates everything a fresh database needs. There is no way back from it but dropping the database. */
export async function up({ db, sql, schemaManager }: MigrationContext): Promise<MigrationResult> {
  const run = async (statements: readonly string[]) => {
    for (const statement of statements) await sql(statement)
  }
  const log = systemCollections.find(({ collectionName }) => collectionName === 'svc_AuditLog')!
  await run([...fieldTypes, ...refusals, ...notifyFunctions, ...logTableSql()])
  await schemaManager.createCollections(
    db,
    systemCollections.filter((collection) => collection !== log),
  )
  await schemaManager.adoptCollection(db, log)
  await run([...settings, ...processTables, ...notifications])
  await run([...endsOfSessions, ...endsOfKeys, ...endsOfSecrets, ...lastAdministrator])
  for (const { name, description, conditions } of systemRules)
    await sql(
      `insert into "svc_ACL" (name, description, fields, conditions, system) values ($1, $2, '["*"]', $3::jsonb, true)`,
      [name, description, JSON.stringify(conditions)],
    )
  await sql(insertSeedsSql, [seedsJson()])
  return { success: true }
}

/** What fields of the types SUID, TOKEN, Range_Time and Range_Time_NO_TZ are made of. */
const fieldTypes = [
  'create type svc_timerange as range (subtype = time)',
  'create type svc_timetzrange as range (subtype = timetz)',
  // 12 characters of an alphabet without look-alikes, about 58 bits.
  `create function svc_short_id() returns text language sql volatile as $$
     select string_agg(substr('23456789abcdefghjkmnpqrstuvwxyz', 1 + get_byte(bytes, i) % 31, 1), '')
     from (select decode(replace(gen_random_uuid()::text, '-', ''), 'hex') as bytes) s, generate_series(0, 11) i
   $$`,
  // 9 characters of the same alphabet, about 44 bits. Bytes 6 and 8 of a UUID are not random, so they are left out.
  `create function svc_token() returns text language sql volatile as $$
     select string_agg(substr('23456789abcdefghjkmnpqrstuvwxyz', 1 + get_byte(bytes, i) % 31, 1), '')
     from (select decode(replace(gen_random_uuid()::text, '-', ''), 'hex') as bytes) s,
          unnest(array[0, 1, 2, 3, 4, 5, 7, 9, 10]) i
   $$`,
]

const refusals = [
  // Ends a statement whose new row would leave the caller's scope; the message is the API's answer.
  `create function svc_refuse(message text) returns boolean language plpgsql as $$
     begin raise exception using errcode = 'SV403', message = message; end
   $$`,
  // Ends a statement that points at a row which is missing or not the caller's to see; the message is the relation.
  `create function svc_refer(allowed boolean, relation text) returns boolean language plpgsql as $$
  begin
    if allowed then return true; end if;
    raise exception using errcode = 'SV400', message = relation;
  end
$$`,
]

const notifyFunctions = [
  `create function svc_notify() returns trigger language plpgsql as $$
     begin perform pg_notify(tg_argv[0], ''); return null; end
   $$`,
  // Names the sessions that changed, so that other processes forget only these; many at once are one message: forget all.
  // The second argument is the column that names them. An actor hears on its own connection too what its changes mean for
  // sessions (src/events/commit.ts): as INFO, because client_min_messages cannot silence that. A new row ends nothing.
  `create function svc_notify_sessions() returns trigger language plpgsql as $$
  declare message text;
  begin
    for message in
      select case when (select count(*) from changed) > 50 then '*' else tg_argv[0] || ':' || (to_jsonb(c)->>tg_argv[1]) end
      from changed c group by 1
    loop
      perform pg_notify('svc_sessions', message);
      if tg_op <> 'INSERT' and nullif(current_setting('svc.actor', true), '') is not null then
        raise info 'svc_sessions %', message;
      end if;
    end loop;
    return null;
  end
$$`,
  // Silent for claims and outcomes: only a waiting task is a reason to look.
  `create function svc_notify_tasks() returns trigger language plpgsql as $$
  begin
    if exists (select from changed where task_status = 'Not started' and scheduled_time <= now() + interval '4 hours')
    then perform pg_notify('svc_tasks', '');
    end if;
    return null;
  end
$$`,
]

/** A tenant's settings may leave every key to the installation; no two have one app_url. */
const settings = [
  `alter table "svc_Settings" add constraint "svc_Settings_installation_complete" check
    ("tenant_Id" is not null or (project_name is not null and smtp_enabled is not null and smtp_secure is not null))`,
  'create unique index "svc_Settings_app_url_unique" on "svc_Settings" (lower(app_url))',
]

/** Tables of the processes. None of them is a collection. */
const processTables = [
  // One row per commit of a request, written by that commit; the first one holds the answer too.
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
  // Logged to the WAL, unlike other counters: a crash of the server must not give a guesser new tries.
  `create table "svc_CodeTry" (
    key text primary key,
    "left" integer not null,
    "endsAt" timestamptz not null
  ) with (fillfactor = 70)`,
  `create index "svc_CodeTry_endsAt_idx" on "svc_CodeTry" ("endsAt")`,
  // Unlogged: a crash of the server loses a few minutes of counting, and each count costs no WAL. Room in the pages lets
  // a count be updated in place. `added` is what the last statement has brought.
  `create unlogged table "svc_RateLimit" (
    key text primary key,
    count bigint not null,
    added integer not null,
    "endsAt" timestamptz not null
  ) with (fillfactor = 70)`,
  `create index "svc_RateLimit_endsAt_idx" on "svc_RateLimit" ("endsAt")`,
  // Five minutes of a sign-in, read by nobody but the sign-in itself.
  `create table "svc_Challenge" (
    identifier text primary key,
    "user_Id" uuid references "svc_User" (id) on delete cascade,
    data jsonb not null,
    attempts smallint not null default 0,
    "expiresAt" timestamptz not null
  )`,
  `create index "svc_Challenge_expiresAt_idx" on "svc_Challenge" ("expiresAt")`,
  `create index "svc_Challenge_user_idx" on "svc_Challenge" ("user_Id")`,
  // The development inbox, empty in production. Apart from svc_EmailLog, because these texts hold the secrets that the
  // database otherwise never sees.
  `create unlogged table "svc_DevelopmentMail" (
    "emailLogId" uuid primary key references "svc_EmailLog" (id) on delete cascade,
    subject text not null,
    html text not null,
    text text not null,
    "keptAt" timestamptz not null default now()
  )`,
  // When a schedule is due next, and who holds a lock until when.
  `create table "svc_TaskSchedule" (
    id text primary key,
    cron text not null,
    "nextAt" timestamptz not null
  )`,
  `create table "svc_TaskLock" (
    name text primary key,
    holder text not null,
    "expiresAt" timestamptz not null
  )`,
  // A row per process that may answer sessions from memory.
  `create table "svc_Lease" (id uuid primary key, "seenAt" timestamptz not null)`,
  // How far a read replica must be to show a caller its own writes. Unlogged: a mark costs no WAL, and after a crash of the
  // server, which empties the table, the missing row `floor` says so: then only the primary answers until there is one again.
  `create unlogged table "svc_WriteMark" (
    caller text primary key,
    position bigint not null,
    "notedAt" timestamptz not null default clock_timestamp()
  ) with (fillfactor = 70)`,
  // The values that setup has seeded, so that it brings up to date what nobody has changed.
  'create table "svc_Seed" (key text primary key, value text not null)',
]

/** Tables whose changes every process hears of at once. Writes of items never notify. */
const notifications = [
  ...Object.entries({
    svc_SchemaDefinition: 'svc_catalog',
    svc_Settings: 'svc_settings',
    svc_Role: 'svc_access',
    svc_Permission: 'svc_access',
    svc_ACL: 'svc_access',
  }).map(([table, channel]) => notifyOn(table, 'svc_notify', 'insert or update or delete', channel)),
  ...notifySessions('svc_Sessions', 'session', 'id', ['delete', 'update']),
  ...notifySessions('svc_User', 'user', 'id', ['delete', 'update']),
  ...notifySessions('svc_UserRole', 'user', 'user_Id', ['insert', 'delete', 'update']),
  ...notifySessions('svc_Role', 'role', 'id', ['delete', 'update']),
  ...notifySessions('svc_Tenant', 'tenant', 'id', ['delete', 'update']),
  // Processes forget a revoked key like an ended session.
  ...notifySessions('svc_ApiKey', 'session', 'id', ['delete']),
  ...['svc_Sessions', 'svc_User', 'svc_UserRole', 'svc_Role', 'svc_Tenant'].map((table) =>
    notifyOn(table, 'svc_notify_truncate', 'truncate', 'svc_sessions'),
  ),
  ...['insert', 'update'].map(
    (change) => `create trigger svc_notify_${change} after ${change} on "svc_Tasks" referencing new table as changed
    for each statement execute function svc_notify_tasks()`,
  ),
]

function notifyOn(table: string, trigger: string, change: string, channel: string): string {
  return `create trigger ${trigger} after ${change} on "${table}" for each statement execute function svc_notify('${channel}')`
}

function notifySessions(table: string, kind: string, column: string, changes: readonly string[]): string[] {
  return changes.map(
    (change) =>
      `create trigger svc_notify_${change} after ${change} on "${table}" referencing ${change === 'delete' ? 'old' : 'new'} table as changed
       for each statement execute function svc_notify_sessions('${kind}', '${column}')`,
  )
}

function secretsOf(...addresses: string[]): string {
  const identifiers = addresses.flatMap((address) =>
    ['email-verification', 'magic-link', 'password-reset'].map((purpose) => `'${purpose}:' || ${address}`),
  )
  return `delete from "svc_Verification" where identifier in (${identifiers});`
}

// What has ended stays ended: anything that is only refused while its user is suspended would live again afterwards. A
// sign-in that waits for its second factor stays, and is told why it is refused.
const endsOfUser = [
  'delete from "svc_Sessions" where "user_Id" = old.id;',
  'delete from "svc_ApiKey" where "user_Id" = old.id;',
  `delete from "svc_Challenge" where identifier = 'email-change:' || old.id;`,
  secretsOf('old.email'),
].join(' ')

/** Sessions end with what they stand on. */
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

/** So do API keys. */
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

// Asked after the whole statement, and about memberships that go by a cascade too, so deleted users and tenants need no
// trigger of their own. A statement that takes an administrator away asks who is left, and two at the same time wait for
// each other: the second sees what the first has done. The role itself cannot be deleted while anybody has it.
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

const own = { userCreated_Id: { eq: '$CURRENT_USER' } }

/** The named rules that every installation has. */
const systemRules = [
  { name: 'Read_All', description: 'Every item', conditions: {} },
  { name: 'Read_Own', description: 'Items that the caller has created', conditions: own },
  { name: 'Update_Own', description: 'Items that the caller has created', conditions: own },
  { name: 'Delete_Own', description: 'Items that the caller has created', conditions: own },
  {
    name: 'Own_Tenant',
    description: "Items of the caller's tenant",
    conditions: { tenant_Id: { eq: '$CURRENT_TENANT' } },
  },
]
