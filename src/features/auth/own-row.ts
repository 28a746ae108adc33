import type { Catalog, Collection } from '../../catalog/catalog.ts'
import { projectionList } from '../../query/compile-rows.ts'

/**
 * SQL expression of the row `alias` as JSON in wire form, without hidden fields: what callers may know of their own
 * user, role and tenant, whatever their permissions say.
 */
export function ownRowSql(collection: Collection, alias: string): string {
  const visible = [...collection.fields.values()].filter((field) => !field.hidden)
  return `(select to_json(own) from (select ${projectionList(visible, alias)}) own)`
}

/** Select list of who a user is somewhere: rows of svc_Role r, svc_User u, svc_UserRole ur and svc_Tenant t. */
export function standingSql(catalog: Catalog): string {
  const row = (name: string, alias: string) => ownRowSql(catalog.collections.get(name)!, alias)
  return `${row('svc_Role', 'r')} as role, ${row('svc_User', 'u')} as "user", ${row('svc_UserRole', 'ur')} as "userRole",
      case when t.id is not null then ${row('svc_Tenant', 't')} end as tenant`
}
