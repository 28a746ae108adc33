/**
 * parse: the shape of a query, in any of the wire forms of `spec/items.md` §2, as one {@link ListQuery}. Knows no
 * collection. Everything malformed answers 400 `Invalid query parameters` with the parameter's name in `details`.
 */
import { errors } from '../errors.ts'
import type { AggregateEntry, Direction, Filter, ListQuery, SortKey } from './ast.ts'
import {
  guard,
  isObject,
  MAX_AGGREGATES,
  MAX_GROUP_KEYS,
  MAX_SEARCH_LENGTH,
  MAX_SORT_KEYS,
  member,
  quoted,
} from './guards.ts'
import { collectParameters, readBoolean, readInteger, readString, readStrings, readStructure } from './wire.ts'

const PARAMETERS = new Set([
  'fields',
  'filter',
  'sort',
  'limit',
  'page',
  'offset',
  'search',
  'searchFields',
  'sortByRelevance',
  'aggregate',
  'groupBy',
  'having',
  'relConditions',
  'paranoid',
  'count',
  'timezone',
  'asOf',
])
const FILTER = new Set(['filter'])
/** What only a list that is read page by page takes. */
const LIST_PARAMETERS = new Set([...PARAMETERS, 'cursor'])

/** The names of a list's parameters in a query string. */
export const readListParameters: readonly string[] = [...LIST_PARAMETERS]

/**
 * A query string (values are strings or lists of them, keys may be bracketed) or a JSON body. Unknown names are
 * ignored, or answer 400 when `strict` (bodies of reports and stats).
 */
export function parseListQuery(raw: Readonly<Record<string, unknown>>, options: { strict?: boolean } = {}): ListQuery {
  const strict = options.strict ?? false
  const given = collectParameters(raw, strict ? PARAMETERS : LIST_PARAMETERS, strict)
  const structure = (name: string) => readGuarded(name, given.get(name))
  return {
    fields: readStrings('fields', given.get('fields')),
    filter: parseFilterParameter('filter', structure('filter')),
    sort: parseSort(structure('sort')),
    limit: readInteger('limit', given.get('limit'), -1),
    page: readInteger('page', given.get('page'), 1),
    offset: readInteger('offset', given.get('offset'), 0),
    cursor: readString('cursor', given.get('cursor')),
    search: parseSearch(given.get('search')),
    searchFields: readStrings('searchFields', given.get('searchFields')),
    sortByRelevance: readBoolean('sortByRelevance', given.get('sortByRelevance')) ?? false,
    aggregate: parseAggregate(structure('aggregate')),
    groupBy: parseGroupBy(given.get('groupBy')),
    having: parseFilterParameter('having', structure('having')),
    relConditions: parseObject('relConditions', structure('relConditions')),
    paranoid: readBoolean('paranoid', given.get('paranoid')) ?? true,
    count: readBoolean('count', given.get('count')),
    timezone: readString('timezone', given.get('timezone')),
    asOf: readString('asOf', given.get('asOf')),
  }
}

/** The filter of a raw query as a plain value, whatever spelling it came in; 400 where it is too large or malformed. */
export const plainFilter = (raw: Readonly<Record<string, unknown>>): unknown =>
  readGuarded('filter', collectParameters(raw, FILTER, false).get('filter'))

/**
 * The same query as plain values, whatever spelling it came in: objects, lists of names, numbers. What is unknown is
 * left out. {@link parseListQuery} understands it again.
 */
export function plainQuery(raw: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const plain = [...collectParameters(raw, PARAMETERS, false)].map(([name, value]) => [name, plainValue(name, value)])
  return Object.fromEntries(plain.filter(([, value]) => value !== undefined))
}

function plainValue(name: string, value: unknown): unknown {
  if (['fields', 'searchFields', 'groupBy'].includes(name)) return readStrings(name, value)
  if (['limit', 'page', 'offset'].includes(name)) return readInteger(name, value, -1)
  return ['filter', 'sort', 'aggregate', 'having', 'relConditions'].includes(name) ? readStructure(name, value) : value
}

/**
 * The filter language itself; also for stored permission conditions and subscriptions. The value must have passed
 * {@link guard}, or be our own: this recurses as deep as it nests. `undefined` members are skipped.
 */
export function parseFilter(raw: unknown): Filter {
  if (!isObject(raw)) throw errors.badQuery('filter: expected an object')
  const of = Object.entries(raw)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => parseMember(key, value))
  return of.length === 1 ? of[0]! : { kind: 'and', of }
}

/** As {@link parseFilter}, for a value of unknown origin and size. */
export function parseUntrustedFilter(raw: unknown): Filter {
  guard('filter', raw)
  return parseFilter(raw)
}

function parseMember(key: string, value: unknown): Filter {
  switch (key) {
    case 'AND':
    case 'and':
      return { kind: 'and', of: listOf(value).map(parseFilter) }
    case 'OR':
    case 'or':
      return { kind: 'or', of: listOf(value).map(parseFilter) }
    case 'NOT':
    case 'not':
      return { kind: 'not', of: { kind: 'and', of: listOf(value).map(parseFilter) } }
    default:
      return { kind: 'entry', path: key, value }
  }
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [value])

function readGuarded(name: string, raw: unknown): unknown {
  const value = readStructure(name, raw)
  guard(name, value)
  return value ?? undefined
}

