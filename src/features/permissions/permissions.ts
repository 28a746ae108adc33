import type { Access, Grant, VariableName } from '../../query/access.ts'
import type { AccessRules, PermissionRow, Role } from './store.ts'

/** The administrator role is known by its name, which nobody can rename, create twice or delete. */
export const administratorRole = 'administrator'
export const publicRole = 'public'

export type Subject = {
  readonly role: Role
  readonly userId: string | undefined
  readonly tenantId: string | undefined
  /** Rows behind `$CURRENT_USER.x`, `$CURRENT_TENANT.x`, …; wire forms, without hidden fields. */
  readonly rows: Partial<Record<VariableName, Readonly<Record<string, unknown>>>>
}

/** What a subject may do, compiled from the stored rows once per role and change (spec/permissions.md §3). */
export function accessOf(rules: AccessRules, subject: Subject): Access {
  const grants = grantsOf(rules, subject.role.id)
  const ids: Partial<Record<VariableName, string | undefined>> = {
    CURRENT_USER: subject.userId,
    CURRENT_ROLE: subject.role.id,
    CURRENT_TENANT: subject.tenantId,
  }
  return {
    admin: subject.role.name === administratorRole,
    roleId: subject.role.id,
    userId: subject.userId,
    tenantId: subject.tenantId,
    tenantSpecific: subject.role.isTenantSpecific,
    grant: (collection, action) => grants.get(`${action} ${collection}`),
    variable: (name, path) => {
      if (path.length === 0) return ids[name] ?? subject.rows[name]?.id
      const [column, ...deeper] = path as [string, ...string[]]
      const row = subject.rows[name]
      return deeper.length === 0 && row !== undefined && Object.hasOwn(row, column) ? row[column] : undefined
    },
  }
}

const compiled = new WeakMap<AccessRules, Map<string, ReadonlyMap<string, Grant>>>()

function grantsOf(rules: AccessRules, roleId: string): ReadonlyMap<string, Grant> {
  const byRole = compiled.get(rules) ?? new Map<string, ReadonlyMap<string, Grant>>()
  compiled.set(rules, byRole)
  let grants = byRole.get(roleId)
  if (grants === undefined) {
    grants = new Map(
      (rules.permissions.get(roleId) ?? []).map((row) => [`${row.action} ${row.collection}`, grantOf(row)]),
    )
    byRole.set(roleId, grants)
  }
  return grants
}

function grantOf(row: PermissionRow): Grant {
  return {
    fields: fieldSpecs(row.fields),
    conditions: row.conditions ?? null,
    relConditions: row.relConditions ?? null,
    defaultValues:
      row.defaultValues !== null && typeof row.defaultValues === 'object'
        ? (row.defaultValues as Grant['defaultValues'])
        : null,
  }
}

/** `*`, `a, b.*` and `["a", "b.*"]` are all accepted; null and an empty list mean "none given". */
export function fieldSpecs(stored: unknown): readonly string[] | null {
  const list =
    typeof stored === 'string'
      ? [stored]
      : Array.isArray(stored)
        ? stored.filter((spec) => typeof spec === 'string')
        : []
  const specs = list.flatMap((spec: string) => spec.split(',')).map((spec) => spec.trim())
  const given = specs.filter((spec) => spec !== '')
  return given.length === 0 ? null : given
}

/** Collections with a read permission that has a row rule. */
export function collectionsWithRowRules(rules: AccessRules): readonly string[] {
  const reads = [...rules.permissions.values()].flat().filter(({ action }) => action === 'read')
  const ruled = reads.filter(({ conditions }) => conditions !== null && Object.keys(conditions as object).length > 0)
  return [...new Set(ruled.map(({ collection }) => collection))]
}
