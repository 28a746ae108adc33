import { type AppError, errors } from '../errors.ts'
import type { Access, Scope } from '../query/access.ts'

export type { Scope } from '../query/access.ts'

/** The scopes of OAuth that narrow what a client does for a user, each including the one before. */
export const scopesOfAccess = ['read', 'write', 'admin'] as const satisfies readonly Scope[]

/** The scope that a route, message or tool declares; `none` where any token may. */
export type RequiredScope = Scope | 'none'

/** The scope of a program that was granted these; the scopes of OpenID Connect open nothing here. */
export function highestScope(granted: readonly string[]): Scope | 'none' {
  return scopesOfAccess.findLast((scope) => granted.includes(scope)) ?? 'none'
}

/**
 * Whether a caller has this scope. Callers without a token of a program (sessions, API keys, the public role) have
 * every one.
 */
export function hasScope({ scope }: Pick<Access, 'scope'>, required: RequiredScope): boolean {
  if (scope === undefined || required === 'none') return true
  return scope !== 'none' && scopesOfAccess.indexOf(scope) >= scopesOfAccess.indexOf(required)
}

/**
 * THE place where scopes are enforced, for routes, messages of sockets and tools. 403 `INSUFFICIENT_SCOPE`, or
 * `PREVIEW_READ_ONLY` in a preview.
 */
export function checkScope(access: Pick<Access, 'scope' | 'isPreview'>, required: RequiredScope): void {
  const refusal = scopeRefusal(access, required)
  if (refusal !== undefined) throw refusal
}

/** The same as a value. */
export function scopeRefusal(
  access: Pick<Access, 'scope' | 'isPreview'>,
  required: RequiredScope,
): AppError | undefined {
  if (required === 'none' || hasScope(access, required)) return undefined
  return access.isPreview === true ? errors.previewOnly() : errors.insufficientScope(required)
}
