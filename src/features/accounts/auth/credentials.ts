import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { signedIn } from '../../../access/principal.ts'
import { hashPassword, verifyPassword } from '../../../adapters/passwords.ts'
import { hashSecret } from '../../../adapters/tokens.ts'
import type { Configuration } from '../../../config/config.ts'
import { type Reads, withoutWaiting } from '../../../db/pools.ts'
import type { Tx } from '../../../db/sql.ts'
import { consumeSecret, insertChallenge, takeChallenge } from '../../../db/unlogged/secrets.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type WorkResult, type Writes } from '../../../events/commit.ts'
import type { DomainEvent } from '../../../events/types.ts'
import { actorOf } from '../../../http/http.ts'
import { isUuid } from '../../../language/text.ts'
import { queueMail, secretOwner, wantedEmailKey, wantedEmailSeconds } from '../../messaging/mail/mail.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { afterwards } from './capabilities.ts'
import {
  decideAddressConfirmation,
  decideAddressRequest,
  decidePasswordChange,
  mayBeMailedAgain,
  unknownUser,
  wrongCurrentPassword,
} from './decisions.ts'
import { endAccess, lockCaller, redeem } from './ownership.ts'
import {
  type Account,
  accountOf,
  findAccount,
  hasAskedRecently,
  lockAccount,
  lockHolder,
  lockVerificationOf,
  markVerified,
  setPassword,
  setVerifiedEmail,
  type VerificationState,
  verificationStateOf,
  wantedEmailOf,
  wasMailedRecently,
} from './queries.ts'
import {
  checkNewPassword,
  defaultLink,
  type EmailChangeBody,
  emailOf,
  type LinkBody,
  type LinkRequest,
  linkRequestOf,
  optionalEmailOf,
  type PasswordChangeBody,
  type PasswordOfBody,
  type ResendBody,
  type ResetBody,
  trustedLink,
} from './shapes.ts'

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
    const isOwn = userId === request.caller.userId
    const locked = isOwn ? await lockCaller(tx, request) : await lockAccount(tx, userId)
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
 * queued beside it. An administrator, who has it mailed to a new user, may leave out the link: then it is the first trusted
 * frontend.
 *
 * @throws {AppError} 400 for a missing address or an untrusted link, before any account is looked up; 403 where LOCAL is
 *   off
 */
export async function requestPasswordReset(
  deps: Reads & Writes & CurrentSettings,
  request: FastifyRequest,
  body: Static<typeof LinkBody>,
): Promise<{ message: string }> {
  const isOfAdmin = request.caller.admin && body.mode !== 'code' && body.link === undefined
  const wanted = linkRequestOf(deps, isOfAdmin ? { ...body, link: defaultLink(deps) } : body)
  const account = await findAccount(withoutWaiting(deps), wanted.email)
  if (account?.status === 'active')
    afterwards(deps, 'queueing a password reset', () => queueReset(deps, request, account, wanted))
  return { message: `If an account exists, a reset ${wanted.mode} will be sent` }
}

/**
 * Sets a new password by a mailed link or code, once, and ends everything else
 * that opens the account. It does not sign in, so a second factor is still asked for at login.
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

/**
 * Sends the verification mail again. A signed-in caller is told what became of it;
 * anybody else gets one answer, in the same time, whatever there is to the address. 400 for an untrusted link.
 */
export async function resendVerification(
  deps: Reads & Writes & CurrentSettings,
  request: FastifyRequest,
  { link: typed, email }: Static<typeof ResendBody>,
): Promise<{ message: string }> {
  const link = trustedLink(deps, typed)
  if (request.caller.sessionId !== undefined) return resendToCaller(deps, request, link)
  if (email === undefined) throw new AppError(400, 'Email is required')
  await resendToAddress(deps, request, link, emailOf(email))
  return { message: 'If an account exists for this email, a verification email has been sent.' }
}

