/**
 * compile: a plan as one SQL statement whose result is already the response text. Pure; two plans that differ in
 * values only give the same text (but for small limits, see below), so `key` names a prepared statement.
 */
import type { Field } from '../catalog/catalog.ts'
import { groupObjectsSql, groupOrderSql, groupsSql } from './compile-groups.ts'
import { type Compiling, columnSql, predicateSql, startCompiling, whereSql } from './compile-predicate.ts'
import { columnsRead, orderSql, selectionSql } from './compile-select.ts'
import { inPast } from './past.ts'
import type { Grouping, PlanContent } from './plan.ts'
import type { Plan, ResolvedFilter } from './resolve.ts'
import { createParams, ident, type Params, type Statement, statement } from './sql.ts'

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
  return predicateSql(filter.predicate, [alias], startCompiling(params))
}

function compiled(plan: PlanContent, build: (compiling: Compiling) => string): Statement {
  const params = createParams()
  return statement(inPast(plan.past, build(startCompiling(params)), params), params.values)
}

function listSql(plan: PlanContent, compiling: Compiling): string {
  const where = whereSql(plan.where, ['t'], compiling)
  const rows = rowsSql(plan, where, limitSql(plan, compiling), compiling)
  return `select coalesce(json_agg(o.*), '[]')::text as data, ${totalSql(plan, where)} as total from ${rows} o`
}

/** One row too many is enough to know, and then the others are not counted. */
function listUpToSql(plan: PlanContent, largest: number, compiling: Compiling): string {
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

function itemsSql(plan: PlanContent, window: string, compiling: Compiling): string {
  if (plan.grouping === undefined) {
    const rows = rowsSql(plan, whereSql(plan.where, ['t'], compiling), window, compiling)
    return `select row_to_json(o.*)::text as data from ${rows} o`
  }
  const groups = `(${groupsSql(plan, plan.grouping, compiling)})`
  return `select o.object::text as data from (${groupPageSql(plan, plan.grouping, groups, window, compiling)}) o`
}

/** The selected rows of a plan: found, ordered and cut first, made into JSON form only then. */
function rowsSql(plan: PlanContent, where: string, window: string, compiling: Compiling): string {
  const { joins, order } = orderSql(plan.sort, ['t'], compiling)
  const columns = columnsRead(plan.selection).map((field: Field) => columnSql(field.name, 't'))
  const found = `select ${columns.join(', ')} from ${ident(plan.collection.name)} t${joins}${where}${order}${window}`
  return `(select ${selectionSql(plan.selection, ['t'], compiling)} from (${found}) t)`
}

/**
 * PostgreSQL takes an unknown limit for a tenth of the table and then plans such a statement anew at every execution.
 * The few small limits that pages have are therefore part of the text; larger ones are parameters, so that the number
 * of texts stays small.
 */
const LARGEST_INLINE_LIMIT = 100

export const limitValueSql = (limit: number, params: Params): string =>
  limit <= LARGEST_INLINE_LIMIT ? String(limit) : params.bind(limit, 'bigint')

function limitSql(plan: PlanContent, compiling: Compiling): string {
  const take = plan.limit === undefined ? '' : ` limit ${limitValueSql(plan.limit, compiling.params)}`
  return `${take}${offsetSql(plan, compiling)}`
}

const offsetSql = ({ offset }: PlanContent, { params }: Compiling): string =>
  offset === 0 ? '' : ` offset ${params.bind(offset, 'bigint')}`

function groupedListSql(plan: PlanContent, grouping: Grouping, compiling: Compiling, largest = Infinity): string {
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
  compiling: Compiling,
): string {
  const page = `select g.* from ${groups} g${groupOrderSql(plan)}${window}`
  return groupObjectsSql(plan, grouping, page, compiling)
}
