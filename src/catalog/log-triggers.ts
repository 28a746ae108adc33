import { quoteName, quoteText } from '../db/sql.ts'
import type { Collection, Field, Kind, LinkEnd } from './catalog.ts'
import { columnsWithoutImage } from './system-collections.ts'

/**
 * The names, the actor and the ids that writers and readers of the log share. The table is in log-table.ts, the
 * triggers that fill it in log-triggers.ts.
 *
 * Words: an *event* is a row of the log; its *position* is its place per record; its *horizon* is the oldest
 * transaction that was running when it was written.
 */

export const logTable = 'svc_AuditLog'

/** See `oneByOneSql`. */
export const oneByOneState = 'SV001'

/** The schema for what belongs to the log but is no collection: the trigger functions and the retention floor. */
export const logSchema = 'svc_log'

/*
 * The triggers by which a collection's table writes its own events, as SQL text. Nothing here talks to a
 * database: DDL runs what these functions return, statement by statement, in its transaction.
 */

/**
 * Drops and creates the collection's log triggers; for a collection that is not logged it only drops them.
 *
 * - create → `{after: row}`; update → `{after: row, before: old values of the changed fields}`, nothing when no logged
 *   field changed; delete → `{before: row}`. An update of the primary key is a delete and a create; TRUNCATE is a delete
 *   of every row. What an update and its cascades make of a row is one change, however often they write it.
 * - Hidden fields are JSON null in the images and in `before`, where the key still says that they changed.
 * - One function per table with the security of its owner: writers of the table need no right to the log.
 * - The settings that the text form of values depends on are fixed, so images don't vary with the session.
 * - A change of a table between (`ends`) is an update of the items at its ends as well, see {@link appendEnds}.
 */
