import { onFirstUse } from '../language/once.ts'

const otpauth = onFirstUse<typeof import('otpauth')>('otpauth')

/** Time-based one-time passwords as every authenticator app knows them: SHA-1, 6 digits, steps of 30 s. */
const shape = { algorithm: 'SHA1', digits: 6, period: 30 } as const

/** 160 random bits in base32, which is what an app asks for. */
export function newTotpSecret(): string {
  return new (otpauth().Secret)({ size: 20 }).base32
}

/** The content of an enrolment's QR code. */
export function totpUrl(secret: string, issuer: string, account: string): string {
  return new (otpauth().TOTP)({
    ...shape,
    issuer,
    label: account,
    secret: otpauth().Secret.fromBase32(secret),
  }).toString()
}

/**
 * The step that a code belongs to: the present one, or one to either side for clocks that differ. Undefined when it is
 * the code of none of them. The caller that accepts a code remembers its step, because within a step it stays the same.
 *
 * @param now milliseconds since 1970, by the database's clock
 */
export function totpStep(secret: string, code: string, now: number): number | undefined {
  const delta = otpauth().TOTP.validate({
    ...shape,
    secret: otpauth().Secret.fromBase32(secret),
    token: code,
    timestamp: now,
    window: 1,
  })
  return delta === null ? undefined : otpauth().TOTP.counter({ period: shape.period, timestamp: now }) + delta
}