/**
 * Marks the address that the token was mailed to as verified. The token works once; 400 when it does not. The password
 * stays: following this link confirms the account that was set up, as the mail says (docs/decisions/0008). The token of a new
 * address gives the account that address.
 */
export async function verifyEmail(deps: Writes, request: FastifyRequest, token: string): Promise<void> {
  const wanted = { purpose: 'email-verification', hash: hashSecret(token), email: undefined } as const
  await commit(deps, actorOf(request), async (tx) => {
    const events = await confirmEmailChange(tx, wanted.hash)
    if (events !== undefined) return { result: undefined, events }
    const holder = await lockHolder(tx, wanted.purpose, wanted.hash)
    const email = await consumeSecret(tx, wanted)
    if (holder === undefined || holder.email !== email) throw new AppError(400, 'Invalid or expired verification token')
    await markVerified(tx, holder.id)
    return { result: undefined, events: [{ type: 'auth.email_verified', data: { userId: holder.id } }] }
  })
}

async function resendToCaller(
  deps: Reads & Writes,
  request: FastifyRequest,
  link: string,
): Promise<{ message: string }> {
  const { userId } = signedIn(request.caller)
  const account = await verificationStateOf(withoutWaiting(deps), { userId })
  if (account === undefined) throw new AppError(400, 'User not found or no email set')
  if (account.emailVerified) return { message: 'Email already verified' }
  if (await sendVerification(deps, request, account, link)) return { message: 'Verification email sent' }
  throw new AppError(429, 'A verification email was sent recently. Please wait before requesting another.')
}

/** Looks the same things up for every address and sends beside the answer, so its time tells nothing. */
async function resendToAddress(
  deps: Reads & Writes,
  request: FastifyRequest,
  link: string,
  email: string,
): Promise<void> {
  const account = await verificationStateOf(withoutWaiting(deps), { email })
  const recent = await wasMailedRecently(withoutWaiting(deps), email, deps.config.auth.emailVerificationResendCooldown)
  if (account === undefined || !mayBeMailedAgain(account, recent)) return
  afterwards(deps, 'sending a verification mail again', () => sendVerification(deps, request, account, link))
}

/** False while the last mail to the address is younger than EMAIL_VERIFICATION_RESEND_COOLDOWN. */
async function sendVerification(
  deps: Writes,
  request: FastifyRequest,
  account: VerificationState,
  link: string,
): Promise<boolean> {
  return commit(deps, actorOf(request), async (tx) => {
    const events = await queueVerification(deps, tx, account, link)
    return { result: events.length > 0, events }
  })
}

/** Queues the mail that verifies the address of an account; its events. None within the cooldown as above. */
export async function queueVerification(
  { config }: Configuration,
  tx: Tx,
  account: Pick<VerificationState, 'id' | 'email'>,
  link: string,
): Promise<readonly DomainEvent[]> {
  const cooldown = config.auth.emailVerificationResendCooldown
  const free = cooldown === 0 || (await lockVerificationOf(tx, account.email))
  if (!free || (await wasMailedRecently(tx, account.email, cooldown))) return []
  return [(await queueMail(tx, { type: 'verification', to: account.email, user: account, context: { link } })).event]
}

/**
 * Asks for another address for the caller's account. The new address is mailed a link,
 * and only who follows it gives the account that address; the old one is told. Until then nothing changes. A newer request
 * ends an older one, and so does whatever ends the account's links: a new password above all.
 *
 * @throws {AppError} 400 for a missing or wrong password, an account without one, an address that is the account's or
 *   (unless AUTH_GENERIC_RESPONSES) another one's; 429 shortly after another such request of the account, or (unless
 *   AUTH_GENERIC_RESPONSES) another such mail to the address
 */
