import type { FastifyRequest } from 'fastify'
import { signedIn } from '../../../access/principal.ts'
import { verifyPassword } from '../../../adapters/passwords.ts'
import { seal, unseal } from '../../../adapters/sealing.ts'
import { newTotpSecret, totpStep, totpUrl } from '../../../adapters/totp.ts'
import type { Configuration } from '../../../config/config.ts'
import { type Reads, type ReservedReads, withoutWaiting } from '../../../db/pools.ts'
import type { Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { type Account, accountOf, type ProofInput, requireFreshProof } from '../auth/auth.ts'
import {
  backupCodeHashes,
  beginEnrolment,
  deleteEnrolment,
  finishEnrolment,
  hasSecondFactor,
  lockEnrolment,
  newBackupCodes,
  secretOf,
  wrongCode,
} from '../proofs/proofs.ts'

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
  const { id: userId, email, password } = await ownAccount(deps, request)
  if (password === null) throw passwordNeeded()
  await requireFreshProof(deps, request, proof)
  const secret = newTotpSecret()
  const backupCodes = newBackupCodes()
  const enrolment = {
    userId,
    secret: seal(deps.config, secretOf(userId), secret),
    backupCodes: backupCodes.map((code) => backupCodeHashes(deps, userId, code)[0]!),
  }
  await commit(deps, actorOf(request), async (tx) => {
    if (!(await beginEnrolment(tx, enrolment))) throw alreadyEnabled()
    return { result: undefined }
  })
  return { secret, otpauthUrl: totpUrl(secret, deps.config.project.name, email ?? userId), backupCodes }
}

/** Switches the second factor on: the caller's app shows the right code. 401 for another one, which may be tried again. */
export async function finishSetup(deps: Writes, request: FastifyRequest, code: string): Promise<{ enabled: true }> {
  const { userId } = signedIn(request.caller)
  await commit(deps, actorOf(request), async (tx) => {
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
  const step = totpStep(unseal(config, secretOf(userId), enrolment.secret).text, code, enrolment.now)
  if (step === undefined) throw wrongCode('Invalid code')
  return step
}

const alreadyEnabled = () => new AppError(400, 'Two-factor is already enabled. Disable it first.')

const passwordNeeded = () =>
  new AppError(400, 'Two-factor authentication requires a password on this account. Set a password first.', {
    code: 'TWO_FACTOR_REQUIRES_PASSWORD',
  })
