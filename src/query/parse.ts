/**
 * parse: a query in any of its wire forms as one {@link ListQuery}, in the request's own words: every name is still a
 * string and nothing is known to exist. Knows no collection. Everything malformed answers 400 `Invalid query parameters`
 * with the parameter's name in `details`.
 */
import { guardScalar, isObject, member } from '../catalog/values.ts'
import { errors } from '../errors.ts'
import { holding, knowing, longNumber, parseJson } from '../language/exact-json.ts'
import {
  guard,
  MAX_AGGREGATES,
  MAX_DEPTH,
  MAX_GROUP_KEYS,
  MAX_LIST,
  MAX_SEARCH_LENGTH,
  MAX_SORT_KEYS,
  MAX_TEXT,
  meantName,
  quoted,
  refuseUnknown,
} from './guards.ts'
import { findOperator, type Operator } from './operators.ts'

/** A row filter. */
export type Filter =
  | { readonly kind: 'and' | 'or'; readonly of: readonly Filter[] }
  | { readonly kind: 'not'; readonly of: Filter }
  | FilterEntry

/**
 * One `path: value` member. Whether an object value holds operators or, for a relation, again a filter, depends on
 * what the path names, so it is kept as it came.
 */
export type FilterEntry = { readonly kind: 'entry'; readonly path: string; readonly value: unknown }

export type Direction = 'asc' | 'desc'

export type SortKey =
  | { readonly kind: 'path'; readonly path: string; readonly direction: Direction }
  | { readonly kind: 'distance'; readonly column: string; readonly target: unknown; readonly direction: Direction }
  | {
      readonly kind: 'vectorDistance'
      readonly column: string
      readonly vector: unknown
      readonly metric: string
      readonly direction: Direction
    }

/** One member of `aggregate`: `alias: { function, field }`. */
export type AggregateEntry = { readonly alias: string; readonly fn: string; readonly field: string }

/** The whole query of a list, a single item or a report. It has no privileged member. */
export type ListQuery = {
  readonly fields: readonly string[] | undefined
  readonly filter: Filter | undefined
  readonly sort: readonly SortKey[]
  /** -1: every row; 0: none, only the count. */
  readonly limit: number | undefined
  /** From 1. */
  readonly page: number | undefined
  /** Ignored when `page` is given. */
  readonly offset: number | undefined
  /** Where the page begins: empty text for the first one. */
  readonly cursor: string | undefined
  readonly search: string | undefined
  readonly searchFields: readonly string[] | undefined
  readonly sortByRelevance: boolean
  readonly aggregate: readonly AggregateEntry[]
  readonly groupBy: readonly string[]
  /** A filter over aggregate aliases and group keys. */
  readonly having: Filter | undefined
  /** `{ relation: filter }` for the nested rows. */
  readonly relConditions: Readonly<Record<string, unknown>> | undefined
  /** False: soft-deleted rows are included. */
  readonly paranoid: boolean
  /** Overrides COUNT_BY_DEFAULT. */
  readonly count: boolean | undefined
  /** IANA name for date buckets; UTC when absent. */
  readonly timezone: string | undefined
  /** A cursor or an ISO time: the rows as they were then. */
  readonly asOf: string | undefined
}

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
/** A list that is read page by page takes a cursor besides. */
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
 * The same query as plain values, whatever spelling it came in: objects, lists of names, numbers. Unknown names are
 * left out. {@link parseListQuery} understands it again.
 */
export function plainQuery(raw: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const plain = [...collectParameters(raw, LIST_PARAMETERS, false)].map(([name, value]) => [
    name,
    plainValue(name, value),
  ])
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
    .map(([key, value]) => parseMember(key, spelledOut(raw, key, value)))
  return of.length === 1 ? of[0]! : { kind: 'and', of }
}

/** A long number alone as `{eq: number}`, in which it is found as it was written. */
function spelledOut(filter: object, key: string, value: unknown): unknown {
  const text = longNumber(filter, key)
  return text === undefined ? value : holding('eq', value, text)
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
      if (!Array.isArray(value)) throw errors.badQuery(`filter: ${key} needs a list of filters`)
      return { kind: 'or', of: value.map(parseFilter) }
    case 'NOT':
    case 'not':
      return denied(listOf(value).map(parseFilter))
    default:
      return { kind: 'entry', path: key, value }
  }
}

/** A list without filters denies nothing. */
const denied = (of: readonly Filter[]): Filter =>
  of.length === 0 ? { kind: 'and', of } : { kind: 'not', of: { kind: 'and', of } }

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
  refuseUnknown(`aggregate: ${quoted(alias)}`, entry, ['function', 'field'], AGGREGATE_WORDS)
  const fn = member(entry, 'function')
  const field = member(entry, 'field') ?? '*'
  if (typeof fn !== 'string' || typeof field !== 'string') {
    throw errors.badQuery(`aggregate: ${quoted(alias)} must be { function, field }`)
  }
  return { alias, fn, field }
}

