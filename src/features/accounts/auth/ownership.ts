import type { FastifyRequest } from 'fastify'
import { signedIn } from '../../../access/principal.ts'
import { clientNetwork } from '../../../adapters/network-addresses.ts'
import { verifyPassword } from '../../../adapters/passwords.ts'
import { presentedSecret } from '../../../adapters/tokens.ts'
import type { Configuration } from '../../../config/config.ts'
import { type Reads, type ReservedReads, withoutWaiting } from '../../../db/pools.ts'
import type { Tx } from '../../../db/sql.ts'
import {
  type CodeOutcome,
  type Consumption,
  consumeCode,
  consumeSecret,
  deleteChallengesOf,
  deleteSecrets,
} from '../../../db/unlogged/secrets.ts'
import { deleteOtherSessions, lockSession } from '../../../db/unlogged/sessions.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import type { DomainEvent } from '../../../events/types.ts'
import { actorOf } from '../../../http/http.ts'
import { isObject } from '../../../query/guards.ts'
import { type SecretPurpose, secretIdentifier } from '../../messaging/mail/mail.ts'
import { acceptCode, credentialIdsOf, hasSecondFactor, usePasskey } from '../proofs/proofs.ts'
import { decideCaller, decideOwnership, decideRedemption, proofRefused } from './decisions.ts'
import {
  type Account,
  accountOf,
  dropCredentials,
  findAccount,
  lockAccount,
  lockHolder,
  verifyWithoutPassword,
} from './queries.ts'
import type { ProofInput } from './shapes.ts'

type PresentedSecret = {
  readonly purpose: SecretPurpose
  /** A token or code, as it was followed or typed. */
  readonly typed: string
  /** The address that it is said to belong to. */
  readonly email: string | undefined
}

/** The outcome, and the facts to append: commit both, then throw `refusal`. */
export type RedemptionResult =
  | (ProvenAccount & { readonly refusal?: undefined })
  | { readonly refusal: AppError; readonly events: readonly DomainEvent[] }

/**
 * Uses up the one-time secret of a mail and gives the account whose address it was sent to. A refusal is a value, not an
 * exception, because the transaction must be committed with it: the try of a code counts, whatever comes of it.
 */
export async function redeem(
  { config }: Configuration,
  tx: Tx,
  request: FastifyRequest,
  presented: PresentedSecret,
  refused: { readonly message: string; readonly event: 'auth.magic_link_failed' | 'auth.password_reset_failed' },
): Promise<RedemptionResult> {
  const { purpose, typed, email } = presented
  const { form, hash } = presentedSecret(config, purpose, typed)
  const holder = await lockHolder(tx, purpose, hash)
  const wanted = { purpose, hash, email }
  const outcome =
    form === 'token'
      ? await consumeToken(tx, wanted)
      : await consumeCode(tx, { ...wanted, client: clientNetwork(request.ip) })
  const decided = decideRedemption(outcome, holder, refused.message)
  if (decided.refusal === undefined) return proveOwnership(tx, decided.holder)
  if (!decided.failed) return { refusal: decided.refusal, events: [] }
  const said = email === undefined ? undefined : await findAccount(tx, email)
  return {
    refusal: decided.refusal,
    events: [{ type: refused.event, data: { userId: said?.id ?? null } }],
  }
}

async function consumeToken(tx: Tx, wanted: Consumption): Promise<CodeOutcome> {
  const owner = await consumeSecret(tx, wanted)
  return owner === undefined ? { state: 'wrong' } : { state: 'consumed', email: owner }
}

export type ProvenAccount = {
  readonly account: Account
  /** The facts to append. */
  readonly events: readonly DomainEvent[]
}

/** Does what follows when a mail to the address of a (locked) account was opened (docs/decisions/0008). */
export async function proveOwnership(tx: Tx, account: Account): Promise<ProvenAccount> {
  const { account: proven, credentialsEnd, events } = decideOwnership(account)
  if (credentialsEnd) {
    await verifyWithoutPassword(tx, account.id)
    await dropCredentials(tx, account.id)
    await endAccess(tx, account)
  }
  return { account: proven, events }
}

/**
 * Ends everything that opens an account without its password: sessions (but `keptSession`) with their sockets, and
 * mailed secrets, sign-ins that wait for a second factor. Lock the account before, so that a sign-in at the same time is
 * either refused or ended.
 */
export async function endAccess(
  tx: Tx,
  { id, email }: { readonly id: string; readonly email: string | null },
  keptSession?: string,
): Promise<void> {
  if (email !== null)
    await deleteSecrets(
      tx,
      mailedSecrets.map((purpose) => secretIdentifier(purpose, email)),
    )
  await deleteChallengesOf(tx, id)
  await deleteOtherSessions(tx, id, keptSession)
}

const mailedSecrets: readonly SecretPurpose[] = ['email-verification', 'magic-link', 'password-reset', 'first-sign-in']

