import { guardScalar } from '../../../catalog/values.ts'
import { AppError, errors } from '../../../errors.ts'
import { isObject, member, quoted } from '../../../query/guards.ts'
import { collectParameters, type ListQuery, readStructure } from '../../../query/parse.ts'
import { parseReport } from './report.ts'

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
