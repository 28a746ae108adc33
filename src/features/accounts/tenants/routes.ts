import type { App } from '../../../http/http.ts'
import { deliver, prepare, signInMode } from '../auth/auth.ts'
import type { TenantWrites } from '../membership/membership.ts'
import { acceptRoute, describeRoute, inviteRoute, listRoute, switchRoute } from './schema.ts'
import { acceptInvitation, checkMultiTenant, describeInvite, invite, listTenants, switchTenant } from './tenants.ts'

/** Invitations, for the holders of their tokens. */
export function tenantPublicRoutes(app: App, rt: TenantWrites): void {
  prepare(app)
  const multiTenant = { preValidation: async () => checkMultiTenant(rt) }
  app.get('/auth/verify-invite/:token', { ...describeRoute, ...multiTenant }, (request) =>
    describeInvite(rt, request.params.token, request.query.link),
  )
}

/** Tenants of the caller. They emit auth.invite, mail.queued, auth.invite_accepted and auth.tenant_switched. */
export function tenantBearerRoutes(app: App, rt: TenantWrites): void {
  prepare(app)
  const multiTenant = { preValidation: async () => checkMultiTenant(rt) }
  app.post('/auth/invite', { ...inviteRoute, ...multiTenant }, (request) => invite(rt, request, request.body))
  app.post('/auth/accept-invite', { ...acceptRoute, ...multiTenant }, async (request, reply) => {
    const authMode = signInMode(rt, request, request.body.authMode)
    const { token, body } = await acceptInvitation(rt, request, request.body.inviteToken)
    return deliver(rt, reply, authMode, token, body)
  })
  app.get('/auth/tenants', { ...listRoute, ...multiTenant }, (request) => listTenants(rt, request))
  app.post('/auth/switch-tenant', { ...switchRoute, ...multiTenant }, async (request, reply) => {
    const authMode = signInMode(rt, request, request.body.authMode)
    const { token, body } = await switchTenant(rt, request, request.body)
    return deliver(rt, reply, authMode, token, body)
  })
}
