import type { IncomingMessage } from 'node:http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Caller } from '../access/principal.ts'
import { answerLocally, type LocalAnswer } from '../adapters/local-requests.ts'
import { goneSignal } from '../admission/asker.ts'
import { AppError, type CredentialFault } from '../errors.ts'
import { resolveCaller } from '../features/accounts/auth/auth.ts'
import type { RouteCall } from '../features/operations/mcp/mcp.ts'
import type { App } from '../http/http.ts'
import { writeJson } from '../language/exact-json.ts'
import type { WebWrites } from './capabilities.ts'
import { narrowed } from './extension-callers.ts'

/** The context of a request that this process makes to itself. */
type Local = {
  /** Method and path of the one route that it is for. */
  readonly route: string
  /** The caller; undefined where the headers decide. */
  readonly caller: (() => CallerOrFault | Promise<CallerOrFault>) | undefined
}

type CallerOrFault = Caller | CredentialFault

const locals = new WeakMap<IncomingMessage, Local>()

/** The caller of a request, as `resolveCaller`; of a request of our own the one it is made for; of an extension's request narrowed to it. */
export function callerOfRequest(
  deps: WebWrites,
  request: FastifyRequest,
  reply: FastifyReply,
): CallerOrFault | Promise<CallerOrFault> {
  const found = locals.get(request.raw)?.caller?.() ?? resolveCaller(deps, request, reply)
  if (request.consoleExtension === undefined) return found
  const narrow = (one: CallerOrFault) => (typeof one === 'string' ? one : narrowed(deps, request, one))
  return found instanceof Promise ? found.then(narrow) : narrow(found)
}

/** Headers of a request that those made for it have, too: of what program it comes, and what led to it. */
const passedOn = ['user-agent', 'x-request-id', 'daybook-cause'] as const

/** Longer answers are cut. Bytes. */
const mostBytes = 1_000_000

/**
 * Calls of routes by the process itself, through everything that a request from outside goes through: access, limits,
 * reading, errors, log. A path that would lead to another route than the one that is meant leads nowhere.
 */
export function openLocalCalls(app: App) {
  app.addHook('onRequest', (request, _reply, done) => {
    const local = locals.get(request.raw)
    const isMeant = local === undefined || local.route === `${request.method} ${request.routeOptions.url}`
    done(isMeant ? undefined : new AppError(404, 'Not found'))
  })
  return async (
    request: FastifyRequest,
    { route, params = {}, query = {}, body, token, agent }: RouteCall,
    { signal, caller }: { readonly signal: AbortSignal; readonly caller: Local['caller'] },
  ): Promise<LocalAnswer> => {
    const [method, pattern] = route.split(' ') as ['GET', string]
    const headers = Object.fromEntries(
      passedOn.flatMap((name) => {
        const value = request.headers[name]
        return typeof value === 'string' ? [[name, value]] : []
      }),
    )
    const gone = goneSignal()
    return answerLocally(
      (raw, answer) => {
        locals.set(raw, { route, caller: token === undefined ? caller : undefined })
        app.routing(raw, answer)
      },
      {
        method,
        url: pathOf(pattern, params) + queryText(query),
        headers: { ...headers, ...(token !== undefined && { authorization: `Bearer ${token}` }), 'x-svc-agent': agent },
        body,
        remoteAddress: request.ip,
      },
      { gone: gone === undefined ? signal : AbortSignal.any([signal, gone]), mostBytes },
    )
  }
}

function pathOf(pattern: string, params: Readonly<Record<string, string | number>>): string {
  return pattern.replaceAll(/:(\w+)/g, (_all, name: string) => {
    const value = String(params[name] ?? '')
    // A router takes these for other paths.
    if (value === '' || value === '.' || value === '..') throw new AppError(404, 'Not found')
    return encodeURIComponent(value)
  })
}

function queryText(query: Readonly<Record<string, unknown>>): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined)
  const texts = given.map(([name, value]): [string, string] => [
    name,
    typeof value === 'object' ? writeJson(value) : String(value),
  ])
  return texts.length === 0 ? '' : `?${new URLSearchParams(texts)}`
}
