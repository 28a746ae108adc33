import { logSchema, logTable, oneByOneSql } from '../catalog/log-triggers.ts'
import { logRemoved, placesLockSql } from '../db/unlogged/consumers.ts'
import { eventIdSql, logDoors, publicationName } from './log.ts'

/*
 * The table of the log, its partitions, its guards and its publication, as SQL text. Nothing here talks to a
 * database: setup and migrations run what these functions return, statement by statement, in their transaction.
 */

/** Its name is none a collection can have: their trigger functions live beside it. */
const guardFunction = `${logSchema}."$guard"`

/**
 * The indexes of the log, each of which every write pays for. Safe to run again. Ids of requests and times grow with the
 * log, so a write touches the last page of each.
 */
export const logIndexesSql: readonly string[] = [
  `create index if not exists "${logTable}_xid_idx" on "${logTable}" (xid)`,
  `create index if not exists "${logTable}_entity_idx" on "${logTable}" (entity, "entityId", position)`,
  `create index if not exists "${logTable}_createdAt_idx" on "${logTable}" ("createdAt")`,
  // With the time, which statements name beside the id: PostgreSQL would else sometimes choose the index of times for them.
  `create index if not exists "${logTable}_request_time_idx" on "${logTable}" ("logRequestId", "createdAt")`,
  // Events that have a cause are few, and no other is in this one.
  `create index if not exists "${logTable}_cause_idx" on "${logTable}" ((cause->>'request')) where cause is not null`,
]

/**
 * Creates the log with its guards and the partitions from this month to two months ahead. Safe to run again.
 *
 * - `createdAt` is the wall clock when the event was appended, not the start of its transaction: per record it grows
 *   with `position`, which a state "as of a time" relies on, and no event is written into an expired partition.
 * - `id` is a function of `position` (version 8 UUID, 48 bits): monotone, so inserts touch one page of its index, which
 *   serves lookups by `id` alone, and a range of positions is looked for by their ids. It is a default, not a
 *   generated column: PostgreSQL reads the text of such an expression anew for every statement that inserts, which was
 *   a sixth of a one-row write. A column's default follows those of the columns before it, hence `currval`.
 * - `position` is a sequence without cache: with a cache, sessions would hand out blocks and lose the order per record.
 * - The user, the role and the tenant have no constraint: deleting them must not touch the log.
 */
export function logTableSql(): string[] {
  return [
    `create schema if not exists ${logSchema}`,
    `create sequence if not exists "${logTable}_position" as bigint cache 1`,
    `create table if not exists "${logTable}" (
  position bigint not null default nextval('"${logTable}_position"'),
  id uuid not null default ${ownIdSql},
  xid xid8 not null default pg_current_xact_id(),
  horizon xid8 not null default pg_snapshot_xmin(pg_current_snapshot()),
  "createdAt" timestamptz not null default clock_timestamp(),
  type varchar(255) not null default 'data',
  entity varchar(255) not null,
  "entityId" text,
  action varchar(255) not null,
  changes jsonb,
  ipaddress varchar(255),
  "userId" uuid,
  "roleId" uuid,
  "tenant_Id" uuid,
  "requestId" text,
  "userAgent" text,
  "logRequestId" uuid,
  agent jsonb,
  cause jsonb,
  primary key (id, "createdAt")
) partition by range ("createdAt")`,
    ...logIndexesSql,
    ...floorSql,
    ...lineageSql(),
    ...historySql(),
    shownSql,
    misfitsSql,
    oneByOneSql,
    ...logGuardSql(),
    `create table if not exists "${logTable}_default" partition of "${logTable}" default`,
    `create or replace trigger "svc_log_truncate" before truncate on "${logTable}_default"
  for each statement execute function ${guardFunction}()`,
    ...ensurePartitionsSql(2),
  ]
}

/**
 * One statement that creates the missing monthly partitions `svc_AuditLog_YYYYMM` (UTC months) from this month to
 * `monthsAhead` months ahead. Safe to run again, in several processes at once, and when the default partition already
 * holds events of a missing month: they move. Takes a short exclusive lock on the default partition only.
 */
