/**
 * compile: a plan as one SQL statement whose result is already the response text. Pure; two plans that differ in
 * values only give the same text, but for small limits (see below).
 */
import type { Collection, Field } from '../catalog/catalog.ts'
import {
  type CompilerState,
  clause,
  columnsRead,
  conditions,
  createJoins,
  exactNumberSql,
  type Joins,
  orderClause,
  orderSql,
  selectionSql,
  sortKeysSql,
  startCompiling,
  whereSql,
  wholeNumberSql,
  wireSql,
} from './compile-rows.ts'
import { EQUALS } from './operators.ts'
import { inPast } from './past.ts'
import {
  type Aggregate,
  allOf,
  conjunctsOf,
  type DatePart,
  type Grouping,
  type GroupKey,
  isTextPart,
  type Keyset,
  mayFail,
  type PlanContent,
  type Predicate,
  type Selection,
  type SortBy,
  type SortTerm,
  type Step,
  TEXT_PARTS,
} from './plan.ts'
import type { Plan, ResolvedFilter } from './resolve.ts'
import { createParams, ident, literal, type Params, type Statement, statement } from './sql.ts'

/** One row: `data`, the text of a JSON array, and `total`, the number of matching rows as text or null when not counted. */
export function compileList(plan: Plan): Statement {
  return compiled(plan, (compiling) =>
    plan.grouping ? groupedListSql(plan, plan.grouping, compiling) : listSql(plan, compiling),
  )
}

/**
 * As {@link compileList}, but `data` is null where more than `largest` rows, or groups before the page is cut, would have
 * to be held at once; `total` means nothing then.
 */
export function compileListUpTo(plan: Plan, largest: number): Statement {
  return compiled(plan, (compiling) =>
    plan.grouping ? groupedListSql(plan, plan.grouping, compiling, largest) : listUpToSql(plan, largest, compiling),
  )
}

/** One row with `data`, the text of a JSON object, or no row. */
export function compileOne(plan: Plan): Statement {
  return compiled(plan, (compiling) => {
    const where = whereSql(plan.where, ['t'], compiling)
    const list = selectionSql(plan.selection, ['t'], compiling)
    return `select row_to_json(o.*)::text as data from (select ${list} from ${ident(plan.collection.name)} t${where}) o`
  })
}

/** One row per item with `data`, the text of a JSON object; for cursors. */
export function compileStream(plan: Plan): Statement {
  return compiled(plan, (compiling) => itemsSql(plan, limitSql(plan, compiling), compiling))
}

/** As {@link compileStream}, for COPY, which has no parameters: `params` give values in another way than as `$1`. */
export function compileCopy(plan: Plan, params: Params): string {
  const compiling = startCompiling(params, { t: plan.collection })
  return inPast(plan.past, itemsSql(plan, limitSql(plan, compiling), compiling), params)
}

/** One row with `total` as text: what {@link compileStream} would yield without limit and offset. */
export function compileCount(plan: Plan): Statement {
  return compiled(plan, (compiling) => {
    if (plan.grouping === undefined) return `select ${countSql(plan, whereSql(plan.where, ['t'], compiling))} as total`
    const groups = groupsSql(plan, { ...plan.grouping, detail: undefined }, compiling)
    return `select count(*)::text as total from (${groups}) g`
  })
}

/**
 * The condition on a row that the surrounding statement calls `alias`. Aliases q1, q2, … are used inside. Own
 * {@link Params} let a caller supply the values in another way than as `$1`.
 */
export function compileCondition(filter: ResolvedFilter, alias: string, params: Params): string {
  const parts = conditions(filter.predicate, [alias], startCompiling(params, { [alias]: filter.collection }))
  return parts.length > 1 ? `(${parts.join(' and ')})` : (parts[0] ?? 'true')
}

/** The parts of a condition, which must all hold, as SQL. */
type Conjuncts = {
  /** Compare a column of the row with one value, for equality, and never fail. */
  readonly equalities: readonly string[]
  readonly rest: readonly string[]
}

/** {@link compileCondition} in parts. */
export function compileConjuncts({ predicate, collection }: ResolvedFilter, alias: string, params: Params): Conjuncts {
  const compiling = startCompiling(params, { [alias]: collection })
  const parts = conjunctsOf(predicate)
  const sqlOf = (some: readonly Predicate[]) => conditions(allOf(some), [alias], compiling)
  return { equalities: sqlOf(parts.filter(isEquality)), rest: sqlOf(parts.filter((part) => !isEquality(part))) }
}

