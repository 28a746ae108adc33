import { createHash, createHmac, createSecretKey, hkdfSync, type KeyObject, randomBytes } from 'node:crypto'
import type { JwtPayload, VerifyOptions } from 'jsonwebtoken'
import type { Config } from '../config/config.ts'
import { longestLifeSeconds } from '../config/variables/accounts.ts'
import { oncePer, onFirstUse } from '../language/once.ts'

const jwt = onFirstUse<typeof import('jsonwebtoken')>('jsonwebtoken')

/** The claims of an access token. Only `sessionToken` opens anything; the session's row is the truth. */
export type TokenClaims = {
  readonly userId: string
  readonly roleId: string
  readonly tenantId: string | undefined
  /** The role assignment that the session is for; told to clients, and not read by the server. */
  readonly userRoleId: string | undefined
  /** 64 hex digits; the database knows their hash only. */
  readonly sessionToken: string
  /** Of a program that acts for the user. */
  readonly delegation?: Delegation | undefined
}

/** The delegation of a user to a program: the granted scopes, and the resources that its token is for (`aud`). */
export type Delegation = {
  readonly clientId: string
  readonly scopes: readonly string[]
  readonly audience: readonly string[]
}

/** The claims of a token that may be used, until `expiresAt`. */
export type VerifiedClaims = Omit<TokenClaims, 'userRoleId'> & { readonly expiresAt: Date }

/** An access token: HS256 with SECRET_KEY, issued by PROJECT_NAME, living ACCESS_TOKEN_EXPIRES_IN seconds unless given. */
export function signToken(
  config: Config,
  claims: TokenClaims,
  now: Date,
  expiresIn = config.auth.accessTokenExpiresIn,
): string {
  const { delegation } = claims
  const iat = Math.floor(now.getTime() / 1000)
  const payload = {
    id: claims.userId,
    role_Id: claims.roleId,
    sessionToken: claims.sessionToken,
    tenant_Id: claims.tenantId ?? null,
    userRole_Id: claims.userRoleId ?? null,
    iss: config.project.name,
    iat,
    exp: iat + expiresIn,
    ...(delegation && { client_id: delegation.clientId, scope: delegation.scopes.join(' '), aud: delegation.audience }),
  }
  return jwt().sign(payload, signingKeys(config)[0]!, { algorithm: 'HS256' })
}

/**
 * The claims of a token that this installation signed and that has not expired; undefined for everything else.
 * Algorithm and keys are ours: what the token's header says of them (`alg`, `kid`, `jku`, …) selects nothing.
 */
export function verifyToken(config: Config, token: string, now: Date): VerifiedClaims | undefined {
  const known = verifiedBefore(config)
  const before = known.get(token)
  if (before !== undefined) return before.expiresAt > now ? before : undefined
  const claims = verifyAnew(config, token, now)
  if (claims === undefined) return undefined
  if (known.size >= rememberedAtMost) known.delete(known.keys().next().value!)
  known.set(token, claims)
  return claims
}

/** The same text is signed for ever, until its own end; whether its session lives is not decided here. */
const verifiedBefore = oncePer((_config: Config) => new Map<string, VerifiedClaims>())
const rememberedAtMost = 10_000

function verifyAnew(config: Config, token: string, now: Date): VerifiedClaims | undefined {
  const options = { algorithms: ['HS256' as const], issuer: config.project.name, clockTimestamp: now.getTime() / 1000 }
  for (const key of signingKeys(config)) {
    const payload = payloadOf(token, key, options)
    if (payload !== undefined) return claimsOf(payload, now)
  }
  return undefined
}

/**
 * A key for one purpose only, derived from SECRET_KEY: what is made with it is worth nothing anywhere else, in
 * particular not as an access token.
 */
export function deriveKey(config: Config, purpose: string): KeyObject {
  return deriveKeys(config, purpose)[0]
}

/** As above, followed by the one of SECRET_KEY_PREVIOUS where that is set: for reading what was made before a rotation. */
export function deriveKeys(config: Config, purpose: string): [KeyObject, ...KeyObject[]] {
  const derived = (secret: string) => createSecretKey(Buffer.from(hkdfSync('sha256', secret, 'daybook', purpose, 32)))
  const { secretKeyPrevious } = config.auth
  return [derived(secretOf(config)), ...(secretKeyPrevious === undefined ? [] : [derived(secretKeyPrevious)])]
}

/** An unguessable secret: 32 random bytes as 64 hex digits. */
export function newSecret(): string {
  return randomBytes(32).toString('hex')
}

/** The form in which the database knows a secret: SHA-256 in hex. Enough for secrets that can't be guessed. */
export function hashSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex')
}

/** SECRET_KEY, then SECRET_KEY_PREVIOUS. Key objects, because with strings a check costs forty times as much. */
const signingKeys = oncePer((config: Config): readonly KeyObject[] => {
  const { secretKeyPrevious } = config.auth
  const secrets = [secretOf(config), ...(secretKeyPrevious === undefined ? [] : [secretKeyPrevious])]
  return secrets.map((secret) => createSecretKey(secret, 'utf8'))
})

function secretOf(config: Config): string {
  if (config.auth.secretKey === '') throw new Error('SECRET_KEY is missing: nothing can be signed')
  return config.auth.secretKey
}

function payloadOf(token: string, key: KeyObject, options: VerifyOptions): JwtPayload | undefined {
  try {
    // The library reads members of whatever the payload is, also of null.
    if (!isObject(jwt().decode(token))) return undefined
    return jwt().verify(token, key, options) as JwtPayload
  } catch (error) {
    if (error instanceof jwt().JsonWebTokenError || error instanceof SyntaxError) return undefined
    throw error
  }
}

/** Clocks may differ. A token that claims to live longer than any of ours is not ours, whatever signed it. */
const clockLeewaySeconds = 86_400

const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value)

function claimsOf(payload: JwtPayload, now: Date): VerifiedClaims | undefined {
  const { id, role_Id, tenant_Id, sessionToken, exp } = payload
  if (typeof id !== 'string' || typeof role_Id !== 'string' || typeof sessionToken !== 'string') return undefined
  if (exp === undefined || exp > now.getTime() / 1000 + longestLifeSeconds + clockLeewaySeconds) return undefined
  if (!/^[0-9a-f]{64}$/.test(sessionToken)) return undefined
  return {
    userId: id,
    roleId: role_Id,
    tenantId: typeof tenant_Id === 'string' ? tenant_Id : undefined,
    sessionToken,
    expiresAt: new Date(exp * 1000),
    delegation: delegationOf(payload),
  }
}

function delegationOf({ client_id: clientId, scope, aud = [] }: JwtPayload): Delegation | undefined {
  if (typeof clientId !== 'string') return undefined
  const scopes = typeof scope === 'string' ? scope.split(' ').filter((one) => one !== '') : []
  return { clientId, scopes, audience: [aud].flat() }
}

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
 * The hash under which a secret is stored. A code's is keyed: all codes can be hashed within minutes, which a reader
 * of the table without SECRET_KEY must not be able to do.
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
