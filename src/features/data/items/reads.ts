import { Readable } from 'node:stream'
import { type BoundedMemory, openBoundedMemory } from '../../../adapters/bounded-memory.ts'
import { type AdmissionLanes, admitted } from '../../../admission/lane.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { parameterType, readValue } from '../../../catalog/values.ts'
import { type BatchReader, openBatches } from '../../../db/long-reads.ts'
import type { Database, Reads } from '../../../db/pools.ts'
import { type AnyReader, type ReplicaReads, readAnywhere } from '../../../db/replicas/replicas.ts'
import type { WalPosition } from '../../../db/replicas/write-positions.ts'
import { rawQuery, type Tx } from '../../../db/sql.ts'
import { errors } from '../../../errors.ts'
import { cursorAt, encodeCursor, momentSql } from '../../../events/cursor.ts'
import { hasLongNumbers } from '../../../language/exact-json.ts'
import { oncePer } from '../../../language/once.ts'
import type { Access } from '../../../query/access.ts'
import {
  compileCount,
  compileList,
  compileListUpTo,
  compileOne,
  compilePage,
  compileStream,
  isWhole,
} from '../../../query/compile.ts'
import { clause, conditions, selectionSql, startCompiling } from '../../../query/compile-rows.ts'
import { NEVER_MS, nextChange } from '../../../query/next-change.ts'
import { parseListQuery, plainFilter } from '../../../query/parse.ts'
import { horizonOf } from '../../../query/past.ts'
import { asFits, ofItem, type Plan, resolveAny, resolveEnv, resolveList } from '../../../query/resolve.ts'
import { writePageCursor } from '../../../query/resolve-sort.ts'
import { createParams, ident, type Statement, statement } from '../../../query/sql.ts'
import {
  type BoundPlan,
  bindPlan,
  bindStatement,
  type PlanTemplate,
  type StatementTemplate,
  templateOfFilter,
  templateOfPlan,
  templateOfStatement,
} from '../../../query/template.ts'
import type { ItemReads } from './context.ts'
import { readImages } from './images.ts'

/**
 * The largest list that one statement returns whole; beyond it rows are streamed. A list without a limit
 * is first taken for a short one, which most are: a cursor costs five round trips, the wrong guess a thousand rows.
 */
const largestWholeList = 1000

/**
 * `GET /items/{collection}`: `{"data":[…],"totalCount":n}`, as the text PostgreSQL built or, where it may be of any size,
 * as a stream of it; within a transaction always as text. 400 for a query that makes no sense, 403 for what the caller may not read, 404 for an unknown collection.
 */
export async function readList(
  deps: ItemReads,
  access: Access,
  collection: string,
  raw: Record<string, unknown>,
  via: Via = {},
): Promise<string | Readable> {
  const catalog = deps.catalog.current()
  const env = { ...resolveEnv(deps), defaultLimit: via.defaultLimit }
  const resolve = (given: typeof raw) => resolveList(catalog, access, collection, parseListQuery(given), env)
  const name = `list ${collection} ${via.defaultLimit ?? ''}`
  return answerQuestion(deps, access, { name, raw }, resolve, via)
}

/**
 * The same for a list that was asked for in another way. `name` tells the ways and their collections apart, `raw` is all of
 * the question, each part as a text; `resolve` gets it with the filter parsed, or as it was.
 */
export const answerQuestion = (
  deps: ItemReads,
  access: Access,
  { name, raw }: { readonly name: string; readonly raw: Readonly<Record<string, unknown>> },
  resolve: (raw: Readonly<Record<string, unknown>>) => Plan,
  via: Via = {},
): Promise<string | Readable> =>
  answerPrepared(deps, preparedPlan(deps.catalog.current(), access, { name, raw }, resolve), via)

/** The answer to a list, to a page of one, or to a list of groups. */
export const answerPlan = (deps: ItemReads, plan: Plan, via: Via = {}): Promise<string | Readable> =>
  answerPrepared(deps, { plan }, via)

async function answerPrepared(deps: ItemReads, prepared: PreparedPlan, via: Via): Promise<string | Readable> {
  via.recorder?.begin(prepared.plan)
  return readOfPlan(prepared.plan, via.tx, (plan) =>
    answerFound(deps, plan === prepared.plan ? prepared : { plan }, via),
  )
}

/**
 * Reads what a plan says, of the past as `readImages` does. Within a transaction values that do not fit are left out from the
 * beginning.
 */
