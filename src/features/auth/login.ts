import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { verifyPassword } from '../../adapters/passwords.ts'
import { withoutWaiting } from '../../db/without-waiting.ts'
import { AppError } from '../../errors.ts'
import { commit } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { afterwards } from './afterwards.ts'
import { emailOf, type LoginBody } from './input.ts'
import { type Account, findAccount } from './queries.ts'
import { type Answer, membershipOf, signIn } from './sign-in.ts'

/**
 * Signs in with e-mail and password (spec: POST /auth/login; auth facts §2). An unknown address, an account without
 * a password and a wrong one are answered alike and in the same time; what stands against an account is said only to
 * whoever knows its password. Whoever has a second factor is asked for it before there is a session.
 */
export async function login(
  rt: Runtime,
  request: FastifyRequest,
  { email, password, tenant_Id: tenantId, authType: type = 'default', authMode = 'jwt' }: Static<typeof LoginBody>,
): Promise<Answer> {
  const account = await findAccount(withoutWaiting(rt), emailOf(email))
  const matches = await verifyPassword(password, account?.password, rt.config.auth.passwordHashCost)
  if (account === undefined || !matches) throw refuse(rt, request, account)
  checkMaySignIn(rt, account)
  const membership = await membershipOf(rt, withoutWaiting(rt), account.id, tenantId)
  const answer = await commit(rt, actorOf(request), (tx) =>
    signIn(rt, tx, request, { account, membership, type, authMode }),
  )
  if (answer === undefined) throw wrongPassword()
  return answer
}

/** 403 where signing in with a password is switched off (LOCAL in AUTH_SERVICES_ENABLED). */
export function checkLocal(rt: Runtime): void {
  if (!rt.config.auth.local) throw new AppError(403, 'Local authentication is disabled')
}

const wrongPassword = () => new AppError(400, 'Incorrect password.')

/** The event is appended beside the answer: waiting for it would tell that the account exists. */
function refuse(rt: Runtime, request: FastifyRequest, account: Account | undefined): AppError {
  if (account !== undefined) {
    const actor = actorOf(request)
    afterwards(rt, 'recording a failed login', () =>
      commit(rt, actor, async () => ({
        result: undefined,
        events: [{ type: 'auth.login_failed', data: { userId: account.id } }],
      })),
    )
  }
  return wrongPassword()
}

/** 403 for accounts that are not active, or whose address must be verified first. */
export function checkMaySignIn(rt: Runtime, { status, emailVerified }: Account): void {
  if (status !== 'active') throw new AppError(403, `Account is ${status}`)
  if (rt.config.auth.requireEmailVerification && !emailVerified)
    throw new AppError(403, 'Email not verified. Please verify your email before logging in.', {
      members: { requiresEmailVerification: true },
    })
}
