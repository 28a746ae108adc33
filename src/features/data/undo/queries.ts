import type { Collection, Field } from '../../../catalog/catalog.ts'
import { logSchema, logTable } from '../../../catalog/log-triggers.ts'
import { imageBefore, ofTodaysColumns } from '../../../catalog/past-columns.ts'
import { parameterType } from '../../../catalog/values.ts'
import { type Reader, rawQuery, type Tx } from '../../../db/sql.ts'
import { eventIdSql } from '../../../events/log.ts'
import type { Actor } from '../../../events/types.ts'
import { isUuid } from '../../../language/text.ts'
import type { Access } from '../../../query/access.ts'
import { compileCondition } from '../../../query/compile.ts'
import { projectionList } from '../../../query/compile-rows.ts'
import { afterSql, namesToLookFor, ofTodaySql, type Point, reachedSql, youngerSql } from '../../../query/past.ts'
import { type ResolvedFilter, readableFields, resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import { createParams, ident, literal, misfitsSql, type Params, rowOfJson, ruledBySql } from '../../../query/sql.ts'
import type { ItemReads, ItemWrites } from '../items/items.ts'

/** Statements over the log, of what is to be undone and of rows as they were. */

/** Events, in one of the ways in which they are chosen. */
export type EventChoice =
  | { readonly by: 'requests'; readonly requests: readonly string[] }
  | {
      readonly by: 'transaction'
      readonly xid: string
      /** Those of its requests that are meant; undefined for all of it. */
      readonly only: readonly string[] | undefined
      /** Others that are meant as well. */
      readonly requests: readonly string[]
    }
  | {
      readonly by: 'user'
      readonly userId: string
      readonly from: string
      readonly to: string
      readonly collections: readonly string[] | undefined
      readonly withCaused: boolean
      /** The part of the log that they are chosen from; undefined for all of it. */
      readonly sight: LogSight | undefined
    }
  | { readonly by: 'point'; readonly point: Point; readonly part: RestorablePart }

/** Rows that are brought back together: of whole collections, or those of a tenant in them. */
export type RestorablePart = { readonly collections: readonly string[]; readonly tenant?: TenantRows | undefined }

export type TenantRows = {
  readonly id: string
  /** The collection whose rows are the tenants. */
  readonly home: string
  /** Collections without a tenant of their own whose rows are parts of rows that have one. */
  readonly parts: readonly { readonly collection: string; readonly column: string; readonly of: string }[]
}

/**
 * All that a request does is written from a little before the time in its id (clocks differ) until so much later: so a statement
 * names the months of the log that it has to look into.
 */
export const requestWindow = { before: '2 minutes', after: '15 minutes' } as const

/** Whether the log may have a request of this id: a UUIDv7 of the server, whose time a statement can name. */
export const isRequestId = (id: string): boolean =>
  isUuid(id) && id[14] === '7' && madeAt(id) < Date.parse('9999-12-31T00:00:00Z')

/** When the server made a UUIDv7: its first 48 bits, in milliseconds. */
export const madeAt = (id: string): number => Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16)

/** A condition on an event. */
export function chosenSql(chosen: EventChoice, params: Params, event = 'l'): string {
  const ofRequests = (requests: readonly string[]) =>
    `${event}."logRequestId" = any(${params.bind([...requests], 'uuid[]')}) and ${withinSql(requests, params, event)}`
  switch (chosen.by) {
    case 'requests':
      return ofRequests(chosen.requests)
    case 'transaction': {
      const whole = `${event}.xid = ${params.bind(chosen.xid, 'xid8')}`
      const own =
        chosen.only === undefined
          ? whole
          : `${whole} and ${requestSql(event)} = any(${params.bind([...chosen.only], 'text[]')})`
      return chosen.requests.length === 0 ? own : `(${own} or (${ofRequests(chosen.requests)}))`
    }
    case 'user': {
      const { userId, from, to, collections, withCaused, sight } = chosen
      const within =
        collections === undefined ? '' : ` and ${event}.entity = any(${params.bind([...collections], 'text[]')})`
      return `${event}."userId" = ${params.bind(userId, 'uuid')} and ${event}."createdAt" >= ${params.bind(from, 'timestamptz')}
        and ${event}."createdAt" < ${params.bind(to, 'timestamptz')}${within}${withCaused ? '' : ` and ${event}.cause is null`}${sight === undefined ? '' : ` and ${sight.where(params, event)}`}`
    }
    case 'point': {
      const { point, part } = chosen
      const after = afterSql(point, params, event)
      const within = `${event}.type = 'data' and ${event}.entity = any(${params.bind([...part.collections], 'text[]')}) and ${after}`
      return part.tenant === undefined ? within : `${within} and (${ofTenant(part.tenant, params, event)})`
    }
  }
}

