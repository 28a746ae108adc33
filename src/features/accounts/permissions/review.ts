import { accessOf, fieldSpecs, grantOf, isNone, namedRules } from '../../../access/access.ts'
import { administratorRole } from '../../../access/roles.ts'
import type { AccessRules, PermissionRow, Role } from '../../../access/store.ts'
import type { Catalog, Collection, Field } from '../../../catalog/catalog.ts'
import type { FieldProblem } from '../../../errors.ts'
import {
  type Access,
  compileGrant,
  compileReadGrant,
  type Grant,
  grantOf as grantsField,
  isLink,
} from '../../../query/access.ts'
import { columnsBehind, type ResolveEnv } from '../../../query/resolve.ts'
import { permissionProblems } from './check.ts'

/** The meaning of one stored permission, beside its members. */
export type Review = {
  readonly role: Role
  readonly row: PermissionRow
  /** Its collection is not declared yet. */
  readonly waits: boolean
  /** The parts that do not fit the present collections; they grant nothing. */
  readonly problems: readonly FieldProblem[]
  readonly opened: readonly OpenedRelation[]
}

/** A relation that a permission opens by naming it, although the role has no such grant for the collection behind it. */
export type OpenedRelation = {
  /** Dotted, from the permission's collection. */
  readonly relation: string
  readonly collection: string
  /** The columns that are shown by its name alone. */
  readonly fields: readonly string[]
}

/** Every stored permission of every role, in the order of roles and collections. */
export function reviewPermissions(rules: AccessRules, env: ResolveEnv): readonly Review[] {
  return [...rules.roles.values()].flatMap((role) => {
    const rows = rules.permissions.get(role.id) ?? []
    return rows.map((row) => ({
      role,
      row,
      waits: !rules.catalog.collections.has(row.collection),
      problems: storedProblems(rules, env, row),
      opened: role.name === administratorRole ? [] : openedBy(rules, accessOfNobody(rules, role), row),
    }))
  })
}

/** All that is wrong with a permission as it is stored, against the collections as they are. */
export function storedProblems(rules: AccessRules, env: ResolveEnv, row: PermissionRow): readonly FieldProblem[] {
  const { catalog, acls } = rules
  const collection = catalog.collections.get(row.collection)
  const found = permissionProblems(catalog, env, row, acls)
  if (collection === undefined || found.length > 0) return found
  const fields = isNone(row.acl_Ids) ? [row.fields] : namedRules(row.acl_Ids, acls).map((acl) => acl.fields)
  const unknown = fields
    .flatMap((stored) => fieldSpecs(stored) ?? [])
    .filter((spec) => !leads(spec, collection, catalog))
  return unknown.map((spec) => ({ field: 'fields', message: `${spec} names no field or relation`, rule: 'permission' }))
}

/** The relations that a stored permission opens for whoever has this access. */
export function openedBy(rules: AccessRules, access: Access, row: PermissionRow): readonly OpenedRelation[] {
  const { catalog } = rules
  const collection = catalog.collections.get(row.collection)
  const grant = row.action === 'read' && collection !== undefined ? grantOf(row, rules) : undefined
  if (grant === undefined || collection === undefined) return []
  return [...compileReadGrant(catalog, collection, grant).opened].flatMap((relation): OpenedRelation[] => {
    const path = relation.split('.')
    const columns = columnsBehind(catalog, access, collection.name, path)
    const way = targetsOf(catalog, collection, path)
    const target = way.at(-1)!
    const isGranted = way.every((one) => isLink(one) || access.grant(one.name, 'read') !== undefined)
    const own = access.grant(target.name, 'read')
    const isByName = ({ name, primaryKey }: Field) =>
      !isGranted || !(primaryKey || isShownAnyway(grant, own, path, name))
    const fields = (columns ?? []).filter(isByName).map(({ name }) => name)
    return columns === undefined || fields.length === 0 ? [] : [{ relation, collection: target.name, fields }]
  })
}

/** Whether both grants together show a column of a relation, whatever its name opens. */
function isShownAnyway(grant: Grant, own: Grant | undefined, path: readonly string[], name: string): boolean {
  const isNamed = grantsField(compileGrant(grant.fields), [...path, name]) === 'named'
  return isNamed || own === undefined || grantsField(compileGrant(own.fields), [name]) !== undefined
}

/** The collections that a path of relations leads to, in its order. */
function targetsOf(catalog: Catalog, collection: Collection, path: readonly string[]): readonly Collection[] {
  let current = collection
  return path.map((name) => {
    current = catalog.collections.get(current.relations.get(name)!.target)!
    return current
  })
}

/** Whether a field spec leads to something; what follows a wildcard may be of any collection. */
function leads(spec: string, collection: Collection, catalog: Catalog): boolean {
  const segments = (spec.startsWith('-') ? spec.slice(1) : spec).split('.')
  let current: Collection | undefined = collection
  for (const [i, segment] of segments.entries()) {
    if (segment === '*') return true
    if (current === undefined) return false
    if (current.fields.has(segment)) return i === segments.length - 1
    const relation = current.relations.get(segment)
    if (relation === undefined) return false
    current = catalog.collections.get(relation.target)
  }
  return true
}

/** The rights of an unknown user in a role: enough to know the columns. */
function accessOfNobody(rules: AccessRules, role: Role): Access {
  return accessOf(rules, { role, userId: undefined, tenantId: undefined, rows: {}, related: new Map() })
}
