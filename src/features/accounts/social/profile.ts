import { canonicalEmail } from '../../../adapters/email-address.ts'

/** A person as a provider knows them. */
export type Profile = {
  /** Never changes and is never given to somebody else, there. */
  readonly accountId: string
  /** In canonical form. */
  readonly email: string | undefined
  /** The provider says that the address is theirs. No statement counts as no. */
  readonly emailVerified: boolean
  readonly firstName: string
  readonly lastName: string | null
}

type Raw = Readonly<Record<string, unknown>>

/** A provider's answer, in the words of OpenID Connect; `profileOf` checks the values. */
export type ProviderClaims = {
  readonly sub: unknown
  readonly email?: unknown
  readonly verified?: unknown
  readonly name?: unknown
  readonly given?: unknown
  readonly family?: unknown
}

/** A profile of checked values; undefined when the provider does not say whose it is. */
export function profileOf({ sub, email, verified, name, given, family }: ProviderClaims): Profile | undefined {
  const accountId = identifier(sub)
  if (accountId === undefined) return undefined
  const address = typeof email === 'string' ? canonicalEmail(email) : undefined
  const [first, ...others] = (text(name) ?? '').split(/\s+/)
  return {
    accountId,
    email: address,
    // Some write it as a text.
    emailVerified: address !== undefined && (verified === true || verified === 'true'),
    firstName: text(given) ?? text(first) ?? address?.split('@')[0] ?? 'User',
    lastName: text(family) ?? (given === undefined ? text(others.join(' ')) : undefined) ?? null,
  }
}

/** The claims of OpenID Connect. */
export function standardClaims(raw: Raw): ProviderClaims {
  return {
    sub: raw.sub,
    email: raw.email,
    verified: raw.email_verified,
    name: raw.name ?? raw.preferred_username,
    given: raw.given_name,
    family: raw.family_name,
  }
}

/** A member further down; undefined where there is none. */
export function at(raw: unknown, ...path: readonly (string | number)[]): unknown {
  return path.reduce<unknown>(
    (value, key) => (value !== null && typeof value === 'object' ? (value as Raw)[key] : undefined),
    raw,
  )
}

/** Taken as it is: a cut or trimmed one could be somebody else's. */
function identifier(value: unknown): string | undefined {
  if (Number.isSafeInteger(value)) return String(value)
  return typeof value === 'string' && /^[\x20-\x7e]{1,255}$/.test(value) ? value : undefined
}

function text(value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined
  const clean = value.replaceAll('\0', '').trim()
  return clean === '' ? undefined : clean.slice(0, 255)
}
