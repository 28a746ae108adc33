import type { Readable } from 'node:stream'
import { TextDecoder } from 'node:util'
import { type CsvCell, readCsv, writeCsv } from '../../../adapters/csv.ts'
import type { Collection, Field, Kind, Relation } from '../../../catalog/catalog.ts'
import { type AppError, errors } from '../../../errors.ts'
import { isTooDeep, keepable } from '../../../http/json-values.ts'
import { knowing } from '../../../language/exact-json.ts'
import { firstRepeated, peek } from '../../../language/text.ts'
import { compileStream } from '../../../query/compile.ts'
import { isObject, member, quoted } from '../../../query/guards.ts'
import { parseListQuery, readString } from '../../../query/parse.ts'
import type { PlanContent, Selection } from '../../../query/plan.ts'
import { asFits, resolveEnv, resolveList } from '../../../query/resolve.ts'
import type { ItemReads, Requester } from './context.ts'
import { hookedQuery } from './hooking.ts'
import { NoArrayError, readJsonArray } from './json-array.ts'
import type { JsonObject } from './plan.ts'
import { ofPlan, type RowBatches, type StreamOptions, streamRows } from './reads.ts'

/** Rows as files: the reading of imported files row by row, and the writing of exported ones. */

export type ImportFormat = 'CSV' | 'JSON'

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

type FileReading = RowLimits & {
  /** A name of the Encoding Standard. Without one the file is UTF-8, or UTF-16 with a byte order mark. */
  readonly encoding: string | undefined
}

/** 400 for a file without rows. */
export const noRows = (format: ImportFormat): AppError => errors.badBody(`${format} file is empty or has no valid data`)

/**
 * The rows of a file, as they are read; a file without any ends at once. 400 `Invalid {format} format: …` for a file that
 * cannot be read to its end.
 */
export async function* readRows(
  format: ImportFormat,
  bytes: AsyncIterable<Uint8Array>,
  collection: Collection,
  { largestRow, encoding }: FileReading,
): AsyncGenerator<ImportRow> {
  try {
    const rows = format === 'CSV' ? csvRows : jsonRows
    yield* rows(textOf(bytes, encoding), collection, { largestRow })
  } catch (error) {
    if (error instanceof NoArrayError) throw errors.badBody('JSON file must contain an array of objects')
    if (!(error instanceof SyntaxError)) throw error
    throw Object.assign(errors.badBody(`Invalid ${format} format: ${error.message}`), { cause: error })
  }
}

/** Bytes that are no text in the encoding are refused: they would be stored as garbage. A byte order mark is left out. */
async function* textOf(bytes: AsyncIterable<Uint8Array>, named: string | undefined): AsyncGenerator<string> {
  let decoder: TextDecoder | undefined
  try {
    for await (const chunk of bytes) {
      decoder ??= new TextDecoder(named ?? markedEncoding(chunk) ?? 'utf-8', { fatal: true })
      yield decoder.decode(chunk, { stream: true })
    }
    if (decoder !== undefined) yield decoder.decode()
  } catch (error) {
    if ((error as { code?: unknown }).code !== 'ERR_ENCODING_INVALID_ENCODED_DATA') throw error
    const { encoding } = decoder!
    const isGuess = named === undefined && encoding === 'utf-8'
    const hint = isGuess ? '; name its encoding, such as encoding=windows-1252' : ''
    throw new SyntaxError(`the file is not ${encoding.toUpperCase()}${hint}`, { cause: error })
  }
}

/** UTF-16, as spreadsheets save "Unicode text", begins with the byte order mark. */
function markedEncoding([first, second]: Uint8Array): string | undefined {
  if (first === 0xff && second === 0xfe) return 'utf-16le'
  return first === 0xfe && second === 0xff ? 'utf-16be' : undefined
}

/** The name of an encoding. 400 for one that the Encoding Standard does not have. */
export function readEncoding(name: string | undefined): string | undefined {
  if (name === undefined) return undefined
  try {
    return new TextDecoder(name).encoding
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    throw errors.badQuery(`encoding: ${quoted(name)} is not known; expected a name such as windows-1252 or utf-16le`)
  }
}

async function* jsonRows(
  text: AsyncGenerator<string>,
  { fields, relations }: Collection,
  { largestRow }: RowLimits,
): AsyncGenerator<ImportRow> {
  const readValue = (name: string, value: unknown) =>
    jsonFileValue(value, { field: fields.get(name), relation: relations.get(name) })
  for await (const { value, length, line } of readJsonArray(text, { largestElement: largestRow })) {
    if (!isObject(value)) throw new NoArrayError('an item is no object')
    const payload = () =>
      knowing(Object.fromEntries(Object.entries(value).map(([name, one]) => [name, readValue(name, one)])), value)
    yield { data: value, size: length, line, payload }
  }
}

