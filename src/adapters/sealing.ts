import { createCipheriv, createDecipheriv, createHmac, type KeyObject, randomBytes } from 'node:crypto'
import type { Config } from '../config/config.ts'
import { deriveKeys } from './tokens.ts'

const algorithm = 'aes-256-gcm'
const nonceLength = 12
const tagLength = 16

/** Purpose and owner of a sealed text: sealed for one row it does not open in another. */
export type SealedFor = { readonly purpose: string; readonly owner: string }

type Unsealed = { readonly text: string; readonly outdated: boolean }

/** Encrypts a secret that the database keeps and that we must be able to read again; with a key from SECRET_KEY. */
export function seal(config: Config, { purpose, owner }: SealedFor, text: string): string {
  const nonce = randomBytes(nonceLength)
  const cipher = createCipheriv(algorithm, deriveKeys(config, purpose)[0], nonce).setAAD(Buffer.from(owner))
  const encrypted = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()])
  return Buffer.concat([nonce, cipher.getAuthTag(), encrypted]).toString('base64url')
}

/**
 * The text in it; `outdated` when only SECRET_KEY_PREVIOUS opens it, so that it should be sealed again. Undefined when
 * neither key does: the installation has lost the key, or the row was changed.
 */
export function unseal(config: Config, sealedFor: SealedFor, sealed: string): Unsealed | undefined {
  for (const [index, key] of deriveKeys(config, sealedFor.purpose).entries()) {
    const text = opened(key, sealedFor.owner, Buffer.from(sealed, 'base64url'))
    if (text !== undefined) return { text, outdated: index > 0 }
  }
  return undefined
}

/**
 * The forms in which the database may know a short secret, the present one first: a keyed hash, since all secrets of
 * 40 bits can be tried against a plain one.
 */
export function keyedHashes(config: Config, { purpose, owner }: SealedFor, secret: string): string[] {
  return deriveKeys(config, purpose).map((key) =>
    createHmac('sha256', key).update(`${owner} ${secret}`).digest('base64url'),
  )
}

function opened(key: KeyObject, owner: string, sealed: Buffer): string | undefined {
  const tagEnd = nonceLength + tagLength
  if (sealed.length < tagEnd) return undefined
  const decipher = createDecipheriv(algorithm, key, sealed.subarray(0, nonceLength), { authTagLength: tagLength })
  decipher.setAAD(Buffer.from(owner)).setAuthTag(sealed.subarray(nonceLength, tagEnd))
  const text = decipher.update(sealed.subarray(tagEnd))
  try {
    return Buffer.concat([text, decipher.final()]).toString('utf8')
  } catch {
    // The tag does not fit: another key, another owner, or another text.
    return undefined
  }
}
