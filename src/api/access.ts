import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify'
import { AppError, errors } from '../errors.ts'
import { resolveCaller } from '../features/auth/authenticate.ts'
import type { Caller } from '../features/auth/caller.ts'
import type { App } from '../http.ts'
import type { Runtime } from '../runtime.ts'
import type { Limits } from './limits.ts'

/**
 * Who may call the routes of a group. `public`: anybody, a bad token counts as none. `bearer`: a live session or an
 * API key. `session`: a live session. `admin`: the administrator role, also by a key; `admin session`: only by a session.
 */
export type AccessClass = 'public' | 'bearer' | 'session' | 'admin' | 'admin session'

/** Resolves the caller of every request and refuses those the group is not for, before the body is read. */
export function registerAccess(app: App, rt: Runtime, access: AccessClass, limits: Limits): void {
  app.addHook('onRequest', accessCheck(rt, access, limits))
}

/** The check itself, for a route that others may call besides. */
export function accessCheck(rt: Runtime, access: AccessClass, limits: Limits) {
  return (request: FastifyRequest, reply: FastifyReply, done: HookHandlerDoneFunction): void => {
    const admit = (caller: Caller) => {
      request.caller = caller
      limits.countCaller(request, reply)
      refuse(request, access)
    }
    const caller = resolveCaller(rt, request)
    if (caller instanceof Promise) return void caller.then(admit).then(() => done(), done)
    // What it throws is the answer, too.
    admit(caller)
    done()
  }
}

function refuse(request: FastifyRequest, access: AccessClass): void {
  if (access === 'public') return
  if (request.caller.userId === undefined) throw unauthenticated(request)
  if (access.endsWith('session') && request.caller.sessionId === undefined) throw errors.sessionNeeded()
  if (access.startsWith('admin') && !request.caller.admin) throw forbidden(request)
}

/** The specification has its own words for some routes without authentication. */
function unauthenticated(request: FastifyRequest): AppError {
  const { url = '' } = request.routeOptions
  if (url === '/auth/refresh') return errors.unauthorized('Invalid or expired token')
  if (url === '/auth/check') return new AppError(401, 'Invalid or expired token', { members: { valid: false } })
  const inOneWord = url.startsWith('/auth/') || url.startsWith('/settings')
  return errors.unauthorized(inOneWord ? 'Unauthorized' : 'Authentication required')
}

function forbidden({ routeOptions: { url = '' } }: FastifyRequest): AppError {
  return url.startsWith('/settings') ? new AppError(403, 'Forbidden') : errors.adminOnly()
}
