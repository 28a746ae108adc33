import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import type { CurrentAccess } from '../../../access/store.ts'
import { verifyPassword } from '../../../adapters/passwords.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reader, Tx } from '../../../db/sql.ts'
import { withoutWaiting } from '../../../db/without-waiting.ts'
import { AppError } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import { commit, type Outcome } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import { actorOf } from '../../../http/http.ts'
import { challengeSecondFactor } from '../two-factor/two-factor.ts'
import { afterwards } from './afterwards.ts'
import { personBody, roleAndPermissions, tenantBody } from './answers.ts'
import type { AuthReads, AuthWrites } from './capabilities.ts'
import { decideMembership, decidePassword, type PasswordDecision, signInRefusal, wrongPassword } from './decisions.ts'
import { type AuthMode, emailOf, type LoginBody } from './input.ts'
import { type Account, findAccount, type Membership, membershipsOf } from './queries.ts'
import type { SessionType } from './session-store.ts'
import { openSession } from './sessions.ts'

/**
 * Signs in with e-mail and password. An unknown address, an account without
 * a password and a wrong one are answered alike and in the same time; what stands against an account is said only to
 * somebody who knows its password. An account with a second factor is asked for it before there is a session.
 */
export async function login(
  rt: AuthWrites,
  request: FastifyRequest,
  { email, password, tenant_Id: tenantId, authType: type = 'default', authMode = 'jwt' }: Static<typeof LoginBody>,
): Promise<SignInAnswer> {
  const account = await findAccount(withoutWaiting(rt), emailOf(email))
  const matches = await verifyPassword(password, account?.password, rt.config.auth.passwordHashCost)
  const decided = decidePassword(account, matches, rt.config.auth)
  if (decided.refusal !== undefined) throw refuseLogin(rt, request, decided)
  const membership = await membershipOf(rt, withoutWaiting(rt), decided.account.id, tenantId)
  const answer = await commit(rt, actorOf(request), (tx) =>
    signIn(rt, tx, request, { account: decided.account, membership, type, authMode }),
  )
  if (answer === undefined) throw wrongPassword()
  return answer
}

/** 403 where signing in with a password is switched off (LOCAL in AUTH_SERVICES_ENABLED). */
export function checkLocal(rt: Configuration): void {
  if (!rt.config.auth.local) throw new AppError(403, 'Local authentication is disabled')
}

type Refused = Extract<PasswordDecision, { readonly events: unknown }>

/** The events are appended beside the answer, so that its time tells nothing. */
function refuseLogin(rt: Writes, request: FastifyRequest, { refusal, events }: Refused): AppError {
  const actor = actorOf(request)
  if (events.length > 0)
    afterwards(rt, 'recording a failed login', () => commit(rt, actor, async () => ({ result: undefined, events })))
  return refusal
}

/** 403 for accounts that are not active, or whose address must be verified first. */
export function checkMaySignIn(rt: Configuration, account: Account): void {
  const refusal = signInRefusal(account, rt.config.auth)
  if (refusal !== undefined) throw refusal
}

/** What a first factor has shown: who somebody is, and the session that is wanted. */
export type FirstFactor = {
  /** As it was when the factor was checked: the session is not opened when the password changed since. */
  readonly account: Account
  readonly membership: Membership
  readonly type: SessionType
  /** How its token is wanted. */
  readonly authMode: AuthMode
}

/** What a sign-in asked for, kept while its second factor is awaited. */
export type PendingSignIn = Pick<FirstFactor, 'type' | 'authMode'> & { readonly tenantId: string | null }

/** The common answer of everything that signs somebody in, and its token for `deliver`; no token with a challenge. */
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
  rt: AuthReads,
  tx: Tx,
  request: FastifyRequest,
  factor: FirstFactor,
): Promise<Outcome<SignInAnswer | undefined>> {
  const { account, membership, type, authMode } = factor
  const pending: PendingSignIn = { tenantId: membership.tenantId, type, authMode }
  const token = await challengeSecondFactor(rt, tx, account, pending)
  if (token === undefined) return signInAtOnce(rt, tx, request, factor)
  return {
    result: { token: undefined, body: challengeBody(token) },
    events: [{ type: 'auth.2fa_challenged', data: { userId: factor.account.id } }],
    actor: signingIn(request, factor),
  }
}

/** As above without a challenge: after that was answered, and for passkeys, which are two factors in one. */
export async function signInAtOnce(
  rt: AuthReads,
  tx: Tx,
  request: FastifyRequest,
  factor: FirstFactor,
): Promise<Outcome<SignInAnswer | undefined>> {
  const { account, membership, type } = factor
  const { id: userId, password: passwordHash } = account
  const { role, tenantId } = membership
  const token = await openSession(rt, tx, request, { userId, roleId: role.id, tenantId, type, passwordHash })
  if (token === undefined) return { result: undefined }
  return {
    result: { token, body: bodyOf(rt, account, membership) },
    events: [{ type: 'auth.login', data: { userId } }],
    actor: signingIn(request, factor),
  }
}

/** The user itself, at the tenant that it signs in to. */
export function signingIn(request: FastifyRequest, { account, membership }: FirstFactor): Actor {
  const { role, tenantId } = membership
  return actorOf(request, { userId: account.id, tenantId: tenantId ?? undefined, role })
}

/**
 * The role at the tenant that was asked for, else the oldest one. Outside multi-tenant mode nobody can ask. 403 where
 * there is none.
 */
export async function membershipOf(
  rt: Configuration & CurrentCatalog,
  db: Reader,
  userId: string,
  tenantId: string | undefined,
): Promise<Membership> {
  const memberships = await membershipsOf(db, rt.catalog.current(), userId)
  return decideMembership(memberships, tenantId, rt.config.tenancy.enabled)
}

function challengeBody(twoFactorToken: string) {
  return { twoFactorRequired: true, twoFactorToken, code: 'TWO_FACTOR_REQUIRED' } as const
}

function bodyOf(rt: Configuration & CurrentAccess, account: Account, { role, tenant }: Membership) {
  return { user: personBody(account), ...roleAndPermissions(rt, role), tenant: tenantBody(rt, tenant) }
}