/**
 * The tenant of the row before or after the event: from its image, and from the event itself if the image was erased.
 */
function ofTenant({ id, home, parts }: TenantRows, params: Params, event: string): string {
  const tenant = params.bind(id, 'text')
  const has = (images: string, column: string, value: string) =>
    `(${images}.changes->'after'->>'${column}' ${value} or ${images}.changes->'before'->>'${column}' ${value})`
  const own = `${has(event, 'tenant_Id', `= ${tenant}`)} or (${event}.changes ? 'erased' and ${event}."tenant_Id"::text = ${tenant})`
  const ofParts = parts.map(({ collection, column, of }) => {
    const owners = `in (select o.id::text from ${ident(of)} o where o."tenant_Id"::text = ${tenant}
        union select g."entityId" from "${logTable}" g where g.type = 'data' and g.entity = ${literal(of)} and ${has('g', 'tenant_Id', `= ${tenant}`)})`
    return ` or (${event}.entity = ${literal(collection)} and ${has(event, column, owners)})`
  })
  return `${own} or (${event}.entity = ${literal(home)} and ${event}."entityId" = ${tenant})${ofParts.join('')}`
}

/** @throws {AppError} 410 where the log does not reach back to the point, 400 for one that is yet to come */
export async function requireReached(db: Reader, point: Point): Promise<void> {
  const params = createParams()
  const reached = reachedSql(point, params)
  await db.any(rawQuery(`select ${reached}`, params.values))
}

/** Whether the tenant, or each of the collections, was there at a point that the log reaches back to. */
export async function wasThere(db: Reader, point: Point, { collections, tenant }: RestorablePart): Promise<boolean> {
  const params = createParams()
  const was =
    tenant === undefined
      ? `not exists (select from "svc_SchemaDefinition" d
          where d."collectionName" = any(${params.bind([...collections], 'text[]')}) and not (${definedSql(point, params)}))`
      : rowThereSql(tenant, point, params)
  const { there } = await db.one<{ there: boolean }>(rawQuery(`select ${was} as there`, params.values))
  return there
}

/**
 * Whether a collection's definition `d` had been made. What makes one logs an event after it, which a snapshot shows or not;
 * a snapshot that the log reaches back to shows all that retention has removed.
 */
const definedSql = (point: Point, params: Params): string =>
  point.kind === 'time'
    ? `d."createdAt" <= ${params.bind(point.time, 'timestamptz')}`
    : `(d."createdAt" <= (select "upTo" from ${logSchema}.floor)
        or exists (select from "${logTable}" e where e."createdAt" >= d."createdAt" and not ${afterSql(point, params)}))`

/** Where nothing has changed the tenant's row since, it is what it was; otherwise its first change tells. */
function rowThereSql({ id, home }: TenantRows, point: Point, params: Params): string {
  const own = params.bind(id, 'text')
  return `coalesce(
    (select e.action <> 'create' from "${logTable}" e
      where e.type = 'data' and e.entity = ${literal(home)} and e."entityId" = ${own} and ${afterSql(point, params)}
      order by e.position limit 1),
    exists (select from ${ident(home)} where id::text = ${own}))`
}

/** Limits the statement to the partitions concerned; the time is in the index of requests too. */
function withinSql(requests: readonly string[], params: Params, event: string): string {
  const times = requests.map(madeAt)
  const time = (ms: number) => params.bind(new Date(ms).toISOString(), 'timestamptz')
  return `${event}."createdAt" >= ${time(Math.min(...times))} - interval '${requestWindow.before}'
        and ${event}."createdAt" < ${time(Math.max(...times))} + interval '${requestWindow.after}'`
}

