/**
 * What a caller may do, as the query compiler sees it: a compiled decision, never a database row. Built by
 * `features/permissions`, consumed by `resolve`, which cannot build a plan without one (design §7).
 */
import type { Action } from '../errors.ts'

export type Access = {
  /** The administrator role: no condition, every field but hidden ones. */
  readonly admin: boolean
  readonly roleId: string
  readonly userId: string | undefined
  readonly tenantId: string | undefined
  /** The role's isTenantSpecific: without a tenant such a caller is refused (`spec/permissions.md` §7). */
  readonly tenantSpecific: boolean
  /** The caller came with an API key: it may not change passwords. */
  readonly byKey?: boolean
  /**
   * Everything that this access is made of, as a short text for the keys of caches; undefined where it can't be told. The
   * user is part of it where a rule of the role names a variable, or the request may (`namesVariables`).
   */
  identity?(namesVariables: boolean): string
  /**
   * Equal for all whose queries mean the same as long as these name no variable, for what is kept beside a catalog; undefined
   * where a rule of the role names the time or the settings, and where it can't be told.
   */
  meaning?(): string | undefined
  /** The grant for one collection and action; undefined means refused. Not asked for administrators. */
  grant(collection: string, action: Action): Grant | undefined
  /**
   * Collections with a stored read permission that has lost its meaning. It grants nothing, and while it is there no relation
   * leads to them: what somebody meant as a limit must not open more than it did.
   */
  readonly closed?: ReadonlySet<string>
  /** Values of `$CURRENT_…` variables; undefined where there is none (then the condition matches nothing). */
  variable(name: VariableName, path: readonly string[]): unknown
}

export type VariableName = 'CURRENT_USER' | 'CURRENT_ROLE' | 'CURRENT_TENANT' | 'CURRENT_USERROLE' | 'CURRENT_SETTINGS'

export type Grant = {
  /**
   * Granted field specs as stored, split on commas: `*`, `name`, `rel.*`, `rel.name`, `*.*`. Null: on read every own
   * column, on write none (`spec/permissions.md` §2).
   */
  readonly fields: readonly string[] | null
  /** Row rule in the filter language of `spec/items.md` §5, as stored. Empty object or null: every row. */
  readonly conditions: unknown
  /** Filters for the nested rows of relations, as stored. */
  readonly relConditions: unknown
  /** Put under the payload on create and update. */
  readonly defaultValues: Readonly<Record<string, unknown>> | null
}

/** An access with other grants. It is nobody's any more: what is kept for the one it is made of must not serve it. */
export function withGrants(
  access: Access,
  grant: Access['grant'],
  { admin = access.admin }: Partial<Pick<Access, 'admin'>> = {},
): Access {
  const { identity: _identity, meaning: _meaning, ...rest } = access
  return { ...rest, admin, grant }
}

/** What the platform itself may: everything that an administrator may, as nobody. */
export const systemAccess: Access = {
  admin: true,
  roleId: '',
  userId: undefined,
  tenantId: undefined,
  tenantSpecific: false,
  grant: () => undefined,
  variable: () => undefined,
}