export function ensurePartitionsSql(monthsAhead: number): string[] {
  return [
    `${logDoors.retention} do $do$
declare
  month timestamp := date_trunc('month', now() at time zone 'UTC');
  lower_bound timestamptz;
  upper_bound timestamptz;
  partition_name text;
  columns constant text := '${storedColumns}';
begin
  perform pg_advisory_xact_lock(hashtext('${logTable} partitions'));
  for ahead in 0..${Math.max(0, Math.trunc(monthsAhead))} loop
    lower_bound := (month + make_interval(months => ahead)) at time zone 'UTC';
    upper_bound := (month + make_interval(months => ahead + 1)) at time zone 'UTC';
    partition_name := '${logTable}_' || to_char(month + make_interval(months => ahead), 'YYYYMM');
    continue when to_regclass(quote_ident(partition_name)) is not null;
    execute format('create table %I (like "${logTable}" including defaults)', partition_name);
    lock table "${logTable}_default" in access exclusive mode;
    if exists (select from "${logTable}_default" where "createdAt" >= lower_bound and "createdAt" < upper_bound) then
      execute format('insert into %I (%s) select %s from "${logTable}_default" where "createdAt" >= $1 and "createdAt" < $2',
        partition_name, columns, columns) using lower_bound, upper_bound;
      delete from "${logTable}_default" where "createdAt" >= lower_bound and "createdAt" < upper_bound;
    end if;
    execute format('alter table "${logTable}" attach partition %I for values from (%L) to (%L)',
      partition_name, lower_bound, upper_bound);
    execute format('create trigger "svc_log_truncate" before truncate on %I for each statement execute function ${guardFunction}()',
      partition_name);
  end loop;
end
$do$`,
  ]
}

/**
 * One statement that creates or repairs the publication the feed listens to. It publishes inserts into the log and
 * nothing else, and of them only the position: the feed needs to know that, not what. So no image, secret or other table
 * can leave through it. Needs the right to create publications and ownership of the log; where it fails the feed polls.
 */
export function publicationSql(): string[] {
  return [
    `do $do$
begin
  if not exists (select from pg_publication where pubname = '${publicationName}') then
    create publication ${publicationName} for table "${logTable}" (position)
      with (publish = 'insert', publish_via_partition_root = true);
  else
    alter publication ${publicationName} set table "${logTable}" (position);
    alter publication ${publicationName} set (publish = 'insert', publish_via_partition_root = true);
  end if;
end
$do$`,
  ]
}

/**
 * One statement for setup, after a logical restore (pg_dump): the events then carry transaction ids of another server,
 * which here lie in the future. They become older than every transaction of this server, and cursors from before the
 * restore have to start over. Does nothing otherwise.
 */
export function adoptRestoredEventsSql(): string[] {
  return [
    `${logDoors.adopt} do $do$
begin
  if exists (select from "${logTable}" where xid >= pg_snapshot_xmax(pg_current_snapshot())) then
    update "${logTable}" set xid = '3', horizon = '3' where xid <> '3';
    update ${logSchema}.floor set removed = pg_current_xact_id();
  end if;
end
$do$`,
  ]
}

/**
 * The tables of the consumers of the log (consumer.ts), beside it and not in it: what they say of themselves is no event.
 * Safe to run again.
 *
 * `snapshot`, `"upTo"` and `position` are the cursor; `lineage` names the history of the database that the cursor belongs
 * to, where that is known. `"$unread_from"()` is the oldest transaction of which a consumer may have events to read, and
 * keeps every place where it is until the transaction ends; `stop_unread()` stops those whose events were removed. A fill factor leaves room for updates in place: a busy cursor moves many times a second.
 */
