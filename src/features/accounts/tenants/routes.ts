import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { signedIn } from '../../../access/principal.ts'
import { hashSecret, newSecret } from '../../../adapters/tokens.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import type { Tx } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { Anything, Filled, Id, Text } from '../../../http/shapes.ts'
import { isUuid } from '../../../language/text.ts'
import { inviteLifetimeSeconds, queueMail } from '../../messaging/mail/mail.ts'
import {
  authRoutes,
  decideAcceptance,
  defaultLink,
  deliver,
  emailOf,
  findAccount,
  Link,
  membershipsOf,
  moveSession,
  type Person,
  personBody,
  prepare,
  roleAndPermissions,
  type SessionType,
  SignedInShape,
  SignIn,
  signInMode,
  TokenParams,
  tenantBody,
  trustedLink,
} from '../auth/auth.ts'
import {
  expireInvites,
  findTenant,
  type Invite,
  insertInvite,
  invalidInvite,
  joinByInvite,
  lockInvitee,
  openInvite,
  type TenantWrites,
} from '../membership/membership.ts'
import {
  type AtTenant,
  decideInvitedRole,
  decideInvitedTenant,
  decideSwitch,
  inviteeRefusal,
  isAtTenant,
  switchRefusal,
} from './decisions.ts'

/** Invitations, for the holders of their tokens. */
export function tenantPublicRoutes(app: App, deps: TenantWrites): void {
  prepare(app)
  const multiTenant = { preValidation: async () => checkMultiTenant(deps) }
  app.get('/auth/verify-invite/:token', { ...describeRoute, ...multiTenant }, (request) =>
    describeInvite(deps, request.params.token, request.query.link),
  )
}

/** Tenants of the caller. They emit auth.invite, mail.queued, auth.invite_accepted and auth.tenant_switched. */
export function tenantBearerRoutes(app: App, deps: TenantWrites): void {
  prepare(app)
  const multiTenant = { preValidation: async () => checkMultiTenant(deps) }
  const tenantsOnly = { preValidation: async () => checkMultiTenant(deps, withoutTenants) }
  app.post('/auth/invite', { ...inviteRoute, ...tenantsOnly }, (request) => invite(deps, request, request.body))
  app.post('/auth/accept-invite', { ...acceptRoute, ...multiTenant }, async (request, reply) => {
    const authMode = signInMode(deps, request, request.body.authMode)
    const { token, body } = await acceptInvitation(deps, request, request.body.inviteToken)
    return deliver(deps, reply, authMode, token, body)
  })
  app.get('/auth/tenants', { ...listRoute, ...multiTenant }, (request) => listTenants(deps, request))
  app.post('/auth/switch-tenant', { ...switchRoute, ...multiTenant }, async (request, reply) => {
    const authMode = signInMode(deps, request, request.body.authMode)
    const { token, body } = await switchTenant(deps, request, request.body)
    return deliver(deps, reply, authMode, token, body)
  })
}

/**
 * Invites an address to a tenant, in a role that the caller's own may invite to. The token is made when
 * the mail is sent and lives from then. 400 when the address is a member or invited already, for an untrusted link;
 * 403 for a role or a tenant that is not the caller's to give; 404 for one that does not exist.
 */
async function invite(deps: TenantWrites, request: FastifyRequest, body: Static<typeof InviteBody>) {
  const link = body.link === undefined ? defaultLink(deps, untrusted) : trustedLink(deps, body.link, untrusted)
  const email = emailOf(body.email)
  const roleId = body.role_Id.toLowerCase()
  const role = decideInvitedRole(request.caller, (await deps.access.knowing(roleId)).roles.get(roleId))
  const { strictIsolation } = deps.config.tenancy
  const tenantId = decideInvitedTenant(request.caller, body.tenant_Id?.toLowerCase(), strictIsolation)
  if (!(await tenantExists(deps, tenantId))) throw new AppError(404, 'Tenant not found')
  const sent = await send(deps, request, { email, roleId: role.id, tenantId, link })
  return { message: 'Invitation sent successfully', invite: { ...sent } }
}

