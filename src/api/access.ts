import { Transform } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction, RouteOptions } from 'fastify'
import { type Caller, ownerOf } from '../access/principal.ts'
import { checkScope } from '../access/scopes.ts'
import { hooksOf } from '../adapters/fastify.ts'
import type { CurrentCatalog } from '../catalog/store.ts'
import { type Action, AppError, type CredentialFault, errors } from '../errors.ts'
import { publicCaller } from '../features/accounts/auth/auth.ts'
import { unknownModel } from '../features/data/reports/reports.ts'
import type { App } from '../http/http.ts'
import { type AccessClass, scopeOf } from '../http/route.ts'
import type { WebWrites } from './capabilities.ts'
import type { Limits } from './limits.ts'
import { callerOfRequest } from './local-calls.ts'

/** Resolves the caller of every request and refuses those the group is not for, before the body is read. */
export function registerAccess(app: App, deps: WebWrites, access: AccessClass, limits: Limits): void {
  app.addHook('onRequest', accessCheck(deps, access, limits))
  app.addHook('onRoute', (route) => {
    route.config = { ...route.config, access }
  })
}

/** The check itself, for a route that others may call besides. */
export function accessCheck(deps: WebWrites, access: AccessClass, limits: Limits) {
  return (request: FastifyRequest, reply: FastifyReply, done: HookHandlerDoneFunction): void => {
    const admit = (found: Caller | CredentialFault) => {
      const fault = typeof found === 'string' ? found : undefined
      request.caller = typeof found === 'string' ? publicCaller(deps) : found
      const { client, access: own } = request.caller
      if (client !== undefined)
        request.agent = { ...(request.agent ?? agentNamed(client.name)), ...(own.scope && { scope: own.scope }) }
      limits.countCaller(request, reply)
      if (fault !== undefined && !request.routeOptions.config.toleratesFaults)
        throw unauthenticated(request, access, fault)
      request.credentialFault = fault
      request.routeOptions.config.precondition?.()
      if (request.routeOptions.config.inPreview === 'as owner') request.caller = ownerOf(request.caller)
      if (request.caller.preview !== undefined) refuseInPreview(request, access)
      refuse(request, access)
      checkScope(request.caller.access, neededScope(request))
    }
    const found = callerOfRequest(deps, request, reply)
    if (found instanceof Promise) return void found.then(admit).then(() => done(), done)
    // An error that it throws is the answer, too.
    admit(found)
    done()
  }
}

const neededScope = ({ method, routeOptions, caller }: FastifyRequest) => {
  const scope = scopeOf(method, routeOptions.config.scope)
  // In a preview, routes that need the scope `admin` to read are open as far as the grants of the previewed user go.
  return caller.preview !== undefined && isSafe(method) && scope !== 'none' ? 'read' : scope
}

/** A preview reads as another would, and no more: not what belongs to the other's account, whatever the method. */
function refuseInPreview({ method, routeOptions }: FastifyRequest, access: AccessClass): void {
  const { inPreview, scope } = routeOptions.config
  if (inPreview === 'allowed') return
  if (access.endsWith('session') || access === 'leaving')
    throw isSafe(method) ? errors.previewHides() : errors.previewOnly()
  if (!isSafe(method) && scope !== 'read') throw errors.previewOnly()
}

const isSafe = (method: string): boolean => ['GET', 'HEAD', 'OPTIONS'].includes(method)

/** As clients may name themselves by `x-svc-agent`. */
const agentNamed = (name: string) => ({ name: name.replaceAll(/[^\w .,@/:+()-]+/g, ' ').slice(0, 100) })

function refuse(request: FastifyRequest, access: AccessClass): void {
  if (access === 'public' || (access === 'leaving' && request.sessionCookie === 'dead')) return
  if (request.caller.userId === undefined) throw unauthenticated(request, access)
  if (access.endsWith('session') || access === 'leaving') {
    if (request.caller.sessionId === undefined) throw errors.sessionNeeded()
    if (request.caller.client !== undefined) throw errors.tokenNotAccepted()
  }
  if (access.startsWith('admin') && !request.caller.admin) throw forbidden(request)
}

