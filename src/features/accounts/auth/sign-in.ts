import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import type { CurrentAccess } from '../../../access/store.ts'
import { hashPassword, inTurn, isReplaceable, verifyPassword } from '../../../adapters/passwords.ts'
import { isToken } from '../../../adapters/tokens.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import { type Reads, withoutWaiting } from '../../../db/pools.ts'
import type { Reader, Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type WorkResult, type Writes } from '../../../events/commit.ts'
import type { Actor, DomainEvent } from '../../../events/types.ts'
import { actorOf } from '../../../http/http.ts'
import { queueMail } from '../../messaging/mail/mail.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { findTenant, invalidInvite, inviteOf, joinByInvite, openInvite } from '../membership/membership.ts'
import { challengeSecondFactor } from '../proofs/proofs.ts'
import { personBody, roleAndPermissions, tenantBody } from './browser.ts'
import { type AuthReads, type AuthWrites, afterwards } from './capabilities.ts'
import {
  chooseMembership,
  decideAcceptance,
  decidePassword,
  type PasswordDecision,
  signInRefusal,
  wrongPassword,
} from './decisions.ts'
import { endAccess, type RedemptionResult, redeem } from './ownership.ts'
import { type Account, findAccount, type Membership, membershipsOf, replaceHash, setPassword } from './queries.ts'
import type { SessionType } from './session-store.ts'
import { openSession } from './sessions.ts'
import {
  type AuthMode,
  checkNewPassword,
  emailOf,
  type FirstSignInBody,
  type LinkBody,
  type LinkRequest,
  type LoginBody,
  linkRequestOf,
  type MagicLinkQuery,
  optionalEmailOf,
} from './shapes.ts'

/**
 * Signs in with e-mail and password. An unknown address, an account without
 * a password and a wrong one are answered alike and in the same time; what stands against an account is said only to
 * a person who knows its password. An account with a second factor is asked for it before there is a session. With the
 * token of an invitation the sign-in accepts it.
 */
export async function login(
  deps: AuthWrites,
  request: FastifyRequest,
  body: Static<typeof LoginBody>,
): Promise<SignInAnswer> {
  const { email, password, tenant_Id: tenantId, inviteToken, authType: type = 'default', authMode = 'jwt' } = body
  const { account, matches } = await inTurn(async () => {
    const account = await findAccount(withoutWaiting(deps), emailOf(email))
    return { account, matches: await verifyPassword(password, account?.password, deps.config.auth.passwordHashCost) }
  })
  const decided = decidePassword(account, matches, deps.config.auth)
  if (decided.refusal !== undefined) throw refuseLogin(deps, request, decided)
  // Only now: whoever does not know the password learns nothing of an invitation.
  const inviteId = await invitationOf(deps, inviteToken)
  const membership = await placeOf(deps, withoutWaiting(deps), decided.account, { tenantId, inviteId })
  const renewed = await renewedHash(deps, decided.account, password)
  const answer = await commit<SignInAnswer | undefined>(deps, actorOf(request), async (tx) => {
    const account = await withHash(tx, decided.account, renewed)
    return account === undefined
      ? { result: undefined }
      : signIn(deps, tx, request, { account, membership, type, authMode })
  })
  if (answer !== undefined) return answer
  // Another sign-in may have replaced the hash meanwhile, and then the password is right all the same.
  if (renewed !== undefined) return login(deps, request, body)
  throw wrongPassword()
}

/** The hash of ours that is to replace the one of another product; undefined where it is ours already. */
async function renewedHash(
  { config }: Configuration,
  { password: stored }: Account,
  password: string,
): Promise<string | undefined> {
  return stored !== null && isReplaceable(stored) ? hashPassword(password, config.auth.passwordHashCost) : undefined
}

/** The account with the new hash; undefined where its password has changed since it was verified. */
async function withHash(tx: Tx, account: Account, hash: string | undefined): Promise<Account | undefined> {
  if (hash === undefined) return account
  return (await replaceHash(tx, account, hash)) ? { ...account, password: hash } : undefined
}