const isEquality = (part: Predicate): boolean =>
  part.kind === 'test' && part.operator === EQUALS && part.operand.values.length === 1 && !mayFail(part)

function compiled(plan: PlanContent, build: (compiling: CompilerState) => string): Statement {
  const params = createParams()
  const compiling = startCompiling(params, { t: plan.collection })
  return statement(inPast(plan.past, build(compiling), params), params.values, compiling.dependsOn)
}

function listSql(plan: PlanContent, compiling: CompilerState): string {
  const where = whereSql(plan.where, ['t'], compiling)
  const rows = rowsSql(plan, where, limitSql(plan, compiling), compiling)
  return `select coalesce(json_agg(o.*), '[]')::text as data, ${totalSql(plan, where)} as total from ${rows} o`
}

/** One row too many is enough to know, and then the others are not counted. */
function listUpToSql(plan: PlanContent, largest: number, compiling: CompilerState): string {
  const limit = plan.limit === undefined ? largest + 1 : Math.min(plan.limit, largest + 1)
  const where = whereSql(plan.where, ['t'], compiling)
  const rows = rowsSql(plan, where, ` limit ${limit}${offsetSql(plan, compiling)}`, compiling)
  const whenShort = (value: string) => `case when count(*) <= ${largest} then ${value} end`
  const total = isWhole(plan) || !plan.count ? totalSql(plan, where) : whenShort(totalSql(plan, where))
  return `select ${whenShort("coalesce(json_agg(o.*), '[]')::text")} as data, ${total} as total from ${rows} o`
}

/** Whether every row that matches is asked for: then the rows themselves are the total. */
export const isWhole = ({ limit, offset }: PlanContent): boolean => limit === undefined && offset === 0

function totalSql(plan: PlanContent, where: string): string {
  if (!plan.count) return 'null::text'
  return isWhole(plan) ? 'count(*)::text' : countSql(plan, where)
}

const countSql = ({ collection }: PlanContent, where: string): string =>
  `(select count(*) from ${ident(collection.name)} t${where})::text`

function itemsSql(plan: PlanContent, window: string, compiling: CompilerState): string {
  if (plan.grouping === undefined) {
    const rows = rowsSql(plan, whereSql(plan.where, ['t'], compiling), window, compiling)
    return `select row_to_json(o.*)::text as data from ${rows} o`
  }
  const groups = `(${groupsSql(plan, plan.grouping, compiling)})`
  return `select o.object::text as data from (${groupPageSql(plan, plan.grouping, groups, window, compiling)}) o`
}

/** The selected rows of a plan: found, ordered and cut first, made into JSON form only then. */
function rowsSql(plan: PlanContent, where: string, window: string, compiling: CompilerState): string {
  const { joins, order } = orderSql(plan.sort, ['t'], compiling)
  const columns = columnsRead(plan.selection).map((field: Field) => compiling.column(field.name, 't'))
  const found = `select ${columns.join(', ')} from ${ident(plan.collection.name)} t${joins}${where}${order}${window}`
  return `(select ${selectionSql(plan.selection, ['t'], compiling)} from (${found}) t)`
}

/**
 * PostgreSQL takes an unknown limit for a tenth of the table and then plans such a statement anew at every execution.
 * The few small limits that pages have are therefore part of the text; larger ones are parameters, so that the number
 * of texts stays small.
 */
const LARGEST_INLINE_LIMIT = 100

const limitValueSql = (limit: number, params: Params): string =>
  limit <= LARGEST_INLINE_LIMIT ? String(limit) : params.bind(limit, 'bigint')

function limitSql(plan: PlanContent, compiling: CompilerState): string {
  const take = plan.limit === undefined ? '' : ` limit ${limitValueSql(plan.limit, compiling.params)}`
  return `${take}${offsetSql(plan, compiling)}`
}

const offsetSql = ({ offset }: PlanContent, { params }: CompilerState): string =>
  offset === 0 ? '' : ` offset ${params.bind(offset, 'bigint')}`

