import { AppError } from '../../errors.ts'
import { canonicalEmail } from './email-address.ts'
import type { SessionType } from './session-store.ts'

/** How a token is delivered: in the body, or as a cookie that scripts can't read. */
export type AuthMode = 'jwt' | 'cookie'

/** The members of a JSON body; none for anything that is no object. The specification's words answer for their types. */
export function membersOf(body: unknown): Readonly<Record<string, unknown>> {
  return body !== null && typeof body === 'object' && !Array.isArray(body) ? (body as Record<string, unknown>) : {}
}

/** A text that says something, as it was given; undefined for everything else. */
export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value.trim() !== '' ? value : undefined
}

/** A password, token or code as it was given, blanks included; undefined when there is none. */
export function secretOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** 400 unless the text is an e-mail address; its canonical form. */
export function emailOf(typed: string): string {
  const email = canonicalEmail(typed)
  if (email === undefined) throw new AppError(400, 'Invalid email address')
  return email
}

/** As above; undefined when it is absent or empty. */
export function optionalEmailOf(value: unknown): string | undefined {
  if (value === undefined || value === null || value === '') return undefined
  return emailOf(typeof value === 'string' ? value : '')
}

/** 400 unless absent, `jwt` or `cookie`. */
export function authModeOf(value: unknown): AuthMode {
  if (value === undefined || value === null || value === 'jwt') return 'jwt'
  if (value === 'cookie') return 'cookie'
  throw new AppError(400, "Invalid authMode. Must be 'jwt' or 'cookie'")
}

/** 403 unless absent, `web`, `mobile` or the `default` that absence means (auth facts §1). */
export function sessionTypeOf(value: unknown): SessionType {
  if (value === undefined || value === null || value === 'default') return 'default'
  if (value === 'web' || value === 'mobile') return value
  throw new AppError(403, "Invalid session type. Must be 'mobile' or 'web'")
}

/** 400 unless 8 to 128 characters of any script (decisions F21); a lone surrogate is no character. */
export function checkNewPassword(password: string): void {
  const length = [...password].length
  if (length < 8 || length > 128) throw new AppError(400, 'Password must be 8 to 128 characters long')
  if (!password.isWellFormed()) throw new AppError(400, 'Password must be valid Unicode text')
}

/** 400 for names longer than anybody's. */
export function nameOf(typed: string): string {
  const name = typed.trim()
  if (name.length > 255 || name.includes('\0')) throw new AppError(400, 'Names must be at most 255 characters long')
  return name
}
