import { createHmac } from 'node:crypto'
import type { Config } from '../config/config.ts'
import { deriveKey, hashSecret } from './tokens.ts'

/**
 * One-time secrets of mails: a *token* is part of a link and can't be guessed; a *code* is typed by a person and can,
 * so its tries are counted (db/unlogged/secrets.ts). Nothing here knows an account or a database.
 */
export type SecretForm = 'token' | 'code'

/** 30 symbols of which no two look alike: no 0, O, 1, I, L, U. */
const alphabet = '23456789ABCDEFGHJKMNPQRSTVWXYZ'
const codeLength = 8

/** A code of 8 symbols, about 39 bits, from 32 random bytes in hex: so many that no symbol is likelier than another. */
export function codeFrom(randomHex: string): string {
  let rest = BigInt(`0x${randomHex}`)
  const symbols = Array.from({ length: codeLength }, () => {
    const symbol = alphabet.charAt(Number(rest % 30n))
    rest /= 30n
    return symbol
  })
  return symbols.join('')
}

/**
 * The hash under which a secret is stored. A code's is keyed: all codes can be hashed within minutes, so whoever reads
 * the table without SECRET_KEY must not be able to.
 */
export function hashOneTime(config: Config, purpose: string, form: SecretForm, secret: string): string {
  if (form === 'token') return hashSecret(secret)
  const code = secret.replace(/[\s-]/g, '').toUpperCase()
  return createHmac('sha256', deriveKey(config, 'one-time codes')).update(`${purpose} ${code}`).digest('hex')
}

/** A typed code or a followed token, told apart by its form: everything that is no token counts as a guess at a code. */
export function presentedSecret(config: Config, purpose: string, typed: string): { form: SecretForm; hash: string } {
  const form = isToken(typed) ? 'token' : 'code'
  return { form, hash: hashOneTime(config, purpose, form, typed) }
}

/** Whether something has the form of a token; whatever has not is a guess at a code. */
export function isToken(typed: unknown): boolean {
  return typeof typed === 'string' && /^[0-9a-f]{64}$/.test(typed)
}
