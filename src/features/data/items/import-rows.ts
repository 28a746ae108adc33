import { type CsvCell, readCsv } from '../../../adapters/csv.ts'
import type { Collection } from '../../../catalog/catalog.ts'
import { errors } from '../../../errors.ts'
import { isObject } from '../../../query/guards.ts'
import { type CsvColumn, cellValue, jsonFileValue } from './csv-cells.ts'
import { NoArrayError, readJsonArray } from './json-array.ts'

/** The rows of files that are imported, as they are read. */

export type ImportFormat = 'CSV' | 'JSON'

type JsonObject = Readonly<Record<string, unknown>>

/** A row of an imported file. */
export type ImportRow = {
  /** As it stands in the file, for telling what was wrong with it. */
  readonly data: JsonObject
  /** How much text it was, in characters. */
  readonly size: number
  /** The line of the file in which it begins, counted from 1. */
  readonly line: number
  /** As the body of a request that would create it; 400 for a cell that cannot be read. */
  readonly payload: () => JsonObject
}

type RowLimits = {
  /** Bytes; as large as the body of a request that would create the row. */
  readonly largestRow: number
}

/**
 * The rows of a file, as they are read; a file without any ends at once. 400 `Invalid {format} format: …` for a file that
 * cannot be read to its end.
 */
export async function* readRows(
  format: ImportFormat,
  bytes: AsyncIterable<Uint8Array>,
  collection: Collection,
  limits: RowLimits,
): AsyncGenerator<ImportRow> {
  try {
    const rows = format === 'CSV' ? csvRows : jsonRows
    yield* rows(textOf(bytes), collection, limits)
  } catch (error) {
    if (error instanceof NoArrayError) throw errors.badBody('JSON file must contain an array of objects')
    if (!(error instanceof SyntaxError)) throw error
    throw Object.assign(errors.badBody(`Invalid ${format} format: ${error.message}`), { cause: error })
  }
}

/** UTF-8 with or without a byte order mark; other encodings would be stored as garbage. */
async function* textOf(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  try {
    for await (const chunk of bytes) yield decoder.decode(chunk, { stream: true })
    yield decoder.decode()
  } catch (error) {
    if ((error as { code?: unknown }).code !== 'ERR_ENCODING_INVALID_ENCODED_DATA') throw error
    throw new SyntaxError('the file is not UTF-8', { cause: error })
  }
}

async function* jsonRows(
  text: AsyncIterable<string>,
  { fields, relations }: Collection,
  { largestRow }: RowLimits,
): AsyncGenerator<ImportRow> {
  const readValue = (name: string, value: unknown) =>
    jsonFileValue(value, { field: fields.get(name), relation: relations.get(name) })
  for await (const { value, length, line } of readJsonArray(text, { largestElement: largestRow })) {
    if (!isObject(value)) throw new NoArrayError('an item is no object')
    const payload = () => Object.fromEntries(Object.entries(value).map(([name, one]) => [name, readValue(name, one)]))
    yield { data: value, size: length, line, payload }
  }
}

/** The first record names the columns. A file that names none of the collection's has no rows for it. */
async function* csvRows(
  text: AsyncIterable<string>,
  collection: Collection,
  { largestRow }: RowLimits,
): AsyncGenerator<ImportRow> {
  let columns: readonly NamedColumn[] | undefined
  for await (const { cells, line } of readCsv(text, { largestRecord: largestRow })) {
    if (columns !== undefined) yield csvRow(columns, cells, line)
    else columns = columnsOf(cells, collection)
    if (columns.length === 0) return
  }
}

type NamedColumn = CsvColumn & { readonly name: string; readonly index: number }

function columnsOf(header: readonly CsvCell[], { fields, relations }: Collection): readonly NamedColumn[] {
  const names = header.filter((name) => name !== null && name !== '')
  const repeated = names.find((name, index) => names.indexOf(name) !== index)
  if (repeated !== undefined) throw new SyntaxError(`column ${JSON.stringify(repeated)} appears twice`)
  return header.flatMap((name, index): NamedColumn[] => {
    const field = fields.get(name ?? '')
    const relation = field === undefined ? relations.get(name ?? '') : undefined
    return field === undefined && relation === undefined ? [] : [{ name: name!, index, field, relation }]
  })
}

function csvRow(columns: readonly NamedColumn[], cells: readonly CsvCell[], line: number): ImportRow {
  const members = (value: (column: NamedColumn) => unknown) =>
    Object.fromEntries(columns.map((column) => [column.name, value(column)]))
  return {
    data: members(({ index }) => cells[index]),
    size: cells.reduce((sum, cell) => sum + (cell?.length ?? 0), 0),
    line,
    payload: () => members((column) => cellValue(cells[column.index]!, column)),
  }
}
