/**
 * Operators on JSON columns. Keys and paths are parameters. Numbers are compared as jsonb behind a type test, never
 * by casting text, so a row that holds something else cannot fail the statement.
 */
import { errors } from '../errors.ts'
import { isObject, MAX_DEPTH, MAX_JSONPATH, MAX_PATTERN, member } from './guards.ts'
import { kinds, type Operand, type Operator, operand, readComparison } from './operator.ts'
import type { TypedValue } from './sql.ts'
import { readValue, type ValueType } from './values.ts'
import { hasUnresolved, UNRESOLVED } from './variables.ts'

const JSON_KINDS = kinds('json')

export const JSON_OPERATORS = {
  jsonbContains: whole((c, v) => `${c} @> ${v}`),
  jsonbContainedBy: whole((c, v) => `${c} <@ ${v}`),
  jsonbNotContains: whole((c, v) => `not (${c} @> ${v})`),
  jsonbHasKey: { kinds: JSON_KINDS, read: readKey, sql: (c, [k]) => `${c} ? ${k}` },
  jsonbHasAnyKeys: { kinds: JSON_KINDS, read: readKeys, sql: (c, [k]) => `${c} ?| ${k}` },
  jsonbHasAllKeys: { kinds: JSON_KINDS, read: readKeys, sql: (c, [k]) => `${c} ?& ${k}` },
  jsonbPathExists: { kinds: JSON_KINDS, read: readJsonPath, sql: (c, [p]) => `${c} @? ${p}` },
  jsonbPathMatch: { kinds: JSON_KINDS, read: readJsonPath, sql: (c, [p]) => `${c} @@ ${p}` },
  jsonbKeyEquals: {
    kinds: JSON_KINDS,
    read: readKeyValue,
    sql: (c, [k, v]) => (v === undefined ? `(${c} ->> ${k}) is null` : `(${c} -> ${k}) = ${v}`),
  },
  jsonbKeyNotEquals: {
    kinds: JSON_KINDS,
    read: readKeyValue,
    sql: (c, [k, v]) => (v === undefined ? `(${c} ->> ${k}) is not null` : differs(`(${c} -> ${k})`, v)),
  },
  jsonbKeyGt: keyOrder('>'),
  jsonbKeyGte: keyOrder('>='),
  jsonbKeyLt: keyOrder('<'),
  jsonbKeyLte: keyOrder('<='),
  jsonbKeyIn: { kinds: JSON_KINDS, read: readKeyValues, sql: (c, [k, v]) => `(${c} -> ${k}) = any(${v})` },
  jsonbKeyNotIn: {
    kinds: JSON_KINDS,
    read: readKeyValues,
    sql: (c, [k, v]) => `(${v} is not null and ((${c} -> ${k}) = any(${v})) is not true)`,
  },
  jsonbKeyLike: { kinds: JSON_KINDS, read: readKeyPattern, sql: (c, [k, p]) => `(${c} ->> ${k}) ilike ${p}` },
  jsonbKeyIsNull: { kinds: JSON_KINDS, read: readKey, sql: (c, [k]) => `(${c} ->> ${k}) is null` },
  jsonbKeyIsNotNull: { kinds: JSON_KINDS, read: readKey, sql: (c, [k]) => `(${c} ->> ${k}) is not null` },
  jsonbArrayLength: {
    kinds: JSON_KINDS,
    read: readArrayLength,
    sql: (c, [p, n], comparison) =>
      `case when jsonb_typeof(${c} #> ${p}) = 'array' then jsonb_array_length(${c} #> ${p}) ${comparison} ${n} else false end`,
  },
  jsonbTypeOf: { kinds: JSON_KINDS, read: readTypeOf, sql: (c, [p, t]) => `jsonb_typeof(${c} #> ${p}) = ${t}` },
  jsonbDeepValue: { kinds: JSON_KINDS, read: readDeepValue, sql: deepValueSql },
} satisfies Record<string, Operator>

const TYPES = new Set(['object', 'array', 'string', 'number', 'boolean', 'null'])

/** Also true where the key is missing; but not against a variable without a value, which matches nothing. */
const differs = (found: string, value: string) => `(${value} is not null and ${found} is distinct from ${value})`

const text = (value: string | null): TypedValue => ({ value, pgType: 'text' })
const textList = (value: readonly string[]): TypedValue => ({ value, pgType: 'text[]' })
const json = (raw: unknown, type: ValueType, label: string): TypedValue => readValue(raw, type, label)

function whole(sql: (column: string, value: string) => string): Operator {
  return {
    kinds: JSON_KINDS,
    read: (raw, type, label) => operand([json(raw, type, label)]),
    sql: (c, [v]) => sql(c, v!),
  }
}

function keyOrder(comparison: string): Operator {
  return {
    kinds: JSON_KINDS,
    read: (raw, type, label) => {
      const value = number(required(raw, 'value', label), label)
      return operand([text(keyOf(raw, label)), json(value, type, label)])
    },
    sql: (c, [k, v]) => `(jsonb_typeof(${c} -> ${k}) = 'number' and (${c} -> ${k}) ${comparison} ${v})`,
  }
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
  const value = required(raw, 'value', label)
  const key = text(keyOf(raw, label))
  return operand(value === null ? [key] : [key, json(value, type, label)])
}

function readKeyValues(raw: unknown, type: ValueType, label: string): Operand {
  const values = required(raw, 'values', label)
  if (values !== UNRESOLVED && !Array.isArray(values)) throw errors.badQuery(`${label}: expected values as a list`)
  const list = values === UNRESOLVED ? null : (values as unknown[]).flatMap((value) => json(value, type, label).value)
  return operand([text(keyOf(raw, label)), { value: list, pgType: 'jsonb[]' }])
}

function readKeyPattern(raw: unknown, _type: ValueType, label: string): Operand {
  return operand([text(keyOf(raw, label)), text(patternOf(required(raw, 'pattern', label), label))])
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
  const value = number(required(raw, 'value', label), label)
  const object = raw as Readonly<Record<string, unknown>>
  const length: TypedValue = { value: value === UNRESOLVED ? null : (value as number), pgType: 'numeric' }
  return operand([pathOf(member(object, 'path'), label), length], readComparison(member(object, 'op') ?? 'eq', label))
}

function readTypeOf(raw: unknown, _type: ValueType, label: string): Operand {
  const [path, type] = isObject(raw) ? [member(raw, 'path'), member(raw, 'type')] : [undefined, raw]
  if (typeof type !== 'string' || !TYPES.has(type)) {
    throw errors.badQuery(`${label}: expected object, array, string, number, boolean or null`)
  }
  return operand([pathOf(path, label), text(type)])
}

function readDeepValue(raw: unknown, type: ValueType, label: string): Operand {
  const path = pathOf(required(raw, 'path', label), label)
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