export function readOfPlan<T>(plan: Plan, tx: Tx | undefined, read: (plan: Plan) => Promise<T>): Promise<T> {
  if (plan.past === undefined) return read(plan)
  if (tx !== undefined) return read(asFits(plan))
  return readImages((images) => read(images === 'whole' ? plan : asFits(plan)))
}

async function answerFound(deps: ItemReads, prepared: PreparedPlan, via: Via): Promise<string | Readable> {
  const { plan } = prepared
  if (isPage(plan)) return listPage(deps, plan, via)
  if (via.marked) return streamMarkedList(deps, plan)
  const list = via.tx === undefined ? statementOf(prepared, compileWhole) : compileList(plan)
  const [row] = await run<ListRow>(deps, plan, list, via)
  const body = listBody(plan, row!)
  if (body === undefined) return streamList(deps, plan, via)
  await noteTime(deps, plan, via)
  return body
}

/**
 * Finds out, for an answer that is to be kept, until when it is right. In a statement of its own: if a row changes between
 * the two, the log tells, and the answer is not kept.
 */
async function noteTime(deps: Reads & ReplicaReads & AdmissionLanes, plan: Plan, via: Via): Promise<void> {
  const { recorder } = via
  if (recorder === undefined || plan.time === undefined) return
  const next = nextChange(plan)
  if (next === undefined) return
  const { atMs, statement: ofRows } = next
  try {
    const [row] = ofRows === undefined ? [] : await run<{ at: string | null }>(deps, plan, ofRows, via)
    recorder.lasts(plan, Math.min(atMs, Number(row?.at ?? NEVER_MS)))
  } catch (error) {
    // The answer is there; only that it may be kept is not known.
    recorder.untimed(error)
  }
}

/** Of a list that might be long, only as much as may be held at once. */
function compileWhole(plan: Plan): Statement {
  const isShort = plan.limit !== undefined && plan.limit <= largestWholeList
  return isShort ? compileList(plan) : compileListUpTo(plan, largestWhole(plan))
}

/** How much of the answer to a plan may be held at once: rows, or groups, which have 50 members at most. */
export const largestWhole = (plan: Plan): number => (plan.grouping ? 10_000 : largestWholeList)

/** The row of a list's statement as the answer; undefined where the list is too long to be held whole. */
export function listBody({ count }: Plan, { data, total }: ListRow): string | undefined {
  if (data === null) return undefined
  return count ? `{"data":${data},"totalCount":${total}}` : `{"data":${data}}`
}

export type ListRow = { readonly data: string | null; readonly total: string | null }

type Page = Parameters<typeof compilePage>[0]

const isPage = (plan: Plan): plan is Page => plan.keyset !== undefined

/** As a list, and `nextCursor`: what to ask for the page after this one, null at the end. */
async function listPage(deps: Reads & ReplicaReads & AdmissionLanes, plan: Page, via: Via): Promise<string> {
  const [row] = await run<PageRow>(deps, plan, via.marked ? inSnapshot(compilePage(plan)) : compilePage(plan), via)
  const { data, total, next, snapshot } = row!
  await noteTime(deps, plan, via)
  const cursor = next === null ? null : writePageCursor(plan.collection, plan.sort, JSON.parse(next))
  const count = plan.count ? `"totalCount":${total},` : ''
  return `{"data":${data},${count}"nextCursor":${JSON.stringify(cursor)}${snapshot === undefined ? '' : markOf(snapshot)}}`
}

type PageRow = { data: string; total: string | null; next: string | null; snapshot?: string }

/** The rows of a statement, and the snapshot that they were read in. */
const inSnapshot = ({ text, values }: Statement): Statement =>
  statement(`select r.*, ${momentSql} as snapshot from (${text}) r`, values)

/** `GET /items/{collection}/{id}`: `{"data":{…}}`. 403 when the item is missing or not the caller's to see. */
export async function readOne(
  deps: ItemReads,
  access: Access,
  collection: string,
  id: string,
  raw: Record<string, unknown>,
  via: Via = {},
): Promise<string> {
  return (await readVersion(deps, access, collection, id, raw, via)).body
}