export function consumerTablesSql(): string[] {
  return [
    `create table if not exists ${logSchema}.consumer (
  name text primary key,
  snapshot pg_snapshot not null,
  "upTo" pg_snapshot,
  position bigint not null default 0,
  lineage text,
  state text not null default 'running' check (state in ('running', 'paused', 'halted', 'stopped')),
  reason text,
  "failedPosition" bigint,
  token uuid,
  holder text,
  "leaseUntil" timestamptz,
  "advancedAt" timestamptz not null default clock_timestamp()
) with (fillfactor = 50)`,
    `create table if not exists ${logSchema}.set_aside (
  consumer text not null references ${logSchema}.consumer (name) on delete cascade,
  position bigint not null,
  reason text not null,
  attempts integer not null default 1,
  "failedAt" timestamptz not null default clock_timestamp(),
  "retryAt" timestamptz,
  primary key (consumer, position)
)`,
    // In functions, because each of their statements sees what was committed before the lock was had.
    `create or replace function ${logSchema}."$unread_from"() returns xid8
  language plpgsql volatile set search_path = public, pg_temp as $fn$
begin
  perform ${placesLockSql};
  return (select min(pg_snapshot_xmin(snapshot)) from ${logSchema}.consumer where state <> 'stopped');
end
$fn$`,
    `create or replace function ${logSchema}.stop_unread(removed xid8) returns void
  language sql volatile set search_path = public, pg_temp as $fn$
  update ${logSchema}.consumer set state = 'stopped', reason = '${logRemoved}', token = null, "leaseUntil" = null
  where state <> 'stopped' and pg_snapshot_xmin(snapshot) <= removed
$fn$`,
  ]
}

const ownIdSql = eventIdSql(`currval('"${logTable}_position"')`)

const storedColumns = [
  'position, id, xid, horizon, "createdAt", type, entity, "entityId", action, changes',
  'ipaddress, "userId", "roleId", "tenant_Id", "requestId", "userAgent", "logRequestId", agent, cause',
].join(', ')

/**
 * An event's changes as the API shows them: both images whole, null where there is none, without the fields that are
 * hidden today. Domain events say what they say.
 */
const shownSql = `create or replace function ${logSchema}.shown(type text, entity text, action text, changes jsonb)
  returns jsonb language plpgsql stable set search_path = public, pg_temp as $fn$
begin
  return (select case when type <> 'data' or changes is null or changes ? 'erased' then changes else jsonb_build_object(
    'before', case when action = 'update' then (changes->'after') || (changes->'before') else changes->'before' end - hidden.names,
    'after', (changes->'after') - hidden.names) end
  from (
    select coalesce(array_agg(f.key), '{}') as names
    from "svc_SchemaDefinition" d, jsonb_each(d.schema->'fields') f
    where d."collectionName" = entity and f.value->>'hidden' = 'true'
  ) hidden);
end
$fn$`

/**
 * The names of those values of an image that do not fit the columns of a table of today; `base` is null, of the type of its rows. A type
 * that is not PostgreSQL's own (geometry) may tell of a text that it cannot read by an internal error. Safe to run again.
 */
export const misfitsSql = `create or replace function ${logSchema}.misfits(base anyelement, image jsonb)
  returns text[] language plpgsql stable as $fn$
declare
  names text[] := '{}';
  name text;
begin
  begin
    perform jsonb_populate_record(base, image);
    return names;
  exception when data_exception or integrity_constraint_violation or internal_error then
    null;
  end;
  for name in select jsonb_object_keys(image) loop
    begin
      perform jsonb_populate_record(base, jsonb_build_object(name, image->name));
    exception when data_exception or integrity_constraint_violation or internal_error then
      names := names || name;
    end;
  end loop;
  return names;
end
$fn$`

/**
 * The retention floor: the newest transaction of which an event was removed. It can't be derived from what is left (an
 * empty log does not say whether it is new or was emptied), so removing events raises it in the same transaction.
 */
const floorSql = [
  `create table if not exists ${logSchema}.floor (
  only_row boolean primary key default true check (only_row),
  removed xid8 not null,
  "upTo" timestamptz not null default '-infinity'
)`,
  `insert into ${logSchema}.floor (removed) values ('0') on conflict do nothing`,
]

/**
 * The history of the database that numbers of transactions belong to (ADR 63). Its id is a row, which a restore renews; with it
 * goes the timeline of the server, which a promotion renews. `svc_log.in_lineage()` is true for a place of this history and
 * for null, else SV410. A standby does not know its primary's timeline. Safe to run again.
 */