/** The first record names the columns. A file that names none of the collection's has no rows for it. */
async function* csvRows(
  text: AsyncGenerator<string>,
  collection: Collection,
  { largestRow }: RowLimits,
): AsyncGenerator<ImportRow> {
  let columns: readonly NamedColumn[] | undefined
  const [delimiter, all] = await peek(text, (beginning) => delimiterIn(beginning, largestRow))
  for await (const { cells, line } of readCsv(all, { largestRecord: largestRow, delimiter })) {
    if (columns !== undefined) yield csvRow(columns, cells, line)
    else columns = columnsOf(cells, collection)
    if (columns.length === 0) return
  }
}

/**
 * The separator of the columns of a file, once its header has been read, or is longer than a row may be. In some languages spreadsheets
 * write semicolons, and what is copied out of them has tabs; no column has a name with any of these.
 */
function delimiterIn(beginning: string, longest: number): string | undefined {
  const header = /\S.*(?=[\r\n])/.exec(beginning)?.[0]
  if (header === undefined) return beginning.length > longest ? ',' : undefined
  const names = header.replaceAll(/"[^"]*"/g, '')
  return [',', ';', '\t'].find((one) => names.includes(one)) ?? ','
}

/** Of a file. A table of PostgreSQL has at most 1,600; relations have names of their own, and unknown columns are dropped. */
const mostColumns = 5000

type NamedColumn = CsvColumn & { readonly name: string; readonly index: number }

function columnsOf(header: readonly CsvCell[], { fields, relations }: Collection): readonly NamedColumn[] {
  if (header.length > mostColumns) throw errors.badBody(`CSV file has ${header.length} columns: at most ${mostColumns}`)
  const names = header.filter((name) => name !== null && name !== '')
  const repeated = firstRepeated(names)
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
    payload: () => knowing(members((column) => cellValue(cells[column.index]!, column))),
  }
}

/**
 * Values as cells of CSV files and back, so that what was exported is imported unchanged: null is an empty cell, empty
 * text a pair of quotes, what is no text, number or truth value is JSON.
 *
 * A spreadsheet takes text that begins like a formula for one. Such text gets an apostrophe in front, in columns of
 * numbers nothing does. Text that has apostrophes there already gets one more, so that taking one away is
 * always right.
 */

/** A value of an answer as a cell; `kind` is its column's, undefined for related rows. */
export function csvCell(value: unknown, kind: Kind | undefined): CsvCell {
  if (value === null || value === undefined) return null
  if (kind === 'json' || typeof value === 'object') return JSON.stringify(value)
  if (typeof value !== 'string') return String(value)
  return kind !== undefined && numberKinds.has(kind) ? value : guarded(value)
}