/** As {@link readOne}, and which version of the row the answer is made from (see `versionCondition`); none in the past. */
export async function readVersion(
  deps: ItemReads,
  access: Access,
  collection: string,
  id: string,
  raw: Record<string, unknown>,
  via: Via = {},
): Promise<{ readonly body: string; readonly version: string | undefined }> {
  const catalog = deps.catalog.current()
  const resolve = (given: typeof raw) =>
    resolveAny(catalog, access, collection, parseListQuery(given), resolveEnv(deps))
  const prepared = preparedPlan(catalog, access, { name: `one ${collection}`, raw }, resolve)
  const { plan } = prepared
  via.recorder?.begin(plan)
  if (plan.past !== undefined) return readPast(deps, ofItem(plan, id), via)
  const { value } = readValue(id, plan.collection.primaryKey, 'id')
  const { text, values, dependsOn } = statementOf(prepared, compileVersion)
  const ofId = statement(text, [value, ...values.slice(1)], dependsOn)
  // A row that is found by its key alone takes no time, and so it waits for nothing that does.
  const presumed = plan.selection.nested.length === 0 ? 'nothing' : 'cheap'
  const [row] = await run<{ data: string; version: string }>(deps, plan, ofId, via, presumed)
  if (row === undefined) throw errors.itemDenied('read')
  await noteTime(deps, ofItem(plan, id), via)
  return { body: `{"data":${row.data}}`, version: row.version }
}

/** The version of a row as it is; undefined when there is none. For answers that have read it before. */
export async function versionOf(
  deps: Reads & CurrentCatalog,
  collection: string,
  id: string,
): Promise<string | undefined> {
  const primaryKey = deps.catalog.current().collections.get(collection)?.primaryKey
  if (primaryKey === undefined) return undefined
  const key = createParams()
  const { value, pgType } = readValue(id, primaryKey, 'id')
  const where = `t.${ident(primaryKey.name)} = ${key.bind(value, pgType)}`
  const text = `select t.xmin::text as version from ${ident(collection)} t where ${where}`
  const [row] = await deps.db.run<{ version: string }>(text, key.values, 'prepared')
  return row?.version
}

async function readPast(deps: Reads & ReplicaReads & AdmissionLanes, plan: Plan, via: Via) {
  const [row] = await readOfPlan(plan, via.tx, (read) => run<{ data: string }>(deps, read, compileOne(read), via))
  if (row === undefined) throw errors.itemDenied('read')
  return { body: `{"data":${row.data}}`, version: undefined }
}

/**
 * As `compileOne`, for the item whose id is the first of the values, which is null yet. The version must come from the
 * very row that the answer is made from.
 */
function compileVersion({ collection, where, selection }: Plan): Statement {
  const params = createParams()
  const compiling = startCompiling(params, { t: collection })
  const { primaryKey } = collection
  const hasId = `${compiling.column(primaryKey.name, 't')} = ${params.bind(null, parameterType(primaryKey))}`
  const kept = clause('where', [hasId, ...conditions(where, ['t'], compiling)])
  const list = selectionSql(selection, ['t'], compiling)
  const text = `select (select row_to_json(o.*)::text from (select ${list}) o) as data, t.xmin::text as version from ${ident(collection.name)} t${kept}`
  return statement(text, params.values, compiling.dependsOn)
}

/** Where a read runs: by itself or in a caller's transaction. */
export type Via = {
  readonly tx?: Tx | undefined
  /** Whether a list ends with `changesCursor`, see {@link markOf}; outside transactions only. */
  readonly marked?: boolean
  /** The caller that a read replica may answer; without it, within a transaction, where marked, or recorded without `servedBy`, only the primary does. */
  readonly replicaFor?: AnyReader | undefined
  /** Notes what is read, to keep it: what a replica says may be older than the moment it is kept for. */
  readonly recorder?: DependencyRecorder | undefined
  /** Rows of a list that names no limit. */
  readonly defaultLimit?: number | undefined
}

/** Notes what a read consists of: its plans and their statements. */
export type DependencyRecorder = {
  begin(plan: Plan): void
  ran(statement: Statement): void
  /** An answer to a plan that names the time is right until then; not called where that is not known. */
  lasts(plan: Plan, untilMs: number): void
  /** The database could not be asked for that. */
  untimed(error: unknown): void
  /** Where replicas may answer: what the one had replayed before it was asked. Without it only the primary answers. */
  servedBy?: (replayed: WalPosition) => void
}