export async function requestEmailChange(
  deps: Reads & Writes & CurrentSettings,
  request: FastifyRequest,
  body: Static<typeof EmailChangeBody>,
): Promise<{ message: string }> {
  const { userId } = signedIn(request.caller)
  const email = emailOf(body.email)
  const link = body.link === undefined ? defaultLink(deps) : trustedLink(deps, body.link)
  const account = await accountOf(withoutWaiting(deps), userId)
  if (account === undefined) throw errors.unauthorized('Unauthorized')
  await checkPassword(deps, request, account, body.currentPassword)
  if (email === account.email) throw new AppError(400, 'This is the address of your account already')
  await commit(deps, actorOf(request), (tx) => ask(deps, tx, request, { account, email, link }))
  return { message: 'A mail to confirm the new address has been sent to it.' }
}

/**
 * Gives the account of a confirmed change its new address, if the hash is that of such a link; links and codes of both
 * addresses end with it. Undefined where it is none. Throws 400 for one that is over, 409 when the address has become
 * another account's.
 */
async function confirmEmailChange(tx: Tx, hash: string): Promise<readonly DomainEvent[] | undefined> {
  const wanted = await wantedEmailOf(tx, hash)
  if (wanted === undefined) return undefined
  const { userId, email } = wanted
  const account = await lockAccount(tx, userId)
  const owner = secretOwner('email-change', email, userId)
  const isUsed = (await consumeSecret(tx, { purpose: 'email-change', hash, email: owner })) === undefined
  const asked = await takeChallenge(tx, wantedEmailKey(userId))
  const isTaken = (await findAccount(tx, email)) !== undefined
  const { status } = account ?? {}
  const events = decideAddressConfirmation({ userId, email, asked: asked?.email, isUsed, status, isTaken })
  await setVerifiedEmail(tx, userId, email)
  return events
}

async function checkPassword(
  deps: Writes,
  request: FastifyRequest,
  { id: userId, password }: Account,
  current: string | undefined,
): Promise<void> {
  if (password === null)
    throw new AppError(400, 'Changing the address requires a password on this account. Set a password first.', {
      code: 'EMAIL_CHANGE_REQUIRES_PASSWORD',
    })
  if (current === undefined) throw new AppError(400, 'Current password is required')
  if (await verifyPassword(current, password, deps.config.auth.passwordHashCost)) return
  await commit(deps, actorOf(request), async () => ({
    result: undefined,
    events: [{ type: 'auth.email_change_failed', data: { userId } }],
  }))
  throw wrongCurrentPassword()
}

/** `account`: as it was when its password was checked. */
type AddressChange = { readonly account: Account; readonly email: string; readonly link: string }

async function ask(
  { config }: Configuration,
  tx: Tx,
  request: FastifyRequest,
  { account, email, link }: AddressChange,
): Promise<WorkResult<undefined>> {
  const { id: userId, email: oldEmail } = account
  // From here on no other request of the account is decided before this one ends.
  const locked = await lockCaller(tx, request)
  const cooldown = config.auth.emailVerificationResendCooldown
  const isFree = cooldown === 0 || (await lockVerificationOf(tx, email))
  const isMailed = decideAddressRequest(
    {
      checked: account,
      locked,
      hasAskedRecently: await hasAskedRecently(tx, userId, cooldown),
      wasMailedRecently: !isFree || (await wasMailedRecently(tx, email, cooldown, 'email_change')),
      isTaken: (await findAccount(tx, email)) !== undefined,
    },
    config.auth,
  )
  await insertChallenge(tx, { identifier: wantedEmailKey(userId), userId, data: { email } }, wantedEmailSeconds)
  const context = { link, oldEmail: oldEmail ?? '' }
  const mails = isMailed ? [await queueMail(tx, { type: 'email_change', to: email, user: account, context })] : []
  if (oldEmail !== null)
    mails.push(
      await queueMail(tx, { type: 'email_change_notice', to: oldEmail, user: account, context: { newEmail: email } }),
    )
  return {
    result: undefined,
    events: [{ type: 'auth.email_change_requested', data: { userId } }, ...mails.map(({ event }) => event)],
  }
}
