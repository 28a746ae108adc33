import type { App } from '../../../http/http.ts'
import { deliver, prepare, signInMode } from '../auth/auth.ts'
import type { TenantWrites } from '../membership/membership.ts'
import { acceptRoute, describeRoute, inviteRoute, listRoute, switchRoute } from './schema.ts'
import { acceptInvitation, checkMultiTenant, describeInvite, invite, listTenants, switchTenant } from './tenants.ts'

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
  app.post('/auth/invite', { ...inviteRoute, ...multiTenant }, (request) => invite(deps, request, request.body))
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
