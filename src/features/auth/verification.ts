import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { hashSecret } from '../../adapters/tokens.ts'
import { consumeSecret } from '../../db/unlogged/secrets.ts'
import { withoutWaiting } from '../../db/without-waiting.ts'
import { AppError } from '../../errors.ts'
import { commit } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { queueMail } from '../mail/mail.ts'
import { signedIn } from '../permissions/permissions.ts'
import { afterwards } from './afterwards.ts'
import { confirmEmailChange } from './email-change.ts'
import { emailOf, type ResendBody } from './input.ts'
import { trustedLink } from './links.ts'
import {
  lockHolder,
  lockVerificationOf,
  markVerified,
  type VerificationState,
  verificationStateOf,
  wasMailedRecently,
} from './queries.ts'

/**
 * Sends the verification mail again (spec: Resend behaviour by caller). A signed-in caller is told what became of it;
 * anybody else gets one answer, in the same time, whatever there is to the address. 400 for an untrusted link.
 */
export async function resendVerification(
  rt: Runtime,
  request: FastifyRequest,
  { link: typed, email }: Static<typeof ResendBody>,
): Promise<{ message: string }> {
  const link = trustedLink(rt, typed)
  if (request.caller.sessionId !== undefined) return resendToCaller(rt, request, link)
  if (email === undefined) throw new AppError(400, 'Email is required')
  await resendToAddress(rt, request, link, emailOf(email))
  return { message: 'If an account exists for this email, a verification email has been sent.' }
}

/**
 * Marks the address that the token was mailed to as verified. The token works once; 400 when it does not. The password
 * stays: whoever follows this link confirms the account that was set up, as the mail says (ADR 8). The token of a new
 * address gives the account that address.
 */
export async function verifyEmail(rt: Runtime, request: FastifyRequest, token: string): Promise<void> {
  const wanted = { purpose: 'email-verification', hash: hashSecret(token), email: undefined } as const
  await commit(rt, actorOf(request), async (tx) => {
    const events = await confirmEmailChange(tx, wanted.hash)
    if (events !== undefined) return { result: undefined, events }
    const holder = await lockHolder(tx, wanted.purpose, wanted.hash)
    const email = await consumeSecret(tx, wanted)
    if (holder === undefined || holder.email !== email) throw new AppError(400, 'Invalid or expired verification token')
    await markVerified(tx, holder.id)
    return { result: undefined, events: [{ type: 'auth.email_verified', data: { userId: holder.id } }] }
  })
}

async function resendToCaller(rt: Runtime, request: FastifyRequest, link: string): Promise<{ message: string }> {
  const { userId } = signedIn(request.caller)
  const account = await verificationStateOf(withoutWaiting(rt), { userId })
  if (account === undefined) throw new AppError(400, 'User not found or no email set')
  if (account.emailVerified) return { message: 'Email already verified' }
  if (await send(rt, request, account, link)) return { message: 'Verification email sent' }
  throw new AppError(429, 'A verification email was sent recently. Please wait before requesting another.')
}

/** Looks the same things up for every address and sends beside the answer, so its time tells nothing. */
async function resendToAddress(rt: Runtime, request: FastifyRequest, link: string, email: string): Promise<void> {
  const account = await verificationStateOf(withoutWaiting(rt), { email })
  const recent = await wasMailedRecently(withoutWaiting(rt), email, rt.config.auth.emailVerificationResendCooldown)
  if (account === undefined || recent || account.emailVerified || account.status !== 'active') return
  afterwards(rt, 'sending a verification mail again', () => send(rt, request, account, link))
}

/** False while the last mail to the address is younger than EMAIL_VERIFICATION_RESEND_COOLDOWN. */
async function send(rt: Runtime, request: FastifyRequest, account: VerificationState, link: string): Promise<boolean> {
  const cooldown = rt.config.auth.emailVerificationResendCooldown
  return commit(rt, actorOf(request), async (tx) => {
    const free = cooldown === 0 || (await lockVerificationOf(tx, account.email))
    if (!free || (await wasMailedRecently(tx, account.email, cooldown))) return { result: false }
    const { event } = await queueMail(tx, { type: 'verification', to: account.email, user: account, context: { link } })
    return { result: true, events: [event] }
  })
}
