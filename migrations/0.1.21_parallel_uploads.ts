import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'

export const version = '0.1.21'
export const name = 'parallel uploads'
export const description = 'Lets uploads commit side by side, each by one statement.'
export const type = 'upgrade'

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of [...slots, takeContent]) await sql(statement)
  return { success: true }
}

const slots = [
  // One row for a tenant's files would be locked from each upload's insert to the end of its commit, one after the other.
  `alter table "svc_FileUsage" add column slot smallint not null default 0`,
  `alter table "svc_FileUsage" drop constraint "svc_FileUsage_pkey"`,
  `alter table "svc_FileUsage" add constraint "svc_FileUsage_pkey" primary key (tenant, storage, slot)`,
  `create or replace function svc_add_files(counts svc_file_count[]) returns void language plpgsql as $$
  begin
    insert into "svc_FileUsage" as u (tenant, storage, slot, files, bytes)
    select c.tenant, c.storage, pg_backend_pid() % 16, sum(c.files), sum(c.bytes) from unnest(counts) c
    group by c.tenant, c.storage having sum(c.files) <> 0 or sum(c.bytes) <> 0 order by c.tenant, c.storage
    on conflict on constraint "svc_FileUsage_pkey"
    do update set files = u.files + excluded.files, bytes = u.bytes + excluded.bytes;
  end
$$`,
]

// Part of the statement that makes the row which names the content; without a hold the statement ends.
const takeContent = `create function svc_take_content(of_storage text, of_key text) returns boolean language plpgsql as $$
  begin
    delete from "svc_FileRemoval"
    where storage = of_storage and key = of_key and attempts = 0 and "dueAt" > clock_timestamp();
    if found then return true; end if;
    raise exception using errcode = 'SV503', message = 'The upload took too long';
  end
$$`
