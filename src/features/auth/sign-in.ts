import type { FastifyRequest } from 'fastify'
import type { Reader, Tx } from '../../db/sql.ts'
import { AppError } from '../../errors.ts'
import type { Outcome } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { personBody, standingOf, tenantBody } from './answers.ts'
import { type Account, type Membership, membershipsOf } from './queries.ts'
import type { SessionType } from './session-store.ts'
import { openSession } from './sessions.ts'

/** What a first factor has shown: who somebody is, and the session that is wanted. */
export type FirstFactor = {
  /** As it was when the factor was checked: the session is not opened when the password changed since. */
  readonly account: Account
  readonly membership: Membership
  readonly type: SessionType
}

/** The common answer of everything that signs somebody in, and its token for `deliver`. */
export type Answer = { readonly token: string; readonly body: ReturnType<typeof bodyOf> }

/**
 * Where every first factor ends, be it a password, a link or a code: opens the session and says so in the log. What
 * stands between a first factor and a session, such as a second factor, stands here (quality A-25).
 *
 * Undefined when the account was suspended or its password changed meanwhile.
 */
export async function signIn(
  rt: Runtime,
  tx: Tx,
  request: FastifyRequest,
  { account, membership, type }: FirstFactor,
): Promise<Outcome<Answer | undefined>> {
  const { id: userId, password: passwordHash } = account
  const { role, tenantId } = membership
  const token = await openSession(rt, tx, request, { userId, roleId: role.id, tenantId, type, passwordHash })
  if (token === undefined) return { result: undefined }
  return {
    result: { token, body: bodyOf(rt, account, membership) },
    events: [{ type: 'auth.login', data: { userId } }],
    actor: actorOf(request, { userId, tenantId: tenantId ?? undefined, role }),
  }
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

function bodyOf(rt: Runtime, account: Account, { role, tenant }: Membership) {
  return { user: personBody(account), ...standingOf(rt, role), tenant: tenantBody(rt, tenant) }
}
