import { administratorRole, publicRole } from '../../../access/access.ts'
import type { Role } from '../../../access/store.ts'
import type { CodeOutcome } from '../../../db/unlogged/secrets.ts'
import { AppError, errors } from '../../../errors.ts'
import type { DomainEvent } from '../../../events/types.ts'
import { isObject } from '../../../query/guards.ts'
import { type Invite, invalidInvite } from '../membership/membership.ts'
import type { Account, Membership, VerificationState } from './queries.ts'
import type { SessionType } from './session-store.ts'

// Decisions about signing in, without a database or a clock: callers bring the stored values and carry the decision
// out.

/** The configuration's demands on an account. */
type SignInRules = { readonly requireEmailVerification: boolean }

/** Why an account may not be signed in to: it is not active, or its address must be verified first. */
export function signInRefusal(
  { status, emailVerified }: Pick<Account, 'status' | 'emailVerified'>,
  { requireEmailVerification }: SignInRules,
): AppError | undefined {
  if (status !== 'active') return new AppError(403, `Account is ${status}`)
  if (!requireEmailVerification || emailVerified) return undefined
  return new AppError(403, 'Email not verified. Please verify your email before logging in.', {
    members: { requiresEmailVerification: true },
  })
}

export type PasswordDecision =
  | { readonly account: Account; readonly refusal?: undefined }
  /** `events` are appended beside the answer: waiting for them would show that the account exists. */
  | { readonly refusal: AppError; readonly events: readonly DomainEvent[] }

/**
 * An unknown address, an account without a password and a wrong password are refused alike. Only a caller who knows the
 * password learns of other obstacles.
 */
export function decidePassword(account: Account | undefined, matches: boolean, rules: SignInRules): PasswordDecision {
  if (account === undefined) return { refusal: wrongPassword(), events: [] }
  if (!matches)
    return { refusal: wrongPassword(), events: [{ type: 'auth.login_failed', data: { userId: account.id } }] }
  const refusal = signInRefusal(account, rules)
  return refusal === undefined ? { account } : { refusal, events: [] }
}

export const wrongPassword = () => new AppError(400, 'Incorrect password.')

/**
 * The membership at the tenant that was asked for, else the oldest one. Outside multi-tenant mode the tenant is ignored.
 *
 * @throws {AppError} 403 where there is none
 */
export function chooseMembership(
  memberships: readonly Membership[],
  tenantId: string | undefined,
  multiTenant: boolean,
): Membership {
  const asked = multiTenant ? tenantId?.toLowerCase() : undefined
  const chosen = asked === undefined ? memberships[0] : memberships.find((one) => one.tenantId === asked)
  if (chosen !== undefined) return chosen
  throw new AppError(
    403,
    asked === undefined ? 'No role is assigned to this account' : 'Access denied for specified tenant',
  )
}

/**
 * The invitation, and the role that it brings, for the user with this address.
 *
 * @throws {AppError} 400 when the invitation is over or its role is gone, 403 when it was sent to another address
 */
export function decideAcceptance(
  invite: Invite | undefined,
  email: unknown,
  roles: ReadonlyMap<string, Role>,
): { readonly invite: Invite; readonly role: Role } {
  if (invite === undefined) throw invalidInvite()
  if (invite.email !== email) throw new AppError(403, "The email address doesn't match the invitation")
  const role = roles.get(invite.roleId)
  if (role === undefined) throw invalidInvite()
  return { invite, role }
}

/** Everything that is known when an account asks for another address. */
type AddressRequest = {
  /** The account whose password was checked, and the same one locked. */
  readonly checked: Pick<Account, 'email' | 'password'>
  readonly locked: Pick<Account, 'email' | 'password'> | undefined
  /** The account asked for an address, whichever. */
  readonly hasAskedRecently: boolean
  /** The new address was mailed a link, for whichever account. */
  readonly wasMailedRecently: boolean
  readonly isTaken: boolean
}

/**
 * Whether the new address is mailed a link. Where no answer may show that another account has it, false for that, and
 * shortly after another such mail, which only an address without an account gets.
 *
 * @throws {AppError} 400 for a password or address that was changed meanwhile, and for an address that is taken; 429
 *   shortly after another such request or mail
 */
export function decideAddressRequest(
  { checked, locked, hasAskedRecently, wasMailedRecently, isTaken }: AddressRequest,
  { genericResponses }: { readonly genericResponses: boolean },
): boolean {
  if (locked?.password !== checked.password || locked.email !== checked.email) throw wrongCurrentPassword()
  if (hasAskedRecently || (wasMailedRecently && !genericResponses))
    throw new AppError(429, 'A verification email was sent recently. Please wait before requesting another.')
  if (isTaken && !genericResponses) throw new AppError(400, 'User already exists')
  return !isTaken && !wasMailedRecently
}

