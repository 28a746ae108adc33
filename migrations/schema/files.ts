const removals = [
  // Content to remove when it is due, unless a row of svc_File names it by then. A writer of new content holds it by a row
  // here, not yet due, and deletes this row in the transaction that inserts the row of svc_File.
  `create table "svc_FileRemoval" (
    storage text not null,
    key text not null,
    "dueAt" timestamptz not null,
    attempts integer not null default 0,
    primary key (storage, key)
  )`,
  `create index "svc_FileRemoval_dueAt_idx" on "svc_FileRemoval" ("dueAt")`,
  // Content made from other content, such as a smaller image. "original" is the key of the other in the same service;
  // both are removed together.
  `create table "svc_FileVariant" (
    storage text not null,
    key text not null,
    original text not null,
    size bigint not null default 0,
    "createdAt" timestamptz not null default now(),
    primary key (storage, key)
  )`,
  `create index "svc_FileVariant_original_idx" on "svc_FileVariant" (storage, original, "createdAt")`,
  // Uploads in several requests: how far they are, the keys of the stored parts, and the request that adds to them now.
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
  // Finds the rows that name some content.
  `create index "svc_File_content_idx" on "svc_File" (storage, filename)`,
]

/** The number and size of each tenant's files (all zeros: of none) in each service, changed with the rows of svc_File. */
const usage = [
  // The server process picks the slot: with one row for a tenant, each upload would lock it until its commit ends.
  `create table "svc_FileUsage" (
    tenant uuid not null,
    storage text not null,
    files bigint not null,
    bytes bigint not null,
    slot smallint not null default 0,
    primary key (tenant, storage, slot)
  ) with (fillfactor = 70)`,
  `create type svc_file_count as (tenant uuid, storage text, files bigint, bytes bigint)`,
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
  // plpgsql, because PostgreSQL before 18 plans the statements of a function in SQL anew for every call. Statements that
  // change many rows lock them in one order, so they do not wait for each other.
  `create function svc_add_files(counts svc_file_count[]) returns void language plpgsql as $$
  begin
    insert into "svc_FileUsage" as u (tenant, storage, slot, files, bytes)
    select c.tenant, c.storage, pg_backend_pid() % 16, sum(c.files), sum(c.bytes) from unnest(counts) c
    group by c.tenant, c.storage having sum(c.files) <> 0 or sum(c.bytes) <> 0 order by c.tenant, c.storage
    on conflict on constraint "svc_FileUsage_pkey"
    do update set files = u.files + excluded.files, bytes = u.bytes + excluded.bytes;
  end
$$`,
  `create trigger svc_count_insert after insert on "svc_File" referencing new table as new_files
   for each statement execute function svc_count_files()`,
  `create trigger svc_count_delete after delete on "svc_File" referencing old table as old_files
   for each statement execute function svc_count_files()`,
  `create trigger svc_count_update after update on "svc_File" referencing old table as old_files new table as new_files
   for each statement execute function svc_count_files()`,
  // Ends the hold, in the statement that inserts the row which names the content; without a hold the statement fails.
  `create function svc_take_content(of_storage text, of_key text) returns boolean language plpgsql as $$
  begin
    delete from "svc_FileRemoval"
    where storage = of_storage and key = of_key and attempts = 0 and "dueAt" > clock_timestamp();
    if found then return true; end if;
    raise exception using errcode = 'SV503', message = 'The upload took too long';
  end
$$`,
]

export const files = [...removals, ...usage]