function groupedListSql(plan: PlanContent, grouping: Grouping, compiling: CompilerState, largest = Infinity): string {
  const groups = groupsSql(plan, grouping, compiling)
  // The name cannot be a collection's, so nothing below can mean the groups by accident.
  const objects = groupPageSql(plan, grouping, '"$groups"', limitSql(plan, compiling), compiling)
  const list = `(select coalesce(json_agg(o.object), '[]') from (${objects}) o)::text`
  const count = '(select count(*) from "$groups")'
  const isShort = largest === Infinity || (plan.limit ?? Infinity) <= largest
  const data = isShort ? list : `case when ${count} <= ${largest} then ${list} end`
  const total = plan.count ? `${count}::text` : 'null::text'
  return `with "$groups" as materialized (${groups}) select ${data} as data, ${total} as total`
}

function groupPageSql(
  plan: PlanContent,
  grouping: Grouping,
  groups: string,
  window: string,
  compiling: CompilerState,
): string {
  const page = `select g.* from ${groups} g${groupOrderSql(plan)}${window}`
  return groupObjectsSql(plan, grouping, page, compiling)
}

/* Pages that begin after a row instead of after a number of rows: as quick at the end of a table as at its start. */

/**
 * One row: `data` and `total` as in a list, and `next`, a JSON array with the sort values of the last row as texts;
 * null where no row follows.
 */
export function compilePage(plan: Plan & { readonly keyset: Keyset; readonly limit: number }): Statement {
  const params = createParams()
  const compiling = startCompiling(params, { t: plan.collection })
  const { sort } = plan
  const limit = limitValueSql(plan.limit, params)
  const found = foundSql(plan, limit, compiling)
  const item = `(select row_to_json(o.*) from (select ${selectionSql(plan.selection, ['t'], compiling)}) o)`
  const keys = sort.map((_, i) => `t.${keyName(i)}::text`).join(', ')
  const rows = `select ${item} as item, json_build_array(${keys})::text as keys, row_number() over () as n from (${found}) t`
  const total = plan.count ? countSql(plan, whereSql(plan.where, ['t'], compiling)) : 'null::text'
  // One row more than asked for shows whether there is a next page.
  const data = `coalesce(json_agg(p.item) filter (where p.n <= ${limit}), '[]')::text`
  const next = `min(p.keys) filter (where p.n = ${limit})`
  const text = `select ${data} as data, ${total} as total, case when count(*) > ${limit} then ${next} end as next from (${rows}) p`
  return statement(inPast(plan.past, text, params), params.values, compiling.dependsOn)
}

/** A sort key with the value that it has in the row before the page. */
type PageKey = {
  readonly sql: string
  readonly descending: boolean
  readonly nullable: boolean
  /** A placeholder; undefined for null. */
  readonly value: string | undefined
}

/** No field has such a name. */
const keyName = (i: number): string => ident(`$${i + 1}`)

