import { mayAssign, publicRole } from '../../../access/access.ts'
import type { Caller } from '../../../access/principal.ts'
import type { Role } from '../../../access/store.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Membership } from '../auth/auth.ts'

// Decisions about invitations and tenants, without a database: callers bring what is stored.

type Inviter = Pick<Caller, 'admin' | 'role' | 'tenantId'>

/**
 * The role to invite to. Callers other than administrators learn nothing of roles that are not theirs to give, not even
 * that they exist.
 *
 * @throws {AppError} 403 for a role that is not the caller's to give, 404 where an administrator names none
 */
export function decideInvitedRole(inviter: Inviter, role: Role | undefined): Role {
  if (inviter.admin && (role === undefined || role.name === publicRole)) throw new AppError(404, 'Role not found')
  if (role === undefined || !mayAssign(inviter, role))
    throw new AppError(403, 'You are not allowed to invite to this role')
  return role
}

/** The tenant to invite to: the caller's own, unless tenants do not bind the caller. 400 without one, 403 for another. */
export function decideInvitedTenant(inviter: Inviter, asked: string | undefined, strictIsolation: boolean): string {
  const wanted = asked ?? inviter.tenantId
  if (wanted === undefined) throw new AppError(400, 'tenant_Id is required')
  const isBound = !inviter.admin && (inviter.role.isTenantSpecific || strictIsolation)
  if (isBound && wanted !== inviter.tenantId) throw new AppError(403, 'Access denied for specified tenant')
  return wanted
}

/** Why an address is not invited to a tenant. */
export function inviteeRefusal(state: {
  readonly isMember: boolean
  readonly isInvited: boolean
}): AppError | undefined {
  if (state.isMember) return errors.badBody('User is already a member of this tenant')
  return state.isInvited ? errors.badBody('An invitation is already pending for this email') : undefined
}

export type AtTenant = Membership & {
  readonly tenantId: string
  readonly tenant: { readonly id: string; readonly name: string; readonly [column: string]: unknown }
}

export function isAtTenant(membership: Membership): membership is AtTenant {
  return membership.tenantId !== null && membership.tenant !== null
}

/**
 * The refusal of a tenant where the caller has no membership. A role outside of tenants leads to none, so it is the reason,
 * unless there is nothing to go to.
 */
export function switchRefusal(caller: Pick<Caller, 'tenantId'>, tenantExists: boolean): AppError {
  if (!tenantExists) return new AppError(404, 'Tenant not found')
  return caller.tenantId === undefined ? outsideOfTenants() : new AppError(403, 'Access denied for specified tenant')
}

const outsideOfTenants = () => new AppError(400, 'Cannot switch tenant for non-tenant-specific role')

/**
 * The membership to go on with. Undefined where the user has none at the tenant: then it depends on whether the tenant
 * exists.
 *
 * @throws {AppError} 400 without a tenant or membership to go to, or for one outside of tenants, 403 for a membership
 *   that is not the user's
 */
export function decideSwitch(
  memberships: readonly Membership[],
  asked: { readonly tenantId: string | undefined; readonly userRoleId: string | undefined },
): AtTenant | undefined {
  const [tenantId, userRoleId] = [asked.tenantId?.toLowerCase(), asked.userRoleId?.toLowerCase()]
  if (tenantId === undefined && userRoleId === undefined)
    throw new AppError(400, 'tenant_Id or userRole_Id is required')
  const chosen = memberships.find(
    (one) =>
      (userRoleId === undefined || one.userRoleId === userRoleId) &&
      (tenantId === undefined || one.tenantId === tenantId),
  )
  if (chosen === undefined && userRoleId !== undefined)
    throw new AppError(403, 'Access denied for specified role assignment')
  if (chosen === undefined) return undefined
  if (!isAtTenant(chosen)) throw outsideOfTenants()
  return chosen
}
