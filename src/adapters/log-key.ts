import { createHash, createPrivateKey, createPublicKey, hkdfSync, type KeyObject, sign, verify } from 'node:crypto'
import type { Config } from '../config/config.ts'
import { oncePer } from '../language/once.ts'

/** An Ed25519 key that heads of the log are signed with. `id` and `publicKey` are for everybody. */
export type LogKey = PublicLogKey & { readonly sign: (text: string) => Buffer }

/** `publicKey`: the 32 bytes, base64url; `id`: the beginning of their SHA-256, hex. */
export type PublicLogKey = { readonly id: string; readonly publicKey: string }

/** The keys of an installation; the first one signs. */
export type LogKeys = readonly [LogKey, ...LogKey[]]

/**
 * The keys of this installation: derived from LOG_SEAL_KEY, else from SECRET_KEY; then those that may have signed before, of
 * SECRET_KEY and SECRET_KEY_PREVIOUS. Undefined where there is no secret. They are nowhere but in processes that have it.
 */
export const logKeys = oncePer(({ log, auth }: Config): { readonly keys: LogKeys | undefined } => {
  const secrets = [log.sealKey, auth.secretKey, auth.secretKeyPrevious]
  const [first, ...others] = secrets
    .filter((secret) => secret !== undefined && secret !== '')
    .map((secret) => keyFrom(secret!))
  return { keys: first && [first, ...others] }
})

/** A public key as text. Throws for anything else. */
export function publicLogKey(text: string): PublicLogKey {
  if (!/^[\w-]{43}$/.test(text)) throw new Error(`${text.slice(0, 80)} is no public key: 43 characters of base64url`)
  const bytes = Buffer.from(text, 'base64url')
  return { id: idOf(bytes), publicKey: bytes.toString('base64url') }
}

/** Whether the holder of the key has signed the text. */
export function isSignedBy({ publicKey }: PublicLogKey, text: string, signature: Buffer): boolean {
  const key = { key: { kty: 'OKP', crv: 'Ed25519', x: publicKey }, format: 'jwk' } as const
  return verify(null, Buffer.from(text), createPublicKey(key), signature)
}

/** PKCS #8 of an Ed25519 key, without its 32 bytes. */
const pkcs8 = Buffer.from('302e020100300506032b657004220420', 'hex')

function keyFrom(secret: string): LogKey {
  const seed = Buffer.from(hkdfSync('sha256', secret, 'daybook', 'log seals', 32))
  const key = createPrivateKey({ key: Buffer.concat([pkcs8, seed]), format: 'der', type: 'pkcs8' })
  const bytes = publicBytes(key)
  return {
    id: idOf(bytes),
    publicKey: bytes.toString('base64url'),
    sign: (text) => sign(null, Buffer.from(text), key),
  }
}

function publicBytes(key: KeyObject): Buffer {
  const { x } = createPublicKey(key).export({ format: 'jwk' })
  return Buffer.from(x!, 'base64url')
}

const idOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex').slice(0, 16)
