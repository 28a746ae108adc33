/**
 * The one table of filter operators: which kinds of column each applies to, how its operand is read, what SQL it
 * becomes.
 */
import type { Kind } from '../catalog/catalog.ts'
import {
  baseType,
  elementType,
  hasUnresolved,
  isObject,
  member,
  readValue,
  readValues,
  readVector,
  type TypedValue,
  UNRESOLVED,
  type ValueType,
} from '../catalog/values.ts'
import { errors } from '../errors.ts'
import { MAX_DEPTH, MAX_JSONPATH, MAX_PATTERN, refuseUnknown } from './guards.ts'

export type Operator = {
  /** Kinds of column it applies to; undefined: all. */
  readonly kinds: ReadonlySet<Kind> | undefined
  /** Extension without which it does not exist. */
  readonly needs?: OperatorExtension
  /** PostgreSQL alone knows whether the operand is one, and says so when it meets the first row. */
  readonly mayFail?: true
  /** Its operand is a list, or any JSON: so is the text that a bracketed key has for it, if it looks like that. */
  readonly form?: 'list' | 'structure'
  /** The operand, variables already replaced; throws 400. `label` is the path named in errors. */
  readonly read: (raw: unknown, type: ValueType, label: string) => Operand
  /** `values` are the placeholders of the operand's values, in order. */
  readonly sql: (column: string, values: readonly string[], variant: string, type: ValueType) => string
}

export type OperatorExtension = 'postgis' | 'vector'

export type Operand = {
  readonly values: readonly TypedValue[]
  /** Chooses between the few texts an operator can become; from a closed set, never from the request. */
  readonly variant: string
  /** True where a missing value is what is asked for; on a relation path a missing row then counts too. */
  readonly matchesNull: boolean
}

const operand = (values: readonly TypedValue[], variant = '', matchesNull = false): Operand => ({
  values,
  variant,
  matchesNull,
})

const kinds = (...names: Kind[]): ReadonlySet<Kind> => new Set(names)

/** The comparison words of operators that carry one inside (`{ op, value }`). */
const COMPARISONS: ReadonlyMap<unknown, string> = new Map([
  ['eq', '='],
  ['ne', '<>'],
  ['gt', '>'],
  ['gte', '>='],
  ['lt', '<'],
  ['lte', '<='],
])

const TEXT = kinds('text', 'enum')
const TEMPORAL: Kind[] = ['datetime', 'datetime_no_tz', 'date', 'time', 'time_no_tz']
const ORDERED = kinds('text', 'enum', 'integer', 'bigint', 'decimal', 'float', 'boolean', 'uuid', ...TEMPORAL)
const EQUATABLE = kinds(...ORDERED, 'json', 'array', 'range')
const LISTABLE = kinds(...ORDERED, 'json', 'range')
const ARRAY = kinds('array')
const ARRAY_OR_RANGE = kinds('array', 'range')
const JSON_KINDS = kinds('json')
const GEO = kinds('geometry', 'geography')
const VECTOR = kinds('vector')

export const EQUALS = equality('=', 'is null', true)

