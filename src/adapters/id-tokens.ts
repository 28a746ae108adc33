import { checkPrime, createHash, createHmac, createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto'
import { promisify } from 'node:util'
import type { Config } from '../config/config.ts'
import { oncePer, onFirstUse } from '../language/once.ts'
import { deriveKeys } from './tokens.ts'

const jose = onFirstUse<typeof import('jose')>('jose')

/**
 * The algorithms of ID tokens; the first one is for clients that name none (OpenID Connect Core §15.1). Keys of both follow
 * from SECRET_KEY, so there is none to keep or to lose, and all processes have the same.
 */
export const idTokenAlgorithms = ['RS256', 'EdDSA'] as const

export type IdTokenAlgorithm = (typeof idTokenAlgorithms)[number]

/** A public key as `jwks_uri` shows it. */
type PublicJwk = Readonly<Record<string, string>> & {
  readonly kid: string
  readonly use: 'sig'
  readonly alg: IdTokenAlgorithm
}

/** The public keys of this installation: of SECRET_KEY, then of SECRET_KEY_PREVIOUS. */
export async function idTokenJwks(config: Config): Promise<readonly PublicJwk[]> {
  const keys = await Promise.all(idTokenAlgorithms.map((algorithm) => keysOf[algorithm](config)))
  return keys.flat().map(({ jwk }) => jwk)
}

/** Signs an ID token (OpenID Connect Core §2). */
export async function signIdToken(
  config: Config,
  alg: IdTokenAlgorithm,
  claims: Readonly<Record<string, unknown>>,
): Promise<string> {
  const [{ key, jwk }] = await keysOf[alg](config)
  return new (jose().SignJWT)({ ...claims }).setProtectedHeader({ alg, kid: jwk.kid, typ: 'JWT' }).sign(key)
}

type SigningKey = { readonly key: KeyObject; readonly jwk: PublicJwk }
type SigningKeys = [SigningKey, ...SigningKey[]]

const keysOf: Readonly<Record<IdTokenAlgorithm, (config: Config) => Promise<SigningKeys>>> = {
  EdDSA: oncePer(async (config: Config) => {
    const keys = deriveKeys(config, 'id tokens').map((seed) => {
      const key = createPrivateKey({ key: Buffer.concat([pkcs8, seed.export()]), format: 'der', type: 'pkcs8' })
      return signingKey(key, 'EdDSA')
    })
    return keys as SigningKeys
  }),
  RS256: oncePer(async (config: Config) => {
    const keys = deriveKeys(config, 'id tokens, RSA').map(async (seed) => signingKey(await rsaKey(seed), 'RS256'))
    return (await Promise.all(keys)) as SigningKeys
  }),
}

/** PKCS #8 of an Ed25519 key, without its 32 bytes. */
const pkcs8 = Buffer.from('302e020100300506032b657004220420', 'hex')

function signingKey(key: KeyObject, alg: IdTokenAlgorithm): SigningKey {
  const shown = createPublicKey(key).export({ format: 'jwk' }) as Record<string, string>
  const kid = createHash('sha256')
    .update(shown.n ?? shown.x!)
    .digest('base64url')
    .slice(0, 16)
  return { key, jwk: { ...shown, kid, use: 'sig', alg } }
}

const primeBytes = 128
const exponent = 65_537n

/**
 * An RSA key of 2048 bits that follows from a secret: its primes are the first two in a stream of pseudo-random numbers that
 * the secret begins (ADR 57). It takes some tenths of a second, on threads of their own.
 */
export async function rsaKey(seed: KeyObject): Promise<KeyObject> {
  const primes: bigint[] = []
  for (let n = 0; primes.length < 2; n += 1) {
    const candidate = candidateAt(seed, n)
    if ((candidate - 1n) % exponent !== 0n && (await isPrime(candidate))) primes.push(candidate)
  }
  const [p, q] = primes as [bigint, bigint]
  const d = inverse(exponent, (p - 1n) * (q - 1n))
  const parts = {
    ...{ n: p * q, e: exponent, d, p, q },
    ...{ dp: d % (p - 1n), dq: d % (q - 1n), qi: inverse(q, p) },
  }
  const jwk = Object.fromEntries(Object.entries(parts).map(([name, value]) => [name, encoded(value)]))
  return createPrivateKey({ key: { kty: 'RSA', ...jwk }, format: 'jwk' })
}

const isPrime = promisify(checkPrime) as (candidate: bigint) => Promise<boolean>

/** Odd, and with both highest bits, so that the product of two has all its bits. */
function candidateAt(seed: KeyObject, n: number): bigint {
  const blocks = [0, 1].map((block) => createHmac('sha512', seed).update(`${n} ${block}`).digest())
  const bytes = Buffer.concat(blocks)
  bytes[0]! |= 0xc0
  bytes[primeBytes - 1]! |= 1
  return BigInt(`0x${bytes.toString('hex')}`)
}

/** By Euclid's extended algorithm; the two have no common divisor. */
function inverse(of: bigint, modulus: bigint): bigint {
  let [before, now] = [modulus, of]
  let [coefficientBefore, coefficient] = [0n, 1n]
  while (now !== 0n) {
    const quotient = before / now
    ;[before, now] = [now, before - quotient * now]
    ;[coefficientBefore, coefficient] = [coefficient, coefficientBefore - quotient * coefficient]
  }
  return ((coefficientBefore % modulus) + modulus) % modulus
}

function encoded(value: bigint): string {
  const hex = value.toString(16)
  return Buffer.from(hex.padStart(hex.length + (hex.length % 2), '0'), 'hex').toString('base64url')
}
