import { randomBytes } from 'node:crypto'
import { keyedHashes, seal, unseal } from '../../adapters/sealing.ts'
import { totpStep } from '../../adapters/totp.ts'
import type { Tx } from '../../db/sql.ts'
import { AppError } from '../../errors.ts'
import type { Runtime } from '../../runtime.ts'
import { acceptBackupCode, acceptStep, countWrongCode, lockEnrolment, resealSecret } from './queries.ts'

const backupCodeCount = 10

/** Ten codes of 10 hex digits, each of which stands in for one code of the app. */
export function newBackupCodes(): string[] {
  return Array.from({ length: backupCodeCount }, () => randomBytes(5).toString('hex'))
}

/** The form in which a backup code is stored; as `keyedHashes`. */
export function backupCodeHashes(rt: Runtime, owner: string, code: string): string[] {
  return keyedHashes(rt.config, { purpose: 'two-factor backup code', owner }, code)
}

export const secretOf = (owner: string) => ({ purpose: 'two-factor secret', owner })

/**
 * Whether a code is a user's second factor, and uses it up: the app's code of now (or of the step before or after), or
 * a backup code. Anything else counts as wrong, codes that were used before too. While the account is locked no code
 * is right, and none is counted.
 */
export async function acceptCode(rt: Runtime, tx: Tx, userId: string, typed: string): Promise<boolean> {
  const enrolment = await lockEnrolment(tx, userId)
  if (enrolment === undefined || !enrolment.enabled || enrolment.locked) return false
  const code = typed.replaceAll(/[\s-]/g, '').toLowerCase()
  const isRight = /^[0-9]{6}$/.test(code)
    ? await acceptAppCode(rt, tx, userId, { ...enrolment, code })
    : /^[0-9a-f]{10}$/.test(code) && (await acceptBackupCode(tx, userId, backupCodeHashes(rt, userId, code)))
  if (!isRight) await countWrongCode(tx, userId)
  return isRight
}

async function acceptAppCode(
  rt: Runtime,
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

/** 401 with the code that clients know (auth facts §4). */
export function wrongCode(message = 'Invalid or expired two-factor code'): AppError {
  return new AppError(401, message, { code: 'INVALID_TWO_FACTOR_CODE' })
}
