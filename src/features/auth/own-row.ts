import type { Collection, Field, Kind } from '../../catalog/catalog.ts'
import { quoteName, quoteText } from '../../db/sql.ts'

/**
 * SQL expression of a whole row as `jsonb` in wire form (design §7), without hidden fields: what callers may know of
 * their own user, role and tenant, whatever their permissions say.
 */
export function ownRowSql(collection: Collection, alias: string): string {
  const fields = [...collection.fields.values()]
  const hidden = fields.filter((field) => field.hidden).map((field) => ` - ${quoteText(field.name)}`)
  const respelled = fields.flatMap((field) => {
    const respell = field.hidden ? undefined : respellings[field.kind]
    return respell === undefined ? [] : [`, ${quoteText(field.name)}, ${respell(column(field, alias))}`]
  })
  const overlay = respelled.length === 0 ? '' : ` || jsonb_build_object(${respelled.join('').slice(2)})`
  return `(to_jsonb(${alias}.*)${hidden.join('')}${overlay})`
}

/** Kinds that PostgreSQL's own JSON spells differently from ours. */
const respellings: Partial<Record<Kind, (column: string) => string>> = {
  datetime: (column) => `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`,
  decimal: (column) => `${column}::text`,
  bigint: (column) =>
    `case when ${column} between -9007199254740991 and 9007199254740991 then to_jsonb(${column}) else to_jsonb(${column}::text) end`,
}

function column(field: Field, alias: string): string {
  return `${alias}.${quoteName(field.name)}`
}