const AGGREGATE_WORDS = new Map([
  ['fn', 'function'],
  ['func', 'function'],
  ['op', 'function'],
  ['column', 'field'],
])

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
  const column = member(entry, 'column')
  const path = column ?? member(entry, 'field')
  if (typeof path !== 'string' || directionOf(path) !== undefined) return sortMembers(entry)
  refuseUnknown('sort', entry, [column == null ? 'field' : 'column', 'order'], SORT_WORDS)
  return [{ kind: 'path', path, direction: requireDirection(path, member(entry, 'order') ?? 'asc') }]
}

const SORT_WORDS = new Map([
  ['dir', 'order'],
  ['direction', 'order'],
])
const DISTANCE_WORDS = new Map([
  ['field', 'column'],
  ['metric', 'operator'],
  ['order', 'direction'],
])

function sortMembers(object: Readonly<Record<string, unknown>>): SortKey[] {
  return Object.entries(object).map(([path, value]) => {
    if (path === '_distance') return distanceKey(value)
    if (path === '_vectorDistance') return vectorKey(value)
    return { kind: 'path', path, direction: requireDirection(path, value) }
  })
}

function distanceKey(spec: unknown): SortKey {
  if (!isObject(spec)) throw errors.badQuery('sort: _distance must be { target, column, direction }')
  refuseUnknown('sort: _distance', spec, ['target', 'column', 'direction'], DISTANCE_WORDS)
  const column = member(spec, 'column')
  if (typeof column !== 'string') throw errors.badQuery('sort: _distance needs a column')
  const direction = requireDirection('_distance', member(spec, 'direction') ?? 'asc')
  return { kind: 'distance', column, target: member(spec, 'target'), direction }
}

