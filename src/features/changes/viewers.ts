/** The values of many viewers as the rows of a table, which a statement reads instead of placeholders of its own. */
import type { ParamValue, TypedValue } from '../../catalog/values.ts'

/**
 * A select of a row per viewer: `n`, from 1, and `p1`, `p2`, … of the types of the given values. Its parameters begin at
 * `$2` and are columns: see {@link viewerValues}. Where nobody has values of its own, all are one viewer.
 */
export function viewersSql(values: readonly TypedValue[]): string {
  if (values.length === 0) return 'select 1 as n'
  const columns = values.map(({ pgType }, i) => `$${i + 2}::${isList(pgType) ? 'text' : pgType}[]`)
  const names = values.map((_value, i) => `p${i + 1}`)
  // unnest takes lists apart to their last member, so they come as text.
  const typed = values.map(({ pgType }, i) => `v.p${i + 1}${isList(pgType) ? `::${pgType}` : ''} as p${i + 1}`)
  return `select v.n::int as n, ${typed} from unnest(${columns}) with ordinality v(${names}, n)`
}

/** The parameters of {@link viewersSql} for viewers who differ in their values only. */
export function viewerValues(viewers: readonly (readonly TypedValue[])[]): unknown[] {
  const types = viewers[0] ?? []
  return types.map(({ pgType }, i) =>
    viewers.map((values) => (isList(pgType) ? listText(values[i]!.value) : values[i]!.value)),
  )
}

const isList = (pgType: string): boolean => pgType.endsWith('[]')

/** PostgreSQL's text form of an array. */
function listText(value: ParamValue): string | null {
  return Array.isArray(value) ? `{${value.map(memberText).join(',')}}` : (value as string | null)
}

function memberText(value: ParamValue): string {
  if (Array.isArray(value)) return listText(value)!
  return value === null ? 'NULL' : `"${String(value).replace(/[\\"]/g, '\\$&')}"`
}