/** A name that is not here does not exist. */
const OPERATORS: ReadonlyMap<string, Operator> = new Map(
  Object.entries({
    eq: EQUALS,
    ne: equality('<>', 'is not null', false),
    not: equality('<>', 'is not null', false),
    gt: ordering('>'),
    gte: ordering('>='),
    lt: ordering('<'),
    lte: ordering('<='),
    in: {
      kinds: LISTABLE,
      form: 'list',
      read: readIn,
      sql: (c, [v]) => (v === undefined ? 'false' : `${c} = any(${v})`),
    },
    notIn: { kinds: LISTABLE, form: 'list', read: readNotIn, sql: (c, [v]) => `${c} <> all(${v})` },
    is: { kinds: undefined, read: readIs, sql: (c, _v, variant) => `${c} is ${variant}` },
    isNull: nullTest(true),
    isNotNull: nullTest(false),
    empty: { kinds: undefined, read: readEmpty, sql: emptySql },
    between: {
      kinds: ORDERED,
      form: 'list',
      read: readBounds,
      sql: (c, [low, high]) => `${c} between ${low} and ${high}`,
    },
    notBetween: {
      kinds: ORDERED,
      form: 'list',
      read: readBounds,
      sql: (c, [low, high]) => `${c} not between ${low} and ${high}`,
    },
    like: pattern('like', '%', '%'),
    notLike: pattern('not like', '%', '%'),
    iLike: pattern('ilike', '%', '%'),
    notILike: pattern('not ilike', '%', '%'),
    startsWith: pattern('ilike', '', '%'),
    endsWith: pattern('ilike', '%', ''),
    startsWiths: pattern('like', '', '%'),
    endsWiths: pattern('like', '%', ''),
    nstartsWith: pattern('not ilike', '', '%'),
    nendsWith: pattern('not ilike', '%', ''),
    nstartsWiths: pattern('not like', '', '%'),
    nendsWiths: pattern('not like', '%', ''),
    regex: { kinds: TEXT, mayFail: true, read: readRegex, sql: (c, [v]) => `${c} ~ ${v}` },
    arraycontains: { kinds: ARRAY_OR_RANGE, form: 'structure', read: readMembers, sql: (c, [v]) => `${c} @> ${v}` },
    arraycontained: { kinds: ARRAY_OR_RANGE, form: 'structure', read: readMembers, sql: (c, [v]) => `${c} <@ ${v}` },
    overlaps: { kinds: ARRAY_OR_RANGE, form: 'structure', read: readMembers, sql: (c, [v]) => `${c} && ${v}` },
    arraylength: {
      kinds: ARRAY,
      form: 'structure',
      read: readLength,
      sql: (c, [v], comparison) => `cardinality(${c}) ${comparison} ${v}`,
    },
    arrayempty: {
      kinds: ARRAY,
      read: (raw, _type, label) => (readSwitch(raw, label) ? operand([], '=', true) : operand([], '<>')),
      sql: (c, _v, comparison) => `coalesce(cardinality(${c}), 0) ${comparison} 0`,
    },
    jsonbContains: whole((c, v) => `${c} @> ${v}`),
    jsonbContainedBy: whole((c, v) => `${c} <@ ${v}`),
    jsonbNotContains: whole((c, v) => `not (${c} @> ${v})`),
    jsonbHasKey: { kinds: JSON_KINDS, read: readKey, sql: (c, [k]) => `${c} ? ${k}` },
    jsonbHasAnyKeys: { kinds: JSON_KINDS, form: 'list', read: readKeys, sql: (c, [k]) => `${c} ?| ${k}` },
    jsonbHasAllKeys: { kinds: JSON_KINDS, form: 'list', read: readKeys, sql: (c, [k]) => `${c} ?& ${k}` },
    jsonbPathExists: { kinds: JSON_KINDS, read: readJsonPath, sql: (c, [p]) => `${c} @? ${p}` },
    jsonbPathMatch: { kinds: JSON_KINDS, read: readJsonPath, sql: (c, [p]) => `${c} @@ ${p}` },
    jsonbKeyEquals: {
      kinds: JSON_KINDS,
      form: 'structure',
      read: readKeyValue,
      sql: (c, [k, v]) => (v === undefined ? `(${c} ->> ${k}) is null` : `(${c} -> ${k}) = ${v}`),
    },
    jsonbKeyNotEquals: {
      kinds: JSON_KINDS,
      form: 'structure',
      read: readKeyValue,
      sql: (c, [k, v]) => (v === undefined ? `(${c} ->> ${k}) is not null` : differs(`(${c} -> ${k})`, v)),
    },
    jsonbKeyGt: keyOrder('>'),
    jsonbKeyGte: keyOrder('>='),
    jsonbKeyLt: keyOrder('<'),
    jsonbKeyLte: keyOrder('<='),
    jsonbKeyIn: {
      kinds: JSON_KINDS,
      form: 'structure',
      read: readKeyValues,
      sql: (c, [k, v]) => `(${c} -> ${k}) = any(${v})`,
    },
    jsonbKeyNotIn: {
      kinds: JSON_KINDS,
      form: 'structure',
      read: readKeyValues,
      sql: (c, [k, v]) => `(${v} is not null and ((${c} -> ${k}) = any(${v})) is not true)`,
    },
    jsonbKeyLike: {
      kinds: JSON_KINDS,
      form: 'structure',
      read: readKeyPattern,
      sql: (c, [k, p]) => `(${c} ->> ${k}) ilike ${p}`,
    },
    jsonbKeyIsNull: { kinds: JSON_KINDS, read: readKey, sql: (c, [k]) => `(${c} ->> ${k}) is null` },
    jsonbKeyIsNotNull: { kinds: JSON_KINDS, read: readKey, sql: (c, [k]) => `(${c} ->> ${k}) is not null` },
    jsonbArrayLength: {
      kinds: JSON_KINDS,
      form: 'structure',
      read: readArrayLength,
      sql: (c, [p, n], comparison) =>
        `case when jsonb_typeof(${c} #> ${p}) = 'array' then jsonb_array_length(${c} #> ${p}) ${comparison} ${n} else false end`,
    },
    jsonbTypeOf: {
      kinds: JSON_KINDS,
      form: 'structure',
      read: readTypeOf,
      sql: (c, [p, t]) => `jsonb_typeof(${c} #> ${p}) = ${t}`,
    },
    jsonbDeepValue: { kinds: JSON_KINDS, form: 'structure', read: readDeepValue, sql: deepValueSql },
    within: geo((c, v) => `ST_Within(${c}, ${v})`),
    containsGEO: geo((c, v) => `ST_Contains(${c}, ${v})`),
    intersects: geo((c, v) => `ST_Intersects(${c}, ${v})`),
    nIntersects: geo((c, v) => `not ST_Intersects(${c}, ${v})`),
    dwithin: { kinds: GEO, form: 'structure', needs: 'postgis', read: readDistance, sql: distanceSql },
    vectorL2: vector('<->'),
    vectorCosine: vector('<=>'),
    vectorInnerProduct: vector('<#>'),
    vectorL1: vector('<+>'),
  } satisfies Record<string, Operator>),
)

