import type { FastifyRequest } from 'fastify'
import type { CurrentAccess } from '../../../access/store.ts'
import { hashSecret } from '../../../adapters/tokens.ts'
import {
  type Assertion,
  type KnownCredential,
  type NewCredential,
  userHandleOf,
  verifyAssertion,
} from '../../../adapters/webauthn.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration, PasskeyConfig } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { type Reads, withoutWaiting } from '../../../db/pools.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { takeChallenge } from '../../../db/unlogged/secrets.ts'
import { AppError } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { isObject } from '../../../query/guards.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { hasSecondFactor } from './second-factor.ts'

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
  deps: Reads & Writes,
  request: FastifyRequest,
  given: ChallengeResponse,
  userId: string,
): Promise<boolean> {
  const proof = await checkPasskey(deps, request, given)
  if ('refused' in proof || proof.stored.userId !== userId) return false
  const { stored, assertion } = proof
  return commit(deps, actorOf(request), async (tx) => ({
    result: await noteUse(tx, stored.id, assertion.counter, assertion.backedUp),
  }))
}

/** The response of an authenticator to a challenge. */
export type ChallengeResponse = { readonly challengeId: string; readonly response: object & { readonly id?: unknown } }
export type PasskeyProof = { readonly stored: StoredCredential; readonly assertion: Assertion }

/** The passkey that signed a challenge and what its authenticator said, or why not, and of which passkey. Uses the challenge up. */
export async function checkPasskey(
  deps: Reads & Writes,
  request: FastifyRequest,
  { challengeId, response }: ChallengeResponse,
): Promise<PasskeyProof | PasskeyFailure> {
  const data = await commit(deps, actorOf(request), async (tx) => ({
    result: await takeChallenge(tx, challengeKey(challengeId)),
  }))
  const stored = typeof response.id === 'string' ? await findCredential(withoutWaiting(deps), response.id) : undefined
  if (data === undefined || stored === undefined) return { refused: 'no such challenge or passkey', stored: undefined }
  if (!namesOwner(response, stored.userId)) return { refused: 'it names another user', stored }
  const assertion = await verifyAssertion(enabledPasskeys(deps), response, data.challenge as string, stored)
  if ('refused' in assertion) return { refused: assertion.refused, stored }
  if (
    !assertion.userVerified &&
    deps.config.auth.twoFactor &&
    (await hasSecondFactor(withoutWaiting(deps), stored.userId))
  )
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

/** A passkey as its owner sees it; times in wire form. */
type Passkey = {
  readonly id: string
  readonly name: string
  readonly deviceType: string | null
  readonly backedUp: boolean
  readonly createdAt: string
  readonly lastUsedAt: string | null
}

/** A user's passkeys, the oldest first. */
export function passkeysOf(db: Reader, userId: string): Promise<readonly Passkey[]> {
  return db.any<Passkey>(sql.unsafe`
    select id, name, "deviceType", "backedUp", ${wire('createdAt')}, ${wire('lastUsedAt')}
    from "svc_Passkey" where "user_Id" = ${userId} order by "createdAt", id`)
}

export async function credentialIdsOf(db: Reader, userId: string): Promise<readonly string[]> {
  const rows = await db.any<{ credentialID: string }>(sql.unsafe`
    select "credentialID" from "svc_Passkey" where "user_Id" = ${userId}`)
  return rows.map((row) => row.credentialID)
}

/** The new row; undefined when the credential is known already, whosever it is. */
export function insertPasskey(
  tx: Tx,
  userId: string,
  name: string,
  credential: NewCredential,
): Promise<Pick<Passkey, 'id' | 'name'> | undefined> {
  const { credentialId, publicKey, counter, deviceType, backedUp, transports, aaguid } = credential
  return tx.maybeOne<Pick<Passkey, 'id' | 'name'>>(sql.unsafe`
    insert into "svc_Passkey" ("user_Id", name, "credentialID", "publicKey", counter, "deviceType", "backedUp", transports, aaguid)
    values (${userId}, ${name}, ${credentialId}, ${publicKey}, ${counter}, ${deviceType}, ${backedUp},
            ${sql.jsonb(transports as never)}, ${aaguid})
    on conflict ("credentialID") do nothing
    returning id, name`)
}

export type StoredCredential = KnownCredential & { readonly id: string; readonly userId: string }

function findCredential(db: Reader, credentialId: string): Promise<StoredCredential | undefined> {
  return db.maybeOne<StoredCredential>(sql.unsafe`
    select id, "user_Id" as "userId", "credentialID" as "credentialId", "publicKey", counter::float8 as counter
    from "svc_Passkey" where "credentialID" = ${credentialId}`)
}

/**
 * Notes a use; false when the passkey is gone, or another use with this counter was noted meanwhile. Authenticators
 * without a counter always say 0.
 */
export async function noteUse(tx: Tx, id: string, counter: number, backedUp: boolean): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`
    update "svc_Passkey"
    set counter = ${counter}::bigint, "lastUsedAt" = now(), "backedUp" = ${backedUp}
    where id = ${id} and (counter < ${counter}::bigint or (counter = 0 and ${counter}::bigint = 0))
    returning id`)
  return rows.length === 1
}

/** False when the user has no such passkey. */
export async function deletePasskey(tx: Tx, userId: string, id: string): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`
    delete from "svc_Passkey" where id::text = ${id.toLowerCase()} and "user_Id" = ${userId} returning id`)
  return rows.length === 1
}

const wire = (column: string) =>
  sql.fragment`to_char(${sql.identifier([column])} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as ${sql.identifier([column])}`

/** The capabilities that changes of this folder need. */
export type PasskeyWrites = Reads & Writes & Clock & CurrentAccess & CurrentCatalog & CurrentSettings