/** `presumed`: what it costs until that is known; what costs nothing is not admitted, but done. */
async function run<Row extends object>(
  deps: Reads & ReplicaReads & AdmissionLanes,
  plan: Plan,
  statement: Statement,
  via: Via,
  presumed = presumedOf(plan),
): Promise<readonly Row[]> {
  const { tx, recorder } = via
  recorder?.ran(statement)
  if (tx !== undefined) return tx.any<Row>(rawQuery(statement.text, statement.values))
  const isQuick = presumed !== 'heavy' && deps.db.isQuick(statement.text, presumed === 'nothing')
  const read = () => runAnywhere<Row>(deps, plan, statement, via, { presumed, isQuick })
  if (presumed === 'nothing') return read()
  return isQuick
    ? admitted(deps.quickReads, quickRead, read)
    : admitted(deps.admission, { shape: statement.text, presumed }, read)
}

const quickRead = { shape: 'quick read', presumed: 'cheap' } as const

type PresumedCost = 'nothing' | 'cheap' | 'heavy'

/** Groups and the past look at every row there is, or was. */
const presumedOf = ({ grouping, past }: Plan): PresumedCost =>
  grouping === undefined && past === undefined ? 'cheap' : 'heavy'

async function runAnywhere<Row extends object>(
  deps: Reads & ReplicaReads,
  { past }: Plan,
  { text, values }: Statement,
  { recorder, marked = false, replicaFor }: Via,
  { presumed, isQuick }: { readonly presumed: PresumedCost; readonly isQuick: boolean },
): Promise<readonly Row[]> {
  // A replica has connections of its own, which know for themselves what is quick there.
  const isQuickAt = (db: Database) => (db === deps.db ? isQuick : db.isQuick(text, presumed === 'nothing'))
  const runAt = (db: Database) =>
    (presumed === 'heavy' ? db.run(text, values, 'prepared') : db.runQuick(text, values, isQuickAt(db))) as Promise<
      Row[]
    >
  const mayBeOlder = recorder === undefined || recorder.servedBy !== undefined
  if (replicaFor === undefined || marked || !mayBeOlder) return runAt(deps.db)
  return readAnywhere(deps, replicaFor, runAt, { horizon: horizonOf(past), servedBy: recorder?.servedBy })
}

/** Rows as JSON texts, in batches that are never empty. */
export type RowBatches = AsyncIterable<readonly string[]>

/** Makes the text of an answer from its rows; `query` runs another statement in the rows' snapshot. */
type RowRenderer = (rows: RowBatches, query: BatchReader<unknown>['query']) => AsyncIterable<string>

export type StreamOptions = {
  /** The caller that a read replica may answer; without it only the primary does. */
  readonly replicaFor?: AnyReader | undefined
  /** The changes that a replica must have, see `readAnywhere`. */
  readonly horizon?: bigint | undefined
}

/** An answer that is being read: its text in pieces. `close` must be called. */
export type OpenAnswer = { readonly chunks: AsyncIterable<string>; close(failed: boolean): Promise<void> }

/** `{"data":[…],"totalCount":n}` row by row; see {@link streamRows}. A value that does not fit may come when half of it is sent. */
function streamList(deps: ItemReads, plan: Plan, options: StreamOptions = {}): Promise<Readable> {
  const fits = asFits(plan)
  return streamRows(deps, compileStream(fits), (rows, query) => listText(rows, fits, query), ofPlan(plan, options))
}

/** As {@link streamList}, and at its end the cursor of the snapshot that it was read in: see {@link markOf}. */
function streamMarkedList(deps: ItemReads, plan: Plan): Promise<Readable> {
  // The cursor is a snapshot of the primary's.
  return streamRows(deps, compileStream(plan), (rows, query) => listText(rows, plan, query, true))
}

/** The member of a list's answer from which `GET /changes` goes on, without a gap and without a repeat. */
const markOf = (snapshot: string): string => `,"changesCursor":"${encodeCursor(cursorAt(snapshot))}"`

/** As {@link streamList}, for a list that is a part of another answer. */
export function openList(
  deps: Reads & ReplicaReads & AdmissionLanes,
  plan: Plan,
  options: StreamOptions = {},
): Promise<OpenAnswer> {
  const fits = asFits(plan)
  return openRows(deps, compileStream(fits), (rows, query) => listText(rows, fits, query), ofPlan(plan, options))
}

/**
 * An answer of any size. The first batch is read before this returns, so an error of the query is an ordinary answer; one
 * that comes later destroys the connection, and the client sees a truncated body.
 */
export async function streamRows(
  deps: ItemReads,
  rows: Statement,
  render: RowRenderer,
  options: StreamOptions = {},
): Promise<Readable> {
  const answer = await openRows(deps, rows, render, options)
  const stream = Readable.from(answer.chunks)
  // Not in the generator's `finally`: a client that is gone before the first byte never starts the generator.
  stream.once('close', () => {
    answer
      .close(!stream.readableEnded)
      .catch((error: unknown) => deps.log.warn({ err: error }, 'a cursor could not be closed'))
  })
  return stream
}

