import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'

export const version = '0.1.20'
export const name = 'file usage'
export const description = 'Counts what files come to by a statement whose plan a session keeps.'
export const type = 'upgrade'

// PostgreSQL plans the statements of a function in SQL anew for every call, until version 18.
const countFiles = `create or replace function svc_add_files(counts svc_file_count[]) returns void language plpgsql as $$
  begin
    insert into "svc_FileUsage" as u (tenant, storage, files, bytes)
    select c.tenant, c.storage, sum(c.files), sum(c.bytes) from unnest(counts) c
    group by c.tenant, c.storage having sum(c.files) <> 0 or sum(c.bytes) <> 0 order by c.tenant, c.storage
    on conflict on constraint "svc_FileUsage_pkey"
    do update set files = u.files + excluded.files, bytes = u.bytes + excluded.bytes;
  end
$$`

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql(countFiles)
  return { success: true }
}
