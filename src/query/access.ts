/**
 * The rights of a caller, as the query compiler sees them: a compiled decision, never a database row. `features/accounts/permissions`
 * builds it; `resolve` cannot make a plan without one.
 */

import type { Catalog, Collection } from '../catalog/catalog.ts'
import { identityCollections } from '../catalog/system-collections.ts'
import type { Action } from '../errors.ts'
import { oncePer } from '../language/once.ts'

export type Access = {
  /** The administrator role: no condition, every field but hidden ones. */
  readonly admin: boolean
  readonly roleId: string
  readonly userId: string | undefined
  readonly tenantId: string | undefined
  /** The role's isTenantSpecific: a caller of such a role is refused without a tenant. */
  readonly tenantSpecific: boolean
  /** The caller came with an API key or a program's token: it may not change passwords. */
  readonly byKey?: boolean
  /** The caller came with the session cookie: any script of the origin may have sent the request. */
  readonly byCookie?: boolean
  /** An administrator looks at what the caller would see; `scope` is `read` then. */
  readonly isPreview?: boolean
  /** A client acts for the caller, who lets it do this much; see `access/scopes.ts`. Undefined: whatever the caller may. */
  readonly scope?: Scope | 'none'
  /**
   * Everything that this access is made of, as a short text for the keys of caches; undefined where that is not known. The
   * user is part of it where a rule of the role names a variable, or the request may (`namesVariables`).
   */
  identity?(namesVariables: boolean): string
  /**
   * Equal for all whose queries mean the same as long as these name no variable, for what is kept beside a catalog; undefined
   * where a rule of the role names the time or the settings, and where that is not known.
   */
  meaning?(): string | undefined
  /** The grant for one collection and action; undefined means refused. Not asked for administrators. */
  grant(collection: string, action: Action): Grant | undefined
  /**
   * Collections with a stored read permission that has lost its meaning. It grants nothing, and while it is there no relation
   * leads to them: what was meant as a limit must not open more than it did.
   */
  readonly closed?: ReadonlySet<string>
  /** Values of `$CURRENT_…` variables; undefined where there is none (then the condition matches nothing). */
  variable(name: VariableName, path: readonly string[]): unknown
}

/** The most that the holder of an OAuth token may do: `read`, also `write`, or also administration. */
export type Scope = 'read' | 'write' | 'admin'

export type VariableName = 'CURRENT_USER' | 'CURRENT_ROLE' | 'CURRENT_TENANT' | 'CURRENT_USERROLE' | 'CURRENT_SETTINGS'

export type Grant = {
  /**
   * Granted field specs as stored, split on commas: `*`, `name`, `rel.*`, `rel.name`, `*.*`. Null: on read every own
   * column, on write none.
   */
  readonly fields: readonly string[] | null
  /** Row rule in the filter language, as stored. Empty object or null: every row. */
  readonly conditions: unknown
  /** Filters for the nested rows of relations, as stored. */
  readonly relConditions: unknown
  /** Put under the payload on create and update. */
  readonly defaultValues: Readonly<Record<string, unknown>> | null
}

/** An access with other grants. Caches of the original access must not serve it, so it has no identity. */
export function withGrants(
  access: Access,
  grant: Access['grant'],
  { admin = access.admin }: Partial<Pick<Access, 'admin'>> = {},
): Access {
  const { identity: _identity, meaning: _meaning, ...rest } = access
  return { ...rest, admin, grant }
}

/** The access of the platform itself: an administrator's rights without a user. */
export const systemAccess: Access = {
  admin: true,
  roleId: '',
  userId: undefined,
  tenantId: undefined,
  tenantSpecific: false,
  grant: () => undefined,
  variable: () => undefined,
}

/* Field grants of a permission row, matched against dotted paths. */

export type FieldGrant = { readonly granted: readonly Spec[]; readonly excluded: readonly string[] }
type Spec = readonly string[]

/** Null or nothing: every own column. A leading minus takes a path out again. */
export function compileGrant(fields: readonly string[] | null): FieldGrant {
  const specs = (fields ?? []).map((spec) => spec.trim()).filter((spec) => spec !== '')
  const granted = specs.filter((spec) => !spec.startsWith('-')).map((spec) => spec.split('.'))
  const excluded = specs.filter((spec) => spec.startsWith('-')).map((spec) => spec.slice(1))
  return { granted: granted.length > 0 || fieldsAreNamed(fields) ? granted : [['*']], excluded }
}

/** Exclusions alone still start from every own column. */
const fieldsAreNamed = (fields: readonly string[] | null): boolean =>
  (fields ?? []).some((spec) => spec.trim() !== '' && !spec.trim().startsWith('-'))

