import type { Life } from './renewal.ts'
import type { KeyValueStore } from './session.ts'

export type TokenLives = {
  /** A token that has come just now. */
  received(token: string): void
  forget(): void
  /** By the clock of this device; undefined where the token does not say how long it lives. */
  lifeOf(token: string): Life | undefined
}

/**
 * Reckons lives from when this device received a token, since its clock may differ from the server's by hours. The store
 * keeps that under a name of its own, for other tabs and the next visit. What came in another way began when the token
 * says, and not in the future.
 */
export function openTokenLives(name: string, store: KeyValueStore): TokenLives {
  const key = `${name}:received`
  let seen: { readonly token: string; readonly at: number } | undefined
  const receivedAt = (token: string): number | undefined => {
    const [at, mark] = (store.getItem(key) ?? '').split(' ')
    return mark === markOf(token) ? Number(at) : undefined
  }
  const seenAt = (token: string, now: number): number => {
    if (seen?.token !== token || seen.at > now) seen = { token, at: now }
    return seen.at
  }
  return {
    received: (token) => store.setItem(key, `${Date.now()} ${markOf(token)}`),
    forget: () => store.removeItem(key),
    lifeOf(token) {
      const { iat, exp } = claimsOf(token)
      if (typeof iat !== 'number' || typeof exp !== 'number') return undefined
      const now = Date.now()
      const told = receivedAt(token) ?? iat * 1000
      const begins = told <= now ? told : seenAt(token, now)
      return { begins, ends: begins + (exp - iat) * 1000 }
    },
  }
}

/** The end of a signature: enough to tell tokens apart, and of no use to anybody. */
const markOf = (token: string): string => token.slice(-16).replaceAll(' ', '')

/** The claims of a JSON Web Token; none for any other text. */
export function claimsOf(token: string): Readonly<Record<string, unknown>> {
  try {
    return JSON.parse(atob(token.split('.')[1]!.replaceAll('-', '+').replaceAll('_', '/')))
  } catch {
    return {}
  }
}
