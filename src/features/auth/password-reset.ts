import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { hashPassword } from '../../adapters/passwords.ts'
import { withoutWaiting } from '../../db/without-waiting.ts'
import type { AppError } from '../../errors.ts'
import { commit } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { queueMail } from '../mail/mail.ts'
import { afterwards } from './afterwards.ts'
import { checkNewPassword, type LinkBody, optionalEmailOf, type ResetBody } from './input.ts'
import { type LinkRequest, linkRequestOf } from './links.ts'
import { endAccess } from './ownership.ts'
import { type Account, findAccount, setPassword } from './queries.ts'
import { redeem } from './redeem.ts'

/**
 * Mails a link or code for a new password (spec: POST /auth/password/reset). Body and time of the answer are the same
 * whatever there is to the address: the mail is queued beside it (quality A-01).
 *
 * @throws {AppError} 400 for a missing address or an untrusted link, before any account is looked up; 403 where LOCAL is
 *   off
 */
export async function requestPasswordReset(
  rt: Runtime,
  request: FastifyRequest,
  body: Static<typeof LinkBody>,
): Promise<{ message: string }> {
  const wanted = linkRequestOf(rt, body)
  const account = await findAccount(withoutWaiting(rt), wanted.email)
  if (account?.status === 'active')
    afterwards(rt, 'queueing a password reset', () => queueReset(rt, request, account, wanted))
  return { message: `If an account exists, a reset ${wanted.mode} will be sent` }
}

/**
 * Sets a new password by a mailed link or code, once (spec: POST /auth/password/reset/:token), and ends everything else
 * that opens the account (quality A-15). It signs nobody in, so a second factor is still asked for at login.
 *
 * @throws {AppError} 400 for a missing or unfit password, and for a secret that opens nothing
 */
export async function resetPassword(
  rt: Runtime,
  request: FastifyRequest,
  typed: string,
  { password, email: typedEmail }: Static<typeof ResetBody>,
): Promise<{ message: string }> {
  checkNewPassword(password)
  const email = optionalEmailOf(typedEmail)
  const passwordHash = await hashPassword(password, rt.config.auth.passwordHashCost)
  const presented = { purpose: 'password-reset', typed, email } as const
  const refusal = await commit<AppError | undefined>(rt, actorOf(request), async (tx) => {
    const redeemed = await redeem(rt, tx, request, presented, opensNothing)
    if (redeemed.refusal !== undefined) return { result: redeemed.refusal, events: redeemed.events }
    const { account, events } = redeemed
    await setPassword(tx, account.id, passwordHash)
    await endAccess(tx, account)
    return {
      result: undefined,
      events: [...events, { type: 'auth.password_reset', data: { userId: account.id } }],
    }
  })
  if (refusal !== undefined) throw refusal
  return { message: 'Password reset successfully' }
}

const opensNothing = { message: 'Invalid or expired reset token', event: 'auth.password_reset_failed' } as const

function queueReset(rt: Runtime, request: FastifyRequest, user: Account, { email: to, ...context }: LinkRequest) {
  return commit(rt, actorOf(request), async (tx) => {
    const { event } = await queueMail(tx, { type: 'password_reset', to, user, context })
    return { result: undefined, events: [{ type: 'auth.password_reset_requested', data: { userId: user.id } }, event] }
  })
}
