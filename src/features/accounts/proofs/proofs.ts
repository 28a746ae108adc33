import { randomBytes } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import type { CurrentAccess } from '../../../access/store.ts'
import { keyedHashes, seal, unseal } from '../../../adapters/sealing.ts'
import { hashSecret, newSecret } from '../../../adapters/tokens.ts'
import { totpStep } from '../../../adapters/totp.ts'
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
import { type Challenge, insertChallenge, takeChallenge } from '../../../db/unlogged/secrets.ts'
import { AppError } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { isObject } from '../../../query/guards.ts'
import type { CurrentSettings } from '../../settings/settings.ts'

/*
 * Passkeys and second factors as proofs of who a user is: signing in asks for them, and the routes of each build on
 * signing in.
 */

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
  const stored = isCredentialId(response.id) ? await findCredential(withoutWaiting(deps), response.id) : undefined
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

/** Base64url; the database could not even be asked for a NUL. */
const isCredentialId = (id: unknown): id is string => typeof id === 'string' && /^[\w-]+$/.test(id)

type PasskeyFailure = { readonly refused: unknown; readonly stored: StoredCredential | undefined }

/** Authenticators may leave out whose passkey it is, but may not name another user. */
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
  return db.any<Passkey>(sql`
    select id, name, "deviceType", "backedUp", ${wire('createdAt')}, ${wire('lastUsedAt')}
    from "svc_Passkey" where "user_Id" = ${userId} order by "createdAt", id`)
}

