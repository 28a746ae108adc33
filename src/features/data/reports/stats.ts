import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { Logs } from '../../../adapters/logger.ts'
import { forSameAsker } from '../../../admission/asker.ts'
import { admitted, type HeldPlace } from '../../../admission/lane.ts'
import { guardScalar } from '../../../catalog/values.ts'
import { clientError, isStalePlan, sqlState } from '../../../db/errors.ts'
import { runWithin, timedOut } from '../../../db/long-reads.ts'
import type { Database, Reads } from '../../../db/pools.ts'
import { type AnyReader, type ReplicaReads, readAnywhere } from '../../../db/replicas/replicas.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Access } from '../../../query/access.ts'
import { compileListUpTo } from '../../../query/compile.ts'
import { isObject, member, quoted } from '../../../query/guards.ts'
import { collectParameters, type ListQuery, readStructure } from '../../../query/parse.ts'
import { horizonOf } from '../../../query/past.ts'
import type { Plan } from '../../../query/resolve.ts'
import type { Statement } from '../../../query/sql.ts'
import {
  type DependencyRecorder,
  type ListRow,
  largestWhole,
  listBody,
  type OpenAnswer,
  openList,
} from '../items/items.ts'
import { failure, parseReport, type ReportReads, resolveReport, tookTooLong } from './reports.ts'

/** Statements of one request at a time, where no other request waits; else one. */
const atOnce = 3

/**
 * `/reports/stats`: `{ data: { name: { data, totalCount } }, totalStats, successfulStats }`. All
 * reports are resolved before the first is run, so an error of one of them (400, 403, 404) fails the request.
 * They share the time that one transaction may take (TRANSACTION_TIMEOUT_MS). A report that runs out of it, or that
 * the database fails, is missing from `data`, and `errors: { name: { message } }` says so.
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
  return Array.from({ length: atOnce - 1 }, () => place.another()).filter((other) => other !== undefined)
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
    const runAt = (db: Database) => runWithin<ListRow>(db, list, deadline)
    const servedBy = recorder?.servedBy
    const [row] =
      recorder !== undefined && servedBy === undefined
        ? await runAt(deps.db)
        : await readAnywhere(deps, reader, runAt, { horizon: horizonOf(plan.past), servedBy })
    const body = listBody(plan, row!)
    return body === undefined ? { long: plan } : { body }
  } catch (error) {
    return failedOutcome(deps, error)
  }
}

/** Throws what is not the failure of this one report: the client's mistake, a changed collection, no database. */
function failedOutcome(deps: Logs, error: unknown): { readonly failed: string } {
  const isOwn = sqlState(error) === timedOut || (!isStalePlan(error) && clientError(error) === undefined)
  if (isOwn) return failedReport(deps, error)
  throw error
}

function failedReport({ log }: Logs, error: unknown): { readonly failed: string } {
  log.warn({ err: error, sqlState: sqlState(error) }, 'a report of several failed')
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
  refuseUnknown('body', body as object, ['stats'])
  if (list.length > mostStats) throw errors.badQuery(`stats: at most ${mostStats}`)
  const stats = list.map(parseStat)
  const twice = stats.find(({ name }, i) => stats.findIndex((other) => other.name === name) < i)
  if (twice !== undefined) throw errors.badQuery(`stats: the name ${quoted(twice.name)} is given twice`)
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

function refuseUnknown(place: string, object: object, known: readonly string[]): void {
  const unknown = Object.keys(object).find((key) => !known.includes(key))
  if (unknown !== undefined) throw errors.badQuery(`${place}: unknown member ${quoted(unknown)}`)
}

const noStats = () => new AppError(400, 'stats array is required and must not be empty')
const noCollection = () => new AppError(400, "Each stats query must have a 'collection' property")