/** The requests that these led to, and those that they led to, and so on. */
export async function causedBy(db: Reader, requests: readonly string[]): Promise<readonly string[]> {
  if (requests.length === 0) return []
  const rows = await db.any<{ id: string }>(
    rawQuery(
      `with recursive caused(id) as (
         select id from unnest($1::text[]) id
         union
         select l."logRequestId"::text from caused c join "${logTable}" l on l.cause is not null and l.cause->>'request' = c.id
         where l."logRequestId" is not null)
       select id from caused where id <> all($1::text[]) limit 10001`,
      [requests],
    ),
  )
  return rows.map(({ id }) => id)
}

type Transaction = {
  readonly xid: string
  readonly requests: readonly string[]
  readonly only: readonly string[] | undefined
}

/**
 * The transaction of an event, as far as it is one action of one actor, and the requests whose events are in it; undefined
 * where the log has no such event. Rows of several requests may be written by one transaction: `only` then names
 * the event's own request with those that led to it and followed from it.
 */
export async function transactionAt(db: Reader, position: string): Promise<Transaction | undefined> {
  const found = await db.maybeOne<{ xid: string; own: string; requests: RequestInTransaction[] }>(
    rawQuery(
      `select e.xid::text, ${requestSql('e')} as own, (
         select json_agg(distinct jsonb_build_object('id', ${requestSql('o')}, 'cause', o.cause->>'request'))
         from "${logTable}" o where o.xid = e.xid) as requests
       from "${logTable}" e where e.id = ${eventIdSql('$1::bigint')}`,
      [position],
    ),
  )
  if (found === undefined) return undefined
  const together = connected(found.requests, found.own)
  const isAll = found.requests.every(({ id }) => together.has(id))
  return {
    xid: found.xid,
    requests: [...together].filter((id) => id !== ''),
    only: isAll ? undefined : [...together],
  }
}

/** The request of an event as text, empty where the log knows none. */
const requestSql = (event: string): string => `coalesce(${event}."logRequestId"::text, '')`

type RequestInTransaction = { readonly id: string; readonly cause: string | null }

/** The requests that led to this one or followed from it, and it itself. */
function connected(requests: readonly RequestInTransaction[], own: string): ReadonlySet<string> {
  const ids = new Set(requests.map(({ id }) => id))
  const together = new Set([own])
  for (let size = 0; size < together.size; ) {
    size = together.size
    for (const { id, cause } of requests) {
      if (cause === null || !ids.has(cause)) continue
      if (together.has(id) || together.has(cause)) together.add(id).add(cause)
    }
  }
  return together
}

/** The subjects of the chosen events, without the rows themselves. */
export type Outline = {
  /** Of row changes. */
  readonly events: number
  readonly rows: number
  /** The tenants whose rows they are, with the collections. */
  readonly owners: readonly { readonly collection: string; readonly tenant: string | null }[]
  /** Whether the log shows one of the row changes to the caller. */
  readonly isSeen: boolean
  /** Facts beside the row changes, such as mails that were queued. */
  readonly facts: readonly LoggedFact[]
  /** When the first of them was written. */
  readonly first: string | null
}

export type LoggedFact = { readonly event: string; readonly id: string | null; readonly at: string }

/** `seen` says which events the log shows to the caller, as a condition on its rows, `l`. */
export async function outlineOf(
  db: Reader,
  chosen: EventChoice,
  seen: (params: Params) => string = () => 'true',
): Promise<Outline> {
  const params = createParams()
  const where = chosenSql(chosen, params)
  return db.one<Outline>(
    rawQuery(
      `with chosen as materialized (
         select l.type, l.entity, l."entityId", l.action, l."tenant_Id", l."createdAt", l.position,
           ${seen(params)} as "isSeen"
         from "${logTable}" l where ${where})
       select (count(*) filter (where type = 'data'))::int as events,
         (count(distinct (entity, "entityId")) filter (where type = 'data'))::int as rows,
         coalesce(bool_or("isSeen") filter (where type = 'data'), false) as "isSeen",
         min("createdAt")::text as first,
         (select coalesce(json_agg(o), '[]') from (
           select distinct entity as collection, "tenant_Id" as tenant from chosen where type = 'data') o) as owners,
         (select coalesce(json_agg(f), '[]') from (
           select type || '.' || action as event, "entityId" as id, ${wireTime('"createdAt"')} as at
           from chosen where type <> 'data' and "isSeen" order by position limit 1000) f) as facts
       from chosen`,
      params.values,
    ),
  )
}

