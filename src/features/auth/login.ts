import type { FastifyRequest } from 'fastify'
import { verifyPassword } from '../../adapters/passwords.ts'
import { withoutWaiting } from '../../db/without-waiting.ts'
import { AppError } from '../../errors.ts'
import { commit } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { afterwards } from './afterwards.ts'
import { authModeOf, emailOf, membersOf, secretOf, sessionTypeOf, textOf } from './input.ts'
import { type Account, findAccount } from './queries.ts'
import { type Answer, membershipOf, signIn } from './sign-in.ts'

/**
 * Signs in with e-mail and password (spec: POST /auth/login; auth facts §2). An unknown address, an account without
 * a password and a wrong one are answered alike and in the same time; what stands against an account is said only to
 * whoever knows its password. Whoever has a second factor is asked for it before there is a session.
 */
export async function login(rt: Runtime, request: FastifyRequest): Promise<Answer> {
  checkLocal(rt)
  const { email, password, tenantId, ...wanted } = readLogin(request.body)
  const account = await findAccount(withoutWaiting(rt), email)
  const matches = await verifyPassword(password, account?.password, rt.config.auth.passwordHashCost)
  if (account === undefined || !matches) throw refuse(rt, request, account)
  checkMaySignIn(rt, account)
  const membership = await membershipOf(rt, withoutWaiting(rt), account.id, tenantId)
  const answer = await commit(rt, actorOf(request), (tx) => signIn(rt, tx, request, { account, membership, ...wanted }))
  if (answer === undefined) throw wrongPassword()
  return answer
}

/** 403 where signing in with a password is switched off (LOCAL in AUTH_SERVICES_ENABLED). */
export function checkLocal(rt: Runtime): void {
  if (!rt.config.auth.local) throw new AppError(403, 'Local authentication is disabled')
}

function readLogin(body: unknown) {
  const members = membersOf(body)
  const email = textOf(members.email)
  const password = secretOf(members.password)
  if (email === undefined || password === undefined) throw new AppError(400, 'Email and password are required')
  const type = sessionTypeOf(members.authType)
  const authMode = authModeOf(members.authMode)
  return { email: emailOf(email), password, type, authMode, tenantId: textOf(members.tenant_Id) }
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
