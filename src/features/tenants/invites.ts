import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { hashSecret, newSecret } from '../../adapters/tokens.ts'
import type { Tx } from '../../db/sql.ts'
import { withoutWaiting } from '../../db/without-waiting.ts'
import { AppError, errors } from '../../errors.ts'
import { commit } from '../../events/commit.ts'
import { systemActor } from '../../events/types.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { isUuid } from '../../uuid.ts'
import { emailOf } from '../auth/input.ts'
import { defaultLink, trustedLink } from '../auth/links.ts'
import { findAccount } from '../auth/queries.ts'
import { inviteLifetimeSeconds, queueMail } from '../mail/mail.ts'
import { mayAssign, publicRole, type Role, signedIn } from '../permissions/permissions.ts'
import { expireInvites, findInvite, findTenant, type Invite, insertInvite, lockInvitee } from './queries.ts'
import { type InviteBody, untrusted } from './schema.ts'

/**
 * Invites an address to a tenant, in a role that the caller's own may invite to (auth facts §7). The token is made when
 * the mail is sent and lives from then. 400 when the address is a member or invited already, for an untrusted link;
 * 403 for a role or a tenant that is not the caller's to give; 404 for one that does not exist.
 */
export async function invite(rt: Runtime, request: FastifyRequest, body: Static<typeof InviteBody>) {
  const link = body.link === undefined ? defaultLink(rt, untrusted) : trustedLink(rt, body.link, untrusted)
  const email = emailOf(body.email)
  const role = checkRole(rt, request, body.role_Id.toLowerCase())
  const tenantId = checkTenant(rt, request, body.tenant_Id?.toLowerCase())
  if (!isUuid(tenantId) || (await findTenant(rt.db, rt.catalog.current(), tenantId)) === undefined)
    throw new AppError(404, 'Tenant not found')
  const sent = await send(rt, request, { email, roleId: role.id, tenantId, link })
  return { message: 'Invitation sent successfully', invite: { ...sent } }
}

/** What an invitation says to whoever holds its token; `acceptUrl` with a trusted link. 400 with `valid: false`. */
export async function describeInvite(rt: Runtime, token: string, link: string | undefined) {
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

/** The invitation of a token; undefined when it is unknown, accepted, revoked or expired, and then it is marked as that. */
export async function openInvite(rt: Runtime, token: string | undefined): Promise<Invite | undefined> {
  if (token === undefined || !/^[0-9a-f]{64}$/.test(token)) return undefined
  const tokenHash = hashSecret(token)
  const found = await findInvite(withoutWaiting(rt), tokenHash)
  if (found === undefined)
    await commit(rt, systemActor, async (tx) => ({ result: await expireInvites(tx, { tokenHash }) }))
  return found
}

export const invalidInvite = (members?: { valid: false }) =>
  new AppError(400, 'Invalid or expired invitation', members && { members })

/** Whoever is no administrator learns nothing of roles that are not theirs to give, not even that they exist. */
function checkRole(rt: Runtime, { caller }: FastifyRequest, roleId: string): Role {
  const role = rt.access.current().roles.get(roleId)
  if (caller.admin && (role === undefined || role.name === publicRole)) throw new AppError(404, 'Role not found')
  if (role === undefined || !mayAssign(caller, role))
    throw new AppError(403, 'You are not allowed to invite to this role')
  return role
}

/** The caller's own tenant, unless tenants do not bind the caller. */
function checkTenant({ config }: Runtime, { caller }: FastifyRequest, asked: string | undefined): string {
  const wanted = asked ?? caller.tenantId
  if (wanted === undefined) throw new AppError(400, 'tenant_Id is required')
  const isBound = !caller.admin && (caller.role.isTenantSpecific || config.tenancy.strictIsolation)
  if (isBound && wanted !== caller.tenantId) throw new AppError(403, 'Access denied for specified tenant')
  return wanted
}

type Invitation = { email: string; roleId: string; tenantId: string; link: string }

async function send(rt: Runtime, request: FastifyRequest, { email, roleId, tenantId, link }: Invitation) {
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
  const { isMember, isInvited } = await lockInvitee(tx, email, tenantId)
  if (isMember) throw errors.badBody('User is already a member of this tenant')
  if (isInvited) throw errors.badBody('An invitation is already pending for this email')
}

function acceptUrl(base: string, token: string, { email, userExists }: Invite): string {
  const query = new URLSearchParams({ inviteToken: token })
  if (!userExists) query.set('email', email)
  return `${base}/${userExists ? 'login' : 'register'}?${query}`
}
