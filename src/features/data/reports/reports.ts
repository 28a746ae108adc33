import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { Logs } from '../../../adapters/logger.ts'
import { forSameAsker } from '../../../admission/asker.ts'
import { admitted, type HeldPlace } from '../../../admission/lane.ts'
import { type CurrentCatalog, withFreshCatalog } from '../../../catalog/store.ts'
import { guardScalar } from '../../../catalog/values.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { clientError, databaseError, isDataError, isStalePlan, sqlState } from '../../../db/errors.ts'
import { runWithin, timedOut } from '../../../db/long-reads.ts'
import type { Database, Reads } from '../../../db/pools.ts'
import { type AnyReader, type ReplicaReads, readAnywhere } from '../../../db/replicas/replicas.ts'
import { AppError, errors } from '../../../errors.ts'
import { writeJson } from '../../../language/exact-json.ts'
import { firstRepeated } from '../../../language/text.ts'
import type { Access } from '../../../query/access.ts'
import { compileListUpTo } from '../../../query/compile.ts'
import { isObject, member, quoted, refuseUnknown } from '../../../query/guards.ts'
import { collectParameters, type ListQuery, parseListQuery, readStructure } from '../../../query/parse.ts'
import { horizonOf } from '../../../query/past.ts'
import { type Plan, resolveEnv, resolveList } from '../../../query/resolve.ts'
import type { Statement } from '../../../query/sql.ts'
import {
  answerPlan,
  answerQuestion,
  type DependencyRecorder,
  type ItemReads,
  type ListRow,
  largestWhole,
  listBody,
  type OpenAnswer,
  openList,
  readOfPlan,
} from '../items/items.ts'
import { ResultOutOfRange, resultOutOfRange } from './overflow.ts'

/** A report as it is now. */
export type Evaluation = {
  /** `{"data":[…],"totalCount":n}` */
  readonly body: string
  /** Every collection whose changes may change it. */
  readonly reads: ReadonlySet<string>
}

type Evaluator = {
  /**
   * Evaluates a report with what its reader may read now. The errors of a report, and 400 for one that is too long to be
   * sent whole, or that reads a collection whose changes are not recorded.
   */
  evaluate(access: Access, collection: string, query: ListQuery): Promise<Evaluation>
}

/** Statements of a process at a time: live reports leave connections to the requests. */
const atOnce = 2

/** Evaluates reports that are asked for again and again; those that wait and are the same statement are run once. */
export function openEvaluator(deps: ReportReads): Evaluator {
  const run = sharing(atOnce, async (statement: Statement) => {
    // They have a bound of their own, and their readers are no clients that could ask again.
    const entering = { shape: statement.text, presumed: 'heavy', isPatient: true } as const
    const [row] = await admitted(deps.admission, entering, () => deps.db.run<ListRow>(statement.text, statement.values))
    return row!
  })
  const read = async (access: Access, collection: string, query: ListQuery) => {
    const plan = resolveReport(deps, access, collection, query)
    refuseUnrecorded(deps, plan.collections)
    const runFor = (found: Plan) =>
      run(compileListUpTo(found, largestWhole(plan))).catch((error) => {
        throw resultOutOfRange(plan, error) ?? error
      })
    const body = listBody(plan, await readOfPlan(plan, undefined, runFor))
    if (body === undefined) throw new AppError(400, 'The report is too long to be followed: set a limit')
    return { body, reads: plan.collections }
  }
  return {
    evaluate: async (access, collection, query) => {
      try {
        return await withFreshCatalog(deps.catalog, () => read(access, collection, query))
      } catch (error) {
        throw reportError(error)
      }
    },
  }
}

function refuseUnrecorded(deps: CurrentCatalog, collections: ReadonlySet<string>): void {
  const unlogged = [...collections].find((name) => deps.catalog.current().collections.get(name)?.logged === false)
  if (unlogged !== undefined) throw new AppError(400, `Changes of ${unlogged} are not recorded`)
}

type WaitingStatement<Row> = { readonly statement: Statement; readonly result: PromiseWithResolvers<Row> }

/**
 * Runs a few statements at a time. One that has not begun yet serves every caller who asks for the same; one that has begun
 * may have missed what the next one asks because of.
 */
