import type { Readable } from 'node:stream'
import { admitted } from '../../../admission/lane.ts'
import { type CurrentCatalog, withFreshCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { sqlState } from '../../../db/errors.ts'
import { timedOut } from '../../../db/long-reads.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Access } from '../../../query/access.ts'
import { compileListUpTo } from '../../../query/compile.ts'
import { isObject } from '../../../query/guards.ts'
import { type ListQuery, parseListQuery } from '../../../query/parse.ts'
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
} from '../items/items.ts'

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
    const body = listBody(plan, await run(compileListUpTo(plan, largestWhole(plan))))
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
 * Runs a few statements at a time. One that has not begun yet serves everybody who asks for the same; one that has begun
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
    throw error
  }
}

/** A question: a query, or the body of a request, whose plan is remembered. */
export type ReportQuestion = { readonly query: ListQuery } | { readonly body: Readonly<Record<string, unknown>> }

const textsOf = (body: Readonly<Record<string, unknown>>): Record<string, string> =>
  Object.fromEntries(Object.entries(body).map(([key, value]) => [key, JSON.stringify(value)]))

/** The question of a body; 400 for one that is not an object. */
export function questionOf(body: unknown): ReportQuestion {
  return isObject(body) ? { body } : { query: parseReport(body) }
}

/** The plan of a report; reads nothing. */
export function resolveReport(
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

/** The same from a query string, where unknown names are somebody else's. */
export const parseReportParameters = (parameters: Readonly<Record<string, unknown>>): ListQuery =>
  withDefaults(parseListQuery(parameters))

/**
 * The words that reports have for some errors; the reason stays in the details. Every other error is answered as
 * everywhere.
 */
export function reportError(error: unknown): unknown {
  const state = sqlState(error)
  if (state === timedOut) return new AppError(500, failure, { details: tookTooLong, cause: error })
  if (state?.startsWith(dataException)) return malformed('A value does not fit its field', error)
  if (error instanceof AppError && error.status === 403) return forbidden(error)
  return isMalformedBody(error) ? malformed('The request body is not valid JSON', error) : error
}

/** The words for a fault of ours or of the database. */
export const failure = 'Error generating report'

export const tookTooLong = 'The report took too long'

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

/** JSON that the framework could not parse, or that would reach a prototype. */
function isMalformedBody(error: unknown): boolean {
  const { code, statusCode } = error as { code?: unknown; statusCode?: unknown }
  return code === 'FST_ERR_CTP_INVALID_JSON_BODY' || (error instanceof SyntaxError && statusCode === 400)
}

/** The capabilities that reads of this folder need. */
export type ReportReads = ItemReads