/** Everything that is known when a password is changed. */
type PasswordChangeFacts = {
  /** The account whose current password was checked; absent where an administrator changes it. */
  readonly checked?: Pick<Account, 'password'>
  /** The same account, locked. */
  readonly locked: Account | undefined
}

/**
 * The account that gets another password, and the events of that.
 *
 * @throws {AppError} 400 for a password that is no longer current: another change or a reset came first; 404 for no account
 */
export function decidePasswordChange({ checked, locked }: PasswordChangeFacts) {
  if (checked !== undefined && locked?.password !== checked.password) throw wrongCurrentPassword()
  if (locked === undefined) throw unknownUser()
  const events: DomainEvent[] = [{ type: 'auth.password_change', data: { userId: locked.id } }]
  return { account: locked, events }
}

export const unknownUser = () => new AppError(404, 'User not found')

export const wrongCurrentPassword = () => new AppError(400, 'Current password is incorrect')

/** Everything that is known when the link to a new address is followed. */
type AddressConfirmation = {
  readonly userId: string
  /** The address that the link was mailed to, and the one that the account has asked for last. */
  readonly email: string
  readonly asked: unknown
  readonly isUsed: boolean
  readonly status: string | undefined
  readonly isTaken: boolean
}

/**
 * The events of an account that gets its new address.
 *
 * @throws {AppError} 400 for a link that is over, 409 for an address that has become another account's
 */
export function decideAddressConfirmation(known: AddressConfirmation): readonly DomainEvent[] {
  const { userId, email, asked, isUsed, status, isTaken } = known
  if (isUsed || status !== 'active' || asked !== email) throw new AppError(400, 'Invalid or expired verification token')
  if (isTaken) throw new AppError(409, 'The address belongs to another account', { code: 'EMAIL_TAKEN' })
  return [
    { type: 'auth.email_changed', data: { userId } },
    { type: 'auth.email_verified', data: { userId } },
  ]
}

/** Where limits are written down: a user's own, and those of the settings in force at the tenant. */
type SessionLimits = { readonly user: unknown; readonly settings: unknown }

/**
 * How many live sessions of a type a user may have: the user's own limit, else the role's, else the default one. -1 is
 * unlimited, and so is no limit at all; null and anything but a whole number from -1 on count as no limit.
 */
export function sessionLimit({ user, settings }: SessionLimits, roleId: string, type: 'web' | 'mobile'): number {
  const found = [user, memberOf(memberOf(settings, 'roles'), roleId), memberOf(settings, 'default')]
  return found.map((limits) => memberOf(limits, type)).find(isLimit) ?? -1
}

/** Why there may not be another session of the type beside the `live` ones. */
export function sessionRefusal(limit: number, type: 'web' | 'mobile', live: number): AppError | undefined {
  if (limit === 0) return new AppError(403, `${type === 'web' ? 'Web' : 'Mobile'} sessions are not allowed`)
  if (limit < 0 || live < limit) return undefined
  return new AppError(403, `Maximum ${type} session limit (${limit}) reached. Please logout from another device.`)
}

/** A session that has replaced another one. */
export type RenewedSession = {
  readonly sessionToken: string
  readonly userId: string
  readonly userRoleId: string | null
  /** Nobody has come with its token yet. */
  readonly isUnused: boolean
  readonly ageMs: number
}

/** How long the answer to a renewal may be asked for again. Milliseconds. */
const repeatableMs = 60_000

/**
 * Whether somebody whose session was replaced may have the token of the new one, although the former token has ended: its
 * answer may have been lost, as long as nobody has used it, and not for long.
 */
export function mayRepeat(userId: string, renewed: RenewedSession | undefined): renewed is RenewedSession {
  return renewed?.userId === userId && renewed.isUnused && renewed.ageMs < repeatableMs
}

/**
 * The session whose token answers a renewal, and the events: the one that it has `opened`, else that of another call at the
 * same time.
 *
 * @throws {AppError} 401 where there is neither
 */
export function decideRefresh<Opened>(userId: string, opened: Opened | undefined, renewed: RenewedSession | undefined) {
  const events: DomainEvent[] = [{ type: 'auth.refresh', data: { userId } }]
  if (opened !== undefined) return { session: opened, events }
  if (mayRepeat(userId, renewed)) return { session: renewed, events: [] }
  throw sessionOver()
}

