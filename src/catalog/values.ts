/**
 * Values of a request, coerced to the type of the column they meet before they come near SQL. A value that does not fit
 * answers 400, so no statement fails on a cast and no value can change a statement's meaning.
 */
import { errors } from '../errors.ts'
import { hasLongNumbers, longNumber } from '../language/exact-json.ts'
import { oncePer } from '../language/once.ts'
import type { Kind } from './catalog.ts'
import { isEnd, momentText, orderOf, readClock, readMoment } from './moments.ts'

export type ParamValue = string | number | boolean | null | readonly ParamValue[]

/** A value on its way into a statement, with the PostgreSQL type that its placeholder is cast to. */
export type TypedValue = { readonly value: ParamValue; readonly pgType: string }

/** Stands for a variable without a value. It ends as a NULL parameter, so that comparisons match nothing. */
export const UNRESOLVED: unique symbol = Symbol('unresolved')

/** The type by which a value is read: that of a column, of an element of one, or of a cast. */
export type ValueType = { readonly kind: Kind; readonly pgType: string; readonly element: Kind | undefined }

/** The type that a placeholder for values of such a column is cast to: the column's, without its modifiers. */
export const parameterType = oncePer(
  (type: ValueType): string => PARAMETER_TYPES[type.kind]?.(type) ?? baseType(type.pgType),
)

/** The value as a parameter; null for a variable without a value. `label` is the path named in errors. */
export function readValue(raw: unknown, type: ValueType, label: string): TypedValue {
  return { value: readParam(raw, type, label), pgType: parameterType(type) }
}

/** The same without its type, for values of a column that is read many times. */
export function readParam(raw: unknown, type: ValueType, label: string): ParamValue {
  if (type.kind === 'json') return readJson(raw, label)
  return raw === UNRESOLVED ? null : readKind(raw, type, label)
}

/**
 * Several values as one array parameter; nulls are left out . A variable without a value stays
 * as a NULL: with it `in` finds no more, and `notIn` nothing at all, so a stored rule fails closed.
 */
export function readValues(raw: readonly unknown[], type: ValueType, label: string): TypedValue {
  const present = raw.filter((entry) => entry !== null && entry !== undefined)
  const value = present.map((entry) => readValue(entry, type, label).value)
  return { value, pgType: `${parameterType(type)}[]` }
}

/**
 * A member of parsed JSON as a value of such a column. Of a long number that is its text, where the column has all of its
 * digits: what is a double anyway stays one. Also within lists and ranges.
 */
export function exactMember(holder: object, key: string | number, type: ValueType): unknown {
  const value = (holder as Readonly<Record<string, unknown>>)[key]
  if (typeof value !== 'number') return exactValue(value, type)
  return (isExact(type) ? longNumber(holder, key) : undefined) ?? value
}

/** The same for what is in a list, range or object of its own. */
export function exactValue(value: unknown, type: ValueType): unknown {
  if (!hasLongNumbers(value) || !isExact(type)) return value
  const holder = value as object
  if (Array.isArray(holder)) return holder.map((_, at) => exactMember(holder, at, type))
  return Object.fromEntries(Object.keys(holder).map((key) => [key, exactMember(holder, key, type)]))
}

function isExact(type: ValueType): boolean {
  const { kind } = type.kind === 'array' || type.kind === 'range' ? elementType(type) : type
  return EXACT.has(kind)
}

const EXACT: ReadonlySet<Kind> = new Set<Kind>(['text', 'enum', 'integer', 'bigint', 'decimal'])

/** The element of an array or the bounds of a range, as a type of its own. */
export function elementType(type: ValueType): ValueType {
  const kind = type.element ?? 'text'
  const pgType = type.kind === 'array' ? baseType(type.pgType).replace(/\[\]$/, '') : (BOUND_TYPES[kind] ?? kind)
  return { kind, pgType, element: undefined }
}

/** `numeric(10,2)` → `numeric`, `geometry(Point,4326)` → `geometry`, `timestamp(3) with time zone[]` keeps its words. */
export const baseType = (pgType: string): string => pgType.replace(/\s*\([^)]*\)/g, '')

const PARAMETER_TYPES: Partial<Record<Kind, (type: ValueType) => string>> = {
  text: (type) => (baseType(type.pgType) === 'citext' ? 'citext' : 'text'),
  enum: () => 'text',
  integer: () => 'integer',
  bigint: () => 'bigint',
  decimal: () => 'numeric',
  float: (type) => (baseType(type.pgType) === 'real' ? 'real' : 'double precision'),
  boolean: () => 'boolean',
  datetime: () => 'timestamptz',
  datetime_no_tz: () => 'timestamp',
  date: () => 'date',
  time: () => 'timetz',
  time_no_tz: () => 'time',
  json: () => 'jsonb',
  uuid: () => 'uuid',
  array: (type) => `${parameterType(elementType(type))}[]`,
}

