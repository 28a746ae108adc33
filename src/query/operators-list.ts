/** Operators on array columns; those of containment also on ranges. */
import { errors } from '../errors.ts'
import { isObject, member } from './guards.ts'
import { kinds, type Operand, type Operator, operand, readComparison, readSwitch } from './operator.ts'
import { elementType, readValue, type ValueType } from './values.ts'
import { UNRESOLVED } from './variables.ts'

const ARRAY = kinds('array')
const ARRAY_OR_RANGE = kinds('array', 'range')

export const LIST_OPERATORS = {
  arraycontains: { kinds: ARRAY_OR_RANGE, read: readMembers, sql: (c, [v]) => `${c} @> ${v}` },
  arraycontained: { kinds: ARRAY_OR_RANGE, read: readMembers, sql: (c, [v]) => `${c} <@ ${v}` },
  overlaps: { kinds: ARRAY_OR_RANGE, read: readMembers, sql: (c, [v]) => `${c} && ${v}` },
  arraylength: {
    kinds: ARRAY,
    read: readLength,
    sql: (c, [v], comparison) => `cardinality(${c}) ${comparison} ${v}`,
  },
  arrayempty: {
    kinds: ARRAY,
    read: (raw, _type, label) => (readSwitch(raw, label) ? operand([], '=', true) : operand([], '<>')),
    sql: (c, _v, comparison) => `coalesce(cardinality(${c}), 0) ${comparison} 0`,
  },
} satisfies Record<string, Operator>

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
  const value = readValue(member(raw, 'value'), integer, label)
  return operand([value], readComparison(member(raw, 'op') ?? 'eq', label))
}