/**
 * The session that replaces one at another tenant: of the same type, or of the requested type. The limit counts only
 * for a requested type: the replaced session was within its own.
 *
 * @throws {AppError} 401 where the old one is gone
 */
export function decideMove(old: { readonly type: SessionType } | undefined, asked: SessionType | undefined) {
  if (old === undefined) throw sessionOver()
  return { type: asked ?? old.type, isLimited: asked !== undefined }
}

/** Everything that is known of a caller where its account gains something to open it with. */
type CallerFacts = {
  /** The account, locked. */
  readonly locked: Account | undefined
  /** The caller's session, while it lives. */
  readonly session: { readonly userId: string } | undefined
  /** The account as it was when a proof of identity was checked. */
  readonly proven: Pick<Account, 'password'> | undefined
}

/**
 * The account of a caller who is still the one that was checked.
 *
 * @throws {AppError} 401 where the session has ended or the account is not active, 403 where the proof is of before
 */
export function decideCaller({ locked, session, proven }: CallerFacts): Account {
  if (locked?.status !== 'active' || session?.userId !== locked.id) throw sessionOver()
  if (proven !== undefined && proven.password !== locked.password) throw proofRefused()
  return locked
}

export const proofRefused = () =>
  new AppError(403, 'This does not confirm that it is you', { code: 'FRESH_PROOF_REFUSED' })

export const sessionOver = () => errors.unauthorized('Invalid or expired token')

/** The event of a session that is ended: for the caller's own one it is a logout. */
export function endingOf(userId: string, sessionId: string, current: string | undefined): DomainEvent {
  if (sessionId === current) return { type: 'auth.logout', data: { userId } }
  return { type: 'auth.session_ended', data: { userId, sessionId } }
}

type Redemption =
  | { readonly holder: Account; readonly refusal?: undefined }
  /** `failed`: the log gets a failed attempt. */
  | { readonly refusal: AppError; readonly failed: boolean }

/**
 * The account that a mailed one-time secret opens, after the secret was looked up (and used up if right): the active
 * account with the address that it was mailed to.
 */
export function decideRedemption(outcome: CodeOutcome, holder: Account | undefined, opensNothing: string): Redemption {
  if (outcome.state === 'blocked') return { refusal: tooManyAttempts(outcome.retryAfterSeconds), failed: false }
  if (outcome.state === 'needs-email') return { refusal: new AppError(400, 'Email is required'), failed: false }
  if (outcome.state === 'consumed' && holder?.email === outcome.email && holder.status === 'active') return { holder }
  return { refusal: new AppError(400, opensNothing), failed: true }
}

function tooManyAttempts(seconds: number): AppError {
  return new AppError(429, 'Too many attempts. Please try again later.', {
    headers: { 'retry-after': String(seconds) },
  })
}

/**
 * The consequences of a user's opening a mail to the account's address. The first time, the address becomes verified
 * and all credentials of the account end, its password too: another person may have set them up.
 */
export function decideOwnership(account: Account) {
  if (account.emailVerified) return { account, credentialsEnd: false, events: [] }
  const events: DomainEvent[] = [
    { type: 'auth.email_verified', data: { userId: account.id } },
    { type: 'auth.unverified_credentials_dropped', data: { userId: account.id } },
  ]
  return { account: { ...account, emailVerified: true, password: null }, credentialsEnd: true, events }
}

/** Whether a user who is not signed in gets the verification mail again. */
export function mayBeMailedAgain(account: VerificationState | undefined, recently: boolean): boolean {
  return account !== undefined && !recently && !account.emailVerified && account.status === 'active'
}

/** The role of a new account. 503 where the configured one is missing or the administrator's; operators are warned at start. */
export function decideRegisteredRole(roles: Iterable<Role>, name: string): Role {
  const role = roleNamed(roles, name)
  if (role === undefined || role.name === administratorRole)
    throw new AppError(503, 'Registration is not set up on this server', { code: 'REGISTRATION_ROLE_MISSING' })
  return role
}

/** The role that a registration asks for: one of the allowed names, and never the administrator's. 400 for others. */
export function decideAskedRole(roles: Iterable<Role>, name: string, allowed: readonly string[]): Role {
  const role = allowed.includes(name) ? roleNamed(roles, name) : undefined
  if (role === undefined || role.name === administratorRole || role.name === publicRole)
    throw new AppError(400, 'Role is not allowed for multi-tenant registration')
  return role
}

export function roleNamed(roles: Iterable<Role>, name: string): Role | undefined {
  return [...roles].find((role) => role.name === name)
}

function memberOf(value: unknown, name: string): unknown {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined
}

function isLimit(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= -1
}
