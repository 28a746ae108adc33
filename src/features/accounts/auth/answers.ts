import type { FastifyReply, FastifyRequest } from 'fastify'
import type { CurrentAccess, Role } from '../../../access/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { App } from '../../../http/http.ts'
import { refuseForeignPage, setSessionCookie } from './browser.ts'
import type { AuthMode } from './input.ts'
import type { Person } from './queries.ts'

type Row = Readonly<Record<string, unknown>>

/** The members of every answer about a signed-in user, beside the user. */
export function roleAndPermissions({ access }: CurrentAccess, role: Role) {
  const rows = access.current().permissions.get(role.id) ?? []
  return { role: roleBody(role), permissions: [...rows] }
}

/** Exactly these members, whatever else the row holds. */
export function personBody({ id, email, firstName, lastName }: Person): Person {
  return { id, email, firstName, lastName }
}

/** A null where multi-tenancy is not used. */
export function tenantBody({ config }: Configuration, tenant: Row | null): Record<string, unknown> | null {
  return config.tenancy.enabled && tenant !== null ? { ...tenant } : null
}

/**
 * Hands the token over: in the body, or as a cookie and then not in the body . A browser that came with a
 * session cookie gets the next token as its cookie whatever it asks for: its scripts must not get hold of what the cookie
 * keeps from them. Without a token, when something else is asked for first, the body is the whole answer.
 */
export function deliver<Body extends object>(...of: [...TokenDelivery, token: string, body: Body]): SignInBody<Body>
export function deliver<Body extends object>(
  ...of: [...TokenDelivery, token: string | undefined, body: Body]
): Body | SignInBody<Body>
export function deliver<Body extends object>(
  ...[deps, reply, authMode, token, body]: [...TokenDelivery, token: string | undefined, body: Body]
): Body | SignInBody<Body> {
  if (token === undefined) return body
  const mode = deliveryTo(reply.request, authMode)
  if (mode === 'jwt') return { ...body, token, authMode: mode }
  setSessionCookie(deps, reply, token)
  return { message: 'Authentication successful', ...body, authMode: mode }
}

/** How this client gets a token, whatever it has asked for. */
export function deliveryTo({ sessionCookie }: FastifyRequest, asked: AuthMode): AuthMode {
  return sessionCookie === 'live' ? 'cookie' : asked
}

/** Bodies are JSON only (a form of another site can't send that), and no answer may be kept by a cache. */
export function prepare(app: App): void {
  app.removeContentTypeParser('text/plain')
  app.addHook('onSend', async (_request, reply) => {
    reply.header('cache-control', 'no-store')
  })
}

/** How the caller gets its token; 403 where another site's page would sign it in. */
export function signInMode({ config }: Configuration, request: FastifyRequest, asked: AuthMode = 'jwt'): AuthMode {
  const authMode = deliveryTo(request, asked)
  if (authMode === 'cookie') refuseForeignPage(config, request)
  return authMode
}

type TokenDelivery = [deps: Configuration & CurrentAccess, reply: FastifyReply, authMode: AuthMode]
type SignInBody<Body> = Body & { readonly authMode: AuthMode; readonly token?: string; readonly message?: string }

function roleBody(role: Role) {
  const { id, name, description, isTenantSpecific, canInviteRoleIds } = role
  return { id, name, description, isTenantSpecific, canInviteRoleIds, app_access: role.app_access ?? null }
}