const BOUND_TYPES: Partial<Record<Kind, string>> = { float: 'double precision', decimal: 'numeric' }

type ValueReader = (raw: unknown, type: ValueType, label: string) => ParamValue

const READERS: Record<Exclude<Kind, 'json'>, ValueReader> = {
  text: (raw, _type, label) => readText(raw, label),
  enum: (raw, _type, label) => readText(raw, label),
  integer: (raw, _type, label) => readInteger(raw, label),
  bigint: (raw, _type, label) => readBigInt(raw, label),
  decimal: (raw, _type, label) => readDecimal(raw, label),
  float: (raw, type, label) => readFloat(raw, baseType(type.pgType) === 'real', label),
  boolean: (raw, _type, label) => readBoolean(raw, label),
  datetime: readTemporal,
  datetime_no_tz: readTemporal,
  date: readTemporal,
  time: (raw, _type, label) => readTime(raw, label, true),
  time_no_tz: (raw, _type, label) => readTime(raw, label, false),
  uuid: (raw, _type, label) => matching(raw, UUID, label, 'a UUID'),
  array: (raw, type, label) => readArray(raw, type, label),
  range: (raw, type, label) => readRange(raw, type, label),
  geometry: (raw, _type, label) => readGeoJson(raw, label),
  geography: (raw, _type, label) => readGeoJson(raw, label),
  vector: (raw, _type, label) => readVector(raw, label),
}

function readKind(raw: unknown, type: ValueType, label: string): ParamValue {
  guardScalar(label, raw)
  return READERS[type.kind as Exclude<Kind, 'json'>](raw, type, label)
}

const UUID = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i
const DECIMAL = /^[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:e[+-]?\d{1,3})?$/i

function refuse(label: string, expected: string): never {
  throw errors.badQuery(`${label}: expected ${expected}`)
}

function matching(raw: unknown, pattern: RegExp, label: string, expected: string): string {
  return typeof raw === 'string' && pattern.test(raw) ? raw : refuse(label, expected)
}

function readText(raw: unknown, label: string): string {
  if (typeof raw === 'string') return raw
  return typeof raw === 'number' || typeof raw === 'boolean' ? String(raw) : refuse(label, 'a string')
}

function readInteger(raw: unknown, label: string): number {
  if (typeof raw === 'number' && raw === (raw | 0)) return raw | 0
  return Number(readWhole(raw, label, 'an integer', -(2n ** 31n), 2n ** 31n - 1n))
}

/** Of a double beyond ±(2⁵³−1) nobody knows the digits any more; JSON's own are text here ({@link exactMember}). */
function readBigInt(raw: unknown, label: string): string {
  const isInexact = typeof raw === 'number' && Number.isInteger(raw) && !Number.isSafeInteger(raw)
  if (isInexact && Math.abs(raw) <= 2 ** 63)
    throw errors.badQuery(`${label}: is too large for a JSON number, send it as text`)
  return readWhole(raw, label, 'a whole number', -(2n ** 63n), 2n ** 63n - 1n).toString()
}

function readWhole(raw: unknown, label: string, expected: string, least: bigint, most: bigint): bigint {
  const isWhole = Number.isSafeInteger(raw) || (typeof raw === 'string' && /^[+-]?\d{1,19}$/.test(raw))
  if (!isWhole) return refuse(label, expected)
  const value = BigInt(raw as number | string)
  return value >= least && value <= most ? value : refuse(label, `${expected} within its range`)
}

function readDecimal(raw: unknown, label: string): string {
  const text = typeof raw === 'number' ? String(raw) : raw
  const isDecimal = typeof text === 'string' && DECIMAL.test(text) && Number.isFinite(Number(text))
  return isDecimal ? text : refuse(label, 'a number')
}

function readFloat(raw: unknown, single: boolean, label: string): number {
  const exact = Number(readDecimal(raw, label))
  const value = single ? Math.fround(exact) : exact
  return Number.isFinite(value) ? value : refuse(label, 'a number within its range')
}

function readBoolean(raw: unknown, label: string): boolean {
  if (raw === true || raw === 'true') return true
  return raw === false || raw === 'false' ? false : refuse(label, 'true or false')
}

function readTemporal(raw: unknown, { kind }: ValueType, label: string): string {
  return momentText(readMoment(raw, kind) ?? refuse(label, 'an ISO date'), kind)
}

function readTime(raw: unknown, label: string, zoned: boolean): string {
  const { time, zone } = readClock(raw) ?? refuse(label, 'a time such as 13:45:00')
  return zoned ? `${time}${zone || 'Z'}` : time
}

