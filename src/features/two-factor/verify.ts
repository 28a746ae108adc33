import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import type { Tx } from '../../db/sql.ts'
import { attemptChallenge, takeChallenge } from '../../db/unlogged/challenges.ts'
import { withoutWaiting } from '../../db/without-waiting.ts'
import { commit, type Outcome } from '../../events/commit.ts'
import type { Runtime } from '../../runtime.ts'
import { deliveryTo } from '../auth/answers.ts'
import type { AuthMode } from '../auth/input.ts'
import { checkMaySignIn } from '../auth/login.ts'
import { refuseForeignPage } from '../auth/origins.ts'
import { accountOf } from '../auth/queries.ts'
import { type Answer, type FirstFactor, membershipOf, signInAtOnce, signingIn } from '../auth/sign-in.ts'
import { challengeIdentifier, passwordMark, pendingOf } from './challenge.ts'
import { acceptCode, wrongCode } from './codes.ts'
import { findChallenge } from './queries.ts'
import type { VerifyBody } from './schema.ts'

/** After this many wrong codes a challenge is of no use (auth facts §4); the account's own count goes on. */
const triesAtMost = 5

/**
 * Answers the challenge of a sign-in with the second factor, and opens the session that was asked for then (auth facts
 * §4). A challenge opens one session; wrong codes are bounded per challenge and per account. What is wrong is not said:
 * code, challenge, or a password that has changed since.
 *
 * @throws {AppError} 401 for a wrong code or challenge, 403 for an account that is not active
 */
export async function verifyTwoFactor(
  rt: Runtime,
  request: FastifyRequest,
  { twoFactorToken: token, code, authMode }: Static<typeof VerifyBody>,
): Promise<Answer & { authMode: AuthMode }> {
  const identifier = challengeIdentifier(token)
  const factor = await challengedFactor(rt, identifier, authMode)
  if (deliveryTo(request, factor.authMode) === 'cookie') refuseForeignPage(rt.config, request)
  const answer = await commit(rt, signingIn(request, factor), (tx) =>
    answerChallenge(rt, tx, request, { identifier, code, factor }),
  )
  if (answer === undefined) throw wrongCode()
  return { ...answer, authMode: factor.authMode }
}

/** Who was challenged for what. The delivery may be asked for anew; everything else was remembered. */
async function challengedFactor(rt: Runtime, identifier: string, authMode: AuthMode | undefined): Promise<FirstFactor> {
  const challenge = await findChallenge(withoutWaiting(rt), identifier)
  const account = challenge?.userId && (await accountOf(withoutWaiting(rt), challenge.userId))
  if (!challenge || !account) throw wrongCode()
  const pending = pendingOf(challenge)
  if (pending.passwordMark !== passwordMark(account)) throw wrongCode()
  checkMaySignIn(rt, account)
  const membership = await membershipOf(rt, withoutWaiting(rt), account.id, pending.tenantId ?? undefined)
  return { account, membership, type: pending.type, authMode: authMode ?? pending.authMode }
}

type Given = { readonly identifier: string; readonly code: string; readonly factor: FirstFactor }

/** A wrong code is committed as one: that it was tried must outlast the refusal. */
async function answerChallenge(
  rt: Runtime,
  tx: Tx,
  request: FastifyRequest,
  { identifier, code, factor }: Given,
): Promise<Outcome<Answer | undefined>> {
  const { id: userId } = factor.account
  if (!(await attemptChallenge(tx, identifier, triesAtMost))) return { result: undefined }
  if (!(await acceptCode(rt, tx, userId, code)))
    return { result: undefined, events: [{ type: 'auth.2fa_failed', data: { userId } }] }
  await takeChallenge(tx, identifier)
  return signInAtOnce(rt, tx, request, factor)
}
