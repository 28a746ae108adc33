import { openBoundedMemory } from '../../../adapters/bounded-memory.ts'
import { type Catalog, linkEnds } from '../../../catalog/catalog.ts'
import type { ParamValue } from '../../../catalog/values.ts'
import type { BatchedRow, RowKind } from '../../../events/row-batches.ts'
import { oncePer } from '../../../language/once.ts'
import type { Write, WriteContext } from './context.ts'
import { eachStatement } from './each-statements.ts'
import { deleteStatement, hasLinks, insertStatement, type RowToWrite, updateStatement } from './statements.ts'

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
type Template = Write & {
  readonly places: readonly (number | undefined)[]
  /** Where rows of several requests can be written together. */
  readonly each: Each | undefined
}

/** A mark is an empty list of its own, so no value can be taken for one. */
function templateOf(row: RowToWrite, ids: readonly string[], build: Build): Omit<Template, 'each'> {
  const marks: ParamValue[] = [...ids, ...row.cells].map(() => [])
  const cells = row.cells.map((cell, at) => ({ ...cell, value: marks[ids.length + at]! }))
  const write = build(cells, marks.slice(0, ids.length))
  const placeOf = new Map(marks.map((mark, place) => [mark, place]))
  return { ...write, places: write.values.map((value) => placeOf.get(value)) }
}

function keyOf({ access, action, collection, condition }: WriteContext, row: RowToWrite): string | undefined {
  const meaning = access.meaning?.()
  if (meaning === undefined) return undefined
  let key = `${meaning} ${action} ${collection.name} ${row.sortsLast} ${condition?.name ?? ''}`
  for (const { field, pgType } of row.cells) key += `\n${field.name} ${pgType}`
  for (const [column, { relation, isStrict }] of row.references) key += `\n${column} ${relation.name} ${isStrict}`
  return key
}

const templatesOf = oncePer((_catalog: Catalog) =>
  openBoundedMemory<Template>({
    maxBytes: 8_000_000,
    maxEntryBytes: 64_000,
    sizeOf: ({ text, values }, key) => 2 * (text.length + key.length) + 100 * values.length,
  }),
)

/** How rows like this one are written together: `values` are those of the caller's rule. */
type Each = { readonly kind: RowKind; readonly values: readonly ParamValue[] }

/**
 * Undefined where the rows have to be written one by one: by what follows from them (links, a place at the end of its tenant's
 * rows), or because nobody logs which of them is whose.
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
