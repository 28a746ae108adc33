/**
 * The log: the table, its partitions, its guards and its publication, as SQL text (design §4). Nothing here talks to a
 * database: setup, migrations and DDL run what these functions return, statement by statement, in their transaction.
 *
 * Words: an *event* is a row of the log; its *position* is its place per record; its *horizon* is the oldest
 * transaction that was running when it was written.
 */

import type { Collection, Field, Kind } from '../catalog/catalog.ts'
import { quoteName, quoteText } from '../db/sql.ts'

export const logTable = 'svc_AuditLog'
export const publicationName = 'svc_realtime'
/** The schema for what belongs to the log but is no collection: the trigger functions and the retention floor. */
export const logSchema = 'svc_log'

/** Its name is none a collection can have: their trigger functions live beside it. */
const guardFunction = `${logSchema}."$guard"`

/** What replaces the images of an erased event in `changes`; whoever erases writes it, `verifyLog` counts it. */
export const erasedMarker = { erased: true } as const

/** Opens the door for the one permitted UPDATE of events: replacing the images of an erased item. */
export const allowEraseSql = `select set_config('svc.erase', 'on', true)`
/** Opens the door for deleting or truncating events: retention only. */
export const allowRetentionSql = `select set_config('svc.retention', 'on', true)`

/**
 * Sets the actor of the transaction. The only value is JSON text with any of the keys `user`, `role`, `tenant` (UUIDs),
 * `ip`, `agent`, `request` (text); absent or null means unknown.
 */
export const setActorSql = `select set_config('svc.actor', $1, true)`

/**
 * `with ctx as materialized (…)`: sets the actor in the statement that writes, so that a one-row write stays one round
 * trip. `parameter` is the number of the parameter with the actor's JSON.
 *
 * **The statement must read from `ctx`** (`insert … select … from ctx`, `update … from ctx`, `delete … using ctx`):
 * PostgreSQL does not evaluate a CTE that nothing selects from, and the write would have no actor.
 */
export function actorCte(parameter: number): string {
  return `with ctx as materialized (select set_config('svc.actor', $${parameter}, true))`
}

/**
 * {@link actorCte} for the condition of an `update` or `delete`, where it costs less: evaluated for the rows that are
 * found, before they are written.
 */
export function actorCondition(parameter: number): string {
  return `set_config('svc.actor', $${parameter}, true) is not null`
}

/**
 * Creates the log with its guards and the partitions from this month to two months ahead. Safe to run again.
 *
 * - `createdAt` is the wall clock when the event was appended, not the start of its transaction: per record it grows
 *   with `position`, which a state "as of a time" relies on, and no event is written into an expired partition.
 * - `id` is a function of `position` (version 8 UUID, 48 bits): monotone, so inserts touch one page of its index, which
 *   serves lookups by `id` alone, and whoever looks for a range of positions asks for their ids. It is a default, not a
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
  primary key (id, "createdAt")
) partition by range ("createdAt")`,
    `create index if not exists "${logTable}_xid_idx" on "${logTable}" (xid)`,
    `create index if not exists "${logTable}_entity_idx" on "${logTable}" (entity, "entityId", position)`,
    `create index if not exists "${logTable}_createdAt_action_idx" on "${logTable}" ("createdAt", action)`,
    ...floorSql,
    ...historySql(),
    shownSql,
    ...guardSql,
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
    `do $do$
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
      perform set_config('svc.retention', 'on', true);
      execute format('insert into %I (%s) select %s from "${logTable}_default" where "createdAt" >= $1 and "createdAt" < $2',
        partition_name, columns, columns) using lower_bound, upper_bound;
      delete from "${logTable}_default" where "createdAt" >= lower_bound and "createdAt" < upper_bound;
      perform set_config('svc.retention', '', true);
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
 * Drops and creates the collection's log triggers; for a collection that is not logged it only drops them.
 *
 * - create → `{after: row}`; update → `{after: row, before: old values of the changed fields}`, nothing when no logged
 *   field changed; delete → `{before: row}`. An update of the primary key is a delete and a create; TRUNCATE is a delete
 *   of every row.
 * - Hidden fields are JSON null in the images and in `before`, where the key still says that they changed.
 * - One function per table with the security of its owner: whoever may write the table needs no right to the log.
 * - The settings that the text form of values depends on are fixed, so images don't vary with the session.
 */
