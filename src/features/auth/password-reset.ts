import type { FastifyRequest } from 'fastify'
import { hashPassword } from '../../adapters/passwords.ts'
import { withoutWaiting } from '../../db/without-waiting.ts'
import { AppError } from '../../errors.ts'
import { commit } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { queueMail } from '../mail/mail.ts'
import { afterwards } from './afterwards.ts'
import { checkNewPassword, membersOf, optionalEmailOf, secretOf } from './input.ts'
import { type LinkRequest, readLinkRequest } from './links.ts'
import { checkLocal } from './login.ts'
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
export async function requestPasswordReset(rt: Runtime, request: FastifyRequest): Promise<{ message: string }> {
  checkLocal(rt)
  const wanted = readLinkRequest(rt, request.body)
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
export async function resetPassword(rt: Runtime, request: FastifyRequest, typed: string): Promise<{ message: string }> {
  checkLocal(rt)
  const { password, email } = readReset(request)
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

function readReset({ body, query }: FastifyRequest): { password: string; email: string | undefined } {
  const members = membersOf(body)
  const password = secretOf(members.password)
  if (password === undefined) throw new AppError(400, 'Password is required')
  checkNewPassword(password)
  return { password, email: optionalEmailOf(members.email ?? membersOf(query).email) }
}

function queueReset(rt: Runtime, request: FastifyRequest, user: Account, { email: to, ...context }: LinkRequest) {
  return commit(rt, actorOf(request), async (tx) => {
    const { event } = await queueMail(tx, { type: 'password_reset', to, user, context })
    return { result: undefined, events: [{ type: 'auth.password_reset_requested', data: { userId: user.id } }, event] }
  })
}
