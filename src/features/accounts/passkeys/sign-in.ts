import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import type { CurrentAccess } from '../../../access/store.ts'
import { newSecret } from '../../../adapters/tokens.ts'
import { authenticationOptions } from '../../../adapters/webauthn.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import type { Tx } from '../../../db/sql.ts'
import { insertChallenge } from '../../../db/unlogged/challenges.ts'
import { withoutWaiting } from '../../../db/without-waiting.ts'
import type { AppError } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import { commit, type Outcome } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import {
  type AuthMode,
  accountOf,
  afterwards,
  type FirstFactor,
  membershipOf,
  type SignInAnswer,
  signInAtOnce,
  signInRefusal,
  signingIn,
} from '../auth/auth.ts'
import type { PasskeyWrites } from './capabilities.ts'
import { challengeKey, checkPasskey, enabledPasskeys, type Given, type Proof, refusedPasskey } from './passkeys.ts'
import { noteUse, type StoredCredential } from './queries.ts'
import type { AuthenticateBody } from './schema.ts'

/** A challenge for whoever has a passkey; it names no account, so it tells nothing about any. */
export async function beginAuthentication(rt: Writes, request: FastifyRequest) {
  const options = await authenticationOptions(enabledPasskeys(rt))
  const challengeId = newSecret()
  await commit(rt, actorOf(request), async (tx) => {
    const data = { challenge: options.challenge }
    await insertChallenge(tx, { identifier: challengeKey(challengeId), userId: null, data })
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
  rt: PasskeyWrites,
  request: FastifyRequest,
  { challengeId, response, authType: type = 'default', tenant_Id }: Static<typeof AuthenticateBody>,
  authMode: AuthMode,
): Promise<SignInAnswer> {
  const { stored, assertion } = await proven(rt, request, { challengeId, response })
  const account = await accountOf(withoutWaiting(rt), stored.userId)
  if (account === undefined || signInRefusal(account, rt.config.auth) !== undefined) throw refused()
  const membership = await membershipOf(rt, withoutWaiting(rt), account.id, tenant_Id)
  const factor = { account, membership, type, authMode }
  const answer = await commit(rt, signingIn(request, factor), (tx) =>
    openWith(rt, tx, request, { stored, assertion, factor }),
  )
  if (answer === undefined) throw refused()
  return answer
}

/** The passkey that signed the challenge, and what its authenticator said. */
async function proven(rt: Reads & Writes, request: FastifyRequest, given: Given): Promise<Proof> {
  const proof = await checkPasskey(rt, request, given)
  if (!('refused' in proof)) return proof
  if (proof.stored === undefined) throw refused()
  throw failed(rt, request, proof.stored, proof.refused)
}

async function openWith(
  rt: Clock & Configuration & CurrentAccess & CurrentSettings,
  tx: Tx,
  request: FastifyRequest,
  { stored, assertion, factor }: Proof & { factor: FirstFactor },
): Promise<Outcome<SignInAnswer | undefined>> {
  if (!(await noteUse(tx, stored.id, assertion.counter, assertion.backedUp))) return { result: undefined }
  return signInAtOnce(rt, tx, request, factor)
}

/** The event is appended beside the answer, as for a wrong password: its time would tell that the passkey is known. */
function failed(rt: Writes, request: FastifyRequest, { userId }: StoredCredential, reason: unknown): AppError {
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

const refused = () => refusedPasskey('Passkey authentication failed')
