import type { FastifyRequest } from 'fastify'
import type { Configuration } from '../config/config.ts'
import { broken, type Extensions, explained } from '../extensions/extensions.ts'
import { statedRefusal } from '../features/data/hooks/hooks.ts'
import { accountabilityOf, type Requester } from '../features/data/items/items.ts'
import { type App, actorOf } from '../http/http.ts'
import { registerAccess } from './access.ts'
import type { WebWrites } from './capabilities.ts'
import type { Limits } from './limits.ts'

/**
 * Registers the routes of each endpoint below `/{id}`, in a scope of its own: what it adds to the server besides (hooks,
 * parsers, error handlers) concerns its own routes. Anybody may call them; who does is in `request.accountability`.
 * A path that the platform has routes at stops the start.
 */
export function registerEndpoints(
  app: App,
  deps: WebWrites,
  endpoints: Extensions['endpoints'],
  { taken, limits }: { readonly taken: ReadonlySet<string>; readonly limits: Limits },
): void {
  app.decorateRequest('accountability', null)
  for (const { file, definition, context } of endpoints)
    app.register(
      async (scope) => {
        if (taken.has(definition.id.toLowerCase()))
          throw broken(file, `has the id ${definition.id}, a path of the platform`)
        registerAccess(scope as App, deps, 'public', limits)
        scope.addHook('onRequest', async (request) => {
          request.accountability = accountabilityOf(deps, requesterOf(request))
        })
        scope.addHook('onRoute', (route) => {
          route.config = { ...route.config, decodesBodies: true, endpoint: definition.id }
        })
        scope.setErrorHandler((error) => {
          throw isFramework(error) ? error : (statedRefusal(error) ?? asError(error))
        })
        // In a scope within, where the endpoint may set an error handler of its own.
        await scope.register(async (own) =>
          explained(file, 'failed', async () => definition.handler(own as unknown as App, context)),
        )
      },
      { prefix: `/${definition.id}` },
    )
}

/** A thrown value that is no error would be sent as it is. */
function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error('an endpoint has thrown what is no error', { cause: thrown })
}

/** Bodies that are too large, broken JSON and the like are answered as everywhere. */
function isFramework(error: unknown): boolean {
  const { code, validation } = Object(error) as { code?: unknown; validation?: unknown }
  return validation !== undefined || (typeof code === 'string' && code.startsWith('FST_'))
}

/** The actor is made when it is asked for: what makes a request repeatable is known only after its body was read. */
function requesterOf(request: FastifyRequest): Requester {
  const { access, user, sessionId } = request.caller
  return {
    access,
    user,
    sessionId,
    get actor() {
      return actorOf(request)
    },
  }
}

/** The first parts of the paths of all routes that are registered from now on, and of the realtime channel. */
export function pathsTaken(app: App, { config }: Configuration): ReadonlySet<string> {
  const taken = new Set([firstPart(config.realtime.path)])
  app.addHook('onRoute', ({ url }) => {
    taken.add(firstPart(url))
  })
  return taken
}

const firstPart = (url: string): string => url.split('/')[1]?.toLowerCase() ?? ''
