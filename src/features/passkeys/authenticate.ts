import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { hashSecret, newSecret } from '../../adapters/tokens.ts'
import { type Assertion, authenticationOptions, userHandleOf, verifyAssertion } from '../../adapters/webauthn.ts'
import type { Tx } from '../../db/sql.ts'
import { insertChallenge, takeChallenge } from '../../db/unlogged/challenges.ts'
import { withoutWaiting } from '../../db/without-waiting.ts'
import type { AppError } from '../../errors.ts'
import { commit, type Outcome } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import { isObject } from '../../query/guards.ts'
import type { Runtime } from '../../runtime.ts'
import { afterwards } from '../auth/afterwards.ts'
import type { AuthMode } from '../auth/input.ts'
import { type Account, accountOf } from '../auth/queries.ts'
import { type Answer, type FirstFactor, membershipOf, signInAtOnce, signingIn } from '../auth/sign-in.ts'
import { hasSecondFactor } from '../two-factor/queries.ts'
import { enabledPasskeys, refusedPasskey } from './passkeys.ts'
import { findCredential, noteUse, type StoredCredential } from './queries.ts'
import type { AuthenticateBody } from './schema.ts'

/** A challenge for whoever has a passkey; it names no account, so it tells nothing about any. */
export async function beginAuthentication(rt: Runtime, request: FastifyRequest) {
  const options = await authenticationOptions(enabledPasskeys(rt))
  const challengeId = newSecret()
  await commit(rt, actorOf(request), async (tx) => {
    const data = { challenge: options.challenge }
    await insertChallenge(tx, { identifier: identifierOf(challengeId), userId: null, data })
    return { result: undefined }
  })
  return { options, challengeId }
}

/**
 * Signs in with a passkey. No second factor is asked for; instead a user who has one must have been verified by the
 * authenticator (PIN, finger), so that a found key alone opens nothing. The challenge is used up whatever comes of it.
 *
 * @throws {AppError} 401, always alike, for everything that does not fit and for accounts
 *   that are not active; 403 for a tenant that the user has no role at
 */
export async function finishAuthentication(
  rt: Runtime,
  request: FastifyRequest,
  { challengeId, response, authType: type = 'default', tenant_Id }: Static<typeof AuthenticateBody>,
  authMode: AuthMode,
): Promise<Answer> {
  const { stored, assertion } = await proven(rt, request, { challengeId, response })
  const account = await accountOf(withoutWaiting(rt), stored.userId)
  if (account === undefined || !maySignIn(rt, account)) throw refused()
  const membership = await membershipOf(rt, withoutWaiting(rt), account.id, tenant_Id)
  const factor = { account, membership, type, authMode }
  const answer = await commit(rt, signingIn(request, factor), (tx) =>
    openWith(rt, tx, request, { stored, assertion, factor }),
  )
  if (answer === undefined) throw refused()
  return answer
}

/**
 * Whether a passkey of this user answers a challenge of `beginAuthentication`, and notes its use. For callers who are
 * signed in and must show that they are there.
 */
export async function usePasskey(rt: Runtime, request: FastifyRequest, given: Given, userId: string): Promise<boolean> {
  const proof = await checked(rt, request, given)
  if ('refused' in proof || proof.stored.userId !== userId) return false
  const { stored, assertion } = proof
  return commit(rt, actorOf(request), async (tx) => ({
    result: await noteUse(tx, stored.id, assertion.counter, assertion.backedUp),
  }))
}

/** What an authenticator has answered to which challenge. */
type Given = { readonly challengeId: string; readonly response: object & { readonly id?: unknown } }
type Proof = { readonly stored: StoredCredential; readonly assertion: Assertion }

/** The passkey that signed the challenge, and what its authenticator said. */
async function proven(rt: Runtime, request: FastifyRequest, given: Given): Promise<Proof> {
  const proof = await checked(rt, request, given)
  if (!('refused' in proof)) return proof
  if (proof.stored === undefined) throw refused()
  throw failed(rt, request, proof.stored, proof.refused)
}

/** As above, or why not, and of which passkey that is said. */
async function checked(
  rt: Runtime,
  request: FastifyRequest,
  { challengeId, response }: Given,
): Promise<Proof | Failure> {
  const data = await commit(rt, actorOf(request), async (tx) => ({
    result: await takeChallenge(tx, identifierOf(challengeId)),
  }))
  const stored = typeof response.id === 'string' ? await findCredential(withoutWaiting(rt), response.id) : undefined
  if (data === undefined || stored === undefined) return { refused: 'no such challenge or passkey', stored: undefined }
  if (!namesOwner(response, stored.userId)) return { refused: 'it names another user', stored }
  const assertion = await verifyAssertion(enabledPasskeys(rt), response, data.challenge as string, stored)
  if ('refused' in assertion) return { refused: assertion.refused, stored }
  if (!assertion.userVerified && rt.config.auth.twoFactor && (await hasSecondFactor(withoutWaiting(rt), stored.userId)))
    return { refused: 'its user was not verified', stored }
  return { stored, assertion }
}

type Failure = { readonly refused: unknown; readonly stored: StoredCredential | undefined }

/** Authenticators may leave out whose passkey it is, but may not name somebody else. */
function namesOwner(response: object, userId: string): boolean {
  const { response: said } = response as { response?: unknown }
  const { userHandle } = isObject(said) ? said : {}
  return userHandle === undefined || userHandle === null || userHandle === userHandleOf(userId)
}

/** Said by nothing but the refusal that every wrong passkey gets (auth facts §1). */
function maySignIn(rt: Runtime, { status, emailVerified }: Account): boolean {
  return status === 'active' && (emailVerified || !rt.config.auth.requireEmailVerification)
}

async function openWith(
  rt: Runtime,
  tx: Tx,
  request: FastifyRequest,
  { stored, assertion, factor }: Proof & { factor: FirstFactor },
): Promise<Outcome<Answer | undefined>> {
  if (!(await noteUse(tx, stored.id, assertion.counter, assertion.backedUp))) return { result: undefined }
  return signInAtOnce(rt, tx, request, factor)
}

/** The event is appended beside the answer, as for a wrong password: its time would tell that the passkey is known. */
function failed(rt: Runtime, request: FastifyRequest, { userId }: StoredCredential, reason: unknown): AppError {
  const actor = actorOf(request)
  request.log.info({ err: reason, userId }, 'a passkey was refused')
  afterwards(rt, 'recording a failed login', () =>
    commit(rt, actor, async () => ({
      result: undefined,
      events: [{ type: 'auth.login_failed', data: { userId } }],
    })),
  )
  return refused()
}

const identifierOf = (challengeId: string) => `passkey:auth:${hashSecret(challengeId)}`

const refused = () => refusedPasskey('Passkey authentication failed')