export async function credentialIdsOf(db: Reader, userId: string): Promise<readonly string[]> {
  const rows = await db.any<{ credentialID: string }>(sql`
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
  return tx.maybeOne<Pick<Passkey, 'id' | 'name'>>(sql`
    insert into "svc_Passkey" ("user_Id", name, "credentialID", "publicKey", counter, "deviceType", "backedUp", transports, aaguid)
    values (${userId}, ${name}, ${credentialId}, ${publicKey}, ${counter}, ${deviceType}, ${backedUp},
            ${sql.jsonb(transports)}, ${aaguid})
    on conflict ("credentialID") do nothing
    returning id, name`)
}

export type StoredCredential = KnownCredential & { readonly id: string; readonly userId: string }

function findCredential(db: Reader, credentialId: string): Promise<StoredCredential | undefined> {
  return db.maybeOne<StoredCredential>(sql`
    select id, "user_Id" as "userId", "credentialID" as "credentialId", "publicKey", counter::float8 as counter
    from "svc_Passkey" where "credentialID" = ${credentialId}`)
}

/**
 * Notes a use; false when the passkey is gone, or another use with this counter was noted meanwhile. Authenticators
 * without a counter always say 0.
 */
export async function noteUse(tx: Tx, id: string, counter: number, backedUp: boolean): Promise<boolean> {
  const rows = await tx.any(sql`
    update "svc_Passkey"
    set counter = ${counter}::bigint, "lastUsedAt" = now(), "backedUp" = ${backedUp}
    where id = ${id} and (counter < ${counter}::bigint or (counter = 0 and ${counter}::bigint = 0))
    returning id`)
  return rows.length === 1
}

/** False when the user has no such passkey. */
export async function deletePasskey(tx: Tx, userId: string, id: string): Promise<boolean> {
  const rows = await tx.any(sql`
    delete from "svc_Passkey" where id::text = ${id.toLowerCase()} and "user_Id" = ${userId} returning id`)
  return rows.length === 1
}

const wire = (column: string) =>
  sql`to_char(${sql.identifier([column])} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as ${sql.identifier([column])}`

/** The capabilities that changes of this folder need. */
export type PasskeyWrites = Reads & Writes & Clock & CurrentAccess & CurrentCatalog & CurrentSettings

/**
 * A new challenge for an account that has shown its first factor; undefined where no second one is needed. `pending` is
 * what the sign-in asked for: it is kept until the challenge is answered. A new password ends the challenge.
 */
export async function challengeSecondFactor(
  { config }: Configuration,
  tx: Tx,
  account: { readonly id: string; readonly password: string | null },
  pending: object,
): Promise<string | undefined> {
  if (!config.auth.twoFactor || !(await hasSecondFactor(tx, account.id))) return undefined
  const token = newSecret()
  const data = { ...pending, passwordMark: passwordMark(account) }
  await insertChallenge(tx, { identifier: challengeIdentifier(token), userId: account.id, data })
  return token
}

/** The database knows a challenge by this, so its token can't be read there. */
export function challengeIdentifier(token: string): string {
  return `two-factor:${hashSecret(token)}`
}

/** Changes with the account's password. */
export function passwordMark({ password }: { readonly password: string | null }): string {
  return hashSecret(password ?? '')
}

const backupCodeCount = 10

/** Ten codes of 10 hex digits, each of which stands in for one code of the app. */
export function newBackupCodes(): string[] {
  return Array.from({ length: backupCodeCount }, () => randomBytes(5).toString('hex'))
}

/** The form in which a backup code is stored; as `keyedHashes`. */
export function backupCodeHashes({ config }: Configuration, owner: string, code: string): string[] {
  return keyedHashes(config, { purpose: 'two-factor backup code', owner }, code)
}

export const secretOf = (owner: string) => ({ purpose: 'two-factor secret', owner })

/**
 * Whether a code is a user's second factor, and uses it up: the app's code of now (or of the step before or after), or
 * a backup code. Anything else counts as wrong, codes that were used before too. While the account is locked no code
 * is right, and none is counted.
 */
export async function acceptCode(deps: Configuration, tx: Tx, userId: string, typed: string): Promise<boolean> {
  const enrolment = await lockEnrolment(tx, userId)
  if (enrolment === undefined || !enrolment.enabled || enrolment.locked) return false
  const code = typed.replaceAll(/[\s-]/g, '').toLowerCase()
  const isRight = /^[0-9]{6}$/.test(code)
    ? await acceptAppCode(deps, tx, userId, { ...enrolment, code })
    : /^[0-9a-f]{10}$/.test(code) && (await acceptBackupCode(tx, userId, backupCodeHashes(deps, userId, code)))
  if (!isRight) await countWrongCode(tx, userId, lockSeconds(enrolment.failures + 1))
  return isRight
}

async function acceptAppCode(
  { config }: Configuration,
  tx: Tx,
  userId: string,
  { secret, now, code }: { secret: string; now: number; code: string },
): Promise<boolean> {
  const opened = unseal(config, secretOf(userId), secret)
  if (opened === undefined) throw secondFactorLost()
  const { text, outdated } = opened
  const step = totpStep(text, code, now)
  if (step === undefined || !(await acceptStep(tx, userId, step))) return false
  if (outdated) await resealSecret(tx, userId, seal(config, secretOf(userId), text))
  return true
}

/** Nothing that the user could type would be right, so no try is counted. */
const secondFactorLost = () =>
  new AppError(503, 'The second factor of this account can no longer be read: an operator has to remove it', {
    code: 'TWO_FACTOR_LOST',
  })

/**
 * For how many seconds an account takes no code after so many wrong ones in a row; null where it still takes the next
 * one. Every fifth locks: a quarter of an hour first, then twice as long as before, four hours at most.
 */
export function lockSeconds(failures: number): number | null {
  if (failures % 5 !== 0) return null
  return 15 * 60 * 2 ** Math.min(failures / 5 - 1, 4)
}

/** 401 with the code that clients know. */
export function wrongCode(message = 'Invalid or expired two-factor code'): AppError {
  return new AppError(401, message, { code: 'INVALID_TWO_FACTOR_CODE' })
}

/** Whether a user must be asked for a second factor. */
export async function hasSecondFactor(db: Reader, userId: string): Promise<boolean> {
  const { found } = await db.one<{ found: boolean }>(sql`
    select exists(select from "svc_TwoFactor" where "user_Id" = ${userId} and enabled) as found`)
  return found
}

/** A challenge that can still be answered, without counting a try. */
export function findChallenge(db: Reader, identifier: string): Promise<Challenge | undefined> {
  return db.maybeOne<Challenge>(sql`
    select identifier, "user_Id" as "userId", data from "svc_Challenge"
    where identifier = ${identifier} and "expiresAt" > now()`)
}

type Enrolment = {
  /** Sealed. */
  readonly secret: string
  readonly enabled: boolean
  /** Too many wrong codes: for now none counts. */
  readonly locked: boolean
  /** Wrong codes in a row. */
  readonly failures: number
  /** Milliseconds since 1970 by the database's clock. */
  readonly now: number
}

/** A user's enrolment, held until the transaction ends, so that codes of one user are checked one after the other. */
export function lockEnrolment(tx: Tx, userId: string): Promise<Enrolment | undefined> {
  return tx.maybeOne<Enrolment>(sql`
    select secret, enabled, coalesce("lockedUntil" > clock_timestamp(), false) as locked, failures,
      (extract(epoch from clock_timestamp()) * 1000)::float8 as now
    from "svc_TwoFactor" where "user_Id" = ${userId} for update`)
}

type NewEnrolment = {
  readonly userId: string
  /** Sealed. */
  readonly secret: string
  /** Keyed hashes. */
  readonly backupCodes: readonly string[]
}

/** Begins an enrolment, or begins it anew; false when a finished one is there. */
export async function beginEnrolment(tx: Tx, { userId, secret, backupCodes }: NewEnrolment): Promise<boolean> {
  const rows = await tx.any(sql`
    insert into "svc_TwoFactor" as f ("user_Id", secret, "backupCodes")
    values (${userId}, ${secret}, ${sql.jsonb(backupCodes)})
    on conflict ("user_Id") do update
      set secret = excluded.secret, "backupCodes" = excluded."backupCodes", "lastStep" = null, "updatedAt" = now()
      where not f.enabled
    returning id`)
  return rows.length === 1
}

/** Finishes an enrolment; false when that was done already. Its code is used up. */
export async function finishEnrolment(tx: Tx, userId: string, step: number): Promise<boolean> {
  const rows = await tx.any(sql`
    update "svc_TwoFactor" set enabled = true, "lastStep" = ${step}, "updatedAt" = now()
    where "user_Id" = ${userId} and not enabled returning id`)
  return rows.length === 1
}

/** Uses up every code up to the step; false when this one is used up already. */
async function acceptStep(tx: Tx, userId: string, step: number): Promise<boolean> {
  const rows = await tx.any(sql`
    update "svc_TwoFactor" set "lastStep" = ${step}, failures = 0, "lockedUntil" = null
    where "user_Id" = ${userId} and enabled and ("lastStep" is null or "lastStep" < ${step}) returning id`)
  return rows.length === 1
}

/** Uses a backup code up; false when none of the hashes is one that is left. */
async function acceptBackupCode(tx: Tx, userId: string, hashes: readonly string[]): Promise<boolean> {
  const wanted = sql.array(hashes, 'text')
  const rows = await tx.any(sql`
    update "svc_TwoFactor"
    set "backupCodes" = "backupCodes" - ${wanted}, failures = 0, "lockedUntil" = null, "updatedAt" = now()
    where "user_Id" = ${userId} and enabled and "backupCodes" ?| ${wanted} returning id`)
  return rows.length === 1
}

/** Replaces a secret that was sealed with the previous key. */
async function resealSecret(tx: Tx, userId: string, secret: string): Promise<void> {
  await tx.any(sql`update "svc_TwoFactor" set secret = ${secret} where "user_Id" = ${userId}`)
}

/** Counts a wrong code, and locks the account for these seconds; a new challenge changes nothing about that. */
async function countWrongCode(tx: Tx, userId: string, lockSeconds: number | null): Promise<void> {
  await tx.any(sql`
    update "svc_TwoFactor"
    set failures = failures + 1, "lockedUntil" = clock_timestamp() + make_interval(secs => ${lockSeconds}::float8)
    where "user_Id" = ${userId}`)
}

/** Ends an enrolment, finished or not; undefined when there is none, or the password is another one by now. */
export async function deleteEnrolment(
  tx: Tx,
  userId: string,
  passwordHash: string | null,
): Promise<{ enabled: boolean } | undefined> {
  return tx.maybeOne<{ enabled: boolean }>(sql`
    delete from "svc_TwoFactor" f using "svc_User" u
    where f."user_Id" = ${userId} and u.id = f."user_Id" and u.password is not distinct from ${passwordHash}
    returning f.enabled`)
}