/** How a column path is granted: by its name, by a wildcard, or not. */
export function grantOf(grant: FieldGrant, path: readonly string[]): 'named' | 'wildcard' | undefined {
  if (grant.excluded.includes(path.join('.'))) return undefined
  if (grant.granted.some((spec) => spec.at(-1) !== '*' && matches(spec, path))) return 'named'
  return grant.granted.some((spec) => matchesWildcard(spec, path)) ? 'wildcard' : undefined
}

/** Whether anything is granted through a relation path. */
export function reaches(grant: FieldGrant, path: readonly string[]): boolean {
  if (grant.excluded.includes(path.join('.'))) return false
  return grant.granted.some((spec) =>
    spec.length > path.length ? matches(spec.slice(0, path.length), path) : spec.at(-1) !== '*' && matches(spec, path),
  )
}

const matches = (spec: Spec, path: readonly string[]): boolean =>
  spec.length === path.length && spec.every((part, i) => part === '*' || part === path[i])

/** `rel.*`, also as `rel` alone; `*.*` covers what `*` does. */
function matchesWildcard(spec: Spec, path: readonly string[]): boolean {
  if (spec.at(-1) !== '*') return matches([...spec, '*'], path)
  return matches(spec, path) || (spec.at(-2) === '*' && matchesWildcard(spec.slice(0, -1), path))
}

/*
 * A relation that a read grant *names* is a grant to read just the named columns through it, also where the role has no
 * grant of its own for the related collection (docs/decisions/0035-a-named-relation-is-a-grant.md):
 *
 * - `members.firstName` opens `members`, and shows that column and the primary key;
 * - `members.team.name` opens both relations on its way;
 * - `members.*` and `members` open a collection of the project with all its columns, never one of the system: there
 *   columns are named one by one;
 * - `*.*` opens nothing, and no spec ever opens an identity collection.
 */

/** A read grant, compiled: the columns that it shows of its collection and of related rows. */
export type ReadGrant = {
  readonly fields: FieldGrant
  /** Dotted paths of the relations that it opens by naming them. */
  readonly opened: ReadonlySet<string>
}

/** The read grant of a collection, compiled once for as long as both are what they are. */
export const compileReadGrant = (catalog: Catalog, collection: Collection, grant: Grant): ReadGrant =>
  compiledIn(catalog)(collection)(grant)

/** Whether the grant names this column, so that it is shown whatever the related collection's own grant says. */
export function namesColumn(
  { granted }: FieldGrant,
  relations: readonly string[],
  column: string,
  target: Collection,
): boolean {
  if (identityCollections.has(target.name)) return false
  return granted.some((spec) => {
    const rest = restAfter(spec, relations)
    return rest !== undefined && ((rest.length === 1 && rest[0] === column) || (isWhole(rest) && !target.system))
  })
}

const compiledIn = oncePer((catalog: Catalog) =>
  oncePer((collection: Collection) =>
    oncePer((grant: Grant): ReadGrant => {
      const fields = compileGrant(grant.fields)
      return { fields, opened: new Set(fields.granted.flatMap((spec) => openedBy(spec, fields, collection, catalog))) }
    }),
  ),
)

/** The relations on the way of one spec; none where it does not lead to a column that it may show. */
function openedBy(spec: Spec, { excluded }: FieldGrant, collection: Collection, catalog: Catalog): string[] {
  const opened: string[] = []
  let current = collection
  for (const [i, segment] of spec.entries()) {
    const isLast = i === spec.length - 1
    const prefix = spec.slice(0, i + 1).join('.')
    if (excluded.includes(prefix)) return []
    const field = current.fields.get(segment)
    if (field !== undefined) return isLast && !field.hidden ? opened : []
    const relation = current.relations.get(segment)
    if (relation === undefined) return endsWhole(spec.slice(i), current, opened)
    const target = catalog.collections.get(relation.target)
    if (target === undefined || identityCollections.has(target.name)) return []
    opened.push(prefix)
    current = target
  }
  return endsWhole([], current, opened)
}

/** The rows of a junction are the relation itself: it is open wherever it is named, whatever is named after it. */
function endsWhole(rest: Spec, target: Collection, opened: string[]): string[] {
  return (isWhole(rest) && !target.system) || (rest[0] === '*' && isLink(target)) ? opened : []
}

/** The rows of a junction are the relation itself: without a tenant of their own they have their parent's. */
export const isLink = (collection: Collection): boolean => collection.definition.schema.isJunction === true

/** The rest of a spec after the relations, if it names each of them. */
const restAfter = (spec: Spec, relations: readonly string[]): Spec | undefined =>
  spec.length >= relations.length && relations.every((name, i) => spec[i] === name)
    ? spec.slice(relations.length)
    : undefined

/** `rel` and `rel.*`, which `rel.*.*` covers, too. */
const isWhole = (rest: Spec): boolean => rest.every((segment) => segment === '*')
