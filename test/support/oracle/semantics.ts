/**
 * What docs/query-language.md says, in the plainest possible words: every row is looked at, nothing is compiled,
 * nothing is shared with the program. Truth has three values, as in SQL: null is "unknown".
 */
import type { Link, Row, Table, World } from './world.ts'

export type Truth = boolean | null
export type FilterText = Readonly<Record<string, unknown>>

/** Refused for what the caller may not read. */
export class Denied extends Error {}

/** A caller: what a collection's grant lets through; undefined is no grant at all. */
export type Grant = { readonly fields: readonly string[]; readonly conditions: FilterText | null }
export type Caller = { readonly admin: boolean; readonly grants: ReadonlyMap<string, Grant> }
export type Place = {
  readonly world: World
  readonly caller: Caller
  readonly root: string
  readonly trusted?: boolean
  readonly paranoid: boolean
}

/** Rows of a collection that the caller may see. */
export function visibleRows(table: Table, place: Place): readonly Row[] {
  const known = visible.get(place) ?? new Map<string, readonly Row[]>()
  visible.set(place, known)
  const rows = known.get(table.name) ?? findVisible(table, place)
  known.set(table.name, rows)
  return rows
}

/** A query asks for the same rows a thousand times. */
const visible = new WeakMap<Place, Map<string, readonly Row[]>>()

function findVisible(table: Table, place: Place): readonly Row[] {
  const alive = place.paranoid ? table.rows.filter((row) => (row.deletedAt ?? null) === null) : table.rows
  const conditions = place.trusted || place.caller.admin ? null : place.caller.grants.get(table.name)?.conditions
  if (conditions === null || conditions === undefined) return alive
  const stored: Place = { ...place, trusted: true, paranoid: true }
  return alive.filter((row) => holds(conditions, row, table, [], stored) === true)
}

export function relatedRows(link: Link, row: Row, place: Place): readonly Row[] {
  return visibleRows(place.world.get(link.target)!, place).filter((other) => link.joins(row, other))
}

/** Throws what the caller may not read on the way from the root to the collection at `path`. */
export function requireField(table: Table, path: readonly string[], name: string, place: Place): void {
  if (!mayRead(table, path, name, place)) throw new Denied(name)
}

export function mayRead(table: Table, path: readonly string[], name: string, place: Place): boolean {
  if (place.trusted || place.caller.admin || name === 'id') return true
  const specs = specsOf(place)
  if (path.length === 0) return specs.some((spec) => ['*', '*.*', name].includes(spec))
  // A grant that names the relation shows what it names, a wildcard for any relation what the other grant shows, too.
  const relation = path.join('.')
  if (specs.some((spec) => [relation, `${relation}.*`, `${relation}.${name}`].includes(spec))) return true
  const own = place.caller.grants.get(table.name)?.fields ?? []
  return isAnyRelation(path, specs) && own.some((spec) => ['*', '*.*', name].includes(spec))
}

/** A relation may be followed where it is named, or by the wildcard where its collection may be read, too. */
export function mayEnter(link: Link, path: readonly string[], place: Place): boolean {
  if (place.trusted || place.caller.admin) return true
  const relation = [...path, link.name].join('.')
  const specs = specsOf(place)
  if (specs.some((spec) => spec === relation || spec.startsWith(`${relation}.`))) return true
  return isAnyRelation([...path, link.name], specs) && place.caller.grants.has(link.target)
}

const specsOf = ({ caller, root }: Place): readonly string[] => caller.grants.get(root)!.fields

const isAnyRelation = (path: readonly string[], specs: readonly string[]): boolean =>
  path.length === 1 && specs.includes('*.*')

function enter(table: Table, name: string, path: readonly string[], place: Place): { link: Link; target: Table } {
  const link = table.links.get(name)!
  if (!mayEnter(link, path, place)) throw new Denied(name)
  return { link, target: place.world.get(link.target)! }
}

/** Whether a row passes a filter. Looks at every member, so that what is denied is found whatever the data. */
export function holds(
  filter: FilterText,
  row: Row | undefined,
  table: Table,
  path: readonly string[],
  place: Place,
): Truth {
  return every(Object.entries(filter).map(([name, value]) => member(name, value, row, table, path, place)))
}

function member(
  name: string,
  value: unknown,
  row: Row | undefined,
  table: Table,
  path: readonly string[],
  place: Place,
): Truth {
  const all = () => (value as FilterText[]).map((part) => holds(part, row, table, path, place))
  if (name === 'AND') return every(all())
  if (name === 'OR') return some(all())
  if (name === 'NOT')
    return not(Array.isArray(value) ? every(all()) : holds(value as FilterText, row, table, path, place))
  return entry(name.split('.'), value, row, table, path, place, { row, table, path })
}

