import type { FastifyRequest } from 'fastify'
import { touchLastAccess } from '../../db/unlogged/sessions.ts'
import { withoutWaiting } from '../../db/without-waiting.ts'
import { AppError, errors } from '../../errors.ts'
import type { Runtime } from '../../runtime.ts'
import { identified } from '../permissions/permissions.ts'
import { afterwards } from './afterwards.ts'
import { standingOf } from './answers.ts'
import { readOwnRow } from './queries.ts'

/**
 * The caller's own row, role and permissions; notes that the user was here. Needs read permission on svc_User (spec:
 * Permission record). The row is read anew, so that a caller sees what it has just changed.
 */
export async function me(rt: Runtime, request: FastifyRequest) {
  const { userId, role, tenantId, admin, access } = identified(request.caller)
  if (!admin && access.grant('svc_User', 'read') === undefined) throw errors.actionDenied('read', 'svc_User')
  const own = await readOwnRow(withoutWaiting(rt), rt.catalog.current(), userId)
  if (own === undefined) throw new AppError(404, 'User not found')
  if (own.idle) afterwards(rt, 'noting the last access', () => touchLastAccess(rt, userId))
  return { user: { ...own.user }, ...standingOf(rt, role), tenant: tenantId ?? null }
}