/** Holds a place until it is closed: as long as its client reads, a connection is its own. */
async function openRows(
  deps: Reads & ReplicaReads & AdmissionLanes,
  rows: Statement,
  render: RowRenderer,
  options: StreamOptions,
): Promise<OpenAnswer> {
  const place = await deps.admission.enter({ shape: `stream ${rows.text}`, presumed: 'heavy' })
  try {
    const { chunks, close } = await openRowsAnywhere(deps, rows, render, options)
    return { chunks, close: (failed) => close(failed).finally(place.leave) }
  } catch (error) {
    place.leave()
    throw error
  }
}

/** Reads the first batch; nothing stays open when that fails. A later failure can't be made good from elsewhere. */
function openRowsAnywhere(
  deps: Reads & ReplicaReads,
  rows: Statement,
  render: RowRenderer,
  options: StreamOptions,
): Promise<OpenAnswer> {
  const { replicaFor, horizon } = options
  const openAt = (db: Database) => openRowsAt(db, rows, render)
  if (replicaFor === undefined) return openAt(deps.db)
  return readAnywhere(deps, replicaFor, openAt, { horizon, discard: ({ close }) => void close(true) })
}

/** The options for reading what a plan says. */
export const ofPlan = ({ past }: Plan, options: StreamOptions): StreamOptions => ({
  ...options,
  horizon: horizonOf(past),
})

async function openRowsAt(db: Database, rows: Statement, render: RowRenderer): Promise<OpenAnswer> {
  const batches = await openBatches<RowText>(db, rows.text, rows.values)
  try {
    const first = await batches.next()
    return { chunks: render(textsOf(batches, first), batches.query), close: (failed) => batches.close(failed) }
  } catch (error) {
    await batches.close(true)
    throw error
  }
}

type RowText = { readonly data: string }

async function* textsOf(batches: BatchReader<RowText>, first: readonly RowText[]): AsyncGenerator<readonly string[]> {
  for (let rows = first; rows.length > 0; rows = await batches.next()) yield rows.map(({ data }) => data)
}

async function* listText(rows: RowBatches, plan: Plan, query: BatchReader<unknown>['query'], marked = false) {
  yield '{"data":['
  let sent = 0
  for await (const batch of rows) {
    yield (sent > 0 ? ',' : '') + batch.join(',')
    sent += batch.length
  }
  yield plan.count ? `],"totalCount":${await totalOf(plan, sent, query)}` : ']'
  if (marked) yield markOf(await snapshotOf(query))
  yield '}'
}

async function snapshotOf(query: BatchReader<unknown>['query']): Promise<string> {
  const [row] = await query<{ snapshot: string }>(`select ${momentSql} as snapshot`, [])
  return row!.snapshot
}

async function totalOf(plan: Plan, sent: number, query: BatchReader<unknown>['query']): Promise<string> {
  if (isWhole(plan)) return String(sent)
  const { text, values } = compileCount(plan)
  const [row] = await query<{ total: string }>(text, values)
  return row!.total
}

/** A query as a plan, with its statement as soon as that was needed. */
type PreparedPlan = {
  readonly plan: Plan
  statement?: Statement
  /** Set where it is a cached template with the values of this query. */
  readonly binding?: { readonly kept: CachedTemplate; readonly bound: BoundPlan }
}

type CachedTemplate = { readonly template: PlanTemplate; statement?: StatementTemplate }
/** In place of the template of questions that have none. */
type NoTemplate = { readonly template: undefined }

/** A question: `name` tells kinds of questions and their collections apart, `raw` is the query string. */
type PlanQuestion = { readonly name: string; readonly raw: RawQuery }

type RawQuery = Readonly<Record<string, unknown>>

/**
 * The plan of a question from memory, or the one that `resolve` makes of its query string, in which the filter may be
 * parsed already. To resolve and compile a question costs as much as the rest of its way through this process, and
 * clients ask few different ones, or many that differ in the values of their filter only.
 *
 * Exact: a plan is cached with the catalog that it was resolved against and found by everything else that resolving looks
 * at, which is the question, but for values that are read anew each time (query/template.ts), and what the caller may
 * (`Access.meaning`). A question that could name a variable is always resolved anew; errors and plans that
 * name the time are never cached.
 */
