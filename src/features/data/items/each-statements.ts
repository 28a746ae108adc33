import type { Collection } from '../../../catalog/catalog.ts'
import { type ParamValue, parameterType } from '../../../catalog/values.ts'
import { actorsCte } from '../../../events/log.ts'
import { ident, literal, type Params } from '../../../query/sql.ts'
import type { WriteContext } from './context.ts'
import {
  checksOf,
  insertFrom,
  keyProjection,
  projection,
  type RowToWrite,
  recordedColumn,
  recordedValue,
  refusalOf,
  ruleSql,
  touched,
} from './statements.ts'

/** A statement for rows of several requests; `values` are this row's own beside its cells, in the columns `svc$value…`. */
type EachStatement = {
  readonly text: string
  readonly columns: readonly string[]
  readonly values: readonly ParamValue[]
}

/**
 * A statement for one row of each of several requests (`events/row-batches.ts`), which differ in their values alone: in those of
 * their cells, and in those that the rule of each caller names. Its parameters are the actors and the rows, a JSON list of records: the
 * cells by their fields, `svc$place`, `svc$key` of a row that is there, and `columns`. Where rows have keys it answers their `place`.
 */
export function eachStatement(context: WriteContext, row: RowToWrite): EachStatement {
  const columns: string[] = []
  const types: string[] = []
  const values: ParamValue[] = []
  const params: Params = {
    bind: (value, pgType) => {
      const name = `svc$value${columns.length}`
      const isJson = pgType === 'json' || pgType === 'jsonb'
      columns.push(name)
      types.push(`${ident(name)} ${isJson ? 'text' : pgType}`)
      values.push(value)
      return isJson ? `r.${ident(name)}::${pgType}` : `r.${ident(name)}`
    },
  }
  const statement = { create: insertEach, update: updateEach, delete: deleteEach }[context.action](context, row, params)
  const { primaryKey } = context.collection
  const key = context.action === 'create' ? [] : [`"svc$key" ${parameterType(primaryKey)}`]
  const shape = [...key, '"svc$place" int', ...row.cells.map(recordedColumn), ...types]
  const records = `r as materialized (select * from json_to_recordset($2::json) as r(${shape}))`
  return { text: `${actorsCte(1)}, ${records}${statement}`, columns, values }
}

/** The statement after the CTEs of the actors, `ctx`, and of the rows, `r`. */
type Each = (context: WriteContext, row: RowToWrite, params: Params) => string

const insertEach: Each = (context, row, params) => {
  const { access, collection } = context
  const rule = access.admin ? 'true' : ruleSql(context, 't', params)
  const insert = insertFrom(
    context,
    params,
    row,
    'r',
    rule === 'true' ? projection(collection) : 't.*',
    ' order by r."svc$place"',
  )
  if (rule === 'true') return ` ${insert}`
  // RETURNING cannot name the values of its caller's rule. Rows come back in the order of the input.
  const made = `(select t.*, (row_number() over ())::int - 1 as "svc$nth" from made t) t join r on r."svc$place" = t."svc$nth"`
  return `, made as (${insert}) select ${keptSql(context, rule)} from ${made} order by r."svc$place"`
}

const updateEach: Each = (context, { cells, references }, params) => {
  const { access, collection } = context
  const assignments = cells.map((cell) => ({ cell, column: ident(cell.field.name), value: recordedValue(cell) }))
  const sets = [...assignments.map(({ column, value }) => `${column} = ${value}`), ...touched(collection, assignments)]
  const checks = checksOf(assignments, references, params, (column, value) => `t.${column} = ${value}`)
  const rule = ruleSql(context, 't', params)
  const conditions = [isKeyed(collection), rule, ...checks].join(' and ')
  return ` update ${ident(collection.name)} as t set ${sets.join(', ')} from ctx, r where ${conditions} returning r."svc$place" as place, ${keptSql(context, access.admin ? 'true' : rule)}`
}

const deleteEach: Each = (context, _row, params) => {
  const { collection } = context
  const where = `${isKeyed(collection)} and ${ruleSql(context, 't', params)} returning r."svc$place" as place, ${projection(collection)}`
  return collection.paranoid
    ? ` update ${ident(collection.name)} as t set "deletedAt" = now() from ctx, r where ${where}`
    : ` delete from ${ident(collection.name)} as t using ctx, r where ${where}`
}

const isKeyed = ({ primaryKey }: Collection): string => `t.${ident(primaryKey.name)} = r."svc$key"`

/** The id, after the check that the row as written is within the caller's rule, as in every statement that writes. */
function keptSql({ action, collection }: WriteContext, rule: string): string {
  if (rule === 'true') return projection(collection)
  return `case when ${rule} or svc_refuse(${literal(refusalOf(action, collection))}) then ${keyProjection(collection)} end as id`
}
