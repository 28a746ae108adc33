import { randomBytes } from 'node:crypto'
import { keyedHashes, seal, unseal } from '../../../adapters/sealing.ts'
import { hashSecret, newSecret } from '../../../adapters/tokens.ts'
import { totpStep } from '../../../adapters/totp.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Tx } from '../../../db/sql.ts'
import { insertChallenge } from '../../../db/unlogged/secrets.ts'
import { AppError } from '../../../errors.ts'
import {
  acceptBackupCode,
  acceptStep,
  countWrongCode,
  hasSecondFactor,
  lockEnrolment,
  resealSecret,
} from './queries.ts'

/**
 * A new challenge for an account that has shown its first factor; undefined where no second one is needed. `pending` is
 * what the sign-in asked for: it is kept until the challenge is answered. A new password ends the challenge.
 */
export async function challengeSecondFactor(
  rt: Configuration,
  tx: Tx,
  account: { readonly id: string; readonly password: string | null },
  pending: object,
): Promise<string | undefined> {
  if (!rt.config.auth.twoFactor || !(await hasSecondFactor(tx, account.id))) return undefined
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

export { hasSecondFactor } from './queries.ts'

const backupCodeCount = 10

/** Ten codes of 10 hex digits, each of which stands in for one code of the app. */
export function newBackupCodes(): string[] {
  return Array.from({ length: backupCodeCount }, () => randomBytes(5).toString('hex'))
}

/** The form in which a backup code is stored; as `keyedHashes`. */
export function backupCodeHashes(rt: Configuration, owner: string, code: string): string[] {
  return keyedHashes(rt.config, { purpose: 'two-factor backup code', owner }, code)
}

export const secretOf = (owner: string) => ({ purpose: 'two-factor secret', owner })

/**
 * Whether a code is a user's second factor, and uses it up: the app's code of now (or of the step before or after), or
 * a backup code. Anything else counts as wrong, codes that were used before too. While the account is locked no code
 * is right, and none is counted.
 */
export async function acceptCode(rt: Configuration, tx: Tx, userId: string, typed: string): Promise<boolean> {
  const enrolment = await lockEnrolment(tx, userId)
  if (enrolment === undefined || !enrolment.enabled || enrolment.locked) return false
  const code = typed.replaceAll(/[\s-]/g, '').toLowerCase()
  const isRight = /^[0-9]{6}$/.test(code)
    ? await acceptAppCode(rt, tx, userId, { ...enrolment, code })
    : /^[0-9a-f]{10}$/.test(code) && (await acceptBackupCode(tx, userId, backupCodeHashes(rt, userId, code)))
  if (!isRight) await countWrongCode(tx, userId, lockSeconds(enrolment.failures + 1))
  return isRight
}

async function acceptAppCode(
  rt: Configuration,
  tx: Tx,
  userId: string,
  { secret, now, code }: { secret: string; now: number; code: string },
): Promise<boolean> {
  const { text, outdated } = unseal(rt.config, secretOf(userId), secret)
  const step = totpStep(text, code, now)
  if (step === undefined || !(await acceptStep(tx, userId, step))) return false
  if (outdated) await resealSecret(tx, userId, seal(rt.config, secretOf(userId), text))
  return true
}

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
