/**
 * Reading the past: a statement about tables becomes one about what they held at a point
 * (docs/decisions/0013-the-past-is-computed-backwards.md). It is computed backwards, the present undone by the events
 * after the point: rows without such an event are read as they are, for the others the first of these events has what
 * was there before it.
 */
import type { Collection, Field } from '../catalog/catalog.ts'
import { ofTodaysColumns } from '../catalog/past-columns.ts'
import { errors } from '../errors.ts'
import { parseCursor, parseSnapshot } from '../events/cursor.ts'
import { quoted } from './guards.ts'
import { type Images, ident, literal, misfitsSql, type Params, rowOfJson, ruledBySql } from './sql.ts'

/** A moment: what was visible in a snapshot, or written up to a time (ISO 8601, with zone). */
export type Point =
  | {
      readonly kind: 'snapshot'
      readonly xmin: string
      readonly xmax: string
      readonly running: readonly string[]
      readonly lineage: string | undefined
    }
  | { readonly kind: 'time'; readonly time: string }

/** `collections` are all that the statement reads; each must be logged. */
export type Past = {
  readonly point: Point
  readonly collections: readonly Collection[]
  readonly images: Images
  /** The columns that the caller's rules name, by collection. */
  readonly ruled: RuledColumns
}

type RuledColumns = ReadonlyMap<string, ReadonlySet<string>>

/**
 * The transaction before which all must have ended, and be there, where the past is computed: a snapshot holds some of the
 * earlier ones only. Undefined for a time: the past is then read as far as it is known.
 */
export function horizonOf(past: Past | undefined): bigint | undefined {
  return past?.point.kind === 'snapshot' ? BigInt(past.point.xmax) : undefined
}

/** A cursor or an ISO time. 400 for anything else, and for cursors that stand between two states. */
export function parsePoint(text: string): Point {
  return isTime(text) ? { kind: 'time', time: withZone(text) } : parseSnapshotPoint(text)
}

/**
 * The statement with each table replaced by its rows at the point. A CTE shadows the table of its name in all of the
 * statement, however that was built, so no way of reading can forget it. Inlined, so that conditions reach the indexes.
 */
export function inPast(past: Past | undefined, text: string, params: Params): string {
  if (past === undefined) return text
  const after = afterSql(past.point, params)
  const reached = reachedSql(past.point, params)
  const tables = past.collections.flatMap((collection, i) => [
    `${sinceName(i)} as materialized (${sinceSql(collection, after, past)})`,
    `${ident(collection.name)} as not materialized (${tableSql(collection, sinceName(i), reached)})`,
  ])
  return `with ${tables.join(', ')} select past.* from (${text}) past`
}

/** No collection has such a name. */
const sinceName = (i: number): string => ident(`$since${i}`)

/* PostgreSQL refuses a statement with a value that it does not name: each condition binds its own. */

/** Whether the event came after the point. Not visible in a snapshot is spelled as its definition, for the index on xid. */
export function afterSql(point: Point, params: Params, event = 'e'): string {
  if (point.kind === 'time') return `${event}."createdAt" > ${params.bind(point.time, 'timestamptz')}`
  const running = params.bind(point.running, 'xid8[]')
  return `(${event}.xid >= ${params.bind(point.xmax, 'xid8')} or ${event}.xid = any(${running}))`
}

/**
 * Whether an event is of the collection (its name as SQL) that is there today, and not of a dropped one of the same name: those of the
 * platform are never dropped. In a form that no index is looked for: the other conditions find the events.
 */
export const ofTodaySql = (collection: string, event = 'e'): string =>
  `coalesce(${event}."createdAt" >= (select d."createdAt" from public."svc_SchemaDefinition" d where d."collectionName" = ${collection} and d."collectionName" not like 'svc\\_%'), true)`

/** Refuses points that are older than the log or yet to come; true otherwise. */
export function reachedSql(point: Point, params: Params): string {
  if (point.kind === 'time') return `(select svc_log.reach(null, null, ${params.bind(point.time, 'timestamptz')}))`
  const [xmin, xmax] = [params.bind(point.xmin, 'xid8'), params.bind(point.xmax, 'xid8')]
  const lineage = params.bind(point.lineage ?? null, 'text')
  return `(select svc_log.in_lineage(${lineage}) and svc_log.reach(${xmin}, ${xmax}, null))`
}