/** Names of client types and docs for the operators above. */
const ALIASES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    neq: 'ne',
    nin: 'notIn',
    nbetween: 'notBetween',
    ilike: 'iLike',
    contains: 'iLike',
    icontains: 'iLike',
    ncontains: 'notILike',
    arraycontainsany: 'overlaps',
    arrayoverlap: 'overlaps',
    jsoncontains: 'jsonbContains',
    jsonhaskey: 'jsonbHasKey',
    jsonhasanykeys: 'jsonbHasAnyKeys',
    jsonhasallkeys: 'jsonbHasAllKeys',
    jsonpath: 'jsonbPathExists',
  }),
)

/** The operator and its own name, or undefined. */
export function findOperator(name: string): { name: string; operator: Operator } | undefined {
  const own = ALIASES.get(name) ?? name
  const operator = OPERATORS.get(own)
  return operator && { name: own, operator }
}

/** The SQL of an operator whose operand may also be another column (`$COL(name)`), or undefined. */
export const comparisonOf = (name: string): string | undefined => COMPARISONS.get(name === 'not' ? 'ne' : name)

/** Every accepted name, aliases included; for the API description. */
export const operatorNames = (): readonly string[] => [...OPERATORS.keys(), ...ALIASES.keys()]

function equality(comparison: string, nullSql: string, matchesNull: boolean): Operator {
  return {
    kinds: undefined,
    read: (raw, type, label) => (raw === null ? operand([], nullSql, matchesNull) : readEqual(raw, type, label)),
    sql: (c, [v], variant) => (v === undefined ? `${c} ${variant}` : `${c} ${comparison} ${v}`),
  }
}

function readEqual(raw: unknown, type: ValueType, label: string): Operand {
  if (!EQUATABLE.has(type.kind)) throw errors.badQuery(`${label}: cannot be compared for equality`)
  return operand([readValue(raw, type, label)])
}

function ordering(sql: string): Operator {
  return {
    kinds: ORDERED,
    read: (raw, type, label) => operand([readValue(raw, type, label)]),
    sql: (c, [v]) => `${c} ${sql} ${v}`,
  }
}

/** Anything but a list has no members, so nothing is in it. */
function readIn(raw: unknown, type: ValueType, label: string): Operand {
  return Array.isArray(raw) ? operand([readValues(raw, type, label)]) : (readVariableList(raw, type) ?? operand([]))
}

