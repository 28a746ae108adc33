import type { Tx } from '../../db/sql.ts'
import { AppError } from '../../errors.ts'
import { isObject } from '../../query/guards.ts'
import type { Runtime } from '../../runtime.ts'
import { administratorRole } from '../permissions/permissions.ts'
import { countSessionsOf, lockSessionsOf } from './queries.ts'
import type { SessionType } from './session-store.ts'

/** Where limits are written down: a user's own, and those of the settings in force at the tenant. */
export type SessionLimits = { readonly user: unknown; readonly settings: unknown }

/**
 * How many live sessions of a type a user may have: the user's own limit, else the role's, else the default one (auth
 * facts §1). -1 is unlimited, as is nothing at all; null and what is no whole number from -1 on say nothing.
 */
export function sessionLimit({ user, settings }: SessionLimits, roleId: string, type: 'web' | 'mobile'): number {
  const found = [user, memberOf(memberOf(settings, 'roles'), roleId), memberOf(settings, 'default')]
  return found.map((limits) => memberOf(limits, type)).find(isLimit) ?? -1
}

export type LimitedSession = {
  readonly userId: string
  readonly roleId: string
  readonly tenantId: string | null
  readonly type: SessionType
}

/**
 * Refuses (403) a session over the limit of its type. The user's other sign-ins wait until this transaction has ended,
 * so any number at the same time gets no more sessions than one after the other (quality A-30). Sessions without a type
 * and administrators have no limit. A limit that cannot be looked up lets nobody in: its failure is the transaction's.
 */
export async function checkSessionLimit(rt: Runtime, tx: Tx, wanted: LimitedSession): Promise<void> {
  const { userId, roleId, tenantId, type } = wanted
  if (type === 'default' || rt.access.current().roles.get(roleId)?.name === administratorRole) return
  const user = await lockSessionsOf(tx, userId)
  const settings = rt.settings.current(tenantId ?? undefined).session_limits
  const limit = sessionLimit({ user, settings }, roleId, type)
  if (limit === 0) throw new AppError(403, `${type === 'web' ? 'Web' : 'Mobile'} sessions are not allowed`)
  if (limit > 0 && (await countSessionsOf(tx, userId, type)) >= limit)
    throw new AppError(403, `Maximum ${type} session limit (${limit}) reached. Please logout from another device.`)
}

function memberOf(value: unknown, name: string): unknown {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined
}

function isLimit(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= -1
}