function readArray(raw: unknown, type: ValueType, label: string): ParamValue {
  if (!Array.isArray(raw)) return refuse(label, 'an array')
  const element = elementType(type)
  return raw.map((entry) => (entry === null ? null : readValue(entry, element, label).value))
}

/**
 * `{ lower, upper, lowerInclusive, upperInclusive }`, `[lower, upper]` or `{ empty: true }`, as PostgreSQL range text; the
 * lower bound is in it and the upper one is not, unless it says otherwise.
 */
function readRange(given: unknown, type: ValueType, label: string): string {
  const raw = Array.isArray(given) && given.length === 2 ? { lower: given[0], upper: given[1] } : given
  if (!isObject(raw) || hasUnresolved(raw)) return refuse(label, '{ lower, upper }, [lower, upper] or { empty: true }')
  if (Object.keys(raw).some((name) => !RANGE_MEMBERS.has(name)))
    refuse(label, `no members but ${[...RANGE_MEMBERS].join(', ')}`)
  if (isEmptyRange(raw, label)) return 'empty'
  const element = elementType(type)
  const bound = (name: string) => {
    const value = member(raw, name) ?? null
    return value === null ? '' : `"${isEnd(value, element.kind) ? value : readKind(value, element, label)}"`
  }
  const opening = member(raw, 'lowerInclusive') === false ? '(' : '['
  const closing = member(raw, 'upperInclusive') === true ? ']' : ')'
  const text = `${opening}${bound('lower')},${bound('upper')}${closing}`
  const [lower, upper] = [orderOf(member(raw, 'lower'), element.kind), orderOf(member(raw, 'upper'), element.kind)]
  if (lower === undefined || upper === undefined || lower <= upper) return text
  return refuse(label, 'a lower bound that is not above the upper one')
}

const RANGE_MEMBERS = new Set(['lower', 'upper', 'lowerInclusive', 'upperInclusive', 'empty'])

/** 400 for one that has a bound as well: it would not say which of both is meant. */
function isEmptyRange(range: Readonly<Record<string, unknown>>, label: string): boolean {
  const empty = readBoolean(member(range, 'empty') ?? false, `${label}: empty`)
  const isBound = (name: string) => (member(range, name) ?? null) !== null
  if (empty && (isBound('lower') || isBound('upper'))) return refuse(label, 'no bounds where empty is true')
  return empty
}

const GEOJSON = new Set(['Point', 'LineString', 'Polygon', 'MultiPoint', 'MultiLineString', 'MultiPolygon'])

function readGeoJson(raw: unknown, label: string): string {
  return isGeometry(raw) ? JSON.stringify(raw) : refuse(label, 'a GeoJSON geometry')
}

function isGeometry(raw: unknown): boolean {
  if (!isObject(raw)) return false
  const type = member(raw, 'type')
  if (type === 'GeometryCollection') {
    const geometries = member(raw, 'geometries')
    return Array.isArray(geometries) && geometries.every(isGeometry)
  }
  return typeof type === 'string' && GEOJSON.has(type) && isCoordinates(member(raw, 'coordinates'))
}

const isCoordinates = (raw: unknown): boolean =>
  Array.isArray(raw) && raw.every((entry) => typeof entry === 'number' || isCoordinates(entry))

/** A pgvector's text form. */
export function readVector(raw: unknown, label: string): string {
  const isVector = Array.isArray(raw) && raw.length > 0 && raw.every((n) => typeof n === 'number' && Number.isFinite(n))
  return isVector ? JSON.stringify(raw) : refuse(label, 'a list of numbers')
}

/** JSON text; null when a variable in it has no value, so that the test matches nothing. */
function readJson(raw: unknown, label: string): string | null {
  if (hasUnresolved(raw)) return null
  // Only extensions can give one.
  if (typeof raw === 'bigint') return refuse(label, 'JSON')
  const text = JSON.stringify(raw ?? null)
  if (hasNul(text)) throw errors.badQuery(`${label}: ${nulRefused}`)
  return text
}

/** Whether JSON text has a NUL in a string or a key, which PostgreSQL has no place for. */
export const hasNul = (json: string): boolean => json.includes('\\u0000') && escapedNul.test(json)

/** Of the backslashes before it each escapes the next. */
const escapedNul = /(?<!\\)(?:\\\\)*\\u0000/

/** The words for a NUL, after the name of the field that has it. */
export const nulRefused = 'NUL characters are not allowed'

/** Whether a value has a variable without a value anywhere in it. */
export function hasUnresolved(value: unknown): boolean {
  if (value === UNRESOLVED) return true
  if (Array.isArray(value)) return value.some(hasUnresolved)
  return isObject(value) && Object.values(value).some(hasUnresolved)
}

