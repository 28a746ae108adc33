import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { signedIn } from '../../../access/principal.ts'
import { hashSecret, newSecret } from '../../../adapters/tokens.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { isUuid } from '../../../language/uuid.ts'
import { inviteLifetimeSeconds, queueMail } from '../../messaging/mail/mail.ts'
import {
  defaultLink,
  emailOf,
  findAccount,
  moveSession,
  type Person,
  personBody,
  roleAndPermissions,
  tenantBody,
  trustedLink,
} from '../auth/auth.ts'
import {
  acceptInvite,
  expireInvites,
  findTenant,
  type Invite,
  insertInvite,
  insertMembership,
  invalidInvite,
  lockInvitee,
  openInvite,
  type TenantWrites,
} from '../membership/membership.ts'
import { decideAcceptance, decideInvitedRole, decideInvitedTenant, inviteeRefusal } from './decisions.ts'
import { type InviteBody, untrusted } from './schema.ts'

/**
 * Invites an address to a tenant, in a role that the caller's own may invite to. The token is made when
 * the mail is sent and lives from then. 400 when the address is a member or invited already, for an untrusted link;
 * 403 for a role or a tenant that is not the caller's to give; 404 for one that does not exist.
 */
export async function invite(rt: TenantWrites, request: FastifyRequest, body: Static<typeof InviteBody>) {
  const link = body.link === undefined ? defaultLink(rt, untrusted) : trustedLink(rt, body.link, untrusted)
  const email = emailOf(body.email)
  const role = decideInvitedRole(request.caller, rt.access.current().roles.get(body.role_Id.toLowerCase()))
  const { strictIsolation } = rt.config.tenancy
  const tenantId = decideInvitedTenant(request.caller, body.tenant_Id?.toLowerCase(), strictIsolation)
  if (!isUuid(tenantId) || (await findTenant(rt.db, rt.catalog.current(), tenantId)) === undefined)
    throw new AppError(404, 'Tenant not found')
  const sent = await send(rt, request, { email, roleId: role.id, tenantId, link })
  return { message: 'Invitation sent successfully', invite: { ...sent } }
}

/** An invitation as the holder of its token sees it; `acceptUrl` with a trusted link. 400 with `valid: false`. */
export async function describeInvite(rt: TenantWrites, token: string, link: string | undefined) {
  const base = link === undefined ? undefined : trustedLink(rt, link, untrusted)
  const found = await openInvite(rt, token)
  const role = found && rt.access.current().roles.get(found.roleId)
  if (found === undefined || role === undefined) throw invalidInvite({ valid: false })
  const { email, userExists, tenantId, tenantName } = found
  return {
    valid: true,
    ...{ email, userExists, tenant: { id: tenantId, name: tenantName }, role: { id: role.id, name: role.name } },
    ...(base !== undefined && { acceptUrl: acceptUrl(base, token, found) }),
  }
}

type Invitation = { email: string; roleId: string; tenantId: string; link: string }

async function send(
  rt: Writes & CurrentCatalog,
  request: FastifyRequest,
  { email, roleId, tenantId, link }: Invitation,
) {
  const { userId } = signedIn(request.caller)
  return commit(rt, actorOf(request), async (tx) => {
    await checkInvitee(tx, email, tenantId)
    const place = { email, roleId, tenantId, invitedBy: userId }
    const secret = { tokenHash: hashSecret(newSecret()), lifetimeSeconds: inviteLifetimeSeconds }
    const sent = await insertInvite(tx, rt.catalog.current(), { ...place, ...secret })
    const account = await findAccount(tx, email)
    const { event } = await queueMail(tx, {
      type: account === undefined ? 'inviteNewUser' : 'inviteExistingUser',
      ...{ to: email, tenantId, context: { link, inviteId: sent.id } },
      ...(account !== undefined && { user: account }),
    })
    return { result: sent, events: [{ type: 'auth.invite', data: { userId, inviteId: sent.id } }, event] }
  })
}

async function checkInvitee(tx: Tx, email: string, tenantId: string): Promise<void> {
  await expireInvites(tx, { email, tenantId })
  const refusal = inviteeRefusal(await lockInvitee(tx, email, tenantId))
  if (refusal !== undefined) throw refusal
}

function acceptUrl(base: string, token: string, { email, userExists }: Invite): string {
  const query = new URLSearchParams({ inviteToken: token })
  if (!userExists) query.set('email', email)
  return `${base}/${userExists ? 'login' : 'register'}?${query}`
}

/**
 * Joins the tenant of an invitation that was sent to the caller's address, in its role, and goes on there: the new
 * session replaces the caller's. Of any number of simultaneous calls one succeeds.
 *
 * @throws {AppError} 400 when the invitation is over or the caller a member already, 403 when it is another address's
 */
export async function acceptInvitation(rt: TenantWrites, request: FastifyRequest, inviteToken: string | undefined) {
  const { userId, user } = signedIn(request.caller)
  const { invite, role } = decideAcceptance(await openInvite(rt, inviteToken), user?.email, rt.access.current().roles)
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
  const about = { user: personBody(user as Person), ...roleAndPermissions(rt, role), tenant: tenantBody(rt, tenant) }
  return { token, body: { message: 'Invitation accepted successfully', ...about } }
}