function sharing<Row>(most: number, run: (statement: Statement) => Promise<Row>) {
  const waiting = new Map<string, WaitingStatement<Row>>()
  let running = 0
  const drain = () => {
    for (const [key, { statement, result }] of waiting) {
      if (running >= most) return
      waiting.delete(key)
      running += 1
      run(statement)
        .then(result.resolve, result.reject)
        .finally(() => {
          running -= 1
          drain()
        })
    }
  }
  return (statement: Statement): Promise<Row> => {
    const key = `${statement.text}\n${JSON.stringify(statement.values)}`
    const known = waiting.get(key)
    if (known !== undefined) return known.result.promise
    const result = Promise.withResolvers<Row>()
    waiting.set(key, { statement, result })
    // All who are notified of the same change ask within the same turn.
    setImmediate(drain)
    return result.promise
  }
}

/**
 * `/reports/{collection}`: `{"data":[…],"totalCount":n}`, with aggregate or groupBy its groups, else its
 * items. 400 `Invalid query parameters`, 403 for what the caller may not read, 404 for an unknown collection; the words
 * of the last two are those of {@link reportError}.
 */
export async function readReport(
  deps: ReportReads,
  access: Access,
  collection: string,
  question: ReportQuestion,
  recorder?: DependencyRecorder,
): Promise<string | Readable> {
  const via = { recorder, replicaFor: access }
  const resolve = (query: ListQuery) => resolveReport(deps, access, collection, query)
  try {
    if ('query' in question) return await answerPlan(deps, resolve(question.query), via)
    const { body } = question
    // A filter that is a text still is the body's own.
    const parsed = ({ filter }: Readonly<Record<string, unknown>>) =>
      resolve(parseReport(typeof filter === 'object' ? { ...body, filter } : body))
    return await answerQuestion(deps, access, { name: `report ${collection}`, raw: textsOf(body) }, parsed, via)
  } catch (error) {
    if (error instanceof AppError && error.code === 'UNKNOWN_COLLECTION') throw unknownModel()
    if (!isDataError(error)) throw error
    // The plan may have been a remembered one.
    const plan = resolve('query' in question ? question.query : parseReport(question.body))
    throw resultOutOfRange(plan, error) ?? error
  }
}

/** A question: a query, or the body of a request, whose plan is remembered. */
export type ReportQuestion = { readonly query: ListQuery } | { readonly body: Readonly<Record<string, unknown>> }

const textsOf = (body: Readonly<Record<string, unknown>>): Record<string, string> =>
  Object.fromEntries(Object.entries(body).map(([key, value]) => [key, writeJson(value)]))

/** The question of a body; 400 for one that is not an object. */
export function questionOf(body: unknown): ReportQuestion {
  return isObject(body) ? { body } : { query: parseReport(body) }
}

/** The plan of a report; reads nothing. */
function resolveReport(
  deps: Clock & Configuration & CurrentCatalog,
  access: Access,
  collection: string,
  query: ListQuery,
): Plan {
  return resolveList(deps.catalog.current(), access, collection, query, resolveEnv(deps))
}

/** A report's JSON object: the keys of a list and no others. Everything is read and counted unless it says otherwise. */
export function parseReport(body: unknown): ListQuery {
  if (body !== undefined && body !== null && !isObject(body)) throw errors.badQuery('expected an object')
  return withDefaults(parseListQuery(body ?? {}, { strict: true }))
}

/** The same from a query string, where unknown names are left alone. */
export const parseReportParameters = (parameters: Readonly<Record<string, unknown>>): ListQuery =>
  withDefaults(parseListQuery(parameters))

/**
 * The words that reports have for some errors; the reason stays in the details. Every other error is answered as
 * everywhere.
 */
export function reportError(error: unknown): unknown {
  if (error instanceof ResultOutOfRange) return error
  const state = sqlState(error)
  if (state === timedOut) return new AppError(500, failure, { details: tookTooLong, cause: error })
  // Its words are for those who write: a report that meets it has failed, and its reader learns nothing of the rows.
  if (state === raised) return new Error(`a function of the database has raised: ${databaseError(error).message}`)
  if (state?.startsWith(dataException)) return malformed('A value does not fit its field', error)
  if (error instanceof AppError && error.status === 403) return forbidden(error)
  if (error instanceof AppError && error.code === 'FORBIDDEN_KEY') return malformed(error.message, error)
  return isMalformedBody(error) ? malformed('The request body is not valid JSON', error) : error
}

/** The words for a fault of ours or of the database. */
export const failure = 'Error generating report'

const tookTooLong = 'The report took too long'

/** `RAISE EXCEPTION` in a function of the operator, which a view may call. */
const raised = 'P0001'

/** The class of what no row could tell before it was read, such as text that a cast cannot make a number of. */
const dataException = '22'

const withDefaults = (query: ListQuery): ListQuery => ({
  ...query,
  limit: query.limit ?? -1,
  count: query.count ?? true,
})