function readNotIn(raw: unknown, type: ValueType, label: string): Operand {
  if (Array.isArray(raw)) return operand([readValues(raw, type, label)])
  const list = readVariableList(raw, type)
  if (list === undefined) throw errors.badQuery(`${label}: expected a list`)
  return list
}

function readVariableList(raw: unknown, type: ValueType): Operand | undefined {
  return raw === UNRESOLVED ? operand([{ value: null, pgType: readValues([], type, '').pgType }]) : undefined
}

function readIs(raw: unknown, type: ValueType, label: string): Operand {
  if (raw === null || raw === 'null') return operand([], 'null', true)
  const value = raw === true || raw === 'true' ? 'true' : raw === false || raw === 'false' ? 'false' : undefined
  if (value === undefined || type.kind !== 'boolean') throw errors.badQuery(`${label}: expected null, true or false`)
  return operand([], value)
}

function nullTest(whenTrue: boolean): Operator {
  return {
    kinds: undefined,
    read: (raw, _type, label) => {
      const isNull = readSwitch(raw, label) === whenTrue
      return operand([], isNull ? 'is null' : 'is not null', isNull)
    },
    sql: (c, _v, variant) => `${c} ${variant}`,
  }
}

function readEmpty(raw: unknown, _type: ValueType, label: string): Operand {
  return readSwitch(raw, label) ? operand([], '', true) : operand([], 'not')
}

/** Null, '' or a list, object or JSON null without content. */
function emptySql(column: string, _values: readonly string[], variant: string, type: ValueType): string {
  const contentless: Partial<Record<Kind, string>> = {
    text: `${column} = ''`,
    enum: `${column} = ''`,
    array: `cardinality(${column}) = 0`,
    json: `${column} in ('[]', '{}', '""', 'null')`,
    range: `isempty(${column})`,
  }
  const test = [`${column} is null`, contentless[type.kind]].filter((part) => part !== undefined).join(' or ')
  return variant === 'not' ? `not (${test})` : `(${test})`
}

function readBounds(raw: unknown, type: ValueType, label: string): Operand {
  if (!Array.isArray(raw) || raw.length !== 2) throw errors.badQuery(`${label}: expected [low, high]`)
  return operand(raw.map((bound) => readValue(bound, type, label)))
}

function pattern(sql: string, before: string, after: string): Operator {
  return {
    kinds: TEXT,
    read: (raw, type, label) => {
      const { value, pgType } = readValue(raw, type, label)
      return operand([{ value: value === null ? null : `${before}${escapeLike(String(value))}${after}`, pgType }])
    },
    sql: (c, [v]) => `${c} ${sql} ${v}`,
  }
}

/** So that `%`, `_` and `\` stand for themselves. */
const escapeLike = (text: string): string => text.replace(/[\\%_]/g, '\\$&')

function readRegex(raw: unknown, type: ValueType, label: string): Operand {
  const value = readValue(raw, type, label)
  if (typeof value.value === 'string' && value.value.length > MAX_PATTERN) {
    throw errors.badQuery(`${label}: at most ${MAX_PATTERN} characters`)
  }
  return operand([value])
}

/** true, "true", false, "false". */
function readSwitch(raw: unknown, label: string): boolean {
  if (raw === true || raw === 'true') return true
  if (raw === false || raw === 'false') return false
  throw errors.badQuery(`${label}: expected true or false`)
}

function readComparison(raw: unknown, label: string): string {
  const comparison = COMPARISONS.get(raw)
  if (comparison === undefined) throw errors.badQuery(`${label}: op must be eq, ne, gt, gte, lt or lte`)
  return comparison
}

/* Lists and ranges. */

/** A list or range of the column's type; a single element stands for the list or range of itself alone. */
function readMembers(raw: unknown, type: ValueType, label: string): Operand {
  const isWhole = raw === UNRESOLVED || (type.kind === 'array' ? Array.isArray(raw) : isObject(raw))
  return operand([readValue(isWhole ? raw : alone(raw, type, label), type, label)])
}