/** 403 where signing in with a password is switched off (LOCAL in AUTH_SERVICES_ENABLED). */
export function checkLocal({ config }: Configuration): void {
  if (!config.auth.local) throw new AppError(403, 'Local authentication is disabled')
}

type PasswordRefusal = Extract<PasswordDecision, { readonly events: unknown }>

/** The events are appended beside the answer, so that its time tells nothing. */
function refuseLogin(deps: Writes, request: FastifyRequest, { refusal, events }: PasswordRefusal): AppError {
  const actor = actorOf(request)
  if (events.length > 0)
    afterwards(deps, 'recording a failed login', () => commit(deps, actor, async () => ({ result: undefined, events })))
  return refusal
}

/** 403 for accounts that are not active, or whose address must be verified first. */
export function checkMaySignIn({ config }: Configuration, account: Account): void {
  const refusal = signInRefusal(account, config.auth)
  if (refusal !== undefined) throw refusal
}

/** Where a sign-in ends: in a role that the user has, or, with `inviteId`, in the one of an invitation that it accepts. */
type Place = Pick<Membership, 'role' | 'tenantId' | 'tenant'> & { readonly inviteId?: string }

/** The result of a first factor: the user, and the requested session. */
export type FirstFactor = {
  /** As it was when the factor was checked: the session is not opened when the password changed since. */
  readonly account: Account
  readonly membership: Place
  readonly type: SessionType
  /** How its token is wanted. */
  readonly authMode: AuthMode
}

/** The request of a sign-in, kept while its second factor is awaited. */
export type PendingSignIn = Pick<FirstFactor, 'type' | 'authMode'> & {
  readonly tenantId: string | null
  readonly inviteId?: string
}

/** The common answer of everything that signs a user in, and its token for `deliver`; no token with a challenge. */
export type SignInAnswer = {
  readonly token: string | undefined
  readonly body: ReturnType<typeof bodyOf> | ReturnType<typeof challengeBody>
}

/**
 * Where every first factor ends, be it a password, a link or a code: opens the session and says so in the log; or, for
 * an account with a second factor, a challenge for that, and nothing is open yet.
 *
 * Undefined when the account was suspended or its password changed meanwhile.
 */
export async function signIn(
  deps: AuthReads,
  tx: Tx,
  request: FastifyRequest,
  factor: FirstFactor,
): Promise<WorkResult<SignInAnswer | undefined>> {
  const { account, membership, type, authMode } = factor
  const { tenantId, inviteId } = membership
  const pending: PendingSignIn = { tenantId, type, authMode, ...(inviteId !== undefined && { inviteId }) }
  const token = await challengeSecondFactor(deps, tx, account, pending)
  if (token === undefined) return signInAtOnce(deps, tx, request, factor)
  return {
    result: { token: undefined, body: challengeBody(token) },
    events: [{ type: 'auth.2fa_challenged', data: { userId: factor.account.id } }],
    actor: signingIn(request, factor),
  }
}

/** As above without a challenge: after that was answered, and for passkeys, which are two factors in one. */
export async function signInAtOnce(
  deps: AuthReads,
  tx: Tx,
  request: FastifyRequest,
  factor: FirstFactor,
): Promise<WorkResult<SignInAnswer | undefined>> {
  const { account, membership, type } = factor
  const { id: userId, password: passwordHash } = account
  const { role, tenantId } = membership
  const joined = await join(tx, userId, membership)
  const token = await openSession(deps, tx, request, { userId, roleId: role.id, tenantId, type, passwordHash })
  if (token === undefined && joined.length > 0) throw errors.conflict('The account has changed. Please sign in again.')
  if (token === undefined) return { result: undefined }
  return {
    result: { token, body: bodyOf(deps, account, membership) },
    events: [...joined, { type: 'auth.login', data: { userId } }],
    actor: signingIn(request, factor),
  }
}