/** A collection that the path has named already. */
export const unknownModel = () => new AppError(404, 'Model not found', { code: 'UNKNOWN_COLLECTION' })

const malformed = (details: string, cause: unknown) => Object.assign(errors.badQuery(details), { cause })

const forbidden = (cause: AppError) => new AppError(403, 'Insufficient permissions', { details: cause.message, cause })

/** JSON that the framework could not parse. */
function isMalformedBody(error: unknown): boolean {
  const { code, statusCode } = error as { code?: unknown; statusCode?: unknown }
  return code === 'FST_ERR_CTP_INVALID_JSON_BODY' || (error instanceof SyntaxError && statusCode === 400)
}

/** The capabilities that reads of this folder need. */
export type ReportReads = ItemReads

/** Statements of one request at a time, where no other request waits; else one. */
const statementsAtOnce = 3

/**
 * `/reports/stats`: `{ data: { name: { data, totalCount } }, totalStats, successfulStats }`. All
 * reports are resolved before the first is run, so an error of one of them (400, 403, 404) fails the request.
 * They share the time that one transaction may take (TRANSACTION_TIMEOUT_MS). A report that runs out of it, whose result
 * is out of range, or that the database fails, is missing from `data`, and `errors: { name: { message } }` says so.
 */
export async function readStats(
  deps: ReportReads,
  access: Access,
  stats: readonly Stat[],
  recorder?: DependencyRecorder,
): Promise<string | Readable> {
  const plans = stats.map(({ collection, query }) => resolveReport(deps, access, collection, query))
  const parts = plans.map((plan) => ({ plan, list: compileListUpTo(plan, largestWhole(plan)) }))
  const outcomes = await admitted(deps.admission, { shape: shapeOf(parts), presumed: 'heavy' }, (place) => {
    const deadline = performance.now() + deps.config.database.transactionTimeoutMs
    return inTurn(parts, [place, ...others(place)], (part) => outcomeOf(deps, access, part, { deadline, recorder }))
  })
  const isWhole = outcomes.every((outcome) => 'body' in outcome)
  const chunks = answer(deps, access, stats, outcomes, forSameAsker())
  return isWhole ? await text(Readable.from(chunks)) : Readable.from(chunks)
}

type StatPart = { readonly plan: Plan; readonly list: Statement }

/** All its reports together cost alike. */
function shapeOf(parts: readonly StatPart[]): string {
  const digest = createHash('sha256')
  for (const { list } of parts) digest.update(list.text).update('\n')
  return `stats ${digest.digest('base64url')}`
}

/** Free places for more of the request's statements. */
function others(place: HeldPlace): HeldPlace[] {
  return Array.from({ length: statementsAtOnce - 1 }, () => place.another()).filter((other) => other !== undefined)
}

/** A report's answer, one that is too long to be held beside others, or why there is none. */
type StatOutcome = { readonly body: string } | { readonly long: Plan } | { readonly failed: string }

type Outlook = { readonly deadline: number; readonly recorder: DependencyRecorder | undefined }

async function outcomeOf(
  deps: Reads & ReplicaReads & Logs,
  reader: AnyReader,
  { plan, list }: StatPart,
  { deadline, recorder }: Outlook,
): Promise<StatOutcome> {
  try {
    recorder?.begin(plan)
    recorder?.ran(list)
    const servedBy = recorder?.servedBy
    const [row] = await readOfPlan(plan, undefined, (read) => {
      const statement = read === plan ? list : compileListUpTo(read, largestWhole(read))
      const runAt = (db: Database) => runWithin<ListRow>(db, statement, deadline)
      return recorder !== undefined && servedBy === undefined
        ? runAt(deps.db)
        : readAnywhere(deps, reader, runAt, { horizon: horizonOf(plan.past), servedBy })
    })
    const body = listBody(plan, row!)
    return body === undefined ? { long: plan } : { body }
  } catch (error) {
    return failedOutcome(deps, resultOutOfRange(plan, error) ?? error)
  }
}

/** Throws what is not the failure of this one report: the client's mistake, a changed collection, no database. */
function failedOutcome(deps: Logs, error: unknown): { readonly failed: string } {
  const isOwn = error instanceof ResultOutOfRange || [timedOut, raised].includes(sqlState(error) ?? '')
  if (isOwn || (!isStalePlan(error) && clientError(error) === undefined)) return failedReport(deps, error)
  throw error
}

function failedReport({ log }: Logs, error: unknown): { readonly failed: string } {
  log.warn({ err: error, sqlState: sqlState(error) }, 'a report of several failed')
  if (error instanceof ResultOutOfRange) return { failed: error.message }
  return { failed: sqlState(error) === timedOut ? tookTooLong : failure }
}