/** For every row changed after the point, what it was before: null where it did not exist or was erased. */
function sinceSql(collection: Collection, after: string, { images, ruled }: Past): string {
  const image = `case when e.changes ? 'erased' then null${trashedSql(collection)} when e.action = 'update' then (e.changes->'after') || (e.changes->'before') else e.changes->'before' end`
  const since = `select distinct on (e."entityId") e."entityId" as id, ${ofTodaysColumns(image, literal(collection.name), 'e')} as image from public."svc_AuditLog" e
    where e.entity = ${literal(collection.name)} and e.type = 'data' and ${after} and ${ofTodaySql(literal(collection.name))} order by e."entityId", e.position`
  if (images === 'whole') return since
  const isShown = ruledBySql('m.misfits', ruled.get(collection.name) ?? new Set())
  return `select f.id, case when ${isShown} then f.image - m.misfits end as image from (${since}) f
    cross join lateral (select ${misfitsSql(collection.name, 'f.image')} as misfits offset 0) m`
}

/**
 * Where soft delete was switched off since, no column of today says of a row that it was in the trash. A field `deletedAt` of
 * a collection that never had a trash says nothing of the kind.
 */
function trashedSql({ name, fields, system }: Collection): string {
  if (system || fields.has('deletedAt')) return ''
  return ` when coalesce(e.changes->'before'->'deletedAt', e.changes->'after'->'deletedAt') <> 'null'
      and exists (select from public."svc_AuditLog" d where d.type = 'data' and d.entity = 'svc_SchemaDefinition' and d."entityId" = ${literal(name)}
        and d.changes->'before'->'schema'->>'paranoid' = 'true') then null`
}

/** The check stands beside the table, where it is made before the first row, also when nothing has changed. */
function tableSql(collection: Collection, since: string, reached: string): string {
  const table = `public.${ident(collection.name)}`
  const key = `c.${ident(collection.primaryKey.name)}::text`
  return `select c.* from ${table} c where ${reached} and not exists (select from ${since} s where s.id = ${key})
    union all select r.* from ${since} s, ${rowOfJson(collection.name, 's.image')} r where s.image is not null`
}

/** Those of the names (a `text[]`) that are no keys of an image, as JSON: the row had no such columns yet. */
export const youngerSql = (image: string, names: string): string =>
  `to_json(array(select unnest(${names}::text[]) except select jsonb_object_keys(${image})))`

/** The fields to ask {@link youngerSql} for. A row from before soft delete was not deleted, which `deletedAt` says by null. */
export const namesToLookFor = ({ paranoid }: Collection, fields: readonly Field[]): string[] =>
  fields.flatMap(({ name }) => (paranoid && name === 'deletedAt' ? [] : [name]))

const TIME = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d))?$/

/** Date.parse accepts February 30th, PostgreSQL does not. */
function isTime(text: string): boolean {
  if (!TIME.test(text)) return false
  const day = text.slice(0, 10)
  return !Number.isNaN(Date.parse(text)) && new Date(day).toISOString().startsWith(day)
}

/** A day begins in UTC, whatever the session's zone. */
const withZone = (text: string): string => (text.length === 10 ? `${text}T00:00:00Z` : text)

function parseSnapshotPoint(text: string): Point {
  if (/^\d{4}-/.test(text)) throw errors.badQuery(`asOf: ${quoted(text)} is not a time such as 2024-05-01T10:00:00Z`)
  const cursor = parseCursor(text)
  // An event's cursor, or one amid a round, says what to read next: its holder has seen a part of what came after.
  if (cursor.kind === 'event' || cursor.upTo !== undefined)
    throw errors.badQuery('asOf: this cursor is a place among events, not a moment')
  const { xmin, xmax, running } = parseSnapshot(cursor.snapshot)!
  return {
    kind: 'snapshot',
    xmin: String(xmin),
    xmax: String(xmax),
    running: running.map(String),
    lineage: cursor.lineage,
  }
}
