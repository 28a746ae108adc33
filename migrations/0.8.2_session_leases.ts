import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.8.2'
export const name = 'session leases'
export const description = 'Who keeps sessions in memory, and what a transaction says of the sessions it ends.'
export const type = 'upgrade'

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of [leases, told, ...tables, ...truncations]) await sql(statement)
  return { success: true }
}

export async function down({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const table of ['svc_Role', 'svc_Tenant'])
    for (const change of changes) await sql(`drop trigger svc_notify_${change} on "${table}"`)
  for (const table of truncated) await sql(`drop trigger svc_notify_truncate on "${table}"`)
  await sql(untold)
  await sql('drop table "svc_Lease"')
  return { success: true }
}

// A row per process that may answer from memory; how it is used is told in src/db/leases.ts. Not a collection.
const leases = `create table "svc_Lease" (id uuid primary key, "seenAt" timestamptz not null)`

const body = (say: string) => `create or replace function svc_notify_sessions() returns trigger language plpgsql as $$
  declare message text;
  begin
    for message in
      select case when (select count(*) from changed) > 50 then '*' else tg_argv[0] || ':' || (to_jsonb(c)->>tg_argv[1]) end
      from changed c group by 1
    loop
      perform pg_notify('svc_sessions', message);
      ${say}
    end loop;
    return null;
  end
$$`

// Whoever changes rows as an actor hears on its own connection what that means for sessions (src/events/commit.ts).
// INFO, because client_min_messages can't silence it. What is new ends nothing.
const told = body(`if tg_op <> 'INSERT' and nullif(current_setting('svc.actor', true), '') is not null then
        raise info 'svc_sessions %', message;
      end if;`)
const untold = body('')

const changes = ['delete', 'update'] as const

// A session is also what its role and its tenant are.
const tables = ['svc_Role', 'svc_Tenant'].flatMap((table) =>
  changes.map(
    (change) =>
      `create trigger svc_notify_${change} after ${change} on "${table}" referencing ${change === 'delete' ? 'old' : 'new'} table as changed
       for each statement execute function svc_notify_sessions('${table === 'svc_Role' ? 'role' : 'tenant'}', 'id')`,
  ),
)

const truncated = ['svc_Sessions', 'svc_User', 'svc_UserRole', 'svc_Role', 'svc_Tenant']

const truncations = truncated.map(
  (table) =>
    `create trigger svc_notify_truncate after truncate on "${table}" for each statement execute function svc_notify('svc_sessions')`,
)
