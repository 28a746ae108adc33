import { createHash, createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto'
import type { Config } from '../config/config.ts'
import { oncePer, onFirstUse } from '../language/once.ts'
import { deriveKeys } from './tokens.ts'

const jose = onFirstUse<typeof import('jose')>('jose')

/** The algorithm of ID tokens: Ed25519 keys follow from SECRET_KEY, so there is none to keep or to lose. */
export const idTokenAlgorithm = 'EdDSA'

/** A public key as `jwks_uri` shows it. */
export type PublicJwk = {
  readonly kty: string
  readonly crv: string
  readonly x: string
  readonly kid: string
  readonly use: 'sig'
  readonly alg: typeof idTokenAlgorithm
}

/** The public keys of this installation: of SECRET_KEY, then of SECRET_KEY_PREVIOUS. */
export function idTokenJwks(config: Config): readonly PublicJwk[] {
  return keysOf(config).map(({ jwk }) => jwk)
}

/** Signs an ID token (OpenID Connect Core §2). */
export function signIdToken(config: Config, claims: Readonly<Record<string, unknown>>): Promise<string> {
  const [{ key, jwk }] = keysOf(config)
  const header = { alg: idTokenAlgorithm, kid: jwk.kid, typ: 'JWT' }
  return new (jose().SignJWT)({ ...claims }).setProtectedHeader(header).sign(key)
}

type SigningKey = { readonly key: KeyObject; readonly jwk: PublicJwk }

const keysOf = oncePer((config: Config): [SigningKey, ...SigningKey[]] => {
  const [first, ...others] = deriveKeys(config, 'id tokens').map((seed) => signingKey(seed.export()))
  return [first!, ...others]
})

/** PKCS #8 of an Ed25519 key, without its 32 bytes. */
const pkcs8 = Buffer.from('302e020100300506032b657004220420', 'hex')

function signingKey(seed: Buffer): SigningKey {
  const key = createPrivateKey({ key: Buffer.concat([pkcs8, seed]), format: 'der', type: 'pkcs8' })
  const { kty = '', crv = '', x = '' } = createPublicKey(key).export({ format: 'jwk' })
  const kid = createHash('sha256').update(x).digest('base64url').slice(0, 16)
  return { key, jwk: { kty, crv, x, kid, use: 'sig', alg: idTokenAlgorithm } }
}
