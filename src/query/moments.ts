/**
 * Comparisons of moments with values. A column holds microseconds and an answer shows milliseconds, so a value stands for
 * its whole millisecond: what was read finds the row that it was read from. The column stays as it is and meets the first
 * or the last microsecond, so that indexes serve.
 */
import type { Kind } from '../catalog/catalog.ts'
import { edgeOfMillisecond, orderOf } from '../catalog/moments.ts'
import type { TypedValue, ValueType } from '../catalog/values.ts'
import { findOperator, type Operator } from './operators.ts'

const MOMENTS: ReadonlySet<Kind> = new Set(['datetime', 'datetime_no_tz'])

export const isMoment = ({ kind }: { readonly kind: Kind }): boolean => MOMENTS.has(kind)

/**
 * The operator of this name as it compares such a column with values; undefined where it is the one of the table. A column
 * that is cast to anything but another kind of moment is compared as it is stored.
 */
export const momentOperator = (name: string, column: ValueType, cast: ValueType | undefined): Operator | undefined =>
  isMoment(column) && isMoment(cast ?? column) ? operators.get(name) : undefined

type Reading = (values: readonly TypedValue[]) => readonly TypedValue[]
type Sql = (column: string, placeholders: readonly string[]) => string

/** The operator of the table with other values; `sql` writes it where it has any. */
function comparing(name: string, reading: Reading, sql?: Sql): [string, Operator] {
  const { operator } = findOperator(name)!
  const read: Operator['read'] = (...asked) => {
    const operand = operator.read(...asked)
    return { ...operand, values: reading(operand.values) }
  }
  const write: Operator['sql'] = (column, placeholders, ...rest) =>
    placeholders.length === 0 ? operator.sql(column, placeholders, ...rest) : sql!(column, placeholders)
  return [name, { ...operator, read, ...(sql && { sql: write }) }]
}

const firsts: Reading = (values) => values.map((value) => edgeOf(value, 'first'))
const lasts: Reading = (values) => values.map((value) => edgeOf(value, 'last'))
const range: Reading = ([low, high = low]) => (low === undefined ? [] : [edgeOf(low, 'first'), edgeOf(high!, 'last')])
const differs: Sql = (column, [first, last]) => `${column} not between ${first} and ${last}`

const operators: ReadonlyMap<string, Operator> = new Map([
  comparing('eq', range, (column, [first, last]) => `${column} between ${first} and ${last}`),
  comparing('ne', range, differs),
  comparing('not', range, differs),
  comparing('gt', lasts),
  comparing('gte', firsts),
  comparing('lt', firsts),
  comparing('lte', lasts),
  comparing('between', range),
  comparing('notBetween', range),
  comparing('in', listAndRanges, (column, [list, ...edges]) => inSql(column, list!, edges)),
  comparing('notIn', firsts, (column, [list]) => `${shown(column)} <> all(${list})`),
])

const shown = (column: string): string => `date_trunc('milliseconds', ${column})`

/*
 * Lists. What is shown has no index, so beside it stand ranges of the column that hold every value of the list: one for
 * each value, or as many as PostgreSQL plans quickly.
 */

const RANGES_AT_MOST = 32

function inSql(column: string, list: string, edges: readonly string[]): string {
  const isIn = `${shown(column)} = any(${list})`
  const ranges = inPairs(edges).map(([first, last]) => `${column} between ${first} and ${last}`)
  return ranges.length === 0 ? isIn : `(${isIn} and (${ranges.join(' or ')}))`
}

function listAndRanges(values: readonly TypedValue[]): readonly TypedValue[] {
  const [list] = values
  if (list === undefined || list.value === null) return values
  const pgType = list.pgType.replace(/\[\]$/, '')
  const edges = rangesOf(list.value as readonly (string | null)[], kindOf(pgType)).flat()
  return [edgeOf(list, 'first'), ...edges.map((value) => ({ value, pgType }))]
}

type Range = readonly [first: string | null, last: string | null]

/** A variable without a value has a range without limits: outside of the others it is unknown, too, whether the list has the row. */
function rangesOf(list: readonly (string | null)[], kind: Kind): readonly Range[] {
  const msOf = (moment: string) => orderOf(moment, kind) as number
  const moments = list.filter((moment) => moment !== null).sort((a, b) => msOf(a) - msOf(b))
  const size = Math.ceil(moments.length / RANGES_AT_MOST)
  const starts = moments.filter((_, i) => i % size === 0)
  const ranges = starts.map((start, i): Range => {
    const end = moments[Math.min((i + 1) * size, moments.length) - 1]!
    return [edgeOfMillisecond(start, kind, 'first'), edgeOfMillisecond(end, kind, 'last')]
  })
  return [...repeated(ranges), ...(moments.length < list.length ? [[null, null] as const] : [])]
}

/** The last range again, up to a power of two: so lists of most lengths share few texts of a statement. */
function repeated(ranges: readonly Range[]): readonly Range[] {
  const length = ranges.length === 0 ? 0 : 2 ** Math.ceil(Math.log2(ranges.length))
  return Array.from({ length }, (_, i) => ranges[Math.min(i, ranges.length - 1)]!)
}

const inPairs = <T>(all: readonly T[]): readonly (readonly [T, T])[] =>
  all.flatMap((one, i) => (i % 2 === 0 ? [[one, all[i + 1]!] as const] : []))

/* The edges of a millisecond. */

type Edge = 'first' | 'last'

/** Of the values of a parameter, or of its elements. */
const kindOf = (pgType: string): Kind => (pgType.startsWith('timestamptz') ? 'datetime' : 'datetime_no_tz')

/** Of each, where the value is a list. */
function edgeOf({ value, pgType }: TypedValue, edge: Edge): TypedValue {
  const kind = kindOf(pgType)
  const at = (moment: unknown) => (moment === null ? null : edgeOfMillisecond(moment as string, kind, edge))
  return { value: Array.isArray(value) ? value.map(at) : at(value), pgType }
}