function lineageSql(): string[] {
  return [
    `create table if not exists ${logSchema}.lineage (
  only_row boolean primary key default true check (only_row),
  id uuid not null default gen_random_uuid()
)`,
    `insert into ${logSchema}.lineage default values on conflict do nothing`,
    `create or replace function ${logSchema}."$lineage"() returns text language plpgsql stable set search_path = public, pg_temp as $fn$
begin
  return (select left(id::text, 8) || '.' || case when pg_is_in_recovery() then ''
    else ltrim(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), '0') end from ${logSchema}.lineage);
end
$fn$`,
    `create or replace function ${logSchema}.in_lineage(known text) returns boolean
  language plpgsql stable set search_path = public, pg_temp as $fn$
declare
  own constant text := ${logSchema}."$lineage"();
begin
  if known is null or known = own or pg_is_in_recovery() and split_part(known, '.', 1) = split_part(own, '.', 1) then
    return true;
  end if;
  raise exception using errcode = 'SV410', message = to_char(
    date_trunc('milliseconds', (select min("createdAt") from "${logTable}") + interval '999 microseconds')
      at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
end
$fn$`,
  ]
}

/**
 * How far back the log reaches, for reads of the past (query/past.ts): `"upTo"`, the time of the newest event that was
 * removed, and `svc_log.reach()`, which is true where the log holds everything after a point: a snapshot by its bounds, or
 * a time. SV410 with the oldest moment (in milliseconds, rounded up) where it does not, SV416 for a point yet to come.
 * Safe to run again.
 */
function historySql(): string[] {
  return [
    `create or replace function ${logSchema}.reach(oldest xid8, newest xid8, moment timestamptz) returns boolean
  language plpgsql stable set search_path = public, pg_temp as $fn$
declare
  gone record;
begin
  select removed, "upTo" into strict gone from ${logSchema}.floor;
  if gone.removed >= oldest or gone."upTo" > moment then
    raise exception using errcode = 'SV410', message = to_char(
      date_trunc('milliseconds', greatest(gone."upTo", (select min("createdAt") from "${logTable}")) + interval '999 microseconds')
        at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
  elsif newest > pg_snapshot_xmax(pg_current_snapshot()) or moment > clock_timestamp() then
    raise exception using errcode = 'SV416', message = 'has not happened yet';
  end if;
  return true;
end
$fn$`,
  ]
}

/**
 * Append-only: an UPDATE may only replace `changes` and personal data of an erased item, DELETE and TRUNCATE belong to
 * retention, and each goes through its door ({@link logDoors}). Row triggers, because a statement trigger does not see
 * statements on a partition. Safe to run again.
 */
const logGuardSql = (): string[] => [
  `create or replace function ${guardFunction}() returns trigger language plpgsql as $fn$
begin
  if tg_op = 'UPDATE' and ${isThrough('erase')} and row(
      new.position, new.id, new.xid, new.horizon, new."createdAt", new.type, new.entity, new."entityId", new.action, new."tenant_Id", new."logRequestId", new.cause
    ) is not distinct from row(
      old.position, old.id, old.xid, old.horizon, old."createdAt", old.type, old.entity, old."entityId", old.action, old."tenant_Id", old."logRequestId", old.cause
    ) then
    return new;
  elsif tg_op = 'UPDATE' and ${isThrough('adopt')} then
    return new;
  elsif tg_op in ('DELETE', 'TRUNCATE') and ${isThrough('retention')} then
    return old;
  end if;
  raise exception 'the log is append-only: % on % is refused', tg_op, tg_table_name using errcode = 'insufficient_privilege';
end
$fn$`,
  `create or replace trigger "svc_log_guard" before update or delete on "${logTable}"
  for each row execute function ${guardFunction}()`,
  `create or replace trigger "svc_log_truncate" before truncate on "${logTable}"
  for each statement execute function ${guardFunction}()`,
]

/** The text of the statement that the client has sent, whatever runs within it. */
function isThrough(door: keyof typeof logDoors): string {
  return `starts_with(current_query(), '${logDoors[door]}')`
}
