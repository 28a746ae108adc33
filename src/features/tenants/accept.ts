import type { FastifyRequest } from 'fastify'
import { AppError, errors } from '../../errors.ts'
import { commit } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { personBody, standingOf, tenantBody } from '../auth/answers.ts'
import type { Person } from '../auth/queries.ts'
import { moveSession } from '../auth/sessions.ts'
import { signedIn } from '../permissions/permissions.ts'
import { invalidInvite, openInvite } from './invites.ts'
import { acceptInvite, findTenant, insertMembership } from './queries.ts'

/**
 * Joins the tenant of an invitation that was sent to the caller's address, in its role, and goes on there: the new
 * session replaces the caller's. Of any number of simultaneous calls one succeeds.
 *
 * @throws {AppError} 400 when the invitation is over or the caller a member already, 403 when it is another address's
 */
export async function acceptInvitation(rt: Runtime, request: FastifyRequest, inviteToken: string | undefined) {
  const { userId, user } = signedIn(request.caller)
  const invite = await openInvite(rt, inviteToken)
  if (invite === undefined) throw invalidInvite()
  if (invite.email !== user?.email) throw new AppError(403, "The email address doesn't match the invitation")
  const role = rt.access.current().roles.get(invite.roleId)
  if (role === undefined) throw invalidInvite()
  const { id: inviteId, tenantId, roleId } = invite
  const actor = actorOf(request, { userId, tenantId, role })
  const { token, tenant } = await commit(rt, actor, async (tx) => {
    if (!(await acceptInvite(tx, inviteId, userId))) throw invalidInvite()
    if (!(await insertMembership(tx, { userId, roleId, tenantId })))
      throw errors.badBody('User is already a member of this tenant')
    const moved = await moveSession(rt, tx, request, { roleId, tenantId, type: undefined })
    const joined = (await findTenant(tx, rt.catalog.current(), tenantId)) ?? null
    return {
      result: { token: moved, tenant: joined },
      events: [{ type: 'auth.invite_accepted', data: { userId, inviteId } }],
    }
  })
  const about = { user: personBody(user as Person), ...standingOf(rt, role), tenant: tenantBody(rt, tenant) }
  return { token, body: { message: 'Invitation accepted successfully', ...about } }
}
