import { readDefinitions } from '../src/catalog/store.ts'
import { systemCollections } from '../src/catalog/system-definitions.ts'
import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'

export const version = '0.1.5'
export const name = 'files'
export const description = 'What rows of svc_File say of their content, what is to be removed, and what files come to.'
export const type = 'upgrade'

export async function up({ db, sql, schemaManager }: MigrationContext): Promise<MigrationResult> {
  const stored = (await readDefinitions(db)).find(({ collectionName }) => collectionName === 'svc_File')!
  const { fields } = systemCollections.find(({ collectionName }) => collectionName === 'svc_File')!.schema
  const { size, hash, typeProven } = fields as Required<typeof fields>
  // An installation may have added fields of its own.
  const schema = { ...stored.schema, fields: { ...stored.schema.fields, size, hash, typeProven } }
  await schemaManager.updateCollection(db, { collectionName: 'svc_File', schema } as typeof stored)
  for (const statement of [...removals, ...usage]) await sql(statement)
  return { success: true }
}

const removals = [
  // Content that is removed when it is due, unless a row of svc_File names it by then. Whoever is writing content that no
  // row names yet has a row here, not yet due, and deletes it in the transaction that makes the other.
  `create table "svc_FileRemoval" (
    storage text not null,
    key text not null,
    "dueAt" timestamptz not null,
    attempts integer not null default 0,
    primary key (storage, key)
  )`,
  `create index "svc_FileRemoval_dueAt_idx" on "svc_FileRemoval" ("dueAt")`,
  // What was made of content, such as a smaller image; "original" is its key in the same service. It goes with it.
  `create table "svc_FileVariant" (
    storage text not null,
    key text not null,
    original text not null,
    size bigint not null default 0,
    "createdAt" timestamptz not null default now(),
    primary key (storage, key)
  )`,
  `create index "svc_FileVariant_original_idx" on "svc_FileVariant" (storage, original, "createdAt")`,
  // Uploads that come in several requests: where they are, the keys of what is stored of them, and who adds to them.
  `create table "svc_Upload" (
    id uuid primary key,
    "user_Id" uuid not null references "svc_User" (id) on delete cascade,
    tenant uuid,
    length bigint not null,
    "offset" bigint not null default 0,
    metadata jsonb not null,
    storage text not null,
    parts text[] not null default '{}',
    "file_Id" uuid,
    claim uuid,
    "claimedUntil" timestamptz,
    "expiresAt" timestamptz not null
  )`,
  `create index "svc_Upload_expiresAt_idx" on "svc_Upload" ("expiresAt")`,
  `create index "svc_Upload_user_idx" on "svc_Upload" ("user_Id")`,
  // Content is looked for by what names it.
  `create index "svc_File_content_idx" on "svc_File" (storage, filename)`,
]

/** What the files of each tenant (all zeros: of none) come to in each service, changed with the rows. */
const usage = [
  `create table "svc_FileUsage" (
    tenant uuid not null,
    storage text not null,
    files bigint not null,
    bytes bigint not null,
    primary key (tenant, storage)
  ) with (fillfactor = 70)`,
  `create function svc_count_files() returns trigger language plpgsql as $$
  begin
    if tg_op = 'INSERT' then
      perform svc_add_files(array_agg((coalesce("tenant_Id", '00000000-0000-0000-0000-000000000000'), storage, 1, size)::svc_file_count)) from new_files;
    elsif tg_op = 'DELETE' then
      perform svc_add_files(array_agg((coalesce("tenant_Id", '00000000-0000-0000-0000-000000000000'), storage, -1, -size)::svc_file_count)) from old_files;
    else
      perform svc_add_files(array_agg((coalesce("tenant_Id", '00000000-0000-0000-0000-000000000000'), storage, n, bytes)::svc_file_count)) from (
        select "tenant_Id", storage, 1 as n, size as bytes from new_files
        union all select "tenant_Id", storage, -1, -size from old_files) changed;
    end if;
    return null;
  end
$$`,
  `create type svc_file_count as (tenant uuid, storage text, files bigint, bytes bigint)`,
  // In one order, so that two statements that change many rows do not wait for each other.
  `create function svc_add_files(counts svc_file_count[]) returns void language sql as $$
    insert into "svc_FileUsage" as u (tenant, storage, files, bytes)
    select tenant, storage, sum(files), sum(bytes) from unnest(counts) c
    group by tenant, storage having sum(files) <> 0 or sum(bytes) <> 0 order by tenant, storage
    on conflict (tenant, storage) do update set files = u.files + excluded.files, bytes = u.bytes + excluded.bytes
$$`,
  `create trigger svc_count_insert after insert on "svc_File" referencing new table as new_files
   for each statement execute function svc_count_files()`,
  `create trigger svc_count_delete after delete on "svc_File" referencing old table as old_files
   for each statement execute function svc_count_files()`,
  `create trigger svc_count_update after update on "svc_File" referencing old table as old_files new table as new_files
   for each statement execute function svc_count_files()`,
  `insert into "svc_FileUsage" (tenant, storage, files, bytes)
   select coalesce("tenant_Id", '00000000-0000-0000-0000-000000000000'), storage, count(*), sum(size) from "svc_File" group by 1, 2`,
]