export function logTriggersSql(collection: Collection): string[] {
  const table = quoteName(collection.name)
  if (!collection.logged) return dropLogTriggersSql(collection.name)
  return [
    ...dropTriggers(collection.name),
    triggerFunction(collection),
    `create trigger "svc_log_insert" after insert on ${table} referencing new table as "svc$new_rows"
  for each statement execute function ${functionName(collection.name)}()`,
    `create trigger "svc_log_update" after update on ${table} referencing old table as "svc$old_rows" new table as "svc$new_rows"
  for each statement execute function ${functionName(collection.name)}()`,
    `create trigger "svc_log_delete" after delete on ${table} referencing old table as "svc$old_rows"
  for each statement execute function ${functionName(collection.name)}()`,
    `create trigger "svc_log_truncate" before truncate on ${table}
  for each statement execute function ${functionName(collection.name)}()`,
  ]
}

/** Replaces the function of triggers that are there by today's: no lock on the table. Nothing for what is not logged. */
export function logFunctionSql(collection: Collection): string[] {
  return collection.logged ? [triggerFunction(collection)] : []
}

/** Removes a table's log triggers. Before `DROP TABLE` nothing is needed but the function's removal, so run it before. */
export function dropLogTriggersSql(name: string): string[] {
  return [...dropTriggers(name), `drop function if exists ${functionName(name)}()`]
}

/**
 * SQL expression of a row's image: every column as JSON, hidden ones null. `row` is a whole row such as `alias.*`
 * (a bare alias would mean the column of that name, where there is one).
 */
export function imageSql(collection: Collection, row: string): string {
  const hidden = [...collection.fields.values()].filter((field) => field.hidden)
  if (hidden.length === 0) return `to_jsonb(${row})`
  const redaction = JSON.stringify(Object.fromEntries(hidden.map((field) => [field.name, null])))
  return `(to_jsonb(${row}) || ${quoteText(redaction)}::jsonb)`
}

/** The settings that the JSON form of values depends on; whoever compares with an image needs them too. */
export const imageSettings = { timezone: 'UTC', datestyle: 'ISO, YMD', extra_float_digits: '1' } as const

/**
 * One statement for setup, after a logical restore (pg_dump): the events then carry transaction ids of another server,
 * which here lie in the future. They become older than every transaction of this server, and cursors from before the
 * restore are told to start over. Does nothing otherwise.
 */
export function adoptRestoredEventsSql(): string[] {
  return [
    `do $do$
begin
  if exists (select from "${logTable}" where xid >= pg_snapshot_xmax(pg_current_snapshot())) then
    perform set_config('svc.adopt', 'on', true);
    update "${logTable}" set xid = '3', horizon = '3' where xid <> '3';
    update ${logSchema}.floor set removed = pg_current_xact_id();
    perform set_config('svc.adopt', '', true);
  end if;
end
$do$`,
  ]
}

/**
 * For a migration: what {@link logTableSql} makes today of a log that was made with generated columns and an index on
 * `position`. Safe to run again; no row is rewritten.
 */
export function plainLogColumnsSql(): string[] {
  return [
    `alter table "${logTable}" alter column id drop expression if exists`,
    `alter table "${logTable}" alter column id set default ${ownIdSql}`,
    `alter table "${logTable}" drop column if exists "updatedAt"`,
    `drop index if exists "${logTable}_position_idx"`,
    ...guardSql,
  ]
}

/** The position that an event's id was made of; undefined when the id is not one of ours. */
export function positionOfEventId(id: string): string | undefined {
  const match = /^([0-9a-f]{8})-([0-9a-f]{4})-8000-8000-0{12}$/i.exec(id)
  return match === null ? undefined : BigInt(`0x${match[1]}${match[2]}`).toString()
}

/** SQL expression of the id of the event at a position, a bigint expression; ids are in the order of the positions. */
export function eventIdSql(position: string): string {
  return `(encode(int8send((${position}) << 16 | 32768), 'hex') || '8000000000000000')::uuid`
}

const ownIdSql = eventIdSql(`currval('"${logTable}_position"')`)

const storedColumns = [
  'position, id, xid, horizon, "createdAt", type, entity, "entityId", action, changes',
  'ipaddress, "userId", "roleId", "tenant_Id", "requestId", "userAgent"',
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
 * The retention floor: the newest transaction of which an event was removed. It can't be derived from what is left (an
 * empty log does not say whether it is new or was emptied), so whoever removes events raises it in the same transaction.
 */
const floorSql = [
  `create table if not exists ${logSchema}.floor (
  only_row boolean primary key default true check (only_row),
  removed xid8 not null
)`,
  `insert into ${logSchema}.floor (removed) values ('0') on conflict do nothing`,
]

/**
 * How far back the log reaches, for reads of the past (query/past.ts): `"upTo"`, the time of the newest event that was
 * removed, and `svc_log.reach()`, which is true where the log holds everything after a point: a snapshot by its bounds, or
 * a time. SV410 with the oldest moment (in milliseconds, rounded up) where it does not, SV416 for a point yet to come.
 * Safe to run again.
 */
