import { openBoundedMemory } from '../../adapters/bounded-memory.ts'
import type { Catalog } from '../../catalog/catalog.ts'
import { oncePer } from '../../once-per.ts'
import type { ParamValue } from '../../query/sql.ts'
import type { WriteContext } from './context.ts'
import { insertStatement, type Row, updateStatement, type Write } from './statements.ts'

/** As `insertStatement` for one row, from memory where the like was written before. */
export function insertOf(context: WriteContext, row: Row): Write {
  return filled(context, row, [], (cells) => insertStatement(context, [{ ...row, cells }]))
}

/** As `updateStatement` for one item without options, from memory where the like was written before. */
export function updateOf(context: WriteContext, id: string, row: Row): Write {
  return filled(context, row, [id], (cells, ids) => updateStatement(context, ids, { ...row, cells }))
}

type Build = (cells: Row['cells'], ids: readonly ParamValue[]) => Write

/**
 * The statement of a write, made once per shape: to make it costs as much as the rest of a limited write's way through
 * the code of this process.
 *
 * Exact: a shape is kept with its catalog and found by all else that its text and its other values are made of: what the
 * caller may (`Access.meaning`), the change, the collection, the columns with the types of their values, and how they
 * name rows that must be looked at. The values themselves are put where marks stood when it was made.
 */
function filled(context: WriteContext, row: Row, ids: readonly string[], build: Build): Write {
  const key = keyOf(context, row)
  if (key === undefined) return build(row.cells, ids)
  const memory = memoryOf(context.catalog)
  let shape = memory.get(key)
  if (shape === undefined) {
    shape = shapeOf(row, ids, build)
    memory.set(key, shape, 0)
  }
  const { text, values, places } = shape
  const given = [...ids, ...row.cells.map(({ value }) => value)]
  return {
    text,
    values: values.map((value, at) => {
      const place = places[at]
      return place === undefined ? value : given[place]!
    }),
  }
}

/** A statement whose values have gaps; `places` says for each value which of the given ones it is. */
type Shape = Write & { readonly places: readonly (number | undefined)[] }

/** A mark is an empty list of its own, so no value can be taken for one. */
function shapeOf(row: Row, ids: readonly string[], build: Build): Shape {
  const marks: ParamValue[] = [...ids, ...row.cells].map(() => [])
  const cells = row.cells.map((cell, at) => ({ ...cell, value: marks[ids.length + at]! }))
  const write = build(cells, marks.slice(0, ids.length))
  const placeOf = new Map(marks.map((mark, place) => [mark, place]))
  return { ...write, places: write.values.map((value) => placeOf.get(value)) }
}

function keyOf({ access, action, collection }: WriteContext, row: Row): string | undefined {
  const meaning = access.meaning?.()
  if (meaning === undefined) return undefined
  let key = `${meaning} ${action} ${collection.name} ${row.sortsLast}`
  for (const { field, pgType } of row.cells) key += `\n${field.name} ${pgType}`
  for (const [column, { relation, isStrict }] of row.references) key += `\n${column} ${relation.name} ${isStrict}`
  return key
}

const memoryOf = oncePer((_catalog: Catalog) =>
  openBoundedMemory<Shape>({
    maxBytes: 8_000_000,
    maxEntryBytes: 64_000,
    sizeOf: ({ text, values }, key) => 2 * (text.length + key.length) + 100 * values.length,
  }),
)