/** A cell as a value of a payload, of the column or relation that its header names; undefined as if it were not there. */
export function cellValue(cell: CsvCell, { field, relation }: CsvColumn): unknown {
  if (field !== undefined) return fieldValue(cell, field)
  if (cell === null || cell === '') return relation?.kind === 'belongsTo' ? null : undefined
  return /^[{[]/.test(cell) ? jsonOr(cell, bare) : bare(cell)
}

/**
 * A value of a JSON file as one of a payload: an empty text, and text that holds a JSON object or list, mean what they mean
 * in a cell of a CSV file. All else is as it is.
 */
function jsonFileValue(value: unknown, column: CsvColumn): unknown {
  if (typeof value !== 'string') return value
  const { field, relation } = column
  if (value === '')
    return field?.kind === 'text' || (field ?? relation) === undefined ? value : cellValue(value, column)
  const mayBeJson = field === undefined ? relation !== undefined : field.kind === 'json' || jsonKinds.has(field.kind)
  return mayBeJson && /^\s*[{[]/.test(value) ? jsonOr(value, (text) => text) : value
}

/** The column that a header names: a field or a relation. */
type CsvColumn = { readonly field?: Field | undefined; readonly relation?: Relation | undefined }

const numberKinds: ReadonlySet<Kind> = new Set(['integer', 'bigint', 'decimal', 'float'])
const jsonKinds: ReadonlySet<Kind> = new Set(['array', 'range', 'geometry', 'geography', 'vector'])

/** A column that must have a value may have a default, and a scoped row's tenant is not the file's to say. */
function fieldValue(cell: CsvCell, field: Field): unknown {
  const text = field.kind === 'text' ? cell : cell?.trim()
  if (text === null || text === undefined || (text === '' && field.kind !== 'text'))
    return field.nullable && field.name !== 'tenant_Id' ? null : undefined
  if (field.kind === 'text' || field.kind === 'enum') return bare(text)
  if (field.kind === 'boolean') return truthValues[text.toLowerCase()] ?? text
  if (field.kind === 'json') return jsonOr(text, bare)
  return jsonKinds.has(field.kind) ? jsonOr(text, (other) => other) : text
}

const truthValues: Readonly<Partial<Record<string, boolean>>> = { true: true, false: false, 1: true, 0: false }

/** The JSON that a cell holds, or its text where it holds none. */
function jsonOr(cell: string, asText: (cell: string) => string): unknown {
  if (isTooDeep(cell)) throw errors.badBody('A cell holds JSON that is nested too deeply')
  const value = parsed(cell)
  return value === undefined ? asText(cell) : keepable(cell, value, 'A cell')
}

/** Undefined where a cell holds no JSON. */
function parsed(cell: string): unknown {
  try {
    return JSON.parse(cell)
  } catch {
    return undefined
  }
}

/** Signs that begin a formula, their full-width forms too, and what spreadsheets skip before one. */
const formula = /^'*\s*(?:[=+\-@＝＋－＠]|[\t\r\n])/

const guarded = (text: string): string => (formula.test(text) ? `'${text}` : text)

const bare = (cell: string): string => (cell.startsWith("'") && formula.test(cell.slice(1)) ? cell.slice(1) : cell)

type ExportedFile = {
  readonly content: Readable
  readonly type: string
  /** Letters, digits, `_`, `-` and `.`, because names of collections are no more. */
  readonly name: string
}

/**
 * The rows of a list as a file, read like the list itself: the same parameters, grants, row rules, tenant and limits,
 * through the same cursor. `format` is `csv` (without one) or `json`; 400 for another.
 */
export async function exportItems(
  deps: ItemReads,
  reader: Requester,
  collection: string,
  raw: Record<string, unknown>,
  options: StreamOptions = {},
): Promise<ExportedFile> {
  const format = formatOf(raw)
  const query = await hookedQuery(deps, reader, collection, raw)
  const plan = resolveList(deps.catalog.current(), reader.access, collection, parseListQuery(query), resolveEnv(deps))
  const render = (rows: RowBatches) => format.render(rows, plan)
  const content = await streamRows(deps, compileStream(asFits(plan)), render, ofPlan(plan, options))
  const day = deps.clock().toISOString().slice(0, 10)
  return { content, type: format.type, name: `${collection}-${day}.${format.extension}` }
}

type Format = {
  readonly extension: string
  readonly type: string
  readonly render: (rows: RowBatches, plan: PlanContent) => AsyncIterable<string>
}

const formats: ReadonlyMap<string, Format> = new Map([
  ['csv', { extension: 'csv', type: 'text/csv; charset=utf-8', render: csvText }],
  ['json', { extension: 'json', type: 'application/json; charset=utf-8', render: jsonText }],
])

function formatOf({ format }: Record<string, unknown>): Format {
  const found = formats.get(readString('format', format) ?? 'csv')
  if (found === undefined) throw errors.badQuery('format: csv or json')
  return found
}

/** An array, so that it can be imported as it is. */
async function* jsonText(rows: RowBatches): AsyncGenerator<string> {
  yield '['
  let separator = '\n'
  for await (const batch of rows) {
    yield separator + batch.join(',\n')
    separator = ',\n'
  }
  yield '\n]\n'
}

async function* csvText(rows: RowBatches, plan: PlanContent): AsyncGenerator<string> {
  const columns = columnsOfPlan(plan)
  yield writeCsv([columns.map(({ name }) => name)])
  for await (const batch of rows) yield writeCsv(batch.map((text) => recordOf(JSON.parse(text), columns)))
}

/** A member of an answer's rows; without kind where it is related rows or computed. */
type ExportedColumn = { readonly name: string; readonly kind: Kind | undefined }

function recordOf(row: Record<string, unknown>, columns: readonly ExportedColumn[]): CsvCell[] {
  return columns.map(({ name, kind }) => csvCell(member(row, name), kind))
}

/** The members of every row, in their order. */
function columnsOfPlan({ selection, grouping }: PlanContent): readonly ExportedColumn[] {
  if (grouping === undefined) return selected(selection)
  const { keys, aggregates, detail } = grouping
  return [
    ...keys.flatMap(({ keys: names, path }) => names.map((name) => ({ name, kind: path.column.kind }))),
    ...aggregates.map(({ alias, path }) => ({ name: alias, kind: path?.column.kind })),
    ...(detail === undefined ? [] : selected(detail)),
  ]
}

function selected({ columns, nested }: Selection): readonly ExportedColumn[] {
  const relations = nested.map(({ step }) => ({ name: step.relation.name, kind: undefined }))
  return [...columns.map(({ name, kind }) => ({ name, kind })), ...relations]
}