async function join(tx: Tx, userId: string, { inviteId, role, tenantId }: Place): Promise<readonly DomainEvent[]> {
  if (inviteId === undefined || tenantId === null) return []
  return [await joinByInvite(tx, userId, { inviteId, roleId: role.id, tenantId })]
}

/** The user itself, at the tenant that it signs in to. */
export function signingIn(request: FastifyRequest, { account, membership }: FirstFactor): Actor {
  const { role, tenantId } = membership
  return actorOf(request, { userId: account.id, tenantId: tenantId ?? undefined, role })
}

/**
 * The invitation that a sign-in is to accept, by its token: its id. It is the way in for an account that has no role.
 * Undefined where no token is given. 400 where it is over.
 */
export async function invitationOf(deps: Reads & Writes, token: string | undefined): Promise<string | undefined> {
  if (token === undefined) return undefined
  const invite = deps.config.tenancy.enabled ? await openInvite(deps, token) : undefined
  if (invite === undefined) throw invalidInvite()
  return invite.id
}

/**
 * Where an account signs in: in the role that the invitation brings, if there is one; else where it has one.
 *
 * @throws {AppError} 400 for an invitation that is over; 403 for one of another address, and where there is no role
 */
export async function placeOf(
  deps: Configuration & CurrentAccess & CurrentCatalog,
  db: Reader,
  { id, email }: Pick<Account, 'id' | 'email'>,
  { tenantId, inviteId }: { readonly tenantId: string | null | undefined; readonly inviteId: string | undefined },
): Promise<Place> {
  if (inviteId === undefined) return membershipOf(deps, db, id, tenantId ?? undefined)
  const invite = await inviteOf(db, inviteId)
  const { roles } = invite === undefined ? deps.access.current() : await deps.access.knowing(invite.roleId)
  const accepted = decideAcceptance(invite, email, roles)
  const tenant = (await findTenant(db, deps.catalog.current(), accepted.invite.tenantId)) ?? null
  return { tenantId: accepted.invite.tenantId, role: accepted.role, tenant, inviteId }
}

/**
 * The role at the tenant that was asked for, else the oldest one. Outside multi-tenant mode no request can ask. 403 where
 * there is none.
 */
export async function membershipOf(
  { catalog, config }: Configuration & CurrentCatalog,
  db: Reader,
  userId: string,
  tenantId: string | undefined,
): Promise<Membership> {
  const memberships = await membershipsOf(db, catalog.current(), userId)
  return chooseMembership(memberships, tenantId, config.tenancy.enabled)
}

function challengeBody(twoFactorToken: string) {
  return { twoFactorRequired: true, twoFactorToken, code: 'TWO_FACTOR_REQUIRED' } as const
}

function bodyOf(deps: Configuration & CurrentAccess, account: Account, { role, tenant }: Place) {
  return { user: personBody(account), ...roleAndPermissions(deps, role), tenant: tenantBody(deps, tenant) }
}

/**
 * Mails a link or code to sign in with. An account that is not active is answered alike but
 * gets no mail. With AUTH_GENERIC_RESPONSES unknown addresses are too, and the mail is queued beside the answer.
 *
 * @throws {AppError} 400 for a missing address or an untrusted link, before any account is looked up; 404 for an unknown
 *   address; 403 where LOCAL is off
 */
export async function requestMagicLink(
  deps: Reads & Writes & CurrentSettings,
  request: FastifyRequest,
  body: Static<typeof LinkBody>,
): Promise<{ message: string }> {
  const wanted = linkRequestOf(deps, body)
  const account = await findAccount(withoutWaiting(deps), wanted.email)
  const generic = deps.config.auth.genericResponses
  if (account === undefined && !generic) throw new AppError(404, 'User not found')
  if (account?.status === 'active') {
    const send = () => queueLink(deps, request, account, wanted)
    if (generic) afterwards(deps, 'queueing a magic link', send)
    else await send()
  }
  return { message: `If an account exists for this email, a sign-in ${wanted.mode} has been sent.` }
}

