import type { Catalog } from '../../../catalog/catalog.ts'
import { logSchema, logTable } from '../../../catalog/log-triggers.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { eventCursors, parseSnapshot } from '../../../events/cursor.ts'
import { eventIdSql } from '../../../events/log.ts'
import type { Access } from '../../../query/access.ts'
import { compileCondition } from '../../../query/compile.ts'
import { resolveEnv } from '../../../query/env.ts'
import { readableFields, resolveCondition } from '../../../query/resolve.ts'
import { createParams, literal } from '../../../query/sql.ts'
import type { LogReads } from './capabilities.ts'

export type ExportFilter = {
  readonly collections?: readonly string[] | undefined
  readonly actions?: readonly string[] | undefined
  /** The id of a user. */
  readonly actor?: string | undefined
  readonly tenant?: string | undefined
  /** Times, ISO 8601; the second is not included. */
  readonly from?: string | undefined
  readonly to?: string | undefined
}

/**
 * Events that became visible after `from` until `upTo`, beyond a position; `isWhole`: all that are visible in `upTo`.
 */
export type Stage = {
  readonly from: string
  readonly upTo: string
  readonly after: string
  readonly isWhole: boolean
  readonly lineage: string
}

/** Where to go on, and where the stage ends; `look` is how many positions are looked at. */
type ExportPosition = { readonly after: string; readonly last: string; readonly look: number }

type ExportPage = { readonly text: string; readonly next: ExportPosition | undefined }

/** Now, and the newest transaction of which the log has lost something. */
export function presentLog(db: Reader): Promise<{ snapshot: string; lineage: string; removed: string }> {
  return db.one(
    rawQuery(
      `select pg_current_snapshot()::text as snapshot, ${logSchema}."$lineage"() as lineage, removed::text as removed from ${logSchema}.floor`,
    ),
  )
}

/** The positions between which a stage lies; undefined where it is empty. */
export async function boundsOf(db: Reader, { from, upTo, after, isWhole }: Stage): Promise<ExportPosition | undefined> {
  const { xmax, running } = parseSnapshot(from)!
  const end = parseSnapshot(upTo)!.xmax
  const values = isWhole ? [upTo, after] : [upTo, after, xmax.toString(), running.map(String), end.toString()]
  const { first, last } = await db.one<{ first: string | null; last: string | null }>(
    rawQuery(isWhole ? wholeBoundsSql : boundsSql, values),
  )
  return first === null ? undefined : { after: String(BigInt(first) - 1n), last: last!, look: smallestLook }
}

const wholeBoundsSql = `select min(position)::text as first, max(position)::text as last from (
    (select position from "${logTable}" where id > ${eventIdSql('$2::bigint')} and pg_visible_in_snapshot(xid, $1::pg_snapshot) order by id limit 1)
    union all
    (select position from "${logTable}" where id > ${eventIdSql('$2::bigint')} and pg_visible_in_snapshot(xid, $1::pg_snapshot) order by id desc limit 1)
  ) ends`

/** By the index on transactions. */
const boundsSql = `select min(e.position)::text as first, max(e.position)::text as last from "${logTable}" e
  where (e.xid >= $3::xid8 and e.xid < $5::xid8 or e.xid = any($4::xid8[]))
    and pg_visible_in_snapshot(e.xid, $1::pg_snapshot) and e.position > $2::bigint`

/** As many events make a page; where few of them are wanted, more are looked at. */
const smallestLook = 500
const largestLook = 32_000

/** Reads pages of a stage as the caller may see them. 403 without a read grant on the log. */
export function openPages(deps: LogReads, access: Access, filter: ExportFilter) {
  const { columns, where, values } = selectionFor(deps, access, filter, stageParameters)
  const text = pageSql(columns, where)
  return async (
    { from, upTo, isWhole, lineage }: Stage,
    { after, last, look }: ExportPosition,
  ): Promise<ExportPage> => {
    const ofStage = [after, last, look, upTo, isWhole ? null : from]
    const rows = await deps.db.run<PageRow>(text, [...ofStage, ...values.slice(stageParameters)], 'prepared')
    const reached = rows[0]!.reached
    const found = rows.filter((row): row is PageRow & EventRow => row.data !== null)
    const next = reached === null || BigInt(reached) >= BigInt(last) ? undefined : reached
    const wider = found.length < smallestLook / 2 ? Math.min(largestLook, look * 2) : smallestLook
    const cursorOf = eventCursors(from, upTo, lineage)
    return {
      text: found.map(({ position, data }) => `{"cursor":"${cursorOf(position)}",${data.slice(1)}\n`).join(''),
      next: next === undefined ? undefined : { after: next, last, look: wider },
    }
  }
}

/** The newest events as JSON texts, the oldest of them first; those that are visible in a snapshot. */
export async function newestEvents(
  deps: LogReads,
  access: Access,
  { count, upTo, ...filter }: ExportFilter & { readonly count: number; readonly upTo: string },
): Promise<readonly string[]> {
  const { columns, where, values } = selectionFor(deps, access, filter, 2)
  const conditions = ['pg_visible_in_snapshot(e.xid, $1::pg_snapshot)', ...where]
  const text = `select json_build_object(${columns})::text as data from "${logTable}" e
    where ${conditions.join('\n      and ')} order by e.id desc limit $2::bigint`
  const rows = await deps.db.run<{ data: string }>(text, [upTo, count, ...values.slice(2)])
  return rows.map(({ data }) => data).reverse()
}