function alone(raw: unknown, type: ValueType, label: string): unknown {
  if (raw === null) throw errors.badQuery(`${label}: expected a value`)
  return type.kind === 'array' ? [raw] : { lower: raw, upper: raw, lowerInclusive: true, upperInclusive: true }
}

/** `n` or `{ op, value }`. */
function readLength(raw: unknown, type: ValueType, label: string): Operand {
  const integer: ValueType = { ...elementType(type), kind: 'integer', pgType: 'integer' }
  if (!isObject(raw)) return operand([readValue(raw, integer, label)], '=')
  refuseUnknown(label, raw, ['op', 'value'])
  const value = readValue(member(raw, 'value'), integer, label)
  return operand([value], readComparison(member(raw, 'op') ?? 'eq', label))
}

/*
 * JSON. Keys and paths are parameters. Numbers are compared as jsonb after a type test, never by casting text, so a row
 * that holds something else cannot fail the statement.
 */

const TYPES = new Set(['object', 'array', 'string', 'number', 'boolean', 'null'])

/** Also true where the key is missing; but not against a variable without a value, which matches nothing. */
const differs = (found: string, value: string) => `(${value} is not null and ${found} is distinct from ${value})`

const text = (value: string | null): TypedValue => ({ value, pgType: 'text' })
const textList = (value: readonly string[]): TypedValue => ({ value, pgType: 'text[]' })
const json = (raw: unknown, type: ValueType, label: string): TypedValue => readValue(raw, type, label)

function whole(sql: (column: string, value: string) => string): Operator {
  return {
    kinds: JSON_KINDS,
    form: 'structure',
    read: (raw, type, label) => operand([json(raw, type, label)]),
    sql: (c, [v]) => sql(c, v!),
  }
}

function keyOrder(comparison: string): Operator {
  return {
    kinds: JSON_KINDS,
    form: 'structure',
    read: (raw, type, label) => {
      const value = number(part(raw, 'value', ['key', 'value'], label), label)
      return operand([text(keyOf(raw, label)), json(value, type, label)])
    },
    sql: (c, [k, v]) => `(jsonb_typeof(${c} -> ${k}) = 'number' and (${c} -> ${k}) ${comparison} ${v})`,
  }
}

/** The member `name` of an operand that has only these; 400 for others, and without it. */
function part(raw: unknown, name: string, known: readonly string[], label: string): unknown {
  if (isObject(raw)) refuseUnknown(label, raw, known)
  return required(raw, name, label)
}

function required(raw: unknown, name: string, label: string): unknown {
  const value = isObject(raw) ? member(raw, name) : undefined
  if (value === undefined) throw errors.badQuery(`${label}: expected an object with ${name}`)
  return value
}

function string(raw: unknown, label: string): string | null {
  if (raw === UNRESOLVED) return null
  if (typeof raw !== 'string') throw errors.badQuery(`${label}: expected a string`)
  return raw
}

/** A number, or digits; a variable without a value stays one. */
function number(raw: unknown, label: string): unknown {
  const value = typeof raw === 'string' && /^-?\d+(?:\.\d+)?$/.test(raw) ? Number(raw) : raw
  if (value === UNRESOLVED || (typeof value === 'number' && Number.isFinite(value))) return value
  throw errors.badQuery(`${label}: expected a number`)
}

/** Names must be known: `(column ->> null) is null` would be true of every row. */
function name(raw: unknown, label: string): string {
  if (typeof raw !== 'string') throw errors.badQuery(`${label}: expected a string`)
  return raw
}

const keyOf = (raw: unknown, label: string) => name(required(raw, 'key', label), label)

function readKey(raw: unknown, _type: ValueType, label: string): Operand {
  return operand([text(name(raw, label))])
}

function readKeys(raw: unknown, _type: ValueType, label: string): Operand {
  if (!Array.isArray(raw)) throw errors.badQuery(`${label}: expected a list of strings`)
  return operand([textList(raw.map((key) => name(key, label)))])
}

/** PostgreSQL reads the path itself; a malformed one fails there and answers 400. */
function readJsonPath(raw: unknown, _type: ValueType, label: string): Operand {
  const path = string(raw, label)
  if (path !== null && (path.length > MAX_JSONPATH || path.trim() === '')) {
    throw errors.badQuery(`${label}: expected a JSON path of at most ${MAX_JSONPATH} characters`)
  }
  return operand([{ value: path, pgType: 'jsonpath' }])
}

