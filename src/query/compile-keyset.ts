/** Pages that begin behind a row instead of after a number of rows: as quick at the end of a table as at its start. */
import type { Collection } from '../catalog/catalog.ts'
import { limitValueSql } from './compile.ts'
import { type Compiling, clause, columnSql, conditions, startCompiling } from './compile-predicate.ts'
import { columnsRead, orderClause, selectionSql, sortKeysSql } from './compile-select.ts'
import { inPast } from './past.ts'
import type { Keyset, PlanContent, SortBy, SortTerm } from './plan.ts'
import type { Plan } from './resolve.ts'
import { createParams, ident, type Statement, statement } from './sql.ts'

/**
 * One row: `data` and `total` as in a list, and `next`, a JSON array with the sort values of the last row as texts;
 * null where no row follows.
 */
export function compilePage(plan: Plan & { readonly keyset: Keyset; readonly limit: number }): Statement {
  const params = createParams()
  const compiling = startCompiling(params)
  const { collection, sort } = plan
  const limit = limitValueSql(plan.limit, params)
  const where = conditions(plan.where, ['t'], compiling)
  const found = foundSql(plan, limit, compiling)
  const item = `(select row_to_json(o.*) from (select ${selectionSql(plan.selection, ['t'], compiling)}) o)`
  const keys = sort.map((_, i) => `t.${keyName(i)}::text`).join(', ')
  const rows = `select ${item} as item, json_build_array(${keys})::text as keys, row_number() over () as n from (${found}) t`
  const total = plan.count
    ? `(select count(*) from ${ident(collection.name)} t${clause('where', where)})::text`
    : 'null::text'
  // One row more than asked for tells whether there is a next page.
  const data = `coalesce(json_agg(p.item) filter (where p.n <= ${limit}), '[]')::text`
  const next = `min(p.keys) filter (where p.n = ${limit})`
  const text = `select ${data} as data, ${total} as total, case when count(*) > ${limit} then ${next} end as next from (${rows}) p`
  return statement(inPast(plan.past, text, params), params.values)
}

/** A sort key with the value that it has in the row before the page. */
type Key = {
  readonly sql: string
  readonly descending: boolean
  readonly nullable: boolean
  /** A placeholder; undefined for null. */
  readonly value: string | undefined
}

/** No field has such a name. */
const keyName = (i: number): string => ident(`$${i + 1}`)

/** The rows behind the cursor, ordered and cut. */
function foundSql(plan: PlanContent & { readonly keyset: Keyset }, limit: string, compiling: Compiling): string {
  const { sort, keyset } = plan
  const values = keyset.after?.map(({ value, pgType }) =>
    value === null ? undefined : compiling.params.bind(value, pgType),
  )
  if (values === undefined) return rangeSql(plan, undefined, limit, compiling)
  const parts = partsOf(sort[0]!, values[0], plan.collection)
  const ranges = parts.map((part) => rangeSql(plan, { part, values }, limit, compiling))
  if (ranges.length === 1) return ranges[0]!
  const order = orderClause(
    sort,
    sort.map((_, i) => `t.${keyName(i)}`),
  )
  return `select * from (${ranges.map((range) => `(${range})`).join(' union all ')}) t${order} limit (${limit} + 1)`
}

/** Rows whose first key has a value come together in an index, and so do those where it is null. */
type Part = 'all' | 'first' | 'second'

/** Where both kinds of row may follow and an index has them in order, each is read for itself: an OR would scan. */
function partsOf(term: SortTerm, value: string | undefined, collection: Collection): readonly Part[] {
  const isSplit = isNullable(term.by) && (value === undefined) === (term.direction === 'desc')
  return isSplit && isIndexed(term.by, collection) ? ['first', 'second'] : ['all']
}

type Behind = { readonly part: Part; readonly values: readonly (string | undefined)[] }

function rangeSql(plan: PlanContent, behind: Behind | undefined, limit: string, compiling: Compiling): string {
  const { collection, selection, sort } = plan
  const { joins, keys } = sortKeysSql(sort, ['t'], compiling)
  const columns = [
    ...columnsRead(selection).map((field) => columnSql(field.name, 't')),
    ...keys.map((key, i) => `${key} as ${keyName(i)}`),
  ]
  const after = behind === undefined ? [] : behindSql(keysOf(sort, keys, behind.values), behind.part)
  const where = clause('where', [...conditions(plan.where, ['t'], compiling), ...after])
  return `select ${columns.join(', ')} from ${ident(collection.name)} t${joins}${where}${orderClause(sort, keys)} limit (${limit} + 1)`
}

const keysOf = (sort: readonly SortTerm[], keys: readonly string[], values: Behind['values']): Key[] =>
  sort.map(({ by, direction }, i) => ({
    sql: keys[i]!,
    descending: direction === 'desc',
    nullable: isNullable(by),
    value: values[i],
  }))

/** Null is greater than every value: last ascending, first descending. */
function behindSql(keys: readonly Key[], part: Part): readonly string[] {
  const [first, ...rest] = keys
  if (part === 'second') return [`${first!.sql} is ${first!.descending ? 'not ' : ''}null`]
  if (part === 'first' && first!.value === undefined) return [`${first!.sql} is null`, laterSql(rest)]
  if (part === 'all' && (first!.value === undefined || (first!.nullable && !first!.descending))) return [laterSql(keys)]
  return valuedSql(keys)
}

/** The rows behind the cursor whose first key has a value, in a form that an index on the first keys can serve. */
function valuedSql(keys: readonly Key[]): readonly string[] {
  const [first, ...rest] = keys
  const isRow = rest.every((key) => !key.nullable && key.value !== undefined && key.descending === first!.descending)
  const sign = first!.descending ? '<' : '>'
  if (isRow) return [`(${keys.map((key) => key.sql).join(', ')}) ${sign} (${keys.map((key) => key.value).join(', ')})`]
  return [
    `${first!.sql} ${sign}= ${first!.value}`,
    laterSql(keys.map((key) => (key === first ? { ...key, nullable: false } : key))),
  ]
}

/** Behind in the first key, or equal in it and behind in those that follow. */
function laterSql([first, ...rest]: readonly Key[]): string {
  if (first === undefined) return 'false'
  const same = first.value === undefined ? `${first.sql} is null` : `${first.sql} = ${first.value}`
  const ties = rest.length === 0 ? [] : [`(${same} and ${laterSql(rest)})`]
  const ways = [...beyondSql(first), ...ties]
  return ways.length === 0 ? 'false' : `(${ways.join(' or ')})`
}

function beyondSql({ sql, descending, nullable, value }: Key): readonly string[] {
  if (value === undefined) return descending ? [`${sql} is not null`] : []
  const compared = `${sql} ${descending ? '<' : '>'} ${value}`
  return nullable && !descending ? [compared, `${sql} is null`] : [compared]
}

const isNullable = (by: SortBy): boolean => by.kind === 'path' && (by.path.steps.length > 0 || by.path.column.nullable)

function isIndexed(by: SortBy, { fields, indexes }: Collection): boolean {
  if (by.kind !== 'path' || by.path.steps.length > 0) return false
  const { name } = by.path.column
  return fields.get(name)?.unique === true || indexes.some((index) => index.fields[0] === name)
}