function entry(
  names: readonly string[],
  value: unknown,
  row: Row | undefined,
  table: Table,
  path: readonly string[],
  place: Place,
  about: About,
): Truth {
  const [first, ...rest] = names
  const link = table.links.get(first!)
  if (link === undefined) {
    requireField(table, path, first!, place)
    return every(
      testsOf(value).map(([operator, operand]) => test(operator, operand, row?.[first!] ?? null, place, about)),
    )
  }
  if (rest.length === 0) return related(link, value, row, table, path, place)
  if (endsAtLink(rest, link, place)) return relatedBehind(names, value, row, table, path, place, about)
  const { present, missing } = split(value)
  const over = (tests: object) => (other: Row | undefined) =>
    entry(rest, tests, other, place.world.get(link.target)!, [...path, link.name], place, about)
  return every([
    ...(present === undefined ? [] : [through(first!, row, table, path, place, over(present))]),
    ...missing.map((tests) => {
      const found = through(first!, row, table, path, place, over(tests))
      return row === undefined ? null : relatedRows(link, row, place).length === 0 || found
    }),
  ])
}

/** Where a filter's member stands: `$COL(…)` names a field of this row, however far the path beside it leads. */
type About = { readonly row: Row | undefined; readonly table: Table; readonly path: readonly string[] }

/** Operators that ask for a missing value are tests of their own; the others must meet one and the same row. */
function split(value: unknown): { present: object | undefined; missing: object[] } {
  const tests = testsOf(value)
  const asks = ([operator, operand]: [string, unknown]) =>
    (operator === 'eq' && operand === null) ||
    (operator === 'isNull' && operand === true) ||
    (operator === 'isNotNull' && operand === false)
  const present = tests.filter((one) => !asks(one))
  return {
    present: present.length === 0 ? undefined : Object.fromEntries(present),
    missing: tests.filter(asks).map((one) => Object.fromEntries([one])),
  }
}

function endsAtLink([first, ...rest]: readonly string[], { target }: Link, place: Place): boolean {
  const next = place.world.get(target)!.links.get(first!)
  return next !== undefined && (rest.length === 0 || endsAtLink(rest, next, place))
}

/** A path to a relation: null means that no row is found at its end, whatever there is on the way. */
function relatedBehind(
  [first, ...rest]: readonly string[],
  value: unknown,
  row: Row | undefined,
  table: Table,
  path: readonly string[],
  place: Place,
  about: About,
): Truth {
  const target = place.world.get(table.links.get(first!)!.target)!
  const some = (inner: unknown) =>
    through(first!, row, table, path, place, (other) =>
      entry(rest, inner, other, target, [...path, first!], place, about),
    )
  const exists = existence(value)
  return exists === undefined ? some(value) : exists ? some({ isNotNull: true }) : not(some({ isNotNull: true }))
}

function related(
  link: Link,
  value: unknown,
  row: Row | undefined,
  table: Table,
  path: readonly string[],
  place: Place,
): Truth {
  const any = (passes: (other: Row | undefined) => Truth) => through(link.name, row, table, path, place, passes)
  const exists = existence(value)
  if (exists !== undefined) return exists ? any(() => true) : not(any(() => true))
  return any((other) => holds(value as FilterText, other, place.world.get(link.target)!, [...path, link.name], place))
}

/** `null`, `{isNull}` and `{isNotNull}` ask whether there is a related row at all. */
function existence(value: unknown): boolean | undefined {
  if (value === null) return false
  const { isNull, isNotNull } = value as { isNull?: boolean; isNotNull?: boolean }
  return isNull === undefined ? isNotNull : !isNull
}

/** EXISTS: true or false, never unknown. `undefined` as row only checks the names. */
function through(
  name: string,
  row: Row | undefined,
  table: Table,
  path: readonly string[],
  place: Place,
  passes: (other: Row | undefined) => Truth,
): Truth {
  const { link } = enter(table, name, path, place)
  passes(undefined)
  return row !== undefined && relatedRows(link, row, place).some((other) => passes(other) === true)
}

const testsOf = (value: unknown): [string, unknown][] =>
  value !== null && typeof value === 'object' && !Array.isArray(value) ? Object.entries(value) : [['eq', value]]