/** 400 for a number that is not finite, and for text that PostgreSQL cannot hold. */
export function guardScalar(parameter: string, value: unknown): void {
  if (typeof value === 'number' && !Number.isFinite(value)) {
    throw errors.badQuery(`${parameter}: numbers must be finite`)
  }
  if (typeof value === 'string' && value.includes('\0')) {
    throw errors.badQuery(`${parameter}: ${nulRefused}`)
  }
  if (typeof value === 'string' && !value.isWellFormed()) {
    throw errors.badQuery(`${parameter}: text must be valid Unicode`)
  }
}

/** A JSON object: neither null nor an array. Its members are read with Object.entries and Object.hasOwn only. */
export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** A member of an object of the request; never one that it inherits. */
export const member = (object: Readonly<Record<string, unknown>>, key: string): unknown =>
  Object.hasOwn(object, key) ? object[key] : undefined

/** Families of kinds that PostgreSQL compares with one another without a cast and without the session's time zone. */
const FAMILIES: Readonly<Partial<Record<Kind, string>>> = {
  text: 'text',
  enum: 'text',
  integer: 'number',
  bigint: 'number',
  decimal: 'number',
  float: 'number',
  boolean: 'boolean',
  uuid: 'uuid',
  datetime: 'instant',
  datetime_no_tz: 'local',
  date: 'local',
  time: 'time',
  time_no_tz: 'time_no_tz',
}

export const comparable = (a: Kind, b: Kind): boolean => FAMILIES[a] !== undefined && FAMILIES[a] === FAMILIES[b]

/** The type named by a `cast`; 400 for any other text. */
export function readCast(raw: unknown, label: string): ValueType {
  const type = typeof raw === 'string' ? CASTS.get(raw.toLowerCase()) : undefined
  if (type === undefined) throw errors.badQuery(`${label}: unknown cast`)
  return type
}

/** `sql`, an expression of type `from`, as an expression of type `to`. */
export function castSql(sql: string, from: ValueType, to: ValueType | undefined): string {
  if (to === undefined) return sql
  if (to.kind === 'text' || comparable(from.kind, to.kind)) return `(${sql})::${to.pgType}`
  if (from.kind === 'datetime' && FAMILIES[to.kind] === 'local') return `(${sql} at time zone 'UTC')::${to.pgType}`
  if (to.kind === 'boolean' && (from.kind === 'integer' || from.kind === 'bigint')) return `((${sql}) <> 0)`
  if (from.kind === 'boolean' && FAMILIES[to.kind] === 'number') return `(${sql})::integer::${to.pgType}`
  if (FAMILIES[from.kind] === 'local' && to.kind === 'datetime') return `((${sql})::timestamp at time zone 'UTC')`
  // Through text every cast exists; what a row cannot be cast to is then a data error (400), not a broken statement.
  return `(${sql})::text::${to.pgType}`
}

const scalar = (kind: Kind, pgType: string): ValueType => ({ kind, pgType, element: undefined })
const array = (element: Kind, pgType: string): ValueType => ({ kind: 'array', pgType, element })

const CASTS: ReadonlyMap<string, ValueType> = new Map([
  ['text', scalar('text', 'text')],
  ['varchar', scalar('text', 'varchar')],
  ['char', scalar('text', 'character(1)')],
  ['character', scalar('text', 'character(1)')],
  ['integer', scalar('integer', 'integer')],
  ['int', scalar('integer', 'integer')],
  ['smallint', scalar('integer', 'smallint')],
  ['bigint', scalar('bigint', 'bigint')],
  ['decimal', scalar('decimal', 'numeric')],
  ['numeric', scalar('decimal', 'numeric')],
  ['real', scalar('float', 'real')],
  ['double precision', scalar('float', 'double precision')],
  ['float', scalar('float', 'double precision')],
  ['boolean', scalar('boolean', 'boolean')],
  ['bool', scalar('boolean', 'boolean')],
  ['date', scalar('date', 'date')],
  ['timestamp', scalar('datetime_no_tz', 'timestamp')],
  ['timestamptz', scalar('datetime', 'timestamptz')],
  ['time', scalar('time_no_tz', 'time')],
  ['timetz', scalar('time', 'timetz')],
  ['uuid', scalar('uuid', 'uuid')],
  ['json', scalar('json', 'jsonb')],
  ['jsonb', scalar('json', 'jsonb')],
  ['text[]', array('text', 'text[]')],
  ['varchar[]', array('text', 'text[]')],
  ['integer[]', array('integer', 'integer[]')],
  ['bigint[]', array('bigint', 'bigint[]')],
  ['uuid[]', array('uuid', 'uuid[]')],
])