/** `{ key, value }`; without a second value: the key is null or missing. */
function readKeyValue(raw: unknown, type: ValueType, label: string): Operand {
  const value = part(raw, 'value', ['key', 'value'], label)
  const key = text(keyOf(raw, label))
  return operand(value === null ? [key] : [key, json(value, type, label)])
}

function readKeyValues(raw: unknown, type: ValueType, label: string): Operand {
  const values = part(raw, 'values', ['key', 'values'], label)
  if (values !== UNRESOLVED && !Array.isArray(values)) throw errors.badQuery(`${label}: expected values as a list`)
  const list = values === UNRESOLVED ? null : (values as unknown[]).flatMap((value) => json(value, type, label).value)
  return operand([text(keyOf(raw, label)), { value: list, pgType: 'jsonb[]' }])
}

function readKeyPattern(raw: unknown, _type: ValueType, label: string): Operand {
  const pattern = part(raw, 'pattern', ['key', 'pattern'], label)
  return operand([text(keyOf(raw, label)), text(patternOf(pattern, label))])
}

/** A LIKE pattern, used as given. */
function patternOf(raw: unknown, label: string): string | null {
  const pattern = string(raw, label)
  const endsInEscape = pattern !== null && /(?:^|[^\\])(?:\\\\)*\\$/.test(pattern)
  if (pattern === null || (pattern.length <= MAX_PATTERN && !endsInEscape)) return pattern
  throw errors.badQuery(`${label}: expected a pattern of at most ${MAX_PATTERN} characters`)
}

/** `a.b` or `['a', 'b', 0]`; absent: the column itself. */
function pathOf(raw: unknown, label: string): TypedValue {
  const path = raw === undefined || raw === '' ? [] : typeof raw === 'string' ? raw.split('.') : raw
  if (!Array.isArray(path) || path.length > MAX_DEPTH)
    throw errors.badQuery(`${label}: expected path as a list of keys`)
  return textList(path.map((key) => (typeof key === 'number' ? String(key) : name(key, label))))
}

function readArrayLength(raw: unknown, _type: ValueType, label: string): Operand {
  const value = number(part(raw, 'value', ['path', 'op', 'value'], label), label)
  const object = raw as Readonly<Record<string, unknown>>
  const length: TypedValue = { value: value === UNRESOLVED ? null : (value as number), pgType: 'numeric' }
  return operand([pathOf(member(object, 'path'), label), length], readComparison(member(object, 'op') ?? 'eq', label))
}

function readTypeOf(raw: unknown, _type: ValueType, label: string): Operand {
  if (isObject(raw)) refuseUnknown(label, raw, ['path', 'type'])
  const [path, type] = isObject(raw) ? [member(raw, 'path'), member(raw, 'type')] : [undefined, raw]
  if (typeof type !== 'string' || !TYPES.has(type)) {
    throw errors.badQuery(`${label}: expected object, array, string, number, boolean or null`)
  }
  return operand([pathOf(path, label), text(type)])
}

function readDeepValue(raw: unknown, type: ValueType, label: string): Operand {
  const path = pathOf(part(raw, 'path', ['path', 'value', 'op'], label), label)
  const value = required(raw, 'value', label)
  const op = member(raw as Readonly<Record<string, unknown>>, 'op') ?? 'eq'
  if (op === 'like' || op === 'ilike') return operand([path, text(patternOf(value, label))], op)
  const comparison = readComparison(op, label)
  if (value === null && (op === 'eq' || op === 'ne')) return operand([path], op === 'eq' ? 'is null' : 'is not null')
  const ordered = op !== 'eq' && op !== 'ne'
  if (ordered && typeof value !== 'number' && typeof value !== 'string' && !hasUnresolved(value)) {
    throw errors.badQuery(`${label}: expected a number or a string`)
  }
  return operand([path, json(value, type, label)], comparison)
}