/** The rows after the cursor, ordered and cut. */
function foundSql(plan: PlanContent & { readonly keyset: Keyset }, limit: string, compiling: CompilerState): string {
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

type After = { readonly part: Part; readonly values: readonly (string | undefined)[] }

function rangeSql(plan: PlanContent, after: After | undefined, limit: string, compiling: CompilerState): string {
  const { collection, selection, sort } = plan
  const { joins, keys } = sortKeysSql(sort, ['t'], compiling)
  const columns = [
    ...columnsRead(selection).map((field) => compiling.column(field.name, 't')),
    ...keys.map((key, i) => `${key} as ${keyName(i)}`),
  ]
  const isAfter = after === undefined ? [] : afterSql(keysOf(sort, keys, after.values), after.part)
  const where = clause('where', [...conditions(plan.where, ['t'], compiling), ...isAfter])
  return `select ${columns.join(', ')} from ${ident(collection.name)} t${joins}${where}${orderClause(sort, keys)} limit (${limit} + 1)`
}

const keysOf = (sort: readonly SortTerm[], keys: readonly string[], values: After['values']): PageKey[] =>
  sort.map(({ by, direction }, i) => ({
    sql: keys[i]!,
    descending: direction === 'desc',
    nullable: isNullable(by),
    value: values[i],
  }))

/** Null is greater than every value: last ascending, first descending. */
function afterSql(keys: readonly PageKey[], part: Part): readonly string[] {
  const [first, ...rest] = keys
  if (part === 'second') return [`${first!.sql} is ${first!.descending ? 'not ' : ''}null`]
  if (part === 'first' && first!.value === undefined) return [`${first!.sql} is null`, laterSql(rest)]
  if (part === 'all' && (first!.value === undefined || (first!.nullable && !first!.descending))) return [laterSql(keys)]
  return valuedSql(keys)
}

/** The rows after the cursor whose first key has a value, as a condition that an index on the first keys can serve. */
function valuedSql(keys: readonly PageKey[]): readonly string[] {
  const [first, ...rest] = keys
  const isRow = rest.every((key) => !key.nullable && key.value !== undefined && key.descending === first!.descending)
  const sign = first!.descending ? '<' : '>'
  if (isRow) return [`(${keys.map((key) => key.sql).join(', ')}) ${sign} (${keys.map((key) => key.value).join(', ')})`]
  return [
    `${first!.sql} ${sign}= ${first!.value}`,
    laterSql(keys.map((key) => (key === first ? { ...key, nullable: false } : key))),
  ]
}

/** After it in the first key, or equal in it and after it in those that follow. */
function laterSql([first, ...rest]: readonly PageKey[]): string {
  if (first === undefined) return 'false'
  const same = first.value === undefined ? `${first.sql} is null` : `${first.sql} = ${first.value}`
  const ties = rest.length === 0 ? [] : [`(${same} and ${laterSql(rest)})`]
  const ways = [...beyondSql(first), ...ties]
  return ways.length === 0 ? 'false' : `(${ways.join(' or ')})`
}

function beyondSql({ sql, descending, nullable, value }: PageKey): readonly string[] {
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

/* Groups: one grouped query, computed once for both the rows and their number. */

/**
 * A query of the groups: columns k1, k2, … for the keys, a1, a2, … for the aggregates, and r for the first row where
 * something of it is shown that the keys do not hold.
 */
function groupsSql(plan: PlanContent, grouping: Grouping, compiling: CompilerState): string {
  const joins = createJoins(['t'], compiling)
  const keys = grouping.keys.map((key) => `${keySql(key, grouping.timezone, joins, compiling)} as ${key.name}`)
  const aggregates = grouping.aggregates.map((each) => `${aggregateSql(each, plan, joins, compiling)} as ${each.name}`)
  const isRead = grouping.detail !== undefined && keyRowSql(grouping) === undefined
  const first = isRead ? [`${firstRowSql(plan, compiling)} as r`] : []
  const list = [...keys, ...aggregates, ...first].join(', ')
  const where = whereSql(plan.where, ['t'], compiling)
  const by = clause(
    'group by',
    grouping.keys.map((_, i) => String(i + 1)),
    ', ',
  )
  const grouped = `select ${list} from ${ident(plan.collection.name)} t${joins.sql()}${where}${by}`
  return havingSql(grouped, grouping, compiling)
}

/** A query of `object`, each group of `page` (ordered and cut, called g) as JSON, in order. */
function groupObjectsSql(plan: PlanContent, grouping: Grouping, page: string, compiling: CompilerState): string {
  const object = objectSql(grouping, compiling)
  if (grouping.detail === undefined) return `select ${object} as object from (${page}) g`
  // A join need not keep the order of the page.
  return `select ${object} as object from (${page}) g${detailSql(plan, grouping, grouping.detail, compiling)}${groupOrderSql(plan)}`
}

/** ORDER BY of groups called g. */
function groupOrderSql({ sort }: PlanContent): string {
  const terms = sort.flatMap(({ by, direction }) =>
    by.kind === 'output' ? [`g.${by.name}${direction === 'desc' ? ' desc' : ''}`] : [],
  )
  return clause('order by', terms, ', ')
}

function keySql(
  { path, part }: GroupKey,
  timezone: string | undefined,
  joins: Joins,
  compiling: CompilerState,
): string {
  const column = compiling.column(path.column.name, joins.alias(path.steps))
  if (part === undefined) return column
  if (path.column.kind === 'date') return partSql(part, `${column}::timestamp`)
  if (path.column.kind !== 'datetime') return partSql(part, column)
  const zone = timezone === undefined ? `'UTC'` : compiling.params.bind(timezone, 'text')
  return partSql(part, `${column} at time zone ${zone}`)
}

function partSql(part: DatePart, time: string): string {
  if (isTextPart(part)) return `to_char(${time}, '${TEXT_PARTS[part]}')`
  const value = `extract(${part} from ${time})::integer`
  // The year of infinity is infinite; its other parts are null.
  return part === 'year' ? `case when isfinite(${time}) then ${value} end` : value
}

function aggregateSql(
  { fn, path }: Aggregate,
  { collection }: PlanContent,
  joins: Joins,
  compiling: CompilerState,
): string {
  if (path === undefined) return 'count(*)'
  const column = compiling.column(path.column.name, joins.alias(path.steps))
  switch (fn) {
    case 'distinct':
      return `count(distinct ${column})`
    case 'avg':
      return `avg(${column})::double precision`
    case 'array_agg':
      return `coalesce(json_agg(${wireSql(column, path.column)} order by ${rowKeys(collection, path.steps, joins, compiling).join(', ')}), '[]')`
    default:
      return `${fn}(${column})`
  }
}

/** The primary keys that tell the rows at the end of a path apart: a step to one row adds none to those before it. */
function rowKeys(
  { primaryKey }: Collection,
  steps: readonly Step[],
  joins: Joins,
  compiling: CompilerState,
): readonly string[] {
  const related = steps.flatMap(({ relation, target }, place) =>
    relation.kind === 'belongsTo'
      ? []
      : [compiling.column(target.primaryKey.name, joins.alias(steps.slice(0, place + 1)))],
  )
  return [compiling.column(primaryKey.name, 't'), ...related]
}

/** The first row of a group by primary key. PostgreSQL has no min(uuid); its text has the same order in this collation. */
function firstRowSql({ collection: { primaryKey } }: PlanContent, compiling: CompilerState): string {
  const column = compiling.column(primaryKey.name, 't')
  return primaryKey.kind === 'uuid' ? `min(${column}::text collate "C")::uuid` : `min(${column})`
}

/**
 * The group g as a row of the collection, where its keys have every column that the detail reads: the related records
 * then hang on the groups alone, and no row of the collection is read a second time.
 */
function keyRowSql({ keys, detail }: Grouping): string | undefined {
  const columns = new Map(keys.filter(isOwnColumn).map(({ name, path }) => [path.column.name, name]))
  const read = detail === undefined ? [] : columnsRead(detail).map(({ name }) => name)
  if (!read.every((name) => columns.has(name))) return undefined
  return `select ${read.map((name) => `g.${columns.get(name)} as ${ident(name)}`).join(', ')}`
}

const isOwnColumn = ({ path, part }: GroupKey): boolean => part === undefined && path.steps.length === 0

function havingSql(grouped: string, { having }: Grouping, compiling: CompilerState): string {
  const kept = conditions(having, ['g'], compiling)
  return kept.length === 0 ? grouped : `select * from (${grouped}) g${clause('where', kept)}`
}

/** Names chosen by the request travel as parameters. */
function objectSql({ keys, aggregates, detail }: Grouping, { params }: CompilerState): string {
  const members = [
    ...keys.flatMap((key) => key.keys.map((name) => `${literal(name)}, ${keyValueSql(key)}`)),
    ...aggregates.map((aggregate) => `${params.bind(aggregate.alias, 'text')}, ${aggregateValueSql(aggregate)}`),
    ...(detail?.columns ?? []).map(({ name }) => `${literal(name)}, ${outputSql(name, 'd')}`),
    ...(detail?.nested ?? []).map(
      ({ step }) => `${literal(step.relation.name)}, ${outputSql(step.relation.name, 'd')}`,
    ),
  ]
  return `json_build_object(${members.join(', ')})`
}

const outputSql = (name: string, alias: string): string => `${alias}.${ident(name)}`

const keyValueSql = ({ name, part, path }: GroupKey): string =>
  part === undefined ? wireSql(`g.${name}`, path.column) : `g.${name}`

/**
 * Numbers stay numbers as long as a double holds every digit of them, also those of Decimal columns; all else has its
 * usual form.
 */
function aggregateValueSql({ name, fn, path }: Aggregate): string {
  const value = `g.${name}`
  if (path === undefined || (fn !== 'sum' && fn !== 'min' && fn !== 'max')) return value
  const { kind } = path.column
  if (kind === 'decimal') return exactNumberSql(value)
  if (fn === 'sum') return kind === 'float' ? value : wholeNumberSql(value)
  return wireSql(value, path.column)
}

function detailSql(
  { collection }: PlanContent,
  grouping: Grouping,
  detail: Selection,
  compiling: CompilerState,
): string {
  const list = selectionSql(detail, ['t'], compiling)
  const keyRow = keyRowSql(grouping)
  if (keyRow !== undefined) return ` cross join lateral (select ${list} from (${keyRow}) t) d`
  const isFirst = `${compiling.column(collection.primaryKey.name, 't')} = g.r`
  return ` left join lateral (select ${list} from ${ident(collection.name)} t where ${isFirst}) d on true`
}
