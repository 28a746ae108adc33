import type { RouteOptions } from 'fastify'
import type { TSchema } from 'typebox'
import type { RequiredScope } from '../access/scopes.ts'
import type { App } from './http.ts'

/**
 * The callers of the routes of a group. `public`: anybody. `bearer`: a live session or an API key. `session`: a live
 * session. `leaving`: a live session, or a cookie of one that has ended. `admin`: the administrator role, also by a
 * key; `admin session`: only by a session. An Authorization header without a valid credential is 401 for all of them.
 */
export type AccessClass = 'public' | 'bearer' | 'session' | 'leaving' | 'admin' | 'admin session'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The callers of the route; set for its group. Anybody if it is not set. */
    access?: AccessClass
    /** The scope that a client's token needs; for routes of extensions without one `read` to read, else `write`. */
    scope?: RequiredScope
    /** The endpoint of an extension that the route belongs to. */
    endpoint?: string
  }
}

/** A route as its declaration describes it; routes of extensions may lack everything but method and path. */
export type DeclaredRoute = {
  readonly method: string
  /** As the router has it: `/items/:collection/:id`. */
  readonly url: string
  readonly access: AccessClass
  readonly scope: RequiredScope
  readonly endpoint: string | undefined
  readonly summary?: string
  readonly description?: string
  readonly tags?: readonly string[]
  readonly params?: TSchema
  readonly querystring?: TSchema
  readonly body?: TSchema
  readonly response?: Readonly<Record<string, TSchema>>
}

/** The scope of a route that may not have said it. */
export const scopeOf = (method: string, declared: RequiredScope | undefined): RequiredScope =>
  declared ?? (['GET', 'HEAD', 'OPTIONS'].includes(method) ? 'read' : 'write')

/** The routes that are registered from now on; asked for when all are, which is after `ready`. */
export function declaredRoutes(app: App): () => readonly DeclaredRoute[] {
  const registered: RouteOptions[] = []
  app.addHook('onRoute', (route) => void registered.push(route))
  let declared: readonly DeclaredRoute[] | undefined
  return () => {
    declared ??= registered.flatMap(declaredOf)
    return declared
  }
}

function declaredOf({ method, url, schema = {}, config }: RouteOptions): DeclaredRoute[] {
  // Handlers of CORS preflights declare nothing.
  const isDescribed = (one: string) => one !== 'HEAD' && (one !== 'OPTIONS' || 'summary' in schema)
  const methods = [method].flat().filter(isDescribed)
  return methods.map((one) => ({
    ...(schema as Partial<DeclaredRoute>),
    method: one,
    url,
    access: config?.access ?? 'public',
    scope: scopeOf(one, config?.scope),
    endpoint: config?.endpoint,
  }))
}