/**
 * Asks for a proof that the user is there just now, before something is made that opens the account for good: in the
 * body one of `currentPassword`, `twoFactorCode` and `passkey: {challengeId, response}`. A caller with the
 * session cookie must show one: any script of the origin can do what the cookie can. A bearer of the token need not, but
 * one that is shown is checked. A session that was opened a moment ago proves nothing: a script may be there at that moment, too.
 *
 * Gives the account that the proof was checked for, which `lockCaller` holds against the present one; undefined where
 * none was needed.
 *
 * @throws {AppError} 403 `FRESH_PROOF_REQUIRED` with `methods`, those that the account has; `FRESH_PROOF_REFUSED`
 */
export async function requireFreshProof(
  deps: Reads & Writes,
  request: FastifyRequest,
  proof: ProofInput,
): Promise<Account | undefined> {
  if (!holdsProof(proof) && request.sessionCookie !== 'live') return undefined
  const { userId } = signedIn(request.caller)
  const account = await accountOf(withoutWaiting(deps), userId)
  if (account === undefined) throw errors.unauthorized('Unauthorized')
  if (!holdsProof(proof)) throw required(await methodsOf(deps, account))
  if (!(await isProven(deps, request, account, proof))) throw await refused(deps, request, userId)
  return account
}

/**
 * The caller's account in the transaction that gives it something to open it with or to guard it by. Between the check
 * of the caller and this transaction the owner of the address may have taken the account over, the session may have ended
 * and the account may have been suspended: what is made for the caller then must not outlast that. The account is locked
 * first, as by everything that ends its credentials, so these come before or after and miss nothing.
 *
 * @throws {AppError} 401 where the session has ended or the account is not active; 403 `FRESH_PROOF_REFUSED` where its
 *   password is another than that of the account that was `proven`
 */
export async function lockCaller(tx: Tx, { caller }: FastifyRequest, proven?: Account): Promise<Account> {
  const { userId, sessionId } = signedIn(caller)
  const locked = await lockAccount(tx, userId)
  const session = await lockSession(tx, sessionId)
  return decideCaller({ locked, session, proven })
}

/** Whether the body has a proof of identity, right or wrong. */
export function holdsProof(body: unknown): boolean {
  const { currentPassword, twoFactorCode, passkey } = isObject(body) ? body : {}
  return [currentPassword, twoFactorCode, passkey].some((member) => member !== undefined && member !== null)
}

/** The first that is there decides, so that one request is one try. */
async function isProven(
  deps: Reads & Writes,
  request: FastifyRequest,
  account: Account,
  { currentPassword, twoFactorCode, passkey }: ProofInput,
): Promise<boolean> {
  if (currentPassword !== undefined)
    return verifyPassword(textIn(currentPassword) ?? '', account.password, deps.config.auth.passwordHashCost)
  if (twoFactorCode !== undefined) return isCode(deps, request, account.id, textIn(twoFactorCode))
  return isPasskey(deps, request, account.id, isObject(passkey) ? passkey : {})
}

/** A wrong code is committed as one: that it was tried must outlast the refusal. */
async function isCode(
  deps: Writes,
  request: FastifyRequest,
  userId: string,
  code: string | undefined,
): Promise<boolean> {
  if (code === undefined || code.trim() === '' || !deps.config.auth.twoFactor) return false
  return commit(deps, actorOf(request), async (tx) => ({ result: await acceptCode(deps, tx, userId, code) }))
}

async function isPasskey(
  deps: Reads & Writes,
  request: FastifyRequest,
  userId: string,
  { challengeId, response }: Readonly<Record<string, unknown>>,
): Promise<boolean> {
  const id = textIn(challengeId)
  if (deps.config.passkey === undefined || id === undefined) return false
  return usePasskey(deps, request, { challengeId: id, response: isObject(response) ? response : {} }, userId)
}

const textIn = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)

async function methodsOf(deps: Reads & ReservedReads & Configuration, { id, password }: Account): Promise<string[]> {
  const { auth, passkey } = deps.config
  const hasCode = auth.twoFactor && (await hasSecondFactor(withoutWaiting(deps), id))
  const hasPasskey = passkey !== undefined && (await credentialIdsOf(withoutWaiting(deps), id)).length > 0
  return [
    ...(password === null ? [] : ['currentPassword']),
    ...(hasCode ? ['twoFactorCode'] : []),
    ...(hasPasskey ? ['passkey'] : []),
  ]
}

function required(methods: readonly string[]): AppError {
  const message =
    methods.length === 0
      ? 'Please set a password first, then confirm with it that it is you'
      : `Please confirm that it is you: ${methods.join(', ')}`
  return new AppError(403, message, { code: 'FRESH_PROOF_REQUIRED', members: { methods } })
}

async function refused(deps: Writes, request: FastifyRequest, userId: string): Promise<AppError> {
  await commit(deps, actorOf(request), async () => ({
    result: undefined,
    events: [{ type: 'auth.proof_failed', data: { userId } }],
  }))
  return proofRefused()
}