/** An invitation as the holder of its token sees it; `acceptUrl` with a trusted link. 400 with `valid: false`. */
async function describeInvite(deps: TenantWrites, token: string, link: string | undefined) {
  const base = link === undefined ? undefined : trustedLink(deps, link, untrusted)
  const found = await openInvite(deps, token)
  const role = found && (await deps.access.knowing(found.roleId)).roles.get(found.roleId)
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
  deps: Writes & CurrentCatalog,
  request: FastifyRequest,
  { email, roleId, tenantId, link }: Invitation,
) {
  const { userId } = signedIn(request.caller)
  return commit(deps, actorOf(request), async (tx) => {
    await checkInvitee(tx, email, tenantId)
    const place = { email, roleId, tenantId, invitedBy: userId }
    const secret = { tokenHash: hashSecret(newSecret()), lifetimeSeconds: inviteLifetimeSeconds }
    const sent = await insertInvite(tx, deps.catalog.current(), { ...place, ...secret })
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
async function acceptInvitation(deps: TenantWrites, request: FastifyRequest, inviteToken: string | undefined) {
  const { userId, user } = signedIn(request.caller)
  const opened = await openInvite(deps, inviteToken)
  const { roles } = opened === undefined ? deps.access.current() : await deps.access.knowing(opened.roleId)
  const { invite, role } = decideAcceptance(opened, user?.email, roles)
  const { id: inviteId, tenantId, roleId } = invite
  const actor = actorOf(request, { userId, tenantId, role })
  const { token, tenant } = await commit(deps, actor, async (tx) => {
    const accepted = await joinByInvite(tx, userId, { inviteId, roleId, tenantId })
    const moved = await moveSession(deps, tx, request, { roleId, tenantId, type: undefined })
    const joined = (await findTenant(tx, deps.catalog.current(), tenantId)) ?? null
    return {
      result: { token: moved, tenant: joined },
      events: [accepted],
    }
  })
  const about = {
    user: personBody(user as Person),
    ...roleAndPermissions(deps, role),
    tenant: tenantBody(deps, tenant),
  }
  return { token, body: { message: 'Invitation accepted successfully', ...about } }
}

/** 400 outside multi-tenant mode. */
function checkMultiTenant({ config }: Configuration, details?: string): void {
  if (config.tenancy.enabled) return
  const more = details === undefined ? {} : { details, members: { details } }
  throw new AppError(400, 'Multi-tenant mode is not enabled', more)
}

const withoutTenants =
  'Invitations are to a tenant. Without tenants make the user by POST /items/svc_User, then mail a link to set a password by POST /auth/password/reset'

/** The tenants where the caller has a role, in the order of joining, with what the caller is there. */
async function listTenants({ db, catalog }: Reads & CurrentCatalog, request: FastifyRequest) {
  const memberships = await membershipsOf(db, catalog.current(), signedIn(request.caller).userId)
  return {
    tenants: memberships.filter(isAtTenant).map(({ tenant, userRoleId, role }) => ({
      ...tenant,
      userRole_Id: userRoleId,
      role: { id: role.id, name: role.name, app_access: role.app_access ?? null },
    })),
  }
}

/**
 * Goes on at another tenant of the caller's: its session there replaces the one it was called with.
 *
 * @throws {AppError} 400 without a tenant to go to, and for one where a caller from outside of tenants has no role, 403 for one
 *   where another caller has none or over the limit of the session type asked for, 404 for an unknown one
 */
async function switchTenant(
  deps: TenantWrites,
  request: FastifyRequest,
  { tenant_Id, userRole_Id, authType }: Static<typeof SwitchBody>,
) {
  const membership = await chosenMembership(deps, request, tenant_Id, userRole_Id)
  return enterTenant(deps, request, membership, authType)
}

/** Replaces the caller's session by one with this role; the answer of everything that signs a user in. */
async function enterTenant(
  deps: TenantWrites,
  request: FastifyRequest,
  { tenantId, tenant, role, userRoleId }: AtTenant,
  type: SessionType | undefined,
) {
  const { userId, user } = signedIn(request.caller)
  const actor = actorOf(request, { userId, tenantId, role })
  const token = await commit(deps, actor, async (tx) => ({
    result: await moveSession(deps, tx, request, { roleId: role.id, tenantId, type }),
    events: [{ type: 'auth.tenant_switched', data: { userId, tenantId } }],
  }))
  const about = {
    user: personBody(user as Person),
    ...roleAndPermissions(deps, role),
    tenant: tenantBody(deps, tenant),
  }
  return { token, body: { ...about, userRole_Id: userRoleId } }
}

async function chosenMembership(
  deps: Reads & CurrentCatalog,
  request: FastifyRequest,
  tenantId: string | undefined,
  userRoleId: string | undefined,
): Promise<AtTenant> {
  const memberships = await membershipsOf(deps.db, deps.catalog.current(), signedIn(request.caller).userId)
  const chosen = decideSwitch(memberships, { tenantId, userRoleId })
  if (chosen === undefined) throw switchRefusal(request.caller, await tenantExists(deps, tenantId!))
  return chosen
}

async function tenantExists({ db, catalog }: Reads & CurrentCatalog, id: string): Promise<boolean> {
  return isUuid(id) && (await findTenant(db, catalog.current(), id)) !== undefined
}

/* Shapes of bodies and answers. */

const declared = authRoutes('Tenants')
const someId = '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'
const named = (name: string) => Type.Object({ id: Id(), name: Text(name) })

/** Said of a link that leads elsewhere. */
const untrusted = 'Invalid application URL'

const bothNeeded = 'Email and role_Id are required'
const InviteBody = Type.Object({
  email: Filled('ada@example.com', { refusal: bothNeeded }),
  role_Id: Filled(someId, { refusal: bothNeeded }),
  tenant_Id: Type.Optional(Filled(someId, { lenient: true, description: 'Your own tenant unless given.' })),
  link: Link(undefined, untrusted),
})

const SwitchBody = Type.Object({
  authMode: SignIn.authMode,
  authType: SignIn.authType,
  tenant_Id: Type.Optional(Filled(someId, { lenient: true, description: 'This or userRole_Id is needed.' })),
  userRole_Id: Type.Optional(Filled(someId, { lenient: true })),
})

const AcceptBody = Type.Object({
  authMode: SignIn.authMode,
  inviteToken: Type.Optional(
    Text('5f1d7a84db00d2fce00b31a7fc73224f5f1d7a84db00d2fce00b31a7fc73224f', { lenient: true }),
  ),
})

/** A tenant's row with what the caller is there; its hidden fields were left out where it was read. */
const TenantShape = Type.Object(
  {
    id: Id(),
    name: Text('Analytical Engines'),
    userRole_Id: Id(),
    role: Type.Object({ id: Id(), name: Text('user'), app_access: Anything(null) }),
  },
  { additionalProperties: true },
)

const describeRoute = declared({
  summary: 'Read what an invitation says',
  scope: 'none',
  params: TokenParams,
  query: Type.Object({ link: Link('Needed for `acceptUrl`.', untrusted) }),
  response: {
    200: Type.Object({
      valid: Type.Boolean(),
      email: Text('ada@example.com'),
      userExists: Type.Boolean(),
      tenant: named('Analytical Engines'),
      role: named('user'),
      acceptUrl: Type.Optional(Text('https://app.example.com/login?inviteToken=5f1d7a84db00d2fc')),
    }),
  },
})
const inviteRoute = declared({
  summary: 'Invite an address to a tenant',
  reachesOutside: true,
  scope: 'none',
  body: InviteBody,
  response: {
    200: Type.Object({
      message: Text('Invitation sent successfully'),
      invite: Type.Object({
        id: Id(),
        email: Text('ada@example.com'),
        status: Text('pending'),
        expiresAt: Text('2026-03-21T09:26:53.589Z'),
      }),
    }),
  },
})
const acceptRoute = declared({
  summary: 'Accept an invitation',
  scope: 'none',
  description: 'The session goes on at the tenant.',
  body: AcceptBody,
  response: { 200: SignedInShape },
})
const listRoute = declared({
  summary: 'List your tenants',
  scope: 'none',
  response: { 200: Type.Object({ tenants: Type.Array(TenantShape) }) },
})
const switchRoute = declared({
  summary: 'Go on at another tenant',
  scope: 'none',
  body: SwitchBody,
  response: { 200: Type.Object({ ...SignedInShape.properties, userRole_Id: Id() }) },
})