/** The specification has its own words for routes that need a caller, whether there is no credential or a bad one. */
function unauthenticated(request: FastifyRequest, access: AccessClass, fault?: CredentialFault): AppError {
  const { url = '' } = request.routeOptions
  const words = access === 'public' ? undefined : wordsOf(url)
  const members = url === '/auth/check' ? { valid: false } : undefined
  if (fault !== undefined) return errors.badCredential(fault, words, members)
  return new AppError(401, words ?? 'Authentication required', { ...(members && { members }) })
}

function wordsOf(url: string): string {
  if (url === '/auth/refresh' || url === '/auth/check') return 'Invalid or expired token'
  return url.startsWith('/auth/') || url.startsWith('/settings') ? 'Unauthorized' : 'Authentication required'
}

function forbidden({ routeOptions: { url = '' } }: FastifyRequest): AppError {
  return url.startsWith('/settings') ? new AppError(403, 'Forbidden') : errors.adminOnly()
}

/** Enough for a form or a filter. Bytes. */
const anonymousBodyLimit = 1_048_576

/**
 * Bodies of unknown callers are at most a megabyte: BODY_SIZE_LIMIT is what an account may send, and many
 * such bodies at a time would be all of a process's memory. 413 for more.
 */
export function limitAnonymousBodies(app: App): void {
  app.addHook('preParsing', (request, _reply, payload, done) => {
    if (request.caller.userId !== undefined) done(null, payload)
    else if (Number(request.headers['content-length']) > anonymousBodyLimit) done(tooLarge())
    // A form is read past this stream.
    else if (isOfUnknownLength(request) && isForm(request)) done(new AppError(411, 'Content-Length is required'))
    else done(null, isOfUnknownLength(request) ? payload.pipe(atMost(anonymousBodyLimit)) : payload)
  })
}

/** A path that does not exist is answered before the body is read. */
export function refuseUnknownPaths(app: App): void {
  app.addHook('onRequest', (request, _reply, done) => {
    done(request.is404 ? new AppError(404, 'Not found') : undefined)
  })
}

const isForm = ({ headers }: FastifyRequest) => headers['content-type']?.startsWith('multipart/') === true
const isOfUnknownLength = ({ headers }: FastifyRequest) => headers['transfer-encoding'] !== undefined

function atMost(limit: number): Transform {
  let size = 0
  return new Transform({
    transform(chunk: Buffer, _encoding, next) {
      size += chunk.length
      if (size > limit) next(tooLarge())
      else next(null, chunk)
    },
  })
}

/** The framework reads `statusCode` of what a stream fails with. */
const tooLarge = () => Object.assign(new AppError(413, 'Request body is too large'), { statusCode: 413 })

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
 * 403 without any grant. Before it refuses, the process reads collections and permissions again, so that it refuses
 * no caller for a change that it has not heard of.
 */
export function checkPermissionFirst(app: App, deps: WebWrites): void {
  const refresh = spaced(refreshEveryMs, async () => {
    await deps.catalog.reloadIfStale()
    await deps.access.reloadIfStale()
  })
  app.addHook('onRoute', (route) => {
    const actions = [route.method].flat().map((method) => actionsOfRoutes[`${method} ${route.url}`])[0]
    if (actions === undefined) return
    const check: RouteHook = (request, reply, done) => {
      if (problemOf(deps, request, actions) === undefined) return done()
      refresh()
        .then(() => refuseStill(deps, request, reply, actions))
        .then(() => done(), done)
    }
    route.onRequest = [...hooksOf(route.onRequest), check]
  })
}

/** A refused caller waits for it; many at once cost the database one look in this time. */
const refreshEveryMs = 20

type OnRequestHooks = Extract<NonNullable<RouteOptions['onRequest']>, readonly unknown[]>
type RouteHook = OnRequestHooks[number]

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
