import type { CsvCell } from '../../../adapters/csv.ts'
import type { Field, Kind, Relation } from '../../../catalog/catalog.ts'
import { errors } from '../../../errors.ts'
import { isTooDeep, refuseUnkeepable } from '../../../http/json-values.ts'

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
export function jsonFileValue(value: unknown, column: CsvColumn): unknown {
  if (typeof value !== 'string') return value
  const { field, relation } = column
  if (value === '')
    return field?.kind === 'text' || (field ?? relation) === undefined ? value : cellValue(value, column)
  const mayBeJson = field === undefined ? relation !== undefined : field.kind === 'json' || jsonKinds.has(field.kind)
  return mayBeJson && /^\s*[{[]/.test(value) ? jsonOr(value, (text) => text) : value
}

/** The column that a header names: a field or a relation. */
export type CsvColumn = { readonly field?: Field | undefined; readonly relation?: Relation | undefined }

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
  if (value === undefined) return asText(cell)
  refuseUnkeepable(cell, value, 'A cell')
  return value
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
