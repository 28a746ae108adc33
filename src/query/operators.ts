/**
 * The one table of filter operators (`spec/items.md` §5): which kinds of column each applies to, how its operand is
 * read, what SQL it becomes. A name that is not here does not exist.
 */
import type { Kind } from '../catalog/catalog.ts'
import { errors } from '../errors.ts'
import { MAX_PATTERN } from './guards.ts'
import { COMPARISONS, kinds, type Operand, type Operator, operand, readSwitch } from './operator.ts'
import { GEO_OPERATORS } from './operators-geo.ts'
import { JSON_OPERATORS } from './operators-json.ts'
import { LIST_OPERATORS } from './operators-list.ts'
import { readValue, readValues, type ValueType } from './values.ts'
import { UNRESOLVED } from './variables.ts'

const TEXT = kinds('text', 'enum')
const TEMPORAL: Kind[] = ['datetime', 'datetime_no_tz', 'date', 'time', 'time_no_tz']
const ORDERED = kinds('text', 'enum', 'integer', 'bigint', 'decimal', 'float', 'boolean', 'uuid', ...TEMPORAL)
const EQUATABLE = kinds(...ORDERED, 'json', 'array', 'range')
const LISTABLE = kinds(...ORDERED, 'json', 'range')

const OPERATORS: ReadonlyMap<string, Operator> = new Map(
  Object.entries({
    eq: equality('=', 'is null', true),
    ne: equality('<>', 'is not null', false),
    not: equality('<>', 'is not null', false),
    gt: ordering('>'),
    gte: ordering('>='),
    lt: ordering('<'),
    lte: ordering('<='),
    in: { kinds: LISTABLE, read: readIn, sql: (c, [v]) => (v === undefined ? 'false' : `${c} = any(${v})`) },
    notIn: { kinds: LISTABLE, read: readNotIn, sql: (c, [v]) => `${c} <> all(${v})` },
    is: { kinds: undefined, read: readIs, sql: (c, _v, variant) => `${c} is ${variant}` },
    isNull: nullTest(true),
    isNotNull: nullTest(false),
    empty: { kinds: undefined, read: readEmpty, sql: emptySql },
    between: { kinds: ORDERED, read: readBounds, sql: (c, [low, high]) => `${c} between ${low} and ${high}` },
    notBetween: { kinds: ORDERED, read: readBounds, sql: (c, [low, high]) => `${c} not between ${low} and ${high}` },
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
    regex: { kinds: TEXT, read: readRegex, sql: (c, [v]) => `${c} ~ ${v}` },
    ...LIST_OPERATORS,
    ...JSON_OPERATORS,
    ...GEO_OPERATORS,
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
