import type { FastifyRequest } from 'fastify'
import { hashSecret } from '../../../adapters/tokens.ts'
import { type Assertion, userHandleOf, verifyAssertion } from '../../../adapters/webauthn.ts'
import type { Configuration, PasskeyConfig } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import { takeChallenge } from '../../../db/unlogged/challenges.ts'
import { withoutWaiting } from '../../../db/without-waiting.ts'
import { AppError } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import { commit } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { isObject } from '../../../query/guards.ts'
import { hasSecondFactor } from '../two-factor/two-factor.ts'
import { findCredential, noteUse, type StoredCredential } from './queries.ts'

export { credentialIdsOf } from './queries.ts'

/** 400 unless PASSKEY is listed in AUTH_SERVICES_ENABLED and all of PASSKEY_RP_ID, _RP_NAME and _ORIGIN are set. */
export function enabledPasskeys({ config }: Configuration): PasskeyConfig {
  if (config.passkey !== undefined) return config.passkey
  throw new AppError(400, 'Passkeys are not enabled on this server', { code: 'PASSKEY_NOT_ENABLED' })
}

/** 401, and nothing about what was wrong. */
export function refusedPasskey(message: string): AppError {
  return new AppError(401, message, { code: 'INVALID_PASSKEY_RESPONSE' })
}

/**
 * Whether a passkey of this user answers a challenge of `beginAuthentication`, and notes its use. For callers who are
 * signed in and must show that they are there.
 */
export async function usePasskey(
  rt: Reads & Writes,
  request: FastifyRequest,
  given: Given,
  userId: string,
): Promise<boolean> {
  const proof = await checkPasskey(rt, request, given)
  if ('refused' in proof || proof.stored.userId !== userId) return false
  const { stored, assertion } = proof
  return commit(rt, actorOf(request), async (tx) => ({
    result: await noteUse(tx, stored.id, assertion.counter, assertion.backedUp),
  }))
}

/** What an authenticator has answered to which challenge. */
export type Given = { readonly challengeId: string; readonly response: object & { readonly id?: unknown } }
export type Proof = { readonly stored: StoredCredential; readonly assertion: Assertion }

/** The passkey that signed a challenge and what its authenticator said, or why not, and of which passkey. Uses the challenge up. */
export async function checkPasskey(
  rt: Reads & Writes,
  request: FastifyRequest,
  { challengeId, response }: Given,
): Promise<Proof | PasskeyFailure> {
  const data = await commit(rt, actorOf(request), async (tx) => ({
    result: await takeChallenge(tx, challengeKey(challengeId)),
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

type PasskeyFailure = { readonly refused: unknown; readonly stored: StoredCredential | undefined }

/** Authenticators may leave out whose passkey it is, but may not name somebody else. */
function namesOwner(response: object, userId: string): boolean {
  const { response: said } = response as { response?: unknown }
  const { userHandle } = isObject(said) ? said : {}
  return userHandle === undefined || userHandle === null || userHandle === userHandleOf(userId)
}

/** The database knows a challenge by this. */
export const challengeKey = (challengeId: string) => `passkey:auth:${hashSecret(challengeId)}`
