import { openBoundedMemory } from '../../../adapters/bounded-memory.ts'
import { type Catalog, type Collection, linkEnds } from '../../../catalog/catalog.ts'
import { type ParamValue, parameterType } from '../../../catalog/values.ts'
import { actorsCte } from '../../../events/log.ts'
import type { BatchedRow, RowKind } from '../../../events/row-batches.ts'
import { oncePer } from '../../../language/once.ts'
import { ident, literal, type Params } from '../../../query/sql.ts'
import type { Write, WriteContext } from './context.ts'
import {
  checksOf,
  countedSql,
  deleteStatement,
  hasLinks,
  insertFrom,
  insertStatement,
  keyProjection,
  projection,
  type RowToWrite,
  recordedColumn,
  recordedValue,
  refusalOf,
  ruleSql,
  setsOf,
  trashConditions,
  updateStatement,
} from './statements.ts'

/** Statements for one row, which are made once for all rows that are alike but for their values. */

/** With what is needed to write it together with rows of other requests, where that can be. */
export type KeptWrite = Write & { readonly batched?: BatchedRow }

/** As `insertStatement` for one row, from memory where the like was written before. */
export function insertOf(context: WriteContext, row: RowToWrite): KeptWrite {
  const { condition } = context
  if (condition === undefined) return filled(context, row, [], (cells) => insertStatement(context, [{ ...row, cells }]))
  return filled(context, row, condition.args, (cells, args) =>
    insertStatement({ ...context, condition: { ...condition, args: args as readonly string[] } }, [{ ...row, cells }]),
  )
}

/** As `updateStatement` for one item without options, from memory where the like was written before. */
export function updateOf(context: WriteContext, id: string, row: RowToWrite): KeptWrite {
  return filled(context, row, [id], (cells, ids) => updateStatement(context, ids, { ...row, cells }))
}

/** As `deleteStatement` for one item without options, from memory where the like was written before. */
export function deleteOf(context: WriteContext, id: string): KeptWrite {
  return filled(context, nothing, [id], (_cells, ids) => deleteStatement(context, ids))
}

const nothing: RowToWrite = { cells: [], references: new Map(), sortsLast: false }

type Build = (cells: RowToWrite['cells'], ids: readonly ParamValue[]) => Write

/**
 * The statement of a write, made once per template: to make it costs as much as the rest of a limited write's way through
 * the code of this process.
 *
 * Exact: a template is kept with its catalog and found by all else that its text and its other values are made of: what the
 * caller may (`Access.meaning`), the change, the collection, the columns with the types of their values, and how they
 * name rows that must be looked at. The values themselves are put where marks stood when it was made.
 */
function filled(context: WriteContext, row: RowToWrite, ids: readonly string[], build: Build): KeptWrite {
  const key = keyOf(context, row)
  if (key === undefined) return build(row.cells, ids)
  const memory = templatesOf(context.catalog)
  let template = memory.get(key)
  if (template === undefined) {
    template = { ...templateOf(row, ids, build), each: eachOf(context, row) }
    memory.set(key, template, 0)
  }
  const { text, values, places, each } = template
  const given = [...ids, ...row.cells.map(({ value }) => value)]
  return {
    text,
    ...(each !== undefined &&
      given.every(isSmall) && { batched: { kind: each.kind, values: [...given, ...each.values], key: ids[0] } }),
    values: values.map((value, at) => {
      const place = places[at]
      return place === undefined ? value : given[place]!
    }),
  }
}

/** A statement whose values have gaps; `places` says for each value which of the given ones it is. */
type WriteTemplate = Write & {
  readonly places: readonly (number | undefined)[]
  /** Where rows of several requests can be written together. */
  readonly each: Each | undefined
}

/** A mark is an empty list of its own, so no value can be taken for one. */
function templateOf(row: RowToWrite, ids: readonly string[], build: Build): Omit<WriteTemplate, 'each'> {
  const marks: ParamValue[] = [...ids, ...row.cells].map(() => [])
  const cells = row.cells.map((cell, at) => ({ ...cell, value: marks[ids.length + at]! }))
  const write = build(cells, marks.slice(0, ids.length))
  const placeOf = new Map(marks.map((mark, place) => [mark, place]))
  return { ...write, places: write.values.map((value) => placeOf.get(value)) }
}

function keyOf({ access, action, collection, condition, isUndo }: WriteContext, row: RowToWrite): string | undefined {
  const meaning = access.meaning?.()
  if (meaning === undefined) return undefined
  let key = `${meaning} ${action} ${collection.name} ${row.sortsLast} ${isUndo} ${condition?.name ?? ''}`
  for (const { field, pgType } of row.cells) key += `\n${field.name} ${pgType}`
  for (const [column, { relation, isStrict, half }] of row.references)
    key += `\n${column} ${relation.name} ${isStrict} ${half !== undefined}`
  return key
}

