import { Transform } from 'node:stream'
import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify'
import { type Caller, ownerOf } from '../access/principal.ts'
import { checkScope } from '../access/scopes.ts'
import { AppError, type CredentialFault, errors } from '../errors.ts'
import { publicCaller } from '../features/accounts/auth/auth.ts'
import { type AccessClass, scopeOf } from '../http/declared-routes.ts'
import type { App } from '../http/http.ts'
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
      if (fault !== undefined) throw unauthenticated(request, access, fault)
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
 * Bodies of callers of whom nothing is known are at most a megabyte: BODY_SIZE_LIMIT is what an account may send, and many
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