export function historySql(): string[] {
  return [
    `alter table ${logSchema}.floor add column if not exists "upTo" timestamptz not null default '-infinity'`,
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
 * Append-only, against mistakes: an UPDATE may only replace `changes` and personal data of an erased item, DELETE and
 * TRUNCATE belong to retention. Row triggers, because a statement trigger does not see statements on a partition.
 */
const guardSql = [
  `create or replace function ${guardFunction}() returns trigger language plpgsql as $fn$
begin
  if tg_op = 'UPDATE' and current_setting('svc.erase', true) = 'on' and row(
      new.position, new.id, new.xid, new.horizon, new."createdAt", new.type, new.entity, new."entityId", new.action, new."tenant_Id"
    ) is not distinct from row(
      old.position, old.id, old.xid, old.horizon, old."createdAt", old.type, old.entity, old."entityId", old.action, old."tenant_Id"
    ) then
    return new;
  elsif tg_op = 'UPDATE' and current_setting('svc.adopt', true) = 'on' then
    return new;
  elsif tg_op in ('DELETE', 'TRUNCATE') and current_setting('svc.retention', true) = 'on' then
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

function dropTriggers(name: string): string[] {
  const table = quoteName(name)
  return ['insert', 'update', 'delete', 'truncate'].map(
    (operation) => `drop trigger if exists "svc_log_${operation}" on ${table}`,
  )
}

/** A table's name is unique and at most 63 bytes long, and so is its function's in a schema of their own. */
function functionName(name: string): string {
  return `${logSchema}.${quoteName(name)}`
}

function triggerFunction(collection: Collection): string {
  const settings = settingsOf(collection).map((name) => `  set ${name} = '${imageSettings[name]}'`)
  return `create or replace function ${functionName(collection.name)}() returns trigger language plpgsql security definer
  set search_path = public, pg_temp
${settings.join('\n')}
as $fn$
declare
  actor constant jsonb := nullif(current_setting('svc.actor', true), '')::jsonb;
  one_row boolean;
begin
  if tg_op = 'INSERT' then
    ${append(collection, createdRows(collection))}
  elsif tg_op = 'UPDATE' then
    select ${isOneRow(collection)} into one_row;
    if one_row then
      ${append(collection, updatedRow(collection))}
    else
      ${append(collection, updatedRows(collection))}
    end if;
  else
    if tg_op = 'DELETE' then
      ${append(collection, deletedRows(collection, '"svc$old_rows"', ''))}
    else
      ${append(collection, deletedRows(collection, `only ${quoteName(collection.name)}`, ` order by "svc$old".${key(collection)}`))}
    end if;
  end if;
  return null;
end
$fn$`
}

/** Each SET costs a one-row write some percent, so a function has only those its columns need. */
function settingsOf(collection: Collection): (keyof typeof imageSettings)[] {
  const kinds = new Set([...collection.fields.values()].flatMap(({ kind, element }) => [kind, element ?? kind]))
  const any = (...wanted: Kind[]) => wanted.some((kind) => kinds.has(kind))
  return [
    ...(any('datetime', 'time', 'range') ? (['timezone'] as const) : []),
    ...(any('range') ? (['datestyle'] as const) : []),
    ...(any('float', 'range', 'geometry', 'geography', 'vector') ? (['extra_float_digits'] as const) : []),
  ]
}

/**
 * `rows` yields "entityId", action, changes and the row's tenant, in the order in which positions are to be taken.
 *
 * What is known of the actor is taken out of its JSON here: each variable of the function would be an evaluation of its
 * own, which costs a one-row write more than all of these. The horizon is of this statement's snapshot, which is older
 * than its first position: whoever resumes from there gets all that was not yet visible at that moment.
 */
function append(collection: Collection, rows: string): string {
  return `insert into "${logTable}" (entity, "entityId", action, changes, "tenant_Id",
      "userId", "roleId", ipaddress, "userAgent", "requestId", horizon)
    select ${quoteText(collection.name)}, event."entityId", event.action, event.changes, coalesce(event.tenant, (actor->>'tenant')::uuid),
      (actor->>'user')::uuid, (actor->>'role')::uuid, actor->>'ip', actor->>'agent', actor->>'request',
      pg_snapshot_xmin(pg_current_snapshot())
    from (${rows}) event;`
}

function createdRows(collection: Collection): string {
  return `select "svc$new".${key(collection)}::text as "entityId", 'create' as action,
      jsonb_build_object('after', ${imageSql(collection, '"svc$new".*')}) as changes, ${tenant(collection, 'svc$new')} as tenant
      from "svc$new_rows" "svc$new"`
}

function deletedRows(collection: Collection, source: string, order: string): string {
  return `select "svc$old".${key(collection)}::text as "entityId", 'delete' as action,
      jsonb_build_object('before', ${imageSql(collection, '"svc$old".*')}) as changes, ${tenant(collection, 'svc$old')} as tenant
      from ${source} "svc$old"${order}`
}

/** Whether the statement changed exactly one row and not its key; looks at two rows at most. */
function isOneRow(collection: Collection): string {
  const first = (rows: string) => `(select ${key(collection)} as "svc$key" from "${rows}" limit 2)`
  return `count(*) = 1 and bool_and("svc$old"."svc$key" = "svc$new"."svc$key")
      from ${first('svc$old_rows')} "svc$old", ${first('svc$new_rows')} "svc$new"`
}

/**
 * What {@link updatedRows} is for one row: nothing to join, to number or to sort. Where every change is logged, the rows
 * are compared byte by byte: PostgreSQL prepares every expression anew for every statement, and this is one.
 */
function updatedRow(collection: Collection): string {
  return `select "svc$new".${key(collection)}::text as "entityId", 'update' as action,
      jsonb_build_object('after', ${imageSql(collection, '"svc$new".*')}, 'before', ${changedValues(collection)}) as changes,
      ${tenant(collection, 'svc$new')} as tenant
      from "svc$new_rows" "svc$new", "svc$old_rows" "svc$old"
      where ${hasOnlyLogged(collection) ? '"svc$old".* *<> "svc$new".*' : isAnyChanged(collection)}`
}

/**
 * Old and new rows are joined by primary key. The join is a full one because of changed keys, and that also keeps it
 * linear: PostgreSQL can run it as a hash or merge join only, whereas the cached plan of an inner join that was made
 * for one row would be a nested loop for a hundred thousand.
 */
function updatedRows(collection: Collection): string {
  const id = key(collection)
  const tenants = collection.fields.has('tenant_Id')
    ? `case when "svc$new".${id} is null then "svc$old"."tenant_Id" else "svc$new"."tenant_Id" end`
    : 'null::uuid'
  return `select coalesce("svc$new".${id}, "svc$old".${id})::text as "entityId",
      case when "svc$new".${id} is null then 'delete' when "svc$old".${id} is null then 'create' else 'update' end as action,
      case when "svc$new".${id} is null then jsonb_build_object('before', ${imageSql(collection, '"svc$old".*')})
        when "svc$old".${id} is null then jsonb_build_object('after', "svc$new"."svc$image")
        else jsonb_build_object('after', "svc$new"."svc$image", 'before', ${changedValues(collection)})
      end as changes,
      ${tenants} as tenant
      from (select "svc$row".*, ${imageSql(collection, '"svc$row".*')} as "svc$image", row_number() over () as "svc$ordinal"
        from "svc$new_rows" "svc$row") "svc$new"
      full join "svc$old_rows" "svc$old" on "svc$old".${id} = "svc$new".${id}
      where "svc$new".${id} is null or "svc$old".${id} is null
        or ${isAnyChanged(collection)}
      order by "svc$new"."svc$ordinal" nulls first`
}

function isAnyChanged(collection: Collection): string {
  return `(${['false', ...loggedFields(collection).map(isChanged)].join('\n        or ')})`
}

const hasOnlyLogged = (collection: Collection): boolean =>
  loggedFields(collection).length === collection.fields.size - 1

function loggedFields({ fields }: Collection): Field[] {
  return [...fields.values()].filter((field) => !field.unlogged && !field.primaryKey)
}

/** The old image without what is as it was: one object that is cut down costs less than one made of a part per field. */
function changedValues(collection: Collection): string {
  const logged = new Set(loggedFields(collection))
  const unchanged = [...collection.fields.values()].map((field) => {
    const name = `${quoteText(field.name)}::text`
    return logged.has(field)
      ? `\n          case when not (${isChanged(field)}) then ${name} end`
      : `\n          ${name}`
  })
  return `${imageSql(collection, '"svc$old".*')} - array[${unchanged.join(',')}]`
}

function isChanged(field: Field): string {
  const column = quoteName(field.name)
  const cast = comparedAsText.has(field.kind) || field.pgType === 'citext' ? '::text' : ''
  return `"svc$old".${column}${cast} is distinct from "svc$new".${column}${cast}`
}

/**
 * Types without equality (json), with an operator that is not in pg_catalog, or whose equality ignores digits
 * (1.0 = 1.00); so does citext's with case.
 */
const comparedAsText: ReadonlySet<Kind> = new Set([
  'decimal',
  'json',
  'array',
  'range',
  'geometry',
  'geography',
  'vector',
  'enum',
])

function tenant(collection: Collection, alias: string): string {
  return collection.fields.has('tenant_Id') ? `"${alias}"."tenant_Id"` : 'null::uuid'
}

function key(collection: Collection): string {
  return quoteName(collection.primaryKey.name)
}