function deepValueSql(column: string, [path, value]: readonly string[], variant: string): string {
  const found = `(${column} #> ${path})`
  const foundText = `(${column} #>> ${path})`
  if (value === undefined) return `${foundText} ${variant}`
  if (variant === 'like' || variant === 'ilike') return `${foundText} ${variant} ${value}`
  if (variant === '=') return `${found} = ${value}`
  if (variant === '<>') return differs(found, value)
  // Order between different JSON types means nothing, so only values of the operand's own type compare.
  return `(jsonb_typeof(${found}) = jsonb_typeof(${value}) and ${found} ${variant} ${value})`
}

/* Geometry (PostGIS) and vectors (pgvector). Without the extension they answer 400. */

/** pgvector's distance operators by the metric names of `_vectorDistance`. */
export const VECTOR_METRICS: ReadonlyMap<string, string> = new Map([
  ['cosine', '<=>'],
  ['l2', '<->'],
  ['innerProduct', '<#>'],
  ['l1', '<+>'],
])

/** A vector parameter of the column's own type. SparseVec has another text form, so it goes through vector. */
export function vectorValue(raw: unknown, type: ValueType, label: string): TypedValue {
  const own = baseType(type.pgType)
  const pgType = own === 'sparsevec' ? 'vector::sparsevec' : own
  return { value: raw === UNRESOLVED ? null : readVector(raw, label), pgType }
}

function geo(sql: (column: string, value: string) => string): Operator {
  return {
    kinds: GEO,
    form: 'structure',
    needs: 'postgis',
    read: (raw, type, label) => operand([geoText(raw, type, label)]),
    // ST_Within and ST_Contains exist for geometry only.
    sql: (c, [v], _variant, type) => sql(type.kind === 'geography' ? `${c}::geometry` : c, inReferenceSystem(v!, type)),
  }
}

const geoText = (raw: unknown, type: ValueType, label: string): TypedValue => ({
  value: readValue(raw, type, label).value,
  pgType: 'text',
})

/** GeoJSON is WGS 84 (4326) by definition; a column in another system is met in its own. */
function inReferenceSystem(placeholder: string, type: ValueType): string {
  const geometry = `ST_SetSRID(ST_GeomFromGeoJSON(${placeholder}), 4326)`
  const srid = /,\s*(\d+)\s*\)/.exec(type.pgType)?.[1] ?? '4326'
  return srid === '4326' || type.kind === 'geography' ? geometry : `ST_Transform(${geometry}, ${srid})`
}

/** `{ geometry, distance, not? }`, metres. */
function readDistance(raw: unknown, type: ValueType, label: string): Operand {
  if (!isObject(raw)) throw errors.badQuery(`${label}: expected { geometry, distance }`)
  refuseUnknown(label, raw, ['geometry', 'distance', 'not'])
  const distance: ValueType = { kind: 'float', pgType: 'double precision', element: undefined }
  const values = [geoText(member(raw, 'geometry'), type, label), readValue(member(raw, 'distance'), distance, label)]
  return operand(values, readSwitch(member(raw, 'not') ?? false, label) ? 'not ' : '')
}

function distanceSql(column: string, [geometry, metres]: readonly string[], not: string, type: ValueType): string {
  const wgs84 = /,\s*(?!4326\b)\d+\s*\)/.test(type.pgType) ? `ST_Transform(${column}, 4326)` : column
  return `${not}ST_DWithin(${wgs84}::geography, ST_SetSRID(ST_GeomFromGeoJSON(${geometry}), 4326)::geography, ${metres})`
}

/** `{ vector, threshold }`: nearer than the threshold. */
function vector(operator: string): Operator {
  return {
    kinds: VECTOR,
    form: 'structure',
    needs: 'vector',
    read: (raw, type, label) => {
      if (!isObject(raw)) throw errors.badQuery(`${label}: expected { vector, threshold }`)
      refuseUnknown(label, raw, ['vector', 'threshold'])
      const threshold: ValueType = { kind: 'float', pgType: 'double precision', element: undefined }
      return operand([
        vectorValue(member(raw, 'vector'), type, label),
        readValue(member(raw, 'threshold'), threshold, label),
      ])
    },
    sql: (c, [v, threshold]) => `(${c} ${operator} ${v}) < ${threshold}`,
  }
}
