import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { signedIn } from '../../../access/principal.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import { verifyPassword } from '../../../adapters/passwords.ts'
import { seal, unseal } from '../../../adapters/sealing.ts'
import { newTotpSecret, totpStep, totpUrl } from '../../../adapters/totp.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { type Reads, type ReservedReads, withoutWaiting } from '../../../db/pools.ts'
import type { Tx } from '../../../db/sql.ts'
import { attemptChallenge, takeChallenge } from '../../../db/unlogged/secrets.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type WorkResult, type Writes } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { Filled, Text } from '../../../http/shapes.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import {
  type Account,
  type AuthMode,
  accountOf,
  checkMaySignIn,
  deliveryTo,
  type FirstFactor,
  lockCaller,
  type PendingSignIn,
  type ProofInput,
  placeOf,
  refuseForeignPage,
  requireFreshProof,
  SignIn,
  type SignInAnswer,
  signInAtOnce,
  signingIn,
} from '../auth/auth.ts'
import {
  acceptCode,
  backupCodeHashes,
  beginEnrolment,
  challengeIdentifier,
  deleteEnrolment,
  findChallenge,
  finishEnrolment,
  hasSecondFactor,
  lockEnrolment,
  newBackupCodes,
  passwordMark,
  secretOf,
  wrongCode,
} from '../proofs/proofs.ts'

/** After this many wrong codes a challenge is of no use: the account's own count goes on. */
const triesAtMost = 5

/**
 * Answers the challenge of a sign-in with the second factor, and opens the session that was asked for then. A challenge
 * opens one session; wrong codes are bounded per challenge and per account. The refusal does not distinguish a wrong
 * code, a wrong challenge, and a password that has changed since.
 *
 * @throws {AppError} 401 for a wrong code or challenge, 403 for an account that is not active; 400 where the
 *   invitation that the sign-in accepts is over
 */
export async function verifyTwoFactor(
  deps: SecondFactorWrites,
  request: FastifyRequest,
  { twoFactorToken: token, code, authMode }: Static<typeof VerifyBody>,
): Promise<SignInAnswer & { authMode: AuthMode }> {
  const identifier = challengeIdentifier(token)
  const factor = await challengedFactor(deps, identifier, authMode)
  if (deliveryTo(request, factor.authMode) === 'cookie') refuseForeignPage(deps.config, request)
  const answer = await commit(deps, signingIn(request, factor), (tx) =>
    answerChallenge(deps, tx, request, { identifier, code, factor }),
  )
  if (answer === undefined) throw wrongCode()
  return { ...answer, authMode: factor.authMode }
}

/** The user and the sign-in that were challenged. The delivery may be asked for anew; everything else was remembered. */
async function challengedFactor(
  deps: SecondFactorReads,
  identifier: string,
  authMode: AuthMode | undefined,
): Promise<FirstFactor> {
  const challenge = await findChallenge(withoutWaiting(deps), identifier)
  const account = challenge?.userId && (await accountOf(withoutWaiting(deps), challenge.userId))
  if (!challenge || !account) throw wrongCode()
  const pending = challenge.data as PendingSignIn & { readonly passwordMark: string }
  if (pending.passwordMark !== passwordMark(account)) throw wrongCode()
  checkMaySignIn(deps, account)
  const { tenantId, inviteId } = pending
  const membership = await placeOf(deps, withoutWaiting(deps), account, { tenantId, inviteId })
  return { account, membership, type: pending.type, authMode: authMode ?? pending.authMode }
}

type GivenCode = { readonly identifier: string; readonly code: string; readonly factor: FirstFactor }

/** A wrong code is committed as one: that it was tried must outlast the refusal. */
async function answerChallenge(
  deps: SecondFactorReads,
  tx: Tx,
  request: FastifyRequest,
  { identifier, code, factor }: GivenCode,
): Promise<WorkResult<SignInAnswer | undefined>> {
  const { id: userId } = factor.account
  if (!(await attemptChallenge(tx, identifier, triesAtMost))) return { result: undefined }
  if (!(await acceptCode(deps, tx, userId, code)))
    return { result: undefined, events: [{ type: 'auth.2fa_failed', data: { userId } }] }
  await takeChallenge(tx, identifier)
  return signInAtOnce(deps, tx, request, factor)
}

/** The capabilities that changes of this folder need. */
export type SecondFactorWrites = Reads & Writes & Clock & CurrentAccess & CurrentCatalog & CurrentSettings

/** The capabilities that reads of this folder need. */
type SecondFactorReads = Reads &
  ReservedReads &
  Clock &
  Configuration &
  CurrentAccess &
  CurrentCatalog &
  CurrentSettings

/* Shapes of bodies and answers. */

const bothNeeded = 'twoFactorToken and code are required'
export const VerifyBody = Type.Object({
  twoFactorToken: Filled('0f3a5d1f0c2b7e44', { refusal: bothNeeded }),
  code: Filled('123456', { refusal: bothNeeded, description: 'Of the app, or one of the backup codes.' }),
  authMode: SignIn.authMode,
})