/** The rows of today's collections that the chosen events are about. */
export async function touchedRows(
  db: Reader,
  chosen: EventChoice,
): Promise<readonly { readonly collection: string; readonly ids: readonly string[] }[]> {
  const params = createParams()
  return db.any(
    rawQuery(
      `select l.entity as collection, json_agg(distinct l."entityId") as ids from "${logTable}" l
       where ${chosenSql(chosen, params)} and l.type = 'data' and ${ofTodaySql('l.entity', 'l')} group by 1 order by 1`,
      params.values,
    ),
  )
}

/** A row as it was before an event: as the API shows it, and with its values as PostgreSQL writes them. */
export type RowBefore = {
  readonly position: string
  readonly shown: Readonly<Record<string, unknown>>
  readonly exact: Readonly<Record<string, string | null>>
  /** Fields that came to the collection later: it had no value of them, and null in both of these. */
  readonly younger: readonly string[]
  /** Columns whose value of then does not fit them as they are today; null in both of these. */
  readonly misfits: readonly string[]
}

/** Which values of a row are read: of fields, and of columns that are no fields, in `exact` alone. */
export type PastColumns = { readonly fields: readonly Field[]; readonly madeBySql?: readonly Field[] }

/** By the position of the event. `first` is not after the first of them. */
export async function rowsBefore(
  db: Reader,
  collection: Collection,
  { fields, madeBySql = [] }: PastColumns,
  positions: readonly string[],
  first: string,
): Promise<ReadonlyMap<string, RowBefore>> {
  if (positions.length === 0) return new Map()
  const rows = await db.any<RowBefore>(
    rawQuery(
      `select e.position::text as position, ${youngerSql('i.image', '$3')} as younger,
         (select row_to_json(o.*) from (select ${projectionList(fields, 't')}) o) as shown, ${textsSql([...fields, ...madeBySql])} as exact, m.misfits
       from "${logTable}" e cross join lateral (select ${oldImage(collection)} as image offset 0) i
         cross join lateral (select ${misfitsSql(collection.name, 'i.image')} as misfits offset 0) m
         cross join lateral ${rowOfJson(collection.name, 'i.image - m.misfits')} t
       where e.id in (select ${eventIdSql('p')} from unnest($1::bigint[]) p) and e."createdAt" >= $2::timestamptz`,
      [positions, first, namesToLookFor(collection, [...fields, ...madeBySql])],
    ),
  )
  return new Map(rows.map((row) => [row.position, row]))
}

/** Columns of a collection's table that its definition does not name, and that a write can set. */
export async function columnsMadeBySql(db: Reader, { name, fields, system }: Collection): Promise<readonly Field[]> {
  if (system) return []
  const columns = await db.any<{ name: string; pgType: string }>(
    rawQuery(
      `select a.attname as name, format_type(a.atttypid, a.atttypmod) as "pgType" from pg_attribute a
       where a.attrelid = ('public.' || quote_ident($1))::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
         and a.attidentity <> 'a' and a.attname <> all($2::text[]) order by a.attnum`,
      [name, [...fields.keys()]],
    ),
  )
  return columns.map((column) => ({ ...unnamed, ...column }))
}

/** Of this kind, a value is written as its text and a cast to the column's type, whatever that is. */
const unnamed: Omit<Field, 'name' | 'pgType'> = {
  type: 'JSON',
  kind: 'json',
  element: undefined,
  nullable: true,
  primaryKey: false,
  unique: false,
  default: undefined,
  generated: undefined,
  enumValues: undefined,
  hidden: false,
  unlogged: true,
  validate: undefined,
  systemGenerated: false,
}

/** Rows of then that were put into a table of the transaction, in columns of today's types. */
export type LoadedRows = {
  readonly collection: string
  /** Its name in SQL. */
  readonly table: string
  readonly columns: ReadonlySet<string>
}

/** Of them, by their key. */
export async function rowsLoaded(
  db: Reader,
  collection: Collection,
  { table }: LoadedRows,
  { fields, madeBySql = [] }: PastColumns,
  ids: readonly string[],
): Promise<ReadonlyMap<string, RowBefore>> {
  if (ids.length === 0) return new Map()
  const rows = await db.any<RowBefore>(
    rawQuery(
      `select ${keyText(collection)} as position, '[]'::json as younger, '[]'::json as misfits,
         (select row_to_json(o.*) from (select ${projectionList(fields, 't')}) o) as shown, ${textsSql([...fields, ...madeBySql])} as exact
       from ${table} t where ${keyIn(collection, '$1')}`,
      [ids],
    ),
  )
  return new Map(rows.map((row) => [row.position, row]))
}

