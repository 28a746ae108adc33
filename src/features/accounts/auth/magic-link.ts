import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import type { Reads } from '../../../db/pools.ts'
import { withoutWaiting } from '../../../db/without-waiting.ts'
import { AppError } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import { commit } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { queueMail } from '../../messaging/mail/mail.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { afterwards } from './afterwards.ts'
import type { AuthWrites } from './capabilities.ts'
import { type LinkBody, type MagicLinkQuery, optionalEmailOf } from './input.ts'
import { type LinkRequest, linkRequestOf } from './links.ts'
import { type Redeemed, redeem } from './ownership.ts'
import { type Account, findAccount } from './queries.ts'
import { membershipOf, type SignInAnswer, signIn } from './sign-in.ts'

/**
 * Mails a link or code to sign in with. An account that is not active is answered alike but
 * gets no mail. With AUTH_GENERIC_RESPONSES unknown addresses are too, and the mail is queued beside the answer.
 *
 * @throws {AppError} 400 for a missing address or an untrusted link, before any account is looked up; 404 for an unknown
 *   address; 403 where LOCAL is off
 */
export async function requestMagicLink(
  rt: Reads & Writes & CurrentSettings,
  request: FastifyRequest,
  body: Static<typeof LinkBody>,
): Promise<{ message: string }> {
  const wanted = linkRequestOf(rt, body)
  const account = await findAccount(withoutWaiting(rt), wanted.email)
  const generic = rt.config.auth.genericResponses
  if (account === undefined && !generic) throw new AppError(404, 'User not found')
  if (account?.status === 'active') {
    const send = () => queueLink(rt, request, account, wanted)
    if (generic) afterwards(rt, 'queueing a magic link', send)
    else await send()
  }
  return { message: `If an account exists for this email, a sign-in ${wanted.mode} has been sent.` }
}

/**
 * Signs in with a mailed link or code, once. The address is verified by
 * that. 400 when it opens nothing, 403 when the account has no role (at the tenant that was asked for); then it may be
 * tried again.
 */
export async function signInByMagicLink(
  rt: AuthWrites,
  request: FastifyRequest,
  typed: string,
  { authMode = 'jwt', authType: type = 'default', email, tenant_Id }: Static<typeof MagicLinkQuery>,
): Promise<SignInAnswer> {
  const presented = { purpose: 'magic-link', typed, email: optionalEmailOf(email) } as const
  const { redeemed, answer } = await commit<Entered>(rt, actorOf(request), async (tx) => {
    const redeemed = await redeem(rt, tx, request, presented, opensNothing)
    if (redeemed.refusal !== undefined) return { result: { redeemed }, events: redeemed.events }
    const { account, events } = redeemed
    const membership = await membershipOf(rt, tx, account.id, tenant_Id)
    const entered = await signIn(rt, tx, request, { account, membership, type, authMode })
    return { ...entered, result: { redeemed, answer: entered.result }, events: [...events, ...(entered.events ?? [])] }
  })
  if (redeemed.refusal !== undefined) throw redeemed.refusal
  if (answer === undefined) throw new AppError(400, opensNothing.message)
  return answer
}

type Entered = { readonly redeemed: Redeemed; readonly answer?: SignInAnswer | undefined }

const opensNothing = { message: 'Invalid or expired magic link', event: 'auth.magic_link_failed' } as const

function queueLink(rt: Writes, request: FastifyRequest, user: Account, { email: to, ...context }: LinkRequest) {
  return commit(rt, actorOf(request), async (tx) => {
    const { event } = await queueMail(tx, { type: 'magic_link', to, user, context })
    return { result: undefined, events: [{ type: 'auth.magic_link_requested', data: { userId: user.id } }, event] }
  })
}