function test(operator: string, operand: unknown, value: unknown, place: Place, { row, table, path }: About): Truth {
  if (typeof operand === 'string' && operand.startsWith('$COL(')) {
    const other = operand.slice(5, -1)
    requireField(table, path, other, place)
    const right = row?.[other] ?? null
    return right === null ? null : operators[operator]!(value, right)
  }
  return operators[operator]!(value, operand)
}

const known = (value: unknown, answer: () => Truth): Truth => (value === null ? null : answer())
const ordering = (passes: (order: number) => boolean) => (value: unknown, operand: unknown) =>
  known(value, () => known(operand, () => passes(compare(value, operand))))
const matching = (passes: (text: string, part: string) => boolean) => (value: unknown, operand: unknown) =>
  known(value, () => passes(String(value), String(operand)))
const equal = (value: unknown, operand: unknown): Truth =>
  operand === null ? value === null : known(value, () => compare(value, operand) === 0)
const lower = (text: string) => text.toLowerCase()
const list = (value: unknown) => value as unknown[]

const operators: Readonly<Record<string, (value: unknown, operand: unknown) => Truth>> = {
  eq: equal,
  ne: (value, operand) => not(equal(value, operand)),
  gt: ordering((order) => order > 0),
  gte: ordering((order) => order >= 0),
  lt: ordering((order) => order < 0),
  lte: ordering((order) => order <= 0),
  in: (value, operand) => {
    const given = list(operand).filter((one) => one !== null)
    return given.length === 0 ? false : known(value, () => given.some((one) => compare(value, one) === 0))
  },
  notIn: (value, operand) => {
    const given = list(operand).filter((one) => one !== null)
    return given.length === 0 ? true : known(value, () => !given.some((one) => compare(value, one) === 0))
  },
  between: (value, operand) =>
    known(value, () => compare(value, list(operand)[0]) >= 0 && compare(value, list(operand)[1]) <= 0),
  notBetween: (value, operand) =>
    known(value, () => compare(value, list(operand)[0]) < 0 || compare(value, list(operand)[1]) > 0),
  isNull: (value, operand) => (value === null) === operand,
  isNotNull: (value, operand) => (value !== null) === operand,
  like: matching((text, part) => text.includes(part)),
  notLike: matching((text, part) => !text.includes(part)),
  iLike: matching((text, part) => lower(text).includes(lower(part))),
  notILike: matching((text, part) => !lower(text).includes(lower(part))),
  startsWith: matching((text, part) => lower(text).startsWith(lower(part))),
  endsWiths: matching((text, part) => text.endsWith(part)),
  nstartsWiths: matching((text, part) => !text.startsWith(part)),
  nendsWith: matching((text, part) => !lower(text).endsWith(lower(part))),
  arraycontains: (value, operand) => known(value, () => list(operand).every((one) => list(value).includes(one))),
  overlaps: (value, operand) => known(value, () => list(operand).some((one) => list(value).includes(one))),
  arraylength: (value, operand) => known(value, () => list(value).length === operand),
}

export const operatorsOf = (kind: string): readonly string[] => {
  if (kind === 'numbers') return ['eq', 'ne', 'isNull', 'isNotNull', 'arraycontains', 'overlaps', 'arraylength']
  const ordered = ['eq', 'ne', 'gt', 'gte', 'lt', 'lte', 'in', 'notIn', 'between', 'notBetween', 'isNull', 'isNotNull']
  if (kind !== 'text') return ordered
  return [...ordered, 'like', 'notLike', 'iLike', 'notILike', 'startsWith', 'endsWiths', 'nstartsWiths', 'nendsWith']
}

/** Below, equal, above: numbers exactly, also where they are text. */
export function compare(one: unknown, other: unknown): number {
  if (Array.isArray(one)) return JSON.stringify(one) === JSON.stringify(other) ? 0 : 1
  const [left, right] = [scaled(one), scaled(other)]
  return left < right ? -1 : left > right ? 1 : 0
}

function scaled(value: unknown): bigint | string | boolean {
  if (typeof value === 'number') return BigInt(value) * 100n
  if (typeof value !== 'string') return value as boolean
  const decimal = /^(-?\d+)(?:\.(\d\d))?$/.exec(value)
  return decimal === null ? value : BigInt(`${decimal[1]}${decimal[2] ?? '00'}`)
}

function every(truths: readonly Truth[]): Truth {
  return truths.includes(false) ? false : truths.includes(null) ? null : true
}

function some(truths: readonly Truth[]): Truth {
  return truths.includes(true) ? true : truths.includes(null) ? null : false
}

const not = (truth: Truth): Truth => (truth === null ? null : !truth)
