import type { Collection } from '../../catalog/catalog.ts'
import { projectionList } from '../../query/projection.ts'

/**
 * SQL expression of the row `alias` as JSON in wire form, without hidden fields: what callers may know of their own
 * user, role and tenant, whatever their permissions say.
 */
export function ownRowSql(collection: Collection, alias: string): string {
  const visible = [...collection.fields.values()].filter((field) => !field.hidden)
  return `(select to_json(own) from (select ${projectionList(visible, alias)}) own)`
}
