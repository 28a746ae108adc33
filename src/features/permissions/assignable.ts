import { administratorRole, publicRole } from './permissions.ts'
import type { AccessRules, Role } from './store.ts'

/**
 * Whether somebody may give others a role, or take it from them: one of `canInviteRoleIds` of the own role, never
 * `administrator`; administrators any. Nobody has `public`. Decides over invitations and memberships alike.
 */
export function mayAssign({ admin, role: own }: { readonly admin: boolean; readonly role: Role }, role: Role): boolean {
  if (role.name === publicRole) return false
  return admin || (role.name !== administratorRole && invitable(own).includes(role.id))
}

/** The ids of all roles that a role may assign. */
export function assignableRoles({ roles }: AccessRules, own: Role | undefined, admin: boolean): ReadonlySet<string> {
  const given = own === undefined ? [] : [...roles.values()].filter((role) => mayAssign({ admin, role: own }, role))
  return new Set(given.map(({ id }) => id))
}

/** Stored JSON, so it may be anything. */
const invitable = ({ canInviteRoleIds }: Role): readonly string[] =>
  Array.isArray(canInviteRoleIds) ? canInviteRoleIds : []
