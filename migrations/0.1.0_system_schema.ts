import { systemCollections } from '../src/catalog/system-collections.ts'
import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'
import { logTableSql } from '../src/events/log-table.ts'

export const version = '0.1.0'
export const name = 'system schema'
export const description = 'The log, the system collections, and the functions their triggers use.'
export const type = 'upgrade'

/** Creates everything a fresh database needs. There is no way back from it but dropping the database. */
export async function up({ db, sql, schemaManager }: MigrationContext): Promise<MigrationResult> {
  for (const statement of [...functions, ...logTableSql()]) await sql(statement)
  await schemaManager.createCollections(
    db,
    systemCollections.filter(({ collectionName }) => collectionName !== 'svc_AuditLog'),
  )
  const log = systemCollections.find(({ collectionName }) => collectionName === 'svc_AuditLog')!
  await schemaManager.adoptCollection(db, log)
  for (const statement of notifications()) await sql(statement)
  return { success: true }
}

const functions = [
  // The default of SUID fields: 12 characters of an alphabet without look-alikes, about 58 bits.
  `create function svc_short_id() returns text language sql volatile as $$
     select string_agg(substr('23456789abcdefghjkmnpqrstuvwxyz', 1 + get_byte(bytes, i) % 31, 1), '')
     from (select decode(replace(gen_random_uuid()::text, '-', ''), 'hex') as bytes) s, generate_series(0, 11) i
   $$`,
  // Ends a statement whose new row would leave the caller's scope; the message is the API's answer.
  `create function svc_refuse(message text) returns boolean language plpgsql as $$
     begin raise exception using errcode = 'SV403', message = message; end
   $$`,
  `create function svc_notify() returns trigger language plpgsql as $$
     begin perform pg_notify(tg_argv[0], ''); return null; end
   $$`,
  // Whose sessions changed, so that other processes forget just these; many at once are one message: forget all.
  // The argument is the column that names them: `id` of a session, or the user's.
  `create function svc_notify_sessions() returns trigger language plpgsql as $$
     begin
       if (select count(*) from changed) > 50 then perform pg_notify('svc_sessions', '*');
       else perform pg_notify('svc_sessions', tg_argv[0] || ':' || (to_jsonb(c)->>tg_argv[1])) from changed c;
       end if;
       return null;
     end
   $$`,
]

/** Tables whose changes every process must hear of at once (design §6: item writes never notify). */
function notifications(): string[] {
  const access = ['svc_Role', 'svc_Permission', 'svc_ACL'].map((table) =>
    notifyOn(table, 'svc_access', 'insert or update or delete'),
  )
  return [
    notifyOn('svc_SchemaDefinition', 'svc_catalog', 'insert or update or delete'),
    notifyOn('svc_Settings', 'svc_settings', 'insert or update or delete'),
    ...access,
    ...notifySessions('svc_Sessions', 'session', 'id', ['delete', 'update']),
    ...notifySessions('svc_User', 'user', 'id', ['delete', 'update']),
    ...notifySessions('svc_UserRole', 'user', 'user_Id', ['insert', 'delete', 'update']),
  ]
}

function notifyOn(table: string, channel: string, change: string): string {
  return `create trigger svc_notify after ${change} on "${table}" for each statement execute function svc_notify('${channel}')`
}

function notifySessions(table: string, kind: 'session' | 'user', column: string, changes: string[]): string[] {
  return changes.map(
    (change) =>
      `create trigger svc_notify_${change} after ${change} on "${table}" referencing ${change === 'delete' ? 'old' : 'new'} table as changed
       for each statement execute function svc_notify_sessions('${kind}', '${column}')`,
  )
}