export function preparedPlan(
  catalog: Catalog,
  access: Access,
  { name, raw }: PlanQuestion,
  resolve: (raw: RawQuery) => Plan,
): PreparedPlan {
  const meaning = access.meaning?.()
  const rest = meaning === undefined ? undefined : withoutFilter(raw)
  if (rest === undefined) return { plan: resolve(raw) }
  const memory = memoryOf(catalog)
  const unfiltered = `${meaning} ${name} ${rest.text}`
  if (!rest.hasFilter) return cachedExactly(memory, unfiltered, () => resolve(raw))
  const filter = plainFilter(raw)
  const plan = () => resolve({ ...Object.fromEntries(Object.entries(raw).filter(([key]) => !isOfFilter(key))), filter })
  // The values of a template are plain: they have the long numbers no more.
  if (hasLongNumbers(filter)) return { plan: plan() }
  const { text, values } = templateOfFilter(filter)
  const key = `${unfiltered} ${text}`
  if (values.length === 0) return cachedExactly(memory, key, plan)
  const kept = memory.templates.get(key)
  if (kept === undefined) return cachedAsTemplate(memory, key, plan, values)
  if (kept.template === undefined) return cachedExactly(memory, `${key} ${JSON.stringify(values)}`, plan)
  const bound = bindPlan(kept.template, values)
  return bound === undefined ? { plan: plan() } : { plan: bound.plan, binding: { kept, bound } }
}

/** The statement of a plan; always with the same `compile`. */
function statementOf(prepared: PreparedPlan, compile: (plan: Plan) => Statement): Statement {
  const { binding } = prepared
  if (binding !== undefined) {
    binding.kept.statement ??= templateOfStatement(binding.kept.template, compile)
    return bindStatement(binding.kept.statement, binding.bound)
  }
  prepared.statement ??= compile(prepared.plan)
  return prepared.statement
}

const largestQuestion = 4000

const isOfFilter = (key: string): boolean => key === 'filter' || key.startsWith('filter[')

/** All of a question but its filter, as a text of its own; undefined for one that is not cached. */
function withoutFilter(raw: RawQuery): { readonly text: string; readonly hasFilter: boolean } | undefined {
  let text = ''
  let length = 0
  let hasFilter = false
  for (const key of Object.keys(raw)) {
    const value = raw[key]
    if (typeof value !== 'string' || mayNameVariables.test(value)) return undefined
    length += key.length + value.length
    if (isOfFilter(key)) hasFilter = true
    // With the lengths, as no character is free to stand between them.
    else text += `${key.length},${value.length},${key}${value}`
  }
  return length <= largestQuestion ? { text, hasFilter } : undefined
}

/** A variable begins with `$`, which JSON may also write as an escape. */
const mayNameVariables = /\$|\\u/

type PlanMemory = {
  readonly plans: BoundedMemory<PreparedPlan>
  readonly templates: BoundedMemory<CachedTemplate | NoTemplate>
  readonly once: Set<string>
}

const memoryOf = oncePer(
  (_catalog: Catalog): PlanMemory => ({
    plans: openBoundedMemory<PreparedPlan>(bounds),
    templates: openBoundedMemory<CachedTemplate | NoTemplate>(bounds),
    once: new Set(),
  }),
)

/** A guess at objects and statement of a plan: about ten times the text of its question, and never little. */
const bounds = {
  maxBytes: 8_000_000,
  maxEntryBytes: 64_000,
  sizeOf: (_kept: object, key: string) => 8000 + 10 * key.length,
}

function cachedExactly({ plans, once }: PlanMemory, key: string, plan: () => Plan): PreparedPlan {
  const known = plans.get(key)
  if (known !== undefined) return known
  const made: PreparedPlan = { plan: plan() }
  if (isLasting(made.plan) && isRepeated(once, key)) plans.set(key, made, 0)
  return made
}

function cachedAsTemplate(
  { templates, once }: PlanMemory,
  key: string,
  plan: () => Plan,
  values: readonly unknown[],
): PreparedPlan {
  const made = plan()
  if (isLasting(made) && isRepeated(once, key)) {
    templates.set(key, { template: templateOfPlan(made, values) }, 0)
  }
  return { plan: made }
}

const isLasting = ({ time }: Plan): boolean => time === undefined

/** A question that is asked once is not worth the collector's work. */
function isRepeated(once: Set<string>, key: string): boolean {
  if (once.delete(key)) return true
  if (once.size >= 2000) once.clear()
  once.add(key)
  return false
}