/**
 * Signs in with a mailed link or code, once. The address is verified by
 * that. 400 when it opens nothing, 403 when the account has no role (at the tenant that was asked for); then it may be
 * tried again; 400 for an invitation that is over, 403 for one of another address.
 */
export async function signInByMagicLink(
  deps: AuthWrites,
  request: FastifyRequest,
  typed: string,
  { authMode = 'jwt', authType: type = 'default', email, tenant_Id, inviteToken }: Static<typeof MagicLinkQuery>,
): Promise<SignInAnswer> {
  const inviteId = await invitationOf(deps, inviteToken)
  const presented = { purpose: 'magic-link', typed, email: optionalEmailOf(email) } as const
  const { redeemed, answer } = await commit<SignInResult>(deps, actorOf(request), async (tx) => {
    const redeemed = await redeem(deps, tx, request, presented, opensNothing)
    if (redeemed.refusal !== undefined) return { result: { redeemed }, events: redeemed.events }
    const { account, events } = redeemed
    const membership = await placeOf(deps, tx, account, { tenantId: tenant_Id, inviteId })
    const entered = await signIn(deps, tx, request, { account, membership, type, authMode })
    return { ...entered, result: { redeemed, answer: entered.result }, events: [...events, ...(entered.events ?? [])] }
  })
  if (redeemed.refusal !== undefined) throw redeemed.refusal
  if (answer === undefined) throw new AppError(400, opensNothing.message)
  return answer
}

/**
 * Signs the first administrator in by the link that was shown where the server was set up, once, and gives the account a
 * new password; everything else that opens it ends. A second factor that it has by now is asked for all the same.
 *
 * @throws {AppError} 400 for an unfit password, and for a token that opens nothing
 */
export async function firstSignIn(
  deps: AuthWrites,
  request: FastifyRequest,
  { token, password, authMode = 'jwt', authType: type = 'default' }: Static<typeof FirstSignInBody>,
): Promise<SignInAnswer> {
  checkNewPassword(password)
  // There are no codes of this kind: whatever is no token is not even looked for.
  if (!isToken(token)) throw new AppError(400, opensNoFirst.message)
  const hash = await hashPassword(password, deps.config.auth.passwordHashCost)
  const presented = { purpose: 'first-sign-in', typed: token, email: undefined } as const
  const { redeemed, answer } = await commit<SignInResult>(deps, actorOf(request), async (tx) => {
    const redeemed = await redeem(deps, tx, request, presented, opensNoFirst)
    if (redeemed.refusal !== undefined) return { result: { redeemed }, events: redeemed.events }
    const account = { ...redeemed.account, password: hash }
    await setPassword(tx, account.id, hash)
    await endAccess(tx, account)
    const membership = await membershipOf(deps, tx, account.id, undefined)
    const entered = await signIn(deps, tx, request, { account, membership, type, authMode })
    const changed = { type: 'auth.password_change', data: { userId: account.id } } as const
    return {
      ...entered,
      result: { redeemed, answer: entered.result },
      events: [...redeemed.events, changed, ...(entered.events ?? [])],
    }
  })
  if (redeemed.refusal !== undefined) throw redeemed.refusal
  if (answer === undefined) throw new AppError(400, opensNoFirst.message)
  return answer
}

const opensNoFirst = { message: 'Invalid or expired sign-in link', event: 'auth.magic_link_failed' } as const

type SignInResult = { readonly redeemed: RedemptionResult; readonly answer?: SignInAnswer | undefined }

const opensNothing = { message: 'Invalid or expired magic link', event: 'auth.magic_link_failed' } as const

function queueLink(deps: Writes, request: FastifyRequest, user: Account, { email: to, ...context }: LinkRequest) {
  return commit(deps, actorOf(request), async (tx) => {
    const { event } = await queueMail(tx, { type: 'magic_link', to, user, context })
    return { result: undefined, events: [{ type: 'auth.magic_link_requested', data: { userId: user.id } }, event] }
  })
}