/** The changes that bring back the loaded rows, which are all of the part in their collection. */
export async function differencesFrom(
  db: Reader,
  collection: Collection,
  { table }: LoadedRows,
  fields: readonly Field[],
  { tenant }: RestorablePart,
): Promise<readonly { readonly id: string; readonly action: 'create' | 'update' | 'delete' }[]> {
  const key = ident(collection.primaryKey.name)
  const texts = (row: string) => `row(${fields.map(({ name }) => `${row}.${ident(name)}::text`)})`
  const params = createParams()
  const within = tenant === undefined ? 'true' : nowOfTenant(collection.name, tenant, params)
  return db.any(
    rawQuery(
      `select b.${key}::text as id, case when t.${key} is null then 'create' else 'update' end as action
       from ${table} b left join ${ident(collection.name)} t on t.${key} = b.${key}
       where t.${key} is null or ${texts('b')} is distinct from ${texts('t')}
       union all
       select ${keyText(collection)}, 'delete' from ${ident(collection.name)} t
       where ${within} and not exists (select from ${table} b where b.${key} = t.${key})`,
      params.values,
    ),
  )
}

/** Which rows `t` of a collection belong to a tenant now. */
function nowOfTenant(collection: string, { id, home, parts }: TenantRows, params: Params): string {
  const tenant = params.bind(id, 'uuid')
  if (collection === home) return `t.id = ${tenant}`
  const part = parts.find((one) => one.collection === collection)
  if (part === undefined) return `t."tenant_Id" = ${tenant}`
  return `t.${ident(part.column)} in (select o.id from ${ident(part.of)} o where o."tenant_Id" = ${tenant})`
}

/** Rows as they are, their values as PostgreSQL writes them, by their key. */
export async function rowsNow(
  db: Reader,
  collection: Collection,
  fields: readonly Field[],
  ids: readonly string[],
): Promise<ReadonlyMap<string, Readonly<Record<string, string | null>>>> {
  if (ids.length === 0) return new Map()
  const rows = await db.any<{ id: string; values: Record<string, string | null> }>(
    rawQuery(
      `select ${keyText(collection)} as id, ${textsSql(fields)} as values from ${ident(collection.name)} t where ${keyIn(collection, '$1')}`,
      [ids],
    ),
  )
  return new Map(rows.map(({ id, values }) => [id, values]))
}

/** The fields that others, such as hooks, were the last to change in this transaction, by `collection id`. */
export async function fieldsOfOthers(tx: Tx, { logRequestId }: Actor): Promise<ReadonlyMap<string, readonly string[]>> {
  const inIt = "e.xid = pg_current_xact_id() and e.type = 'data' and e.action = 'update'"
  const isOthers = 'e."logRequestId" is distinct from $1::uuid'
  const rows = await tx.any<{ row: string; fields: string[] }>(
    rawQuery(
      `with touched as materialized (select distinct e.entity, e."entityId" from "${logTable}" e where ${inIt} and ${isOthers}),
       newest as (
         select distinct on (e.entity, e."entityId", f.name) e.entity, e."entityId", f.name, ${isOthers} as theirs
         from "${logTable}" e join touched using (entity, "entityId")
           cross join lateral jsonb_object_keys(case jsonb_typeof(e.changes->'before') when 'object' then e.changes->'before' else '{}' end) f(name)
         where ${inIt} order by e.entity, e."entityId", f.name, e.position desc)
       select n.entity || ' ' || n."entityId" as row, json_agg(n.name) as fields from newest n where n.theirs group by 1`,
      [logRequestId ?? null],
    ),
  )
  return new Map(rows.map(({ row, fields }) => [row, fields]))
}

/** Keeps other writers away from rows until the end of the transaction, in the order of their keys. */
export async function lockRows(tx: Tx, collection: Collection, ids: readonly string[]): Promise<void> {
  const key = `t.${ident(collection.primaryKey.name)}`
  await tx.any(
    rawQuery(
      `select count(*) from (select from ${ident(collection.name)} t where ${keyIn(collection, '$1')} order by ${key} for update of t) locked`,
      [ids],
    ),
  )
}

