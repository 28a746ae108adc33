import { AppError, errors } from '../../../errors.ts'

/**
 * Decides on changes of what identifies an account, opens it, keeps it shut, or says what it is. Pure: callers bring what
 * is stored, and do what the decision says follows.
 */

/** Of svc_User; the last two are columns that an installation may have added. */
export const identityFields = ['email', 'emailVerified', 'password', 'status', 'role_Id', 'tenant_Id'] as const
export type IdentityField = (typeof identityFields)[number]

/** The caller who wants the change, by what its session says. */
export type Decider = {
  /** Undefined for the platform itself and for callers without an account. */
  readonly userId: string | undefined
  readonly admin: boolean
  /** Came with an API key. */
  readonly byKey: boolean
  /** Came with the session cookie. */
  readonly byCookie: boolean
  /** The tenant outside of which it decides nothing; undefined for those who are kept inside none. */
  readonly tenant: { readonly id: string | null } | undefined
  /** Ids of the roles that it may give and take. */
  readonly assignable: ReadonlySet<string>
}

/** A role of a user, at a tenant in multi-tenant mode. */
export type RoleAssignment = { readonly roleId: string; readonly tenantId: string | null }

type UserChange = {
  readonly userId: string
  /** All roles of the user, at every tenant. */
  readonly memberships: readonly RoleAssignment[]
  /** The fields that get another value. */
  readonly changed: readonly IdentityField[]
  /** The change says that the new address is verified. */
  readonly vouches: boolean
}

/** The consequences of an allowed change. */
type Effects = {
  /** No account has proven the address any more. */
  readonly unverified: boolean
  /** The sessions of the user end. */
  readonly sessionsEnd: boolean
}

/**
 * A user's own password and status are its own to change, its address only by way of a confirmation. Of others only those
 * are in reach whose every role the caller may assign, within its tenant: setting an address opens the account by it.
 * An address that another user has set is unverified; only an administrator can say otherwise.
 *
 * @throws {AppError} 403 with what to do instead
 */
export function decideUserChange(decider: Decider, change: UserChange): Effects {
  const { changed, vouches } = change
  if (changed.length === 0) return { unverified: false, sessionsEnd: false }
  if (isOwn(decider, change.userId)) checkOwn(decider, changed)
  else checkReach(decider, change.memberships, `change ${listed(changed)} of this user`)
  const isNewAddress = changed.includes('email')
  if (changed.includes('emailVerified') && vouches && !isNewAddress && !decider.admin) throw notProven()
  return { unverified: isNewAddress && !(decider.admin && vouches), sessionsEnd: isNewAddress }
}

/**
 * The maker of an account knows its password, so only an administrator may make one whose address counts as proven: its
 * owner's first sign-in by mail would be into an account that another person can open.
 *
 * @throws {AppError} 403
 */
export function decideNewUser({ admin }: Decider, { vouches }: Pick<UserChange, 'vouches'>): void {
  if (vouches && !admin) throw notProven()
}

const notProven = () =>
  new AppError(403, 'An address is verified by the link that is mailed to it; only an administrator may say so', {
    code: 'IDENTITY_PROTECTED',
  })

/** Users may delete themselves where a permission says so; others as above. @throws {AppError} 403 */
export function decideUserRemoval(decider: Decider, { userId, memberships }: Omit<UserChange, 'changed' | 'vouches'>) {
  if (!isOwn(decider, userId)) return checkReach(decider, memberships, 'delete this user')
  if (decider.byKey) throw errors.sessionNeeded()
}

/** A membership before and after; one of them is missing where it is made or ended. */
type MembershipChange = {
  readonly before: OwnedMembership | undefined
  readonly after: OwnedMembership | undefined
}

export type OwnedMembership = RoleAssignment & { readonly userId: string | undefined }

/** Roles are given, changed and taken as they are by inviting. @throws {AppError} 403 */
export function decideMembership(decider: Decider, { before, after }: MembershipChange): void {
  const sides = [before, after].filter((side) => side !== undefined)
  if (decider.byKey && sides.some(({ userId }) => isOwn(decider, userId))) throw errors.sessionNeeded()
  if (decider.admin) return
  if (before !== undefined && after !== undefined && before.userId !== after.userId)
    throw new AppError(403, 'A role of one user cannot be made the role of another: delete it and add one', {
      code: 'ROLE_NOT_ASSIGNABLE',
    })
  if (decider.userId !== undefined && sides.every((side) => isInReach(decider, side))) return
  throw new AppError(
    403,
    'You may give, change and take only roles that your own role may invite to (canInviteRoleIds), within your tenant',
    { code: 'ROLE_NOT_ASSIGNABLE' },
  )
}

/** With a tenant all of its memberships end. @throws {AppError} 403 */
export function decideTenantRemoval(decider: Decider, memberships: readonly RoleAssignment[]): void {
  checkReach(decider, memberships, 'delete this tenant, which has members')
}

const isOwn = ({ userId }: Decider, other: string | undefined) => userId !== undefined && userId === other

/** Fields of a user that only a proof or another user may set. */
const saidByOthers: readonly IdentityField[] = ['emailVerified', 'role_Id', 'tenant_Id']

function checkOwn({ admin, byKey, byCookie }: Decider, changed: readonly IdentityField[]): void {
  if (byKey) throw errors.sessionNeeded()
  if (byCookie && changed.includes('password'))
    throw new AppError(403, 'Change your own password with POST /auth/password/change {currentPassword, newPassword}', {
      code: 'FRESH_PROOF_REQUIRED',
    })
  if (changed.includes('email'))
    throw new AppError(403, 'Change your own e-mail address with POST /auth/email/change {email, currentPassword}', {
      code: 'EMAIL_CHANGE_NEEDS_CONFIRMATION',
    })
  const denied = changed.filter((field) => saidByOthers.includes(field))
  if (!admin && denied.length > 0)
    throw new AppError(403, `You cannot change ${listed(denied)} of your own account`, { code: 'IDENTITY_PROTECTED' })
}

function checkReach(decider: Decider, memberships: readonly RoleAssignment[], what: string): void {
  const { admin, userId } = decider
  if (admin || (userId !== undefined && memberships.every((one) => isInReach(decider, one)))) return
  const message = `You may not ${what}: an administrator may, or somebody who may assign all roles concerned`
  throw new AppError(403, message, { code: 'IDENTITY_PROTECTED' })
}

function isInReach({ tenant, assignable }: Decider, { roleId, tenantId }: RoleAssignment): boolean {
  return assignable.has(roleId) && (tenant === undefined || tenant.id === tenantId)
}

const listed = (fields: readonly IdentityField[]): string => fields.join(', ')
