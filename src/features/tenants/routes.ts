import type { App } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { deliver } from '../auth/answers.ts'
import { answers, prepare, signInMode } from '../auth/routes.ts'
import { SignedInShape } from '../auth/schema.ts'
import { acceptInvitation } from './accept.ts'
import { describeInvite, invite } from './invites.ts'
import { InvitedShape, InviteShape, SwitchedShape, TenantsShape } from './schema.ts'
import { listTenants, switchTenant } from './tenants.ts'

/** What an invitation says, for whoever holds its token. */
export function tenantPublicRoutes(app: App, rt: Runtime): void {
  prepare(app)

  app.get<{ Params: { token: string }; Querystring: { link?: unknown } }>(
    '/auth/verify-invite/:token',
    answers(InviteShape),
    (request) => describeInvite(rt, request.params.token, request.query.link),
  )
}

/** Tenants of the caller. They emit auth.invite, mail.queued, auth.invite_accepted and auth.tenant_switched. */
export function tenantBearerRoutes(app: App, rt: Runtime): void {
  prepare(app)

  app.post('/auth/invite', answers(InvitedShape), (request) => invite(rt, request))
  app.post('/auth/accept-invite', answers(SignedInShape), async (request, reply) => {
    const authMode = signInMode(rt, request)
    const { token, body } = await acceptInvitation(rt, request)
    return deliver(rt, reply, authMode, token, body)
  })
  app.get('/auth/tenants', answers(TenantsShape), (request) => listTenants(rt, request))
  app.post('/auth/switch-tenant', answers(SwitchedShape), async (request, reply) => {
    const authMode = signInMode(rt, request)
    const { token, body } = await switchTenant(rt, request)
    return deliver(rt, reply, authMode, token, body)
  })
}