/** Which of these rows satisfy a rule as they are; all without one. */
export async function rowsWithin(
  db: Reader,
  collection: Collection,
  rule: ResolvedFilter | undefined,
  ids: readonly string[],
): Promise<ReadonlySet<string>> {
  if (rule === undefined || ids.length === 0) return new Set(ids)
  const params = createParams([[...ids]])
  const rows = await db.any<{ id: string }>(
    rawQuery(
      `select ${keyText(collection)} as id from ${ident(collection.name)} t where ${keyIn(collection, '$1')} and ${compileCondition(rule, 't', params)}`,
      params.values,
    ),
  )
  return new Set(rows.map(({ id }) => id))
}

/** Which of these rows are marked as deleted. */
export async function rowsMarked(
  db: Reader,
  collection: Collection,
  ids: readonly string[],
): Promise<ReadonlySet<string>> {
  if (!collection.paranoid || ids.length === 0) return new Set()
  const rows = await db.any<{ id: string }>(
    rawQuery(
      `select ${keyText(collection)} as id from ${ident(collection.name)} t where ${keyIn(collection, '$1')} and t."deletedAt" is not null`,
      [ids],
    ),
  )
  return new Set(rows.map(({ id }) => id))
}

/** The same as {@link rowsWithin} for rows as they were before these events; gives positions. */
export async function imagesWithin(
  db: Reader,
  collection: Collection,
  rule: ResolvedFilter | undefined,
  positions: readonly string[],
): Promise<ReadonlySet<string>> {
  if (rule === undefined || positions.length === 0) return new Set(positions)
  const params = createParams([[...positions]])
  const rows = await db.any<{ position: string }>(
    rawQuery(
      `select e.position::text as position from "${logTable}" e
       cross join lateral (select ${oldImage(collection)} as image offset 0) i
       cross join lateral (select ${misfitsSql(collection.name, 'i.image')} as misfits offset 0) m
       cross join lateral ${rowOfJson(collection.name, 'i.image - m.misfits')} t
       where e.id in (select ${eventIdSql('p')} from unnest($1::bigint[]) p) and ${ruledBySql('m.misfits', rule.ruled)}
         and ${compileCondition(rule, 't', params)}`,
      params.values,
    ),
  )
  return new Set(rows.map(({ position }) => position))
}

/** A column of a collection that refers to others. */
export type ReferringColumn = {
  readonly collection: Collection
  readonly column: Field
  /** Where only rows with this value of another column do. */
  readonly where: { readonly column: string; readonly value: string } | undefined
}

/** Rows that refer to one of these values, with the value. */
export async function rowsReferring(
  db: Reader,
  { collection, column, where }: ReferringColumn,
  values: readonly string[],
): Promise<readonly { readonly id: string; readonly value: string }[]> {
  if (values.length === 0) return []
  const only = where === undefined ? '' : ` and t.${ident(where.column)}::text = $2`
  return db.any(
    rawQuery(
      `select ${keyText(collection)} as id, t.${ident(column.name)}::text as value from ${ident(collection.name)} t
       where t.${ident(column.name)} = any($1::text[]::${parameterType(column)}[])${only} limit 100001`,
      where === undefined ? [values] : [values, where.value],
    ),
  )
}

/** Rows in the trash, and of these other ones, that have one of the keys in the fields. */
export async function rowsHolding(
  db: Reader,
  collection: Collection,
  fields: readonly Field[],
  keys: readonly (readonly string[])[],
  others: readonly string[],
): Promise<readonly { readonly id: string; readonly key: string }[]> {
  if (keys.length === 0) return []
  const columns = fields.map((_, at) => `c${at}`)
  const lists = fields.map((_, at) => `$${at + 2}::text[]`)
  const same = fields.map((field, at) => `t.${ident(field.name)} = k.c${at}::${parameterType(field)}`)
  const rows = await db.any<{ id: string; key: string[] }>(
    rawQuery(
      `select ${keyText(collection)} as id, array[${columns.map((column) => `k.${column}`)}] as key
       from unnest(${lists}) k(${columns}) join ${ident(collection.name)} t on ${same.join(' and ')}
       where t."deletedAt" is not null or ${keyIn(collection, '$1')}`,
      [others, ...fields.map((_, at) => keys.map((key) => key[at]!))],
    ),
  )
  return rows.map(({ id, key }) => ({ id, key: JSON.stringify(key) }))
}

