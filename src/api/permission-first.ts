import { setTimeout as delay } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import type { CurrentCatalog } from '../catalog/store.ts'
import { type Action, errors } from '../errors.ts'
import { unknownModel } from '../features/data/reports/reports.ts'
import type { App } from '../http/http.ts'
import type { WebWrites } from './capabilities.ts'
import { callerOfRequest } from './local-calls.ts'

/**
 * THE table: routes about one collection, and the actions of which a caller must have been granted one, or the body is not even
 * read. Everything finer (fields, rows, the second of two actions) is decided with the body, by the same words.
 */
const actionsOfRoutes: Readonly<Record<string, readonly Action[]>> = {
  'POST /files': ['create'],
  'POST /files/upload-from-url': ['create'],
  'POST /files/import': ['create'],
  'POST /files/tus': ['create'],
  'PATCH /files/:id': ['update'],
  'DELETE /files/:id': ['delete'],
  'POST /items/:collection': ['create'],
  'PUT /items/:collection': ['create', 'update'],
  'PATCH /items/:collection/:id': ['update'],
  'DELETE /items/:collection/:id': ['delete'],
  'POST /items/:collection/bulk': ['create'],
  'PATCH /items/:collection/bulk': ['update'],
  'DELETE /items/:collection/bulk': ['delete'],
  'POST /items/:collection/import-csv': ['create'],
  'POST /items/:collection/import-json': ['create'],
  'POST /reports/:collection': ['read'],
  'POST /workflows': ['create'],
  'PATCH /workflows/:id': ['update'],
  'DELETE /workflows/:id': ['delete'],
  'POST /webhooks': ['create'],
  'PATCH /webhooks/:id': ['update'],
  'POST /webhooks/:id/replay': ['update'],
}

/** The collection of routes that name none, by the beginning of their address. */
const collectionsOfRoutes: Readonly<Record<string, string>> = {
  '/files': 'svc_File',
  '/workflows': 'svc_Workflow',
  '/webhooks': 'svc_Webhook',
}

/**
 * Refuses the routes of the table after the caller is known and before the body is read: 404 for an unknown collection,
 * 403 without any grant. Before it refuses, the process reads collections and permissions again, so that a change that
 * it has not heard of refuses nobody.
 */
export function checkPermissionFirst(app: App, deps: WebWrites): void {
  const refresh = spaced(refreshEveryMs, async () => {
    await deps.catalog.reloadIfStale()
    await deps.access.reloadIfStale()
  })
  app.addHook('onRoute', (route) => {
    const actions = [route.method].flat().map((method) => actionsOfRoutes[`${method} ${route.url}`])[0]
    if (actions === undefined) return
    const check: Hook = (request, reply, done) => {
      if (problemOf(deps, request, actions) === undefined) return done()
      refresh()
        .then(() => refuseStill(deps, request, reply, actions))
        .then(() => done(), done)
    }
    route.onRequest = [...listOf(route.onRequest), check]
  })
}

/** A refused caller waits for it; many at once cost the database one look in this time. */
const refreshEveryMs = 20

type Hooks = Extract<NonNullable<RouteOptions['onRequest']>, readonly unknown[]>
type Hook = Hooks[number]

async function refuseStill(
  deps: WebWrites,
  request: FastifyRequest,
  reply: FastifyReply,
  actions: readonly Action[],
): Promise<void> {
  const caller = await callerOfRequest(deps, request, reply)
  // The session has ended meanwhile.
  if (typeof caller === 'string') throw errors.badCredential(caller)
  request.caller = caller
  const problem = problemOf(deps, request, actions)
  if (problem !== undefined) throw problem
}

function problemOf(
  { catalog }: CurrentCatalog,
  { params, caller, routeOptions }: FastifyRequest,
  actions: readonly Action[],
) {
  const [beginning = ''] = /^\/\w+/.exec(routeOptions.url ?? '') ?? []
  const { collection: name = collectionsOfRoutes[beginning]! } = params as { collection?: string }
  if (!catalog.current().collections.has(name))
    return routeOptions.url?.startsWith('/reports/') ? unknownModel() : errors.unknownCollection(name)
  const isGranted = caller.admin || actions.some((action) => caller.access.grant(name, action) !== undefined)
  return isGranted ? undefined : errors.actionDenied(actions[0]!, name)
}

/** Does the work after each call, but begins it at most so often: those who come meanwhile share the next time. */
function spaced(everyMs: number, work: () => Promise<void>): () => Promise<void> {
  let begunAt = Number.NEGATIVE_INFINITY
  let next: Promise<void> | undefined
  const begin = async () => {
    const pause = begunAt + everyMs - performance.now()
    // Also without a pause a turn later, when `next` is set.
    await delay(Math.max(0, pause), undefined, { ref: false })
    next = undefined
    begunAt = performance.now()
    await work()
  }
  return () => {
    next ??= begin()
    return next
  }
}

function listOf(hooks: RouteOptions['onRequest']): Hook[] {
  return hooks === undefined ? [] : Array.isArray(hooks) ? [...hooks] : [hooks as Hook]
}
