import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { signedIn } from '../../../access/principal.ts'
import { hashPassword, verifyPassword } from '../../../adapters/passwords.ts'
import { type Reads, withoutWaiting } from '../../../db/pools.ts'
import { AppError } from '../../../errors.ts'
import { commit, type WorkResult, type Writes } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { isUuid } from '../../../language/text.ts'
import { queueMail } from '../../messaging/mail/mail.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { afterwards } from './capabilities.ts'
import { decidePasswordChange, unknownUser, wrongCurrentPassword } from './decisions.ts'
import {
  checkNewPassword,
  type LinkBody,
  type LinkRequest,
  linkRequestOf,
  optionalEmailOf,
  type PasswordChangeBody,
  type PasswordOfBody,
  type ResetBody,
} from './input.ts'
import { endAccess, redeem } from './ownership.ts'
import { type Account, accountOf, findAccount, lockAccount, setPassword } from './queries.ts'

/**
 * Changes the caller's password and ends its other sessions and mailed secrets.
 *
 * @throws {AppError} 400 for missing members, a wrong current password, a new one that is too short or long
 */
export async function changeOwnPassword(
  deps: Reads & Writes,
  request: FastifyRequest,
  { currentPassword: current, newPassword: next }: Static<typeof PasswordChangeBody>,
): Promise<{ message: string }> {
  const { userId, sessionId } = signedIn(request.caller)
  checkNewPassword(next)
  const account = await accountOf(withoutWaiting(deps), userId)
  if (account === undefined || !(await verifyPassword(current, account.password, deps.config.auth.passwordHashCost)))
    throw await refuse(deps, request, userId)
  await change(deps, request, { userId, password: next, checked: account, keptSession: sessionId })
  return changed
}

/**
 * Changes anybody's password; for administrators. Both bodies of existing clients count:
 * `{ userId, newPassword }` and `{ userId, password }`. All sessions of the user end but the caller's own.
 *
 * @throws {AppError} 403 for others, 400 for missing members or an unfit password, 404 for an unknown user
 */
export async function changePasswordOf(
  deps: Reads & Writes,
  request: FastifyRequest,
  { userId, newPassword, password }: Static<typeof PasswordOfBody>,
): Promise<{ message: string }> {
  const { sessionId } = signedIn(request.caller)
  const next = newPassword ?? password
  if (next === undefined) throw new AppError(400, 'User ID and new password are required')
  checkNewPassword(next)
  const account = isUuid(userId) ? await accountOf(withoutWaiting(deps), userId) : undefined
  if (account === undefined) throw unknownUser()
  await change(deps, request, { userId: account.id, password: next, keptSession: sessionId })
  return changed
}

/** 403 for all but administrators. */
export function checkMayChangePasswords({ caller }: FastifyRequest): void {
  if (!signedIn(caller).admin) throw new AppError(403, "Only administrators can change other users' passwords")
}

const changed = { message: 'Password changed successfully' }

type PasswordChange = {
  readonly userId: string
  readonly password: string
  /** The account whose current password was checked. */
  readonly checked?: Account
  readonly keptSession: string
}

async function change(
  deps: Writes,
  request: FastifyRequest,
  { userId, password, checked, keptSession }: PasswordChange,
): Promise<void> {
  const passwordHash = await hashPassword(password, deps.config.auth.passwordHashCost)
  await commit(deps, actorOf(request), async (tx): Promise<WorkResult<undefined>> => {
    const locked = await lockAccount(tx, userId)
    const { account, events } = decidePasswordChange({ locked, ...(checked && { checked }) })
    await setPassword(tx, account.id, passwordHash)
    await endAccess(tx, account, keptSession)
    return { result: undefined, events }
  })
}

async function refuse(deps: Writes, request: FastifyRequest, userId: string): Promise<AppError> {
  await commit(deps, actorOf(request), async () => ({
    result: undefined,
    events: [{ type: 'auth.password_change_failed', data: { userId } }],
  }))
  return wrongCurrentPassword()
}

/**
 * Mails a link or code for a new password. Body and time of the answer are the same for every address: the mail is
 * queued beside it.
 *
 * @throws {AppError} 400 for a missing address or an untrusted link, before any account is looked up; 403 where LOCAL is
 *   off
 */
export async function requestPasswordReset(
  deps: Reads & Writes & CurrentSettings,
  request: FastifyRequest,
  body: Static<typeof LinkBody>,
): Promise<{ message: string }> {
  const wanted = linkRequestOf(deps, body)
  const account = await findAccount(withoutWaiting(deps), wanted.email)
  if (account?.status === 'active')
    afterwards(deps, 'queueing a password reset', () => queueReset(deps, request, account, wanted))
  return { message: `If an account exists, a reset ${wanted.mode} will be sent` }
}

/**
 * Sets a new password by a mailed link or code, once, and ends everything else
 * that opens the account. It signs nobody in, so a second factor is still asked for at login.
 *
 * @throws {AppError} 400 for a missing or unfit password, and for a secret that opens nothing
 */
export async function resetPassword(
  deps: Writes,
  request: FastifyRequest,
  typed: string,
  { password, email: typedEmail }: Static<typeof ResetBody>,
): Promise<{ message: string }> {
  checkNewPassword(password)
  const email = optionalEmailOf(typedEmail)
  const passwordHash = await hashPassword(password, deps.config.auth.passwordHashCost)
  const presented = { purpose: 'password-reset', typed, email } as const
  const refusal = await commit<AppError | undefined>(deps, actorOf(request), async (tx) => {
    const redeemed = await redeem(deps, tx, request, presented, opensNothing)
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

function queueReset(deps: Writes, request: FastifyRequest, user: Account, { email: to, ...context }: LinkRequest) {
  return commit(deps, actorOf(request), async (tx) => {
    const { event } = await queueMail(tx, { type: 'password_reset', to, user, context })
    return { result: undefined, events: [{ type: 'auth.password_reset_requested', data: { userId: user.id } }, event] }
  })
}