/** Which of these values of a column no row has. */
export async function valuesMissing(
  db: Reader,
  collection: Collection,
  column: Field,
  values: readonly string[],
): Promise<ReadonlySet<string>> {
  if (values.length === 0) return new Set()
  const rows = await db.any<{ value: string }>(
    rawQuery(
      `select v.value from unnest($1::text[]) v(value)
       where not exists (select from ${ident(collection.name)} t where t.${ident(column.name)} = v.value::${parameterType(column)})`,
      [[...new Set(values)]],
    ),
  )
  return new Set(rows.map(({ value }) => value))
}

/** A reference by a key, as a row had it before the event at a position. */
export type PastReference = { readonly value: string; readonly place: string }

/** Which of these rows were not there at the place either: the first event since then tells, or that there is none. */
export async function referencesDangling(
  db: Reader,
  collection: Collection,
  references: readonly PastReference[],
): Promise<readonly PastReference[]> {
  if (!collection.logged) return []
  const name = literal(collection.name)
  return db.any<PastReference>(
    rawQuery(
      `select distinct v.value, v.place from unnest($1::text[], $2::text[]) v(value, place)
       where coalesce(
         (select e.action = 'create' from "${logTable}" e
           where e.type = 'data' and e.entity = ${name} and e."entityId" = v.value and e.position >= v.place::bigint
           order by e.position limit 1),
         not exists (select from ${ident(collection.name)} t where ${keyText(collection)} = v.value))`,
      [references.map(({ value }) => value), references.map(({ place }) => place)],
    ),
  )
}

export const wireTime = (time: string): string => `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

/** The image of `e` before the event, of the columns that are still there. */
const oldImage = ({ name }: Collection): string => ofTodaysColumns(imageBefore('e'), literal(name), 'e')

const textsSql = (fields: readonly Field[]): string =>
  fields.length === 0
    ? `'{}'::jsonb`
    : `(select to_jsonb(o.*) from (select ${fields.map(({ name }) => `t.${ident(name)}::text as ${ident(name)}`)}) o)`

/** As the log names a row. */
const keyText = ({ primaryKey }: Collection): string => `t.${ident(primaryKey.name)}::text`

const keyIn = ({ primaryKey }: Collection, parameter: string): string =>
  `t.${ident(primaryKey.name)} = any(${parameter}::text[]::${parameterType(primaryKey)}[])`

/** The capabilities that this folder takes to read: those of reading items. */
export type UndoReads = ItemReads

/** The capabilities that this folder takes to change: those of changing items. */
export type UndoWrites = ItemWrites

/** The part of the log that the caller may see: a condition on its rows, as `l` by default, and the fields of svc_AuditLog. */
export type LogSight = {
  readonly where: (params: Params, event?: string) => string
  readonly names: ReadonlySet<string>
}

/** @throws {AppError} 403 without the permission to read svc_AuditLog */
export function sightOf(deps: UndoReads, access: Access): LogSight {
  const catalog = deps.catalog.current()
  const names = new Set(readableFields(catalog, access, 'svc_AuditLog').map(({ name }) => name))
  const rule = resolveCondition(catalog, access, 'svc_AuditLog', 'read', resolveEnv(deps))
  return {
    names,
    where: (params, event = 'l') => (rule === undefined ? 'true' : compileCondition(rule, event, params)),
  }
}

/** Administrators, and roles that may read svc_AuditLog, all of it or a part. */
const mayReadLog = (access: Access): boolean => access.admin || access.grant('svc_AuditLog', 'read') !== undefined

/**
 * The events that the log shows to a caller: those of its own doing, and those that it may read there with all that an undo
 * tells of them. A condition on rows of the log, as `l`.
 */
export function eventsSeen(deps: UndoReads, access: Access): (params: Params) => string {
  const sight = mayReadLog(access) ? sightOf(deps, access) : undefined
  const isWhole = told.every((name) => sight?.names.has(name) === true)
  return (params) => {
    const own = access.userId === undefined ? 'false' : `l."userId" = ${params.bind(access.userId, 'uuid')}`
    return isWhole ? `(${own} or ${sight!.where(params)})` : own
  }
}

const told = ['type', 'action', 'entityId', 'createdAt']
