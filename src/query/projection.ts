/**
 * The JSON form of a column, made in SQL (`spec/items.md` §3, design §7): DateTime `2024-05-01T10:00:00.000Z` in UTC,
 * BigInt a number within ±(2⁵³−1) else a string, Decimal a string, ranges as objects, geometry as GeoJSON, vectors as
 * arrays. What row_to_json already writes that way passes as it is.
 */
import type { Field, Kind } from '../catalog/catalog.ts'
import { ident } from './sql.ts'
import { baseType, elementType, type ValueType } from './values.ts'

/** The expression for a field of the row `alias`. */
export const projectionSql = (field: Field, alias: string): string => wireSql(shownSql(field, alias), field)

/** Every column of the row that the expression of a field reads. */
export const columnsShown = (field: Field): readonly string[] =>
  field.shownBy?.arguments ?? [field.sameAs ?? field.name]

const shownSql = ({ name, sameAs, shownBy }: Field, alias: string): string => {
  const column = (of: string) => `${alias}.${ident(of)}`
  return shownBy === undefined
    ? column(sameAs ?? name)
    : `${shownBy.function}(${shownBy.arguments.map(column).join(', ')})`
}

/** `expression as "name"` for each field, for a select list. */
export const projectionList = (fields: readonly Field[], alias: string): string =>
  fields.map((field) => `${projectionSql(field, alias)} as ${ident(field.name)}`).join(', ')

/** The JSON form of any expression of a column's type. */
export function wireSql(expression: string, type: ValueType): string {
  return WIRE[type.kind]?.(expression, type) ?? expression
}

/** A whole number of any size as a JSON number within ±(2⁵³−1), else as a string. */
export function wholeNumberSql(x: string): string {
  return `case when ${x} between -${SAFE_INTEGER} and ${SAFE_INTEGER} then to_json(${x}) else to_json(${x}::text) end`
}

/** A numeric as a JSON number where 15 digits write it, which every double gives back as they were, else as a string. */
export const exactNumberSql = (x: string): string =>
  `case when length(ltrim(translate(${x}::text, '-.', ''), '0')) <= 15 then to_json(${x}) else to_json(${x}::text) end`

const SAFE_INTEGER = '9007199254740991'

const WIRE: Partial<Record<Kind, (expression: string, type: ValueType) => string>> = {
  datetime: (x) => `to_char(${x} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`,
  datetime_no_tz: (x) => `to_char(${x}, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`,
  bigint: wholeNumberSql,
  decimal: (x) => `${x}::text`,
  array: arraySql,
  range: rangeSql,
  geometry: (x) => `ST_AsGeoJSON(${x})::json`,
  geography: (x) => `ST_AsGeoJSON(${x})::json`,
  vector: (x, type) => `${x}${baseType(type.pgType) === 'sparsevec' ? '::vector' : ''}::text::json`,
}

/** Element kinds whose arrays row_to_json writes in the elements' own form need nothing. */
function arraySql(x: string, type: ValueType): string {
  const element = elementType(type)
  if (WIRE[element.kind] === undefined) return x
  const elements = `select coalesce(json_agg(${wireSql('e.v', element)} order by e.n), '[]')`
  return `case when ${x} is null then null else (${elements} from unnest(${x}) with ordinality e(v, n)) end`
}

function rangeSql(x: string, type: ValueType): string {
  const element = elementType(type)
  const bound = (name: string) => wireSql(element.kind === 'float' ? `${name}(${x})::float8` : `${name}(${x})`, element)
  return (
    `case when ${x} is null then null else json_build_object('lower', ${bound('lower')}, 'upper', ${bound('upper')}, ` +
    `'lowerInclusive', lower_inc(${x}), 'upperInclusive', upper_inc(${x})) end`
  )
}