export const CodeBody = Type.Object({ code: Filled('123456', { refusal: 'code is required' }) })

export const PasswordBody = Type.Object({
  password: Type.String({ minLength: 1, examples: ['correct horse battery'], refusal: 'Password is required' }),
})

export const SetupShape = Type.Object({
  secret: Text('JBSWY3DPEHPK3PXP'),
  otpauthUrl: Text('otpauth://totp/Acme:ada@example.com?secret=JBSWY3DPEHPK3PXP&issuer=Acme'),
  backupCodes: Type.Array(Text('7k2m-9q4x')),
})

export const StateShape = Type.Object({ enabled: Type.Boolean() })

export const EnabledShape = Type.Object({ enabled: Type.Literal(true) })

export const DisabledShape = Type.Object({ disabled: Type.Literal(true) })

/** 400 unless TWOFACTOR is in AUTH_SERVICES_ENABLED. */
export function checkEnabled({ config }: Configuration): void {
  if (!config.auth.twoFactor) throw new AppError(400, 'Two-factor authentication is not enabled on this server')
}

/** Whether the caller has a second factor; one whose setup was not finished is none. */
export async function stateOf({ db }: Reads, request: FastifyRequest): Promise<{ enabled: boolean }> {
  return { enabled: await hasSecondFactor(db, signedIn(request.caller).userId) }
}

/**
 * Gives the caller a secret for an authenticator app and ten backup codes, both for the only time. They count from
 * `finishSetup` on; until then this may be called again. Needs a fresh proof.
 *
 * @throws {AppError} 400 when the account has no password (nothing could switch it off again) or a second factor already
 */
export async function beginSetup(deps: Reads & Writes, request: FastifyRequest, proof: ProofInput) {
  const account = await ownAccount(deps, request)
  const { id: userId, email } = account
  if (account.password === null) throw passwordNeeded()
  await requireFreshProof(deps, request, proof)
  const secret = newTotpSecret()
  const backupCodes = newBackupCodes()
  const enrolment = {
    userId,
    secret: seal(deps.config, secretOf(userId), secret),
    backupCodes: backupCodes.map((code) => backupCodeHashes(deps, userId, code)[0]!),
  }
  await commit(deps, actorOf(request), async (tx) => {
    await lockCaller(tx, request, account)
    if (!(await beginEnrolment(tx, enrolment))) throw alreadyEnabled()
    return { result: undefined }
  })
  return { secret, otpauthUrl: totpUrl(secret, deps.config.project.name, email ?? userId), backupCodes }
}

/** Switches the second factor on: the caller's app shows the right code. 401 for another one, which may be tried again. */
export async function finishSetup(deps: Writes, request: FastifyRequest, code: string): Promise<{ enabled: true }> {
  const { userId } = signedIn(request.caller)
  await commit(deps, actorOf(request), async (tx) => {
    await lockCaller(tx, request)
    const step = await stepOfSetup(deps, tx, userId, code.replaceAll(/\s/g, ''))
    if (!(await finishEnrolment(tx, userId, step))) throw alreadyEnabled()
    return { result: undefined, events: [{ type: 'auth.2fa_enabled', data: { userId } }] }
  })
  return { enabled: true }
}

/** Switches the second factor off and forgets secret and backup codes; needs the password, works when there is none. */
export async function disable(
  deps: Reads & Writes,
  request: FastifyRequest,
  password: string,
): Promise<{ disabled: true }> {
  const { id: userId, password: hash } = await ownAccount(deps, request)
  if (!(await verifyPassword(password, hash, deps.config.auth.passwordHashCost)))
    throw new AppError(401, 'Invalid password')
  await commit(deps, actorOf(request), async (tx) => {
    const ended = await deleteEnrolment(tx, userId, hash)
    return { result: undefined, events: ended?.enabled ? [{ type: 'auth.2fa_disabled', data: { userId } }] : [] }
  })
  return { disabled: true }
}

async function ownAccount(deps: Reads & ReservedReads, request: FastifyRequest): Promise<Account> {
  const account = await accountOf(withoutWaiting(deps), signedIn(request.caller).userId)
  if (account === undefined) throw errors.unauthorized('Unauthorized')
  return account
}

async function stepOfSetup({ config }: Configuration, tx: Tx, userId: string, code: string): Promise<number> {
  const enrolment = await lockEnrolment(tx, userId)
  if (enrolment === undefined) throw new AppError(400, 'Two-factor setup has not been started')
  if (enrolment.enabled) throw alreadyEnabled()
  const opened = unseal(config, secretOf(userId), enrolment.secret)
  if (opened === undefined) throw new AppError(400, 'Two-factor setup has to be started again')
  const step = totpStep(opened.text, code, enrolment.now)
  if (step === undefined) throw wrongCode('Invalid code')
  return step
}

const alreadyEnabled = () => new AppError(400, 'Two-factor is already enabled. Disable it first.')

const passwordNeeded = () =>
  new AppError(400, 'Two-factor authentication requires a password on this account. Set a password first.', {
    code: 'TWO_FACTOR_REQUIRES_PASSWORD',
  })