function parseFilterParameter(name: string, value: unknown): Filter | undefined {
  const object = parseObject(name, value)
  return object === undefined ? undefined : parseFilter(object)
}

function parseObject(name: string, value: unknown): Readonly<Record<string, unknown>> | undefined {
  if (value === undefined) return undefined
  // An empty list is what an empty object becomes in some query string encoders.
  if (Array.isArray(value) && value.length === 0) return undefined
  if (!isObject(value)) throw errors.badQuery(`${name}: expected an object`)
  return value
}

function parseSearch(value: unknown): string | undefined {
  const search = readString('search', value)?.trim()
  if (search !== undefined && search.length > MAX_SEARCH_LENGTH) throw errors.badQuery('search: too long')
  return search === '' ? undefined : search
}

function parseGroupBy(value: unknown): readonly string[] {
  const keys = readStrings('groupBy', value) ?? []
  if (keys.length > MAX_GROUP_KEYS) throw errors.badQuery(`groupBy: at most ${MAX_GROUP_KEYS} keys`)
  return [...new Set(keys)]
}

function parseAggregate(value: unknown): readonly AggregateEntry[] {
  const entries = Object.entries(parseObject('aggregate', value) ?? {})
  if (entries.length > MAX_AGGREGATES) throw errors.badQuery(`aggregate: at most ${MAX_AGGREGATES} members`)
  return entries.map(([alias, entry]) => parseAggregateEntry(alias, entry))
}

function parseAggregateEntry(alias: string, entry: unknown): AggregateEntry {
  if (!isObject(entry)) throw errors.badQuery(`aggregate: ${quoted(alias)} must be { function, field }`)
  const fn = member(entry, 'function')
  const field = member(entry, 'field') ?? '*'
  if (typeof fn !== 'string' || typeof field !== 'string') {
    throw errors.badQuery(`aggregate: ${quoted(alias)} must be { function, field }`)
  }
  return { alias, fn, field }
}

function parseSort(value: unknown): readonly SortKey[] {
  const keys = sortKeys(value)
  if (keys.length > MAX_SORT_KEYS) throw errors.badQuery(`sort: at most ${MAX_SORT_KEYS} keys`)
  return keys
}

function sortKeys(value: unknown): SortKey[] {
  if (value === undefined) return []
  if (typeof value === 'string') return (readStrings('sort', value) ?? []).map(parseSortText)
  if (Array.isArray(value))
    return value.flatMap((entry) => (isObject(entry) ? sortObject(entry) : sortKeys(entry ?? '')))
  if (isObject(value)) return sortMembers(value)
  throw errors.badQuery('sort: expected names and directions')
}

/** `f`, `-f`, `f:desc`. */
function parseSortText(text: string): SortKey {
  if (text.startsWith('-')) return { kind: 'path', path: text.slice(1), direction: 'desc' }
  // A date bucket has colons of its own, so only a trailing direction counts.
  const colon = text.lastIndexOf(':')
  const direction = colon < 0 ? undefined : directionOf(text.slice(colon + 1))
  if (direction !== undefined) return { kind: 'path', path: text.slice(0, colon), direction }
  return { kind: 'path', path: text, direction: 'asc' }
}

/** `{ column | field, order }`, otherwise `{ name: direction }`. */
function sortObject(entry: Readonly<Record<string, unknown>>): SortKey[] {
  const path = member(entry, 'column') ?? member(entry, 'field')
  if (typeof path !== 'string' || directionOf(path) !== undefined) return sortMembers(entry)
  return [{ kind: 'path', path, direction: requireDirection(path, member(entry, 'order') ?? 'asc') }]
}

function sortMembers(object: Readonly<Record<string, unknown>>): SortKey[] {
  return Object.entries(object).map(([path, value]) => {
    if (path === '_distance') return distanceKey(value)
    if (path === '_vectorDistance') return vectorKey(value)
    return { kind: 'path', path, direction: requireDirection(path, value) }
  })
}

function distanceKey(spec: unknown): SortKey {
  if (!isObject(spec)) throw errors.badQuery('sort: _distance must be { target, column, direction }')
  const column = member(spec, 'column')
  if (typeof column !== 'string') throw errors.badQuery('sort: _distance needs a column')
  const direction = requireDirection('_distance', member(spec, 'direction') ?? 'asc')
  return { kind: 'distance', column, target: member(spec, 'target'), direction }
}

function vectorKey(spec: unknown): SortKey {
  if (!isObject(spec)) throw errors.badQuery('sort: _vectorDistance must be { vector, column, operator, direction }')
  const column = member(spec, 'column')
  const metric = member(spec, 'operator') ?? 'cosine'
  if (typeof column !== 'string' || typeof metric !== 'string') {
    throw errors.badQuery('sort: _vectorDistance needs a column and an operator')
  }
  const direction = requireDirection('_vectorDistance', member(spec, 'direction') ?? 'asc')
  return { kind: 'vectorDistance', column, vector: member(spec, 'vector'), metric, direction }
}

function requireDirection(path: string, value: unknown): Direction {
  const direction = directionOf(value)
  if (direction === undefined) throw errors.badQuery(`sort: ${quoted(path)} must be asc or desc`)
  return direction
}

function directionOf(value: unknown): Direction | undefined {
  const word = typeof value === 'string' ? value.toLowerCase() : undefined
  return word === 'asc' || word === 'desc' ? word : undefined
}
