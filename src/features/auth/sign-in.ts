import type { FastifyRequest } from 'fastify'
import type { Reader, Tx } from '../../db/sql.ts'
import { AppError } from '../../errors.ts'
import type { Outcome } from '../../events/commit.ts'
import type { Actor } from '../../events/types.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { challengeSecondFactor } from '../two-factor/challenge.ts'
import { personBody, standingOf, tenantBody } from './answers.ts'
import type { AuthMode } from './input.ts'
import { type Account, type Membership, membershipsOf } from './queries.ts'
import type { SessionType } from './session-store.ts'
import { openSession } from './sessions.ts'

/** What a first factor has shown: who somebody is, and the session that is wanted. */
export type FirstFactor = {
  /** As it was when the factor was checked: the session is not opened when the password changed since. */
  readonly account: Account
  readonly membership: Membership
  readonly type: SessionType
  /** How its token is wanted. */
  readonly authMode: AuthMode
}

/** The common answer of everything that signs somebody in, and its token for `deliver`; no token with a challenge. */
export type Answer = {
  readonly token: string | undefined
  readonly body: ReturnType<typeof bodyOf> | ReturnType<typeof challengeBody>
}

/**
 * Where every first factor ends, be it a password, a link or a code: opens the session and says so in the log; or, for
 * an account with a second factor, a challenge for that, and nothing is open yet (quality A-25).
 *
 * Undefined when the account was suspended or its password changed meanwhile.
 */
export async function signIn(
  rt: Runtime,
  tx: Tx,
  request: FastifyRequest,
  factor: FirstFactor,
): Promise<Outcome<Answer | undefined>> {
  const token = await challengeSecondFactor(rt, tx, factor)
  if (token === undefined) return signInAtOnce(rt, tx, request, factor)
  return {
    result: { token: undefined, body: challengeBody(token) },
    events: [{ type: 'auth.2fa_challenged', data: { userId: factor.account.id } }],
    actor: signingIn(request, factor),
  }
}

/** As above without a challenge: after that was answered, and for passkeys, which are two factors in one. */
export async function signInAtOnce(
  rt: Runtime,
  tx: Tx,
  request: FastifyRequest,
  factor: FirstFactor,
): Promise<Outcome<Answer | undefined>> {
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
  rt: Runtime,
  db: Reader,
  userId: string,
  tenantId: string | undefined,
): Promise<Membership> {
  const memberships = await membershipsOf(db, rt.catalog.current(), userId)
  const asked = rt.config.tenancy.enabled ? tenantId : undefined
  const chosen = asked === undefined ? memberships[0] : memberships.find((one) => one.tenantId === asked.toLowerCase())
  if (chosen !== undefined) return chosen
  throw new AppError(
    403,
    asked === undefined ? 'No role is assigned to this account' : 'Access denied for specified tenant',
  )
}

function challengeBody(twoFactorToken: string) {
  return { twoFactorRequired: true, twoFactorToken, code: 'TWO_FACTOR_REQUIRED' } as const
}

function bodyOf(rt: Runtime, account: Account, { role, tenant }: Membership) {
  return { user: personBody(account), ...standingOf(rt, role), tenant: tenantBody(rt, tenant) }
}
