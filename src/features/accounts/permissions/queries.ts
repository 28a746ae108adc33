import type { StoredRule } from '../../../access/store.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import { type Reader, rawQuery, sql, type Tx } from '../../../db/sql.ts'
import { projectionList } from '../../../query/compile-rows.ts'

/** A stored permission or named rule in wire form; undefined when there is none. */
export async function storedRow(
  db: Reader,
  catalog: Catalog,
  collection: 'svc_Permission' | 'svc_ACL',
  id: string,
): Promise<Record<string, unknown> | undefined> {
  const visible = [...catalog.collections.get(collection)!.fields.values()].filter((field) => !field.hidden)
  return db.maybeOne(
    rawQuery(`select ${projectionList(visible, 't')} from "${collection}" t where t.id::text = $1`, [id]),
  )
}

/** Collections with a permission that refers to the named rule. */
export async function collectionsUsingAcl(db: Reader, aclId: string): Promise<readonly string[]> {
  const rows = await db.any<{ collection: string }>(sql`
    select distinct collection from "svc_Permission" where jsonb_exists("acl_Ids", ${aclId}) order by collection`)
  return rows.map(({ collection }) => collection)
}

/** Conditions, fields and the like of named rules by id; those that do not exist are missing. */
export function aclsById(db: Reader, ids: readonly string[]): Promise<readonly (StoredRule & { id: string })[]> {
  return db.any(sql`
    select id::text, fields, conditions, "relConditions", "defaultValues" from "svc_ACL"
    where id::text = any(${sql.array(ids, 'text')})`)
}

type ExportedRole = {
  readonly name: string
  readonly description: string | null
  readonly permissions: readonly object[]
}

/** Every role with its permissions as stored; named rules by their names, since ids mean nothing elsewhere. */
export function rolesWithPermissions(db: Reader): Promise<readonly ExportedRole[]> {
  return db.any<ExportedRole>(sql`
    select r.name, r.description, coalesce((
      select jsonb_agg(jsonb_build_object('collection', p.collection, 'action', p.action, 'fields', p.fields,
          'conditions', p.conditions, 'defaultValues', p."defaultValues", 'relConditions', p."relConditions")
        || case when a.names is null then '{}' else jsonb_build_object('acls', a.names) end
        order by p.collection, p.action)
      from "svc_Permission" p
      left join lateral (
        select jsonb_agg(acl.name order by used.nth) as names
        from jsonb_array_elements_text(case jsonb_typeof(p."acl_Ids") when 'array' then p."acl_Ids" end)
          with ordinality used(id, nth)
        join "svc_ACL" acl on acl.id::text = used.id) a on true
      where p."role_Id" = r.id), '[]') as permissions
    from "svc_Role" r order by r.name`)
}

/** A permission as an import compares it. */
export type PermissionContent = StoredRule & {
  readonly collection: string
  readonly action: string
  readonly acl_Ids: unknown
}

export type RolePermission = PermissionContent & { readonly id: string; readonly role: string }

/** The permissions of roles by name. */
export function permissionsOfRoles(db: Reader, roles: readonly string[]): Promise<readonly RolePermission[]> {
  return db.any<RolePermission>(sql`
    select p.id::text, r.name as role, p.collection, p.action, p.fields, p.conditions, p."relConditions",
      p."defaultValues", p."acl_Ids"
    from "svc_Permission" p join "svc_Role" r on r.id = p."role_Id"
    where r.name = any(${sql.array(roles, 'text')})
    order by r.name, p.collection, p.action`)
}

/** The names of those of the roles that exist. No other transaction changes them or their permissions before this one ends. */
export async function lockRoles(tx: Tx, names: readonly string[]): Promise<ReadonlySet<string>> {
  const rows = await tx.any<{ name: string }>(sql`
    select name from "svc_Role" where name = any(${sql.array(names, 'text')}) order by id for update`)
  return new Set(rows.map(({ name }) => name))
}

/** The names of the roles there are. */
export async function existingRoles(db: Reader, names: readonly string[]): Promise<ReadonlySet<string>> {
  const rows = await db.any<{ name: string }>(
    sql`select name from "svc_Role" where name = any(${sql.array(names, 'text')})`,
  )
  return new Set(rows.map(({ name }) => name))
}

export async function insertRoles(
  tx: Tx,
  roles: readonly { readonly name: string; readonly description: string | null }[],
): Promise<void> {
  await tx.any(sql`
    insert into "svc_Role" (name, description)
    select name, description from jsonb_to_recordset(${sql.jsonb(roles)}) as r(name text, description text)`)
}

export async function insertPermissions(
  tx: Tx,
  permissions: readonly (PermissionContent & { readonly role: string })[],
): Promise<void> {
  await tx.any(sql`
    insert into "svc_Permission" ("role_Id", collection, action, fields, conditions, "relConditions", "defaultValues", "acl_Ids")
    select role.id, p.collection, p.action, p.fields, p.conditions, p."relConditions", p."defaultValues", p."acl_Ids"
    from jsonb_to_recordset(${sql.jsonb(permissions)}) as p(role text, collection text, action text,
      fields jsonb, conditions jsonb, "relConditions" jsonb, "defaultValues" jsonb, "acl_Ids" jsonb)
    join "svc_Role" role on role.name = p.role`)
}

export async function updatePermissions(tx: Tx, permissions: readonly RolePermission[]): Promise<void> {
  await tx.any(sql`
    update "svc_Permission" t set fields = p.fields, conditions = p.conditions, "relConditions" = p."relConditions",
      "defaultValues" = p."defaultValues", "acl_Ids" = p."acl_Ids", "updatedAt" = now()
    from jsonb_to_recordset(${sql.jsonb(permissions)}) as p(id uuid, fields jsonb, conditions jsonb,
      "relConditions" jsonb, "defaultValues" jsonb, "acl_Ids" jsonb)
    where t.id = p.id`)
}

export async function deletePermissions(tx: Tx, ids: readonly string[]): Promise<void> {
  await tx.any(sql`delete from "svc_Permission" where id::text = any(${sql.array(ids, 'text')})`)
}

/** Ids of named rules by name. */
export async function aclIdsByName(db: Reader): Promise<ReadonlyMap<string, string>> {
  const rows = await db.any<{ name: string; id: string }>(sql`select name, id::text from "svc_ACL"`)
  return new Map(rows.map(({ name, id }) => [name, id]))
}