/** The text of the answer. Long reports are read here, one after the other, while the client reads them. */
async function* answer(
  deps: ReportReads,
  reader: AnyReader,
  stats: readonly Stat[],
  outcomes: readonly StatOutcome[],
  forAsker: ReturnType<typeof forSameAsker>,
): AsyncGenerator<string> {
  const failed: string[] = []
  let separator = '{"data":{'
  for (const [i, { name }] of stats.entries()) {
    const key = JSON.stringify(name)
    const found = outcomes[i]!
    const outcome = 'long' in found ? await forAsker(() => openLong(deps, reader, found.long)) : found
    if ('failed' in outcome) {
      failed.push(`${key}:${JSON.stringify({ message: outcome.failed })}`)
      continue
    }
    yield `${separator}${key}:`
    separator = ','
    if ('body' in outcome) yield outcome.body
    else yield* pieces(outcome)
  }
  const errors = failed.length === 0 ? '' : `,"errors":{${failed.join(',')}}`
  if (failed.length === stats.length) yield separator
  yield `},"totalStats":${stats.length},"successfulStats":${stats.length - failed.length}${errors}}`
}

/** Its first rows come before anything is said of it, so that it can still fail alone. */
async function openLong(
  deps: ReportReads,
  reader: AnyReader,
  plan: Plan,
): Promise<OpenAnswer | { readonly failed: string }> {
  try {
    return await openList(deps, plan, { replicaFor: reader })
  } catch (error) {
    return failedReport(deps, error)
  }
}

async function* pieces({ chunks, close }: OpenAnswer): AsyncGenerator<string> {
  let isRead = false
  try {
    yield* chunks
    isRead = true
  } finally {
    await close(!isRead)
  }
}

/** The results of `work`, in the order of its arguments, one per place at a time. After the first rejection nothing is begun. */
async function inTurn<T, R>(
  values: readonly T[],
  places: readonly HeldPlace[],
  work: (value: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = []
  const rest = values.entries()
  let isOver = false
  const drain = async ({ leave }: HeldPlace) => {
    try {
      for (const [i, value] of rest) {
        if (isOver) return
        results[i] = await work(value)
      }
    } finally {
      leave()
    }
  }
  try {
    await Promise.all(places.map(drain))
    return results
  } finally {
    isOver = true
  }
}

/** One named report of a request. */
export type Stat = { readonly name: string; readonly collection: string; readonly query: ListQuery }

/** Reports in one request. */
const mostStats = 50

/**
 * `{ stats: [{ name, collection, query }, …] }` in full: shapes, names that differ, and each query. 400 in the
 * specification's words where it has some, else `Invalid query parameters`.
 */
export function parseStats(body: unknown): readonly Stat[] {
  const list = isObject(body) ? member(body, 'stats') : undefined
  if (!Array.isArray(list) || list.length === 0) throw noStats()
  refuseUnknown('body', body as Readonly<Record<string, unknown>>, ['stats'])
  if (list.length > mostStats) throw errors.badQuery(`stats: at most ${mostStats}`)
  const stats = list.map(parseStat)
  const twice = firstRepeated(stats.map(({ name }) => name))
  if (twice !== undefined) throw errors.badQuery(`stats: the name ${quoted(twice)} is given twice`)
  return stats
}

/** The same from a query string: `stats` as JSON text, or `stats[0][name]=…`. */
export function parseStatsParameters(parameters: Readonly<Record<string, unknown>>): readonly Stat[] {
  const given = collectParameters(parameters, new Set(['stats']), false)
  return parseStats({ stats: readStructure('stats', given.get('stats')) })
}

function parseStat(raw: unknown, i: number): Stat {
  const collection = isObject(raw) ? member(raw, 'collection') : undefined
  if (!isObject(raw) || typeof collection !== 'string' || collection === '') throw noCollection()
  refuseUnknown(`stats[${i}]`, raw, ['name', 'collection', 'query'])
  const name = member(raw, 'name')
  if (typeof name !== 'string' || name === '' || name.length > 255) {
    throw errors.badQuery(`stats[${i}]: expected a name of at most 255 characters`)
  }
  guardScalar(`stats[${i}]`, name)
  const query = readStructure(`stats[${i}].query`, member(raw, 'query'))
  if (!isObject(query)) throw errors.badQuery(`stats[${i}]: expected a query, an object`)
  return { name, collection, query: parseReport(query) }
}

const noStats = () => new AppError(400, 'stats array is required and must not be empty')
const noCollection = () => new AppError(400, "Each stats query must have a 'collection' property")
