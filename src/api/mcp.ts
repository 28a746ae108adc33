import { isIP } from 'node:net'
import type { FastifyRequest } from 'fastify'
import type { Caller } from '../access/principal.ts'
import { AppError, errors } from '../errors.ts'
import { callerOfPassword, isTrustedOrigin, passwordInHeaders, resolveCaller } from '../features/accounts/auth/auth.ts'
import { mcpRoutes } from '../features/operations/mcp/routes.ts'
import type { App } from '../http/http.ts'
import type { DeclaredRoute } from '../http/route.ts'
import type { WebWrites } from './capabilities.ts'
import { openLocalCalls } from './local-calls.ts'

/** The tools' view of the web process. Open it before any route is registered. */
export function openMcp(app: App, deps: WebWrites, declared: () => readonly DeclaredRoute[]): (scope: App) => void {
  if (!deps.config.mcp.enabled) return () => undefined
  const call = openLocalCalls(app)
  /** The caller by a password, which is asked for each time, or else by `find`. */
  const callerBy = <Found>(request: FastifyRequest, find: () => Found | Promise<Found>) => {
    const held = passwordInHeaders(request)
    return held === undefined ? find() : callerOfPassword(deps, request, held)
  }
  return (scope) =>
    mcpRoutes(scope, deps, {
      declared,
      callerOf: async (request) => callerBy(request, () => holderOfToken(request, request.caller)),
      callerNow: async (request, reply) =>
        callerBy(request, async () => {
          const found = await resolveCaller(deps, request, reply)
          if (typeof found === 'string') throw errors.badCredential(found)
          return holderOfToken(request, found)
        }),
      refuseStranger: (request) => {
        if (passwordInHeaders(request) === undefined) holderOfToken(request, request.caller)
      },
      callFor: (request, reply) => {
        // Asked for anew for each tool, and by this route: a token may be for it alone.
        const caller = async () => callerBy(request, () => resolveCaller(deps, request, reply))
        return (wanted, signal) => call(request, wanted, { signal, caller })
      },
      checkOrigin: (request) => refuseForeign(deps, request),
    })
}

/** 401 for a caller without a token: a browser sends its cookie for every page that makes it ask. */
function holderOfToken({ sessionCookie }: FastifyRequest, caller: Caller): Caller {
  if (sessionCookie !== 'none' || caller.userId === undefined) throw errors.unauthorized()
  return caller
}

/**
 * 403 for a page of another site, and for a name that leads here without being ours: a browser on this machine can be made
 * to take any name for a server on loopback, and then sends no foreign origin.
 */
function refuseForeign({ config }: WebWrites, { headers: { origin }, host, socket }: FastifyRequest): void {
  const own = config.server.baseUrl === undefined ? [] : [new URL(config.server.baseUrl).origin]
  const isOurs = (one: string) => own.includes(one) || isTrustedOrigin(config, one) || isLoopback(hostOf(one))
  if (origin !== undefined && !isOurs(origin)) throw foreign('origin')
  const name = hostOf(`http://${host}`)
  const known = [...own, ...config.cors.allowedOrigins, ...config.auth.appUrls].map(hostOf)
  const isKnown = known.includes(name) || isLoopback(name) || isIP(name.replaceAll(/[[\]]/g, '')) !== 0
  if (isLoopback(socket.localAddress ?? '') && !isKnown) throw foreign('host')
}

const foreign = (what: string) =>
  new AppError(403, `This ${what} may not call tools; BASE_URL and the allowed origins may`, { code: 'FOREIGN_ORIGIN' })

const hostOf = (url: string): string => (URL.canParse(url) ? new URL(url).hostname : '')

const isLoopback = (name: string): boolean => /^(localhost|127(\.\d+){3}|\[?::1\]?|::ffff:127(\.\d+){3})$/i.test(name)