function vectorKey(spec: unknown): SortKey {
  if (!isObject(spec)) throw errors.badQuery('sort: _vectorDistance must be { vector, column, operator, direction }')
  refuseUnknown('sort: _vectorDistance', spec, ['vector', 'column', 'operator', 'direction'], DISTANCE_WORDS)
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

/*
 * Spellings of a value: JSON text, comma text, repeated keys and brackets (`k[]=a`, `k[0]=a`, `k[f][op]=v`) all become
 * the same plain value.
 */

/**
 * The named parameters of a raw query, bracketed keys folded into trees. Names outside `known` are left out, or
 * answer 400 when `strict`.
 */
export function collectParameters(
  raw: Readonly<Record<string, unknown>>,
  known: ReadonlySet<string>,
  strict: boolean,
): ReadonlyMap<string, unknown> {
  const parameters = new Map<string, unknown>()
  const bracketed = new Map<string, [string[], unknown][]>()
  for (const [key, value] of Object.entries(raw)) {
    const [name, path] = splitBrackets(key)
    if (!known.has(name)) {
      if (strict) throw errors.badQuery(`unknown member ${quoted(key)}${meantName(name, known)}`)
    } else if (path.length === 0) {
      if (value !== undefined) parameters.set(name, value)
    } else {
      bracketed.set(name, bracketed.get(name) ?? [])
      bracketed.get(name)!.push([path, value])
    }
  }
  for (const [name, leaves] of bracketed) {
    if (parameters.has(name)) throw errors.badQuery(`${name} is given in two forms`)
    parameters.set(name, foldLeaves(name, leaves))
  }
  return parameters
}

/** `filter[a][eq]` → `['filter', ['a', 'eq']]`. A key that is not well-formed is a name of its own. */
function splitBrackets(key: string): [string, string[]] {
  const open = key.indexOf('[')
  if (open <= 0 || !/^(?:\[[^[\]]*\])+$/.test(key.slice(open))) return [key, []]
  return [key.slice(0, open), key.slice(open + 1, -1).split('][')]
}

type BracketTree = { [key: string]: unknown }

function foldLeaves(name: string, leaves: readonly [string[], unknown][]): unknown {
  if (leaves.length > MAX_LIST) throw errors.badQuery(`${name}: too large or too deep`)
  const root: BracketTree = Object.create(null)
  for (const [path, value] of leaves) plant(name, root, path, value)
  return unfolded(name, root, { key: '', parent: '' })
}

function plant(name: string, root: BracketTree, path: readonly string[], value: unknown): void {
  if (path.length > 2 * MAX_DEPTH) throw errors.badQuery(`${name}: too large or too deep`)
  let node = root
  for (const segment of path.slice(0, -1)) {
    node[segment] ??= Object.create(null)
    const next = node[segment]
    if (!isObject(next)) throw errors.badQuery(`${name}: ${quoted(segment)} is given in two forms`)
    node = next as BracketTree
  }
  const leaf = path.at(-1)!
  if (leaf in node) throw errors.badQuery(`${name}: ${quoted(leaf)} is given twice`)
  node[leaf] = value
}

/** The last two names of a bracketed key; empty where there are fewer. */
type BracketPlace = { readonly key: string; readonly parent: string }

/** Trees whose keys are `''` or 0, 1, 2, … become lists, and leaves what they stand for. */
function unfolded(name: string, value: unknown, place: BracketPlace): unknown {
  if (!isObject(value)) return readLeaf(name, value, place)
  const keys = Object.keys(value)
  const isList = keys.every((key, i) => key === String(i)) || (keys.length === 1 && keys[0] === '')
  if (isList) {
    const inside = isGroup(place) ? place : { key: '', parent: place.key }
    const list = keys.flatMap((key) => {
      const member = unfolded(name, value[key], inside)
      return key === '' ? member : [member]
    })
    return knowing(list)
  }
  const copy: BracketTree = Object.create(null)
  for (const key of keys) copy[key] = unfolded(name, value[key], { key, parent: place.key })
  return knowing(copy)
}

/**
 * The text at a bracketed key is JSON or a comma list only where no plain text could be meant: as filters of AND, OR and
 * NOT, and as an operand, or a part of one, that is a list or an object. Elsewhere `[a]` is a text.
 */
function readLeaf(name: string, value: unknown, place: BracketPlace): unknown {
  if (isGroup(place)) {
    return Array.isArray(value)
      ? value.map((entry) => readStructure(name, entry))
      : (readStructure(name, value) ?? value)
  }
  if (typeof value !== 'string') return value
  const form = operandForm(place)
  if (form === 'list') return value.startsWith('$') ? value : readList(name, value)
  return form === 'structure' ? (readStructure(name, value) ?? value) : value
}

const GROUPS = new Set(['AND', 'and', 'OR', 'or', 'NOT'])

/** After the name of a field `not` is an operator. */
const isGroup = ({ key, parent }: BracketPlace): boolean =>
  GROUPS.has(key) || (key === 'not' && (GROUPS.has(parent) || ['', 'not', 'filter', 'having'].includes(parent)))

/** Parts of operands and of sort keys that are lists or objects themselves. */
const STRUCTURED_PARTS = new Set(['geometry', 'path', 'target', 'values', 'vector'])

function operandForm({ key, parent }: BracketPlace): Operator['form'] {
  // What follows the parameter itself is the name of a field.
  if (parent === '' || GROUPS.has(parent)) return undefined
  if (!STRUCTURED_PARTS.has(key)) return findOperator(key)?.operator.form
  const hasParts = parent.startsWith('_') || findOperator(parent)?.operator.form === 'structure'
  return hasParts ? 'structure' : undefined
}

/** JSON text of a list, otherwise comma text. */
const readList = (name: string, text: string): unknown =>
  text.trimStart().startsWith('[') ? readStructure(name, text) : splitList(text)

/** JSON text becomes its value where it looks like an object or array; anything else is left alone. 400 if malformed. */
export function readStructure(name: string, value: unknown): unknown {
  if (typeof value !== 'string') return value
  const text = value.trim()
  if (text === '' || text === 'null') return undefined
  if (!text.startsWith('{') && !text.startsWith('[')) return value
  if (text.length > MAX_TEXT) throw errors.badQuery(`${name}: too large or too deep`)
  try {
    return parseJson(text)
  } catch (error) {
    throw error instanceof SyntaxError ? errors.badQuery(`${name}: malformed JSON`) : error
  }
}

/** A list of strings in any spelling; undefined when absent or empty text. */
export function readStrings(name: string, value: unknown): readonly string[] | undefined {
  if (value === undefined || value === null) return undefined
  const list = typeof value === 'string' ? readText(name, value) : value
  if (list === undefined) return undefined
  if (!Array.isArray(list)) throw errors.badQuery(`${name}: expected a list of strings`)
  if (list.length > MAX_LIST) throw errors.badQuery(`${name}: too large or too deep`)
  return list.flatMap((entry) => readEntry(name, entry))
}

function readText(name: string, text: string): unknown {
  const value = readStructure(name, text)
  return typeof value === 'string' ? splitList(value) : value
}

/** One member of a repeated key; it may itself be a comma list (`fields=a,b&fields=c`). */
function readEntry(name: string, entry: unknown): string[] {
  if (typeof entry !== 'string') throw errors.badQuery(`${name}: expected a list of strings`)
  guardScalar(name, entry)
  return splitList(entry)
}

const splitList = (text: string): string[] =>
  text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')

/** A whole number of at least `least`, as number or digits; 400 for anything else. */
export function readInteger(
  name: string,
  value: unknown,
  least: number,
  most = Number.MAX_SAFE_INTEGER,
): number | undefined {
  if (value === undefined || value === null || value === '') return undefined
  const number = typeof value === 'string' && /^-?\d{1,15}$/.test(value) ? Number(value) : value
  if (typeof number !== 'number' || !Number.isSafeInteger(number) || number < least)
    throw errors.badQuery(`${name}: expected a whole number of at least ${least}`)
  if (number > most) throw errors.badQuery(`${name}: expected at most ${most}`)
  return number
}

export function readBoolean(name: string, value: unknown): boolean | undefined {
  if (value === undefined || value === null || value === '') return undefined
  if (value === true || value === 'true') return true
  if (value === false || value === 'false') return false
  throw errors.badQuery(`${name}: expected true or false`)
}

export function readString(name: string, value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined
  if (typeof value !== 'string') throw errors.badQuery(`${name}: expected a string`)
  guardScalar(name, value)
  return value
}