const templatesOf = oncePer((_catalog: Catalog) =>
  openBoundedMemory<WriteTemplate>({
    maxBytes: 8_000_000,
    maxEntryBytes: 64_000,
    sizeOf: ({ text, values }, key) => 2 * (text.length + key.length) + 100 * values.length,
  }),
)

/** How rows like this one are written together: `values` are those of the caller's rule. */
type Each = { readonly kind: RowKind; readonly values: readonly ParamValue[] }

/**
 * Undefined where the rows have to be written one by one: by what follows from them (links, a place at the end of its tenant's
 * rows), or because no log says which of them is whose.
 */
function eachOf(context: WriteContext, row: RowToWrite): Each | undefined {
  const { action, catalog, collection, condition } = context
  const isPlain = collection.logged && !collection.system && condition === undefined && !row.sortsLast
  if (!isPlain || linkEnds(catalog, collection).length > 0) return undefined
  const changesKey = action === 'update' && row.cells.some(({ field }) => field.primaryKey)
  if (changesKey || (action === 'delete' ? hasLinks(catalog, collection) : row.cells.length === 0)) return undefined
  const marked = row.cells.map((cell) => ({ ...cell, value: null }))
  const { text, columns, values } = eachStatement(context, { ...row, cells: marked })
  const key = action === 'create' ? [] : ['svc$key']
  const names = [...key, ...row.cells.map(({ field }) => field.name), ...columns]
  const kinds = kindsOf(catalog)
  // Callers whose rules are alike but for their values have the same text.
  let kind = kinds.get(text)
  if (kind === undefined) {
    kind = { statement: (rows) => ({ text, values: [recordsOf(names, rows)] }) }
    kinds.set(text, kind, 0)
  }
  return { kind, values }
}

const kindsOf = oncePer((_catalog: Catalog) =>
  openBoundedMemory<RowKind>({ maxBytes: 4_000_000, maxEntryBytes: 64_000, sizeOf: (_kind, text) => 2 * text.length }),
)

function recordsOf(names: readonly string[], rows: readonly (readonly unknown[])[]): string {
  const records = rows.map((values, place) => {
    const record: Record<string, unknown> = { svc$place: place }
    for (const [at, name] of names.entries()) record[name] = values[at]
    return record
  })
  return JSON.stringify(records)
}

/** Large values take long to send and to read; other writes must not wait for them. */
const isSmall = (value: ParamValue): boolean =>
  typeof value === 'string' ? value.length <= longestText : !Array.isArray(value) || value.length <= longestList
const longestText = 8_000
const longestList = 100

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
function eachStatement(context: WriteContext, row: RowToWrite): EachStatement {
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
type SharedWrite = (context: WriteContext, row: RowToWrite, params: Params) => string

const insertEach: SharedWrite = (context, row, params) => {
  const { access, collection } = context
  const rule = access.admin ? 'true' : ruleSql(context, 't', params)
  const insert = insertFrom(
    context,
    params,
    row,
    'r',
    `${rule === 'true' ? projection(collection) : 't.*'}${countedSql(context, row.cells)}`,
    ' order by r."svc$place"',
  )
  if (rule === 'true') return ` ${insert}`
  // RETURNING cannot name the values of its caller's rule. Rows come back in the order of the input.
  const made = `(select t.*, (row_number() over ())::int - 1 as "svc$nth" from made t) t join r on r."svc$place" = t."svc$nth"`
  return `, made as (${insert}) select ${keptSql(context, rule)} from ${made} order by r."svc$place"`
}

const updateEach: SharedWrite = (context, { cells, references }, params) => {
  const { access, collection } = context
  const assignments = cells.map((cell) => ({ cell, column: ident(cell.field.name), value: recordedValue(cell) }))
  const sets = setsOf(collection, assignments)
  const checks = checksOf(assignments, references, params, (column, value) => `t.${column} = ${value}`)
  const rule = ruleSql(context, 't', params)
  const conditions = [isKeyed(collection), rule, ...trashConditions(context, assignments, params), ...checks].join(
    ' and ',
  )
  return ` update ${ident(collection.name)} as t set ${sets.join(', ')} from ctx, r where ${conditions} returning r."svc$place" as place, ${keptSql(context, access.admin ? 'true' : rule)}${countedSql(context, cells)}`
}

const deleteEach: SharedWrite = (context, _row, params) => {
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
