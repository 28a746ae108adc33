import { Readable } from 'node:stream'
import { logFieldsOf, requireLogFields } from '../../../access/log-fields.ts'
import { logKeys } from '../../../adapters/log-key.ts'
import { forSameAsker } from '../../../admission/asker.ts'
import type { AdmissionLanes } from '../../../admission/lane.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import { logSchema, logTable } from '../../../catalog/log-triggers.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import {
  type Cursor,
  cursorAt,
  encodeCursor,
  eventCursors,
  parseCursor,
  parseSnapshot,
} from '../../../events/cursor.ts'
import { eventIdSql } from '../../../events/log.ts'
import { oldestMoment } from '../../../events/log-reader.ts'
import { type Head, keysOfChain, newestHead } from '../../../events/seals/seals.ts'
import { type Access, systemAccess } from '../../../query/access.ts'
import { compileCondition } from '../../../query/compile.ts'
import { readableFields, resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import { createParams, literal } from '../../../query/sql.ts'

/** The choice of an export; without members the whole kept log. */
export type ExportRequest = ExportFilter & {
  /** A cursor of a line, or of the answer's header. */
  readonly since?: string | undefined
}

type LogExport = {
  /** NDJSON: an event a line, each with a cursor from which an export goes on after it. */
  readonly lines: Readable
  /** Of the moment that the export reaches to: from which the next one goes on. */
  readonly cursor: string
}

/**
 * The events of the log that the caller may read, in rounds and by position within each: nothing is missed and nothing comes
 * twice for who goes on from a cursor, however many write meanwhile. Read page by page as the lines are taken, so neither
 * memory nor a snapshot of the database grows with the log; holds a place for heavy work until the lines have ended.
 *
 * 403 without a read grant on svc_AuditLog and for filters by fields that it leaves out, 400 for what makes no sense, 410 where the log no longer reaches back to `since`.
 */
export async function exportLog(deps: LogReads, access: Access, request: ExportRequest): Promise<LogExport> {
  const since = request.since === undefined ? undefined : parseCursor(request.since)
  const readPage = openPages(deps, access, request)
  const place = await deps.admission.enter({ shape: 'log export', presumed: 'heavy' })
  try {
    const { stages, end } = await stagesOf(deps, since)
    const pages = textOf(deps, stages, readPage)
    // An error of the first page is an ordinary answer.
    const first = await pages.next()
    const resumed = forSameAsker()
    const lines = Readable.from(
      chunksOf(first, () => resumed(() => pages.next())),
      { objectMode: false },
    )
    lines.once('close', () => place.leave())
    return { lines, cursor: encodeCursor(end) }
  } catch (error) {
    place.leave()
    throw error
  }
}

/** As {@link exportLog}, as the platform itself sees the log: all of it. */
export const exportWholeLog = (deps: LogReads, request: ExportRequest): Promise<LogExport> =>
  exportLog(deps, systemAccess, request)

/** The newest events as JSON texts, and the cursor from which an export goes on after them. */
export async function tailLog(
  deps: LogReads,
  { count, ...filter }: ExportFilter & { readonly count: number },
): Promise<{ events: readonly string[]; cursor: string }> {
  const { snapshot: upTo, lineage } = await presentLog(deps.db)
  return {
    events: await newestEvents(deps, systemAccess, { ...filter, count, upTo }),
    cursor: encodeCursor({ ...cursorAt(upTo), lineage }),
  }
}

/** The newest head of the seals, to be kept elsewhere. 404 where nothing was ever sealed. */
export async function readHead({ db }: Reads): Promise<Head> {
  const head = await newestHead(db)
  if (head === undefined) throw new AppError(404, 'Nothing of the log is sealed yet')
  return head
}

/** The public keys that heads are signed with: the present one, and those that the chain names besides. */
export async function readLogKeys({ config, db }: Reads & Configuration) {
  const [present, ...previous] = logKeys(config).keys ?? []
  const named = await keysOfChain(db)
  const own = [present, ...previous].flatMap((key) => (key === undefined ? [] : [key.id]))
  const keys = named.map((key) => ({ ...key, ours: own.includes(key.id) }))
  return { algorithm: 'Ed25519' as const, key: present?.id ?? null, publicKey: present?.publicKey ?? null, keys }
}

type TextResult = IteratorResult<string, void>

async function* chunksOf(first: TextResult, next: () => Promise<TextResult>): AsyncGenerator<string> {
  for (let page = first; page.done !== true; page = await next()) yield page.value
}

async function* textOf(
  { db }: LogReads,
  stages: readonly Stage[],
  readPage: ReturnType<typeof openPages>,
): AsyncGenerator<string, void> {
  for (const stage of stages) {
    const bounds = await boundsOf(db, stage)
    for (let at = bounds; at !== undefined; ) {
      const { text, next } = await readPage(stage, at)
      if (text !== '') yield text
      at = next
    }
  }
}

/** The rest of the cursor's round, then the round until now. */
async function stagesOf({ db }: LogReads, since: Cursor | undefined) {
  const { snapshot: now, removed, lineage } = await presentLog(db)
  const wanted: Cursor = since ?? cursorAt(beginning)
  const { snapshot: from, upTo, position, lineage: known } = wanted
  const start = parseSnapshot(from)!
  const isWhole = from === beginning
  const hasHappened = [from, ...(upTo === undefined ? [] : [upTo])].every(
    (text) => parseSnapshot(text)!.xmax <= parseSnapshot(now)!.xmax,
  )
  const isOther = known !== undefined && known !== lineage
  if (isOther || !hasHappened || (!isWhole && BigInt(removed) >= start.xmin))
    throw errors.historyGone(await oldestMoment(db))
  const stages: Stage[] =
    upTo === undefined
      ? [{ from, upTo: now, after: '0', isWhole, lineage }]
      : [
          { from, upTo, after: position, isWhole, lineage },
          { from: upTo, upTo: now, after: '0', isWhole: false, lineage },
        ]
  return { stages, end: { ...cursorAt(now), lineage } }
}

/** In which nothing is visible: before the first transaction of every server. */
const beginning = '1:1:'

type ExportFilter = {
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
type Stage = {
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
function presentLog(db: Reader): Promise<{ snapshot: string; lineage: string; removed: string }> {
  return db.one(
    rawQuery(
      `select pg_current_snapshot()::text as snapshot, ${logSchema}."$lineage"() as lineage, removed::text as removed from ${logSchema}.floor`,
    ),
  )
}

/** The positions between which a stage lies; undefined where it is empty. */
async function boundsOf(db: Reader, { from, upTo, after, isWhole }: Stage): Promise<ExportPosition | undefined> {
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

/** Reads pages of a stage as the caller may see them. 403 for what {@link exportLog} says. */
function openPages(deps: LogReads, access: Access, filter: ExportFilter) {
  const { columns, where, values } = selectionFor(deps, access, filter, stageParameters)
  const text = pageSql(columns, where)
  return async (
    { from, upTo, isWhole, lineage }: Stage,
    { after, last, look }: ExportPosition,
  ): Promise<ExportPage> => {
    const ofStage = [after, last, look, upTo, isWhole ? null : from]
    const rows = await deps.db.run<ExportPageRow>(text, [...ofStage, ...values.slice(stageParameters)], 'prepared')
    const reached = rows[0]!.reached
    const found = rows.filter((row): row is ExportPageRow & EventRow => row.data !== null)
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
async function newestEvents(
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

/**
 * The members of the events that the caller may see and wants; `own` parameters of the statement come first.
 *
 * @throws {AppError} 403 for a filter by a field that the caller may not read
 */
function selectionFor(deps: LogReads, access: Access, filter: ExportFilter, own: number) {
  const catalog = deps.catalog.current()
  const rule = resolveCondition(catalog, access, logTable, 'read', resolveEnv(deps))
  const readable = new Set(readableFields(catalog, access, logTable).map(({ name }) => name))
  requireLogFields(readable, logFieldsOf({ ...filter, collection: filter.collections, action: filter.actions }))
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
  return { columns: columnsFor(readable, access, hidden), where, values: params.values }
}

type EventRow = { readonly position: string; readonly data: string }
type ExportPageRow = { readonly reached: string | null } & (EventRow | { readonly position: null; readonly data: null })

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
function columnsFor(readable: ReadonlySet<string>, access: Access, hidden: () => string): string {
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

/** The capabilities that this folder takes from the process. */
export type LogReads = Reads & AdmissionLanes & Clock & Configuration & CurrentCatalog