/** Parameters of a page before those of the filter. */
const stageParameters = 5

/** The members of the events that the caller may see and wants; `own` parameters of the statement come first. */
function selectionFor(deps: LogReads, access: Access, filter: ExportFilter, own: number) {
  const catalog = deps.catalog.current()
  const rule = resolveCondition(catalog, access, logTable, 'read', resolveEnv(deps))
  const params = createParams(Array.from({ length: own }, () => ''))
  const where = [
    ...(rule === undefined ? [] : [compileCondition(rule, 'e', params)]),
    ...(filter.collections === undefined ? [] : [`e.entity = any(${params.bind(filter.collections, 'text[]')})`]),
    ...(filter.actions === undefined ? [] : [`e.action = any(${params.bind(filter.actions, 'text[]')})`]),
    ...(filter.actor === undefined ? [] : [`e."userId" = ${params.bind(filter.actor, 'uuid')}`]),
    ...(filter.tenant === undefined ? [] : [`e."tenant_Id" = ${params.bind(filter.tenant, 'uuid')}`]),
    ...(filter.from === undefined ? [] : [`e."createdAt" >= ${params.bind(filter.from, 'timestamptz')}`]),
    ...(filter.to === undefined ? [] : [`e."createdAt" < ${params.bind(filter.to, 'timestamptz')}`]),
  ]
  // A parameter that nothing uses has no type.
  const hidden = () => params.bind(JSON.stringify(hiddenFields(catalog)), 'jsonb')
  return { columns: columnsFor(catalog, access, hidden), where, values: params.values }
}

type EventRow = { readonly position: string; readonly data: string }
type PageRow = { readonly reached: string | null } & (EventRow | { readonly position: null; readonly data: null })

/** First how far these positions reach, by the index alone; then what is wanted of them. */
function pageSql(columns: string, where: readonly string[]): string {
  return `with looked as materialized (
    select max(position) as reached from (
      select position from "${logTable}"
      where id > ${eventIdSql('$1::bigint')} and id <= ${eventIdSql('$2::bigint')} order by id limit $3::bigint) ids
  )
  select looked.reached::text as reached, page.position::text as position, page.data
  from looked left join lateral (
    select e.position, json_build_object(${columns})::text as data
    from "${logTable}" e
    where e.id > ${eventIdSql('$1::bigint')} and e.id <= ${eventIdSql('looked.reached')}
      and pg_visible_in_snapshot(e.xid, $4::pg_snapshot)
      and ($5::pg_snapshot is null or not pg_visible_in_snapshot(e.xid, $5::pg_snapshot))
      ${where.map((condition) => `and ${condition}`).join('\n      ')}
  ) page on true
  order by page.position`
}

const wireTime = `to_char(e."createdAt" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`

/**
 * The columns of an event, in this order; only administrators see those after `changes`, which are in no collection.
 */
const ofCollection = [
  ...['id', 'createdAt', 'type', 'entity', 'entityId', 'action', 'userId', 'tenant_Id'],
  ...['requestId', 'logRequestId', 'agent', 'cause', 'ipaddress', 'changes'],
]
const beyond = ['roleId', 'userAgent']

/** The columns that the caller may read, as arguments of `json_build_object`. */
function columnsFor(catalog: Catalog, access: Access, hidden: () => string): string {
  const readable = new Set(readableFields(catalog, access, logTable).map(({ name }) => name))
  const names = [...ofCollection.filter((name) => readable.has(name)), ...(access.admin ? beyond : [])]
  const values = names.map((name) => `${literal(name)}, ${columnSql(name, hidden)}`)
  return [`'position', e.position::text`, ...values].join(', ')
}

function columnSql(name: string, hidden: () => string): string {
  if (name === 'createdAt') return wireTime
  return name === 'changes' ? imagesSql(hidden()) : `e."${name}"`
}

/** As the log has them: hidden fields are null, also those that were hidden only since. */
function imagesSql(hidden: string): string {
  return `case when e.type = 'data' and ${hidden} ? e.entity and jsonb_typeof(e.changes) = 'object' then (
      select jsonb_object_agg(i.key, case when jsonb_typeof(i.value) = 'object' then i.value || coalesce(
        (select jsonb_object_agg(n, null::jsonb) from jsonb_array_elements_text(${hidden}->e.entity) n where i.value ? n), '{}') else i.value end)
      from jsonb_each(e.changes) i) else e.changes end`
}

function hiddenFields({ collections }: Catalog): Readonly<Record<string, readonly string[]>> {
  const named = [...collections.values()].map(
    ({ name, fields }) =>
      [name, [...fields.values()].filter((field) => field.hidden).map((field) => field.name)] as const,
  )
  return Object.fromEntries(named.filter(([, names]) => names.length > 0))
}