export function logTriggersSql(collection: Collection, ends: readonly LinkEnd[] = []): string[] {
  const table = quoteName(collection.name)
  if (!collection.logged) return dropLogTriggersSql(collection.name)
  return [
    ...dropTriggers(collection.name),
    triggerFunction(collection, ends),
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
export function logFunctionSql(collection: Collection, ends: readonly LinkEnd[] = []): string[] {
  return collection.logged ? [triggerFunction(collection, ends)] : []
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
  const hidden = [...collection.fields.values()].filter(
    (field) => field.hidden || columnsWithoutImage.has(`${collection.name}.${field.name}`),
  )
  if (hidden.length === 0) return `to_jsonb(${row})`
  const redaction = JSON.stringify(Object.fromEntries(hidden.map((field) => [field.name, null])))
  return `(to_jsonb(${row}) || ${quoteText(redaction)}::jsonb)`
}

/** The settings that the JSON form of values depends on; comparing with an image needs them too. */
export const imageSettings = { timezone: 'UTC', datestyle: 'ISO, YMD', extra_float_digits: '1' } as const

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

function triggerFunction(collection: Collection, ends: readonly LinkEnd[]): string {
  const linked = (rows: string) => ends.map((end) => `\n    ${appendEnds(end, rows)}`).join('')
  const settings = settingsOf([collection, ...ends.map((end) => end.collection)]).map(
    (name) => `  set ${name} = '${imageSettings[name]}'`,
  )
  return `create or replace function ${functionName(collection.name)}() returns trigger language plpgsql security definer
  set search_path = public, pg_temp
${settings.join('\n')}
as $fn$
declare
  actor constant jsonb := nullif(current_setting('svc.actor', true), '')::jsonb;
  appended bigint;
begin
  if actor ? 'each' then
    ${ends.length > 0 || collection.system ? `perform ${oneByOne};` : appendEach(collection)}
    return null;
  end if;
  if tg_op = 'INSERT' then
    ${append(collection, createdRows(collection))}${linked(linkRows('"svc$new_rows"'))}
  elsif tg_op = 'UPDATE' then
    perform from "svc$new_rows" limit 1 offset 1;
    if not found then
      ${append(collection, updatedRow(collection))}
      if found then${linked(changedLinkRows(collection))} return null; end if;
    end if;
    ${appendUpdated(collection, (rows) => append(collection, rows(updatedRows(collection))) + linked(rows(changedLinkRows(collection))))}
  else
    if tg_op = 'DELETE' then
      ${append(collection, deletedRows(collection, '"svc$old_rows"', ''))}${linked(linkRows('"svc$old_rows"'))}
    else
      ${append(collection, deletedRows(collection, `only ${quoteName(collection.name)}`, ` order by "svc$old".${key(collection)}`))}${linked(linkRows(`only ${quoteName(collection.name)}`))}
    end if;
  end if;
  return null;
end
$fn$`
}

/** Ends a statement that wrote rows of several requests, which it may not: SQLSTATE SV001. No collection can have its name. */
const oneByOne = `${logSchema}."$one_by_one"()`

/** See {@link oneByOne}; for setup. Safe to run again. */
export const oneByOneSql = `create or replace function ${oneByOne} returns jsonb
  language plpgsql set search_path = public, pg_temp as $fn$
begin
  raise exception using errcode = '${oneByOneState}', message = 'These rows have to be written one by one';
end
$fn$`

/**
 * For a statement that writes one row of each of several requests (`events/row-batches.ts`). The setting then holds the actors
 * under \`each\`: of an insert as a list, in the order of the rows, else by the keys of the rows. That says nothing of rows
 * that are written by anything else (a cascade, a trigger), so the statement must be all that there is: it was sent by a client,
 * the table has no trigger but ours, and each row has exactly one actor.
 */
function appendEach(collection: Collection): string {
  const byKey = `actor->'each'->event."entityId"`
  const inserted = createdRows(collection, `, (row_number() over ())::int - 1 as "svc$place"`)
  return `if tg_op = 'TRUNCATE' or pg_trigger_depth() <> 1
      or exists (select from pg_trigger t where t.tgrelid = tg_relid and not t.tgisinternal and t.tgname not like 'svc\\_log\\_%') then
      perform ${oneByOne};
    elsif tg_op = 'INSERT' then
      ${append(collection, inserted, `actor->'each'->event."svc$place"`)}
      get diagnostics appended = row_count;
      if appended <> jsonb_array_length(actor->'each') then
        perform ${oneByOne};
      end if;
    elsif tg_op = 'UPDATE' then
      ${appendUpdated(collection, (rows) => append(collection, rows(updatedRows(collection)), byKey))}
    else
      ${append(collection, deletedRows(collection, '"svc$old_rows"', ''), byKey)}
    end if;`
}

/** Each SET costs a one-row write some percent, so a function has only those its columns need. */
function settingsOf(collections: readonly Collection[]): (keyof typeof imageSettings)[] {
  const fields = collections.flatMap((collection) => [...collection.fields.values()])
  const kinds = new Set(fields.flatMap(({ kind, element }) => [kind, element ?? kind]))
  const any = (...wanted: Kind[]) => wanted.some((kind) => kinds.has(kind))
  return [
    ...(any('datetime', 'time', 'range') ? (['timezone'] as const) : []),
    ...(any('range') ? (['datestyle'] as const) : []),
    ...(any('float', 'range', 'geometry', 'geography', 'vector') ? (['extra_float_digits'] as const) : []),
  ]
}

/**
 * `rows` yields "entityId", action, changes and the row's tenant, in the order of positions.
 *
 * The statement itself takes the actor's members out of its JSON: a variable of the function for each would be an
 * evaluation of its own, which costs a one-row write more than all of these. `ofEvent` is an expression for the actor
 * of each event, where they differ. The horizon is of this statement's snapshot, which is older than its first
 * position: a reader that resumes from there gets all that was not yet visible at that moment.
 */
function append(collection: Collection, rows: string, ofEvent?: string): string {
  const actor = ofEvent === undefined ? 'actor' : '"svc$by".actor'
  // OFFSET keeps the expression from being put in for each time that it is named.
  const actors =
    ofEvent === undefined
      ? ''
      : ` cross join lateral (select coalesce(${ofEvent}, ${oneByOne}) as actor offset 0) "svc$by"`
  return `insert into "${logTable}" (entity, "entityId", action, changes, "tenant_Id",
      "userId", "roleId", ipaddress, "userAgent", "requestId", "logRequestId", agent, cause, horizon)
    select ${quoteText(collection.name)}, event."entityId", event.action, event.changes, coalesce(event.tenant, (${actor}->>'tenant')::uuid),
      (${actor}->>'user')::uuid, (${actor}->>'role')::uuid, ${actor}->>'ip', ${actor}->>'agent', ${actor}->>'request',
      (${actor}->>'id')::uuid, ${actor}->'by', ${actor}->'cause', pg_snapshot_xmin(pg_current_snapshot())
    from (${rows}) event${actors};`
}

/**
 * Appends an update of each item that these rows of the table between link: `{after: row, before: {}}`, because none of
 * its own columns has changed. One with an event of this transaction is left out, so that a write of an item with
 * its links is one event of it, and links that go with their item are none. The item is locked against changes, not
 * against other links: the image must not be older than what stands before it in the log. In the order of their keys, so
 * that two statements never wait for each other. The keys are an array, as a join could look into the log for every item.
 */
function appendEnds({ collection, foreignKey, discriminator }: LinkEnd, rows: string): string {
  const id = key(collection)
  const only =
    discriminator === undefined
      ? ''
      : ` where "svc$link".${quoteName(discriminator.column)} = ${quoteText(discriminator.value)}`
  const entity = quoteText(collection.name)
  // No older event can be this transaction's, and partitions of other months need not be opened.
  const newest = `(select e.xid from "${logTable}" e where e.entity = ${entity} and e."entityId" = p.${id}::text
          and e."createdAt" >= date_trunc('month', now(), 'UTC') order by e.position desc limit 1)`
  return append(
    collection,
    `select "svc$end".${id}::text as "entityId", 'update' as action,
      jsonb_build_object('after', ${imageSql(collection, '"svc$end".*')}, 'before', '{}'::jsonb) as changes,
      ${tenant(collection, 'svc$end')} as tenant
      from (select p.* from ${quoteName(collection.name)} p
        where p.${id} = any(array(select distinct "svc$link".${quoteName(foreignKey)} from (${rows}) "svc$link"${only}))
          and ${newest} is distinct from pg_current_xact_id()
        order by p.${id} for share of p) "svc$end"`,
  )
}

const linkRows = (source: string): string => `select "svc$row".* from ${source} "svc$row"`

/** The rows that changed, as they were and as they are. */
function changedLinkRows(collection: Collection): string {
  const id = key(collection)
  const rows = (shown: string, other: string) => `select "${shown}".* from "${shown}_rows" "${shown}"
          left join "${other}_rows" "${other}" on "${other}".${id} = "${shown}".${id}
          where "${other}".${id} is null or ${isAnyChanged(collection)}`
  return `${rows('svc$old', 'svc$new')} union all ${rows('svc$new', 'svc$old')}`
}

/**
 * Appends what an update of many rows changed. A foreign key's action on the table itself (ON UPDATE CASCADE) adds its rows to
 * those of the statement, so that a row is there once for each of its versions: only then are the rows reduced, which
 * costs more than to look.
 */
function appendUpdated(collection: Collection, appended: (rows: (text: string) => string) => string): string {
  const keys = (source: string, side: number) =>
    `select ${side} as side, "svc$row".${key(collection)} as key from "${source}" "svc$row"`
  return `if exists (select from (${keys('svc$new_rows', 1)} union all ${keys('svc$old_rows', -1)}) "svc$key"
        group by "svc$key".side, "svc$key".key having count(*) > 1) then
      ${appended((text) => `${netRows(collection)} ${text}`)}
    else
      ${appended((text) => text)}
    end if;`
}

/**
 * Puts in place of the old and new rows, for what follows, those that the statement began and ended with: of each key the
 * first old row and the last new one, in the order in which they were written. More new than old rows of a key mean that
 * the row was not there before, more old ones that it is not there after, so there is no row of that side.
 */
function netRows(collection: Collection): string {
  const columns = [...collection.fields.keys()].map(quoteName).join(', ')
  const rows = (source: string, side: number) =>
    `select "svc$row".*, ${side} as "svc$side", row_number() over () as "svc$written" from "${source}" "svc$row"`
  const net = (isShown: string) => `select ${columns} from "svc$ranked" where ${isShown} order by "svc$written"`
  return `with "svc$ranked" as (
        select "svc$row".*, sum("svc$side") over (partition by ${key(collection)}) as "svc$more",
          row_number() over (partition by ${key(collection)}, "svc$side" order by -"svc$side" * "svc$written") as "svc$rank"
        from (${rows('svc$new_rows', 1)}
          union all ${rows('svc$old_rows', -1)}) "svc$row"),
      "svc$new_rows" as (${net('"svc$side" = 1 and "svc$rank" = 1 and "svc$more" >= 0')}),
      "svc$old_rows" as (${net('"svc$side" = -1 and "svc$rank" = 1 and "svc$more" <= 0')})`
}

function createdRows(collection: Collection, more = ''): string {
  const { changes, from } = onlyImage(collection, 'after', 'svc$new')
  return `select "svc$new".${key(collection)}::text as "entityId", 'create' as action,
      ${changes} as changes, ${tenant(collection, 'svc$new')} as tenant${more}
      from "svc$new_rows" "svc$new"${from}`
}

function deletedRows(collection: Collection, source: string, order: string): string {
  const { changes, from } = onlyImage(collection, 'before', 'svc$old')
  return `select "svc$old".${key(collection)}::text as "entityId", 'delete' as action,
      ${changes} as changes, ${tenant(collection, 'svc$old')} as tenant
      from ${source} "svc$old"${from}${order}`
}

/**
 * Changes that are one image. Of a row without hidden fields it is made in one go, as a record that has the row in it: an
 * image that is put into an object afterwards is read and written again, which was a twentieth of a bulk create.
 */
function onlyImage(collection: Collection, name: 'before' | 'after', row: string): { changes: string; from: string } {
  const image = imageSql(collection, `"${row}".*`)
  return image === `to_jsonb("${row}".*)`
    ? { changes: 'to_jsonb("svc$image".*)', from: `, lateral (select "${row}" as "${name}") "svc$image"` }
    : { changes: `jsonb_build_object('${name}', ${image})`, from: '' }
}

/**
 * {@link updatedRows} for one row that kept its key: nothing to join, to number or to sort. Yields nothing for a row
 * that has not changed or has another key now, which is then left to the general statement. Where every change is
 * logged, the rows are compared byte by byte: PostgreSQL prepares every expression anew for every statement, and this
 * is one.
 */
function updatedRow(collection: Collection): string {
  const id = key(collection)
  return `select "svc$new".${id}::text as "entityId", 'update' as action,
      jsonb_build_object('after', ${imageSql(collection, '"svc$new".*')}, 'before', ${changedValues(collection)}) as changes,
      ${tenant(collection, 'svc$new')} as tenant
      from "svc$new_rows" "svc$new", "svc$old_rows" "svc$old"
      where "svc$old".${id} = "svc$new".${id} and ${hasOnlyLogged(collection) ? '"svc$old".* *<> "svc$new".*' : isAnyChanged(collection)}`
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
