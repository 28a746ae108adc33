import type { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Caller } from '../access/principal.ts'
import { clientNetwork } from '../adapters/network-addresses.ts'
import type { ResourceName } from '../config/issuer.ts'
import type { RepeatableRequest } from '../db/unlogged/requests.ts'
import { errors } from '../errors.ts'
import type { Actor, Agent, Cause } from '../events/types.ts'

export type { App } from '../adapters/fastify.ts'

/** Which of the specification's two error bodies a route answers with; realtime's validation errors are a third, those of RFC 6749 a fourth. */
export type ErrorStyle = 'auth' | 'general' | 'realtime' | 'oauth'

declare module 'fastify' {
  interface FastifyRequest {
    /** The caller; set before the handler of every route, the public role without a valid session. */
    caller: Caller
    /** The state of its session cookie: `live` makes the caller, `dead` nobody. `none` also if the header decides. */
    sessionCookie: 'none' | 'live' | 'dead'
    /** The log's own id of it: `id`, unless the client chose that. */
    logId: string
    /** The program that acts for the user, where it names itself. */
    agent: Agent | undefined
    /** The delivery of a webhook that led to it, where the client says so. */
    cause: Cause | undefined
    /** Set where the client sent an Idempotency-Key. */
    repeatable: RepeatableRequest | undefined
  }
  interface FastifyContextConfig {
    errorStyle?: ErrorStyle
    /**
     * The audience that tokens of programs need here, by default the API; 401 for others, with the address to begin at.
     */
    resource?: ResourceName
    /** In a preview: `as owner` runs as the administrator whose session it is, `allowed` reads by a method that others write by. */
    inPreview?: 'as owner' | 'allowed'
    /** Every caller is the public role: other sites lead browsers here, so a cookie says nothing about who asks. */
    ignoresSession?: boolean
    /** The route reads the Authorization header itself, e.g. of another service that calls it; the platform does not. */
    ownAuthorization?: boolean
    /** The body is read as it comes, and may come for as long as it moves. */
    streamedBody?: boolean
    /** The parameter `access_token` stands for an Authorization header where there is none: pages cannot send one with an image. */
    takesTokenInQuery?: boolean
    /** Differences from the configured CORS. An OPTIONS route that answers more than a preflight continues. */
    cors?:
      | { readonly strictPreflight: boolean; readonly preflightContinue: boolean }
      | { readonly origin: '*'; readonly credentials: false }
  }
}

/** The actor of a request, as the log records it. `caller` may stand for somebody else than the request's own, e.g. at login. */
export function actorOf(
  request: FastifyRequest,
  caller: Pick<Caller, 'userId' | 'tenantId'> & { role: { id: string } } = request.caller,
): Actor {
  const { preview } = request.caller
  const actor: Actor = {
    userId: caller.userId,
    roleId: caller.role.id,
    tenantId: caller.tenantId,
    ip: request.ip,
    userAgent: request.headers['user-agent'],
    requestId: request.id,
    logRequestId: request.logId,
    agent: request.agent,
    cause: request.cause,
    request,
    repeatable: request.repeatable,
  }
  return preview === undefined ? actor : previewing(actor, request.caller, preview.owner)
}

/**
 * The previewing administrator is the actor, and the previewed user is named beside. Every transaction of it is
 * refused.
 */
function previewing(actor: Actor, seen: Caller, { userId, role, tenantId }: Caller): Actor {
  const agent = { name: `preview as ${seen.userId === userId ? seen.role.id : (seen.userId ?? seen.role.id)}` }
  const guard = () => Promise.reject(errors.previewOnly())
  return { ...actor, userId, roleId: role.id, tenantId, agent, guard }
}

/** The key by which callers take turns where work waits: a user, or the network of a stranger. */
export const turnOf = ({ caller, ip }: FastifyRequest): string => caller.userId ?? clientNetwork(ip)

/** Makes a body that only its handler can read part of what the request's Idempotency-Key stands for. */
export function identifyBody(request: FastifyRequest, digest: string): void {
  if (request.repeatable === undefined) return
  const { fingerprint } = request.repeatable
  request.repeatable = { ...request.repeatable, fingerprint: `${fingerprint} ${digest}` }
}

/** Answers with text that is JSON already. */
export const sendJson = (reply: FastifyReply, body: string | Readable | Buffer): FastifyReply =>
  reply.type('application/json; charset=utf-8').send(body)

/** Adds headers of requests that the answer depends on, besides those that it does already. */
export function varyBy(reply: FastifyReply, ...names: readonly string[]): FastifyReply {
  const known = [reply.getHeader('vary') ?? []].flat().map(String)
  return reply.header('vary', [...known, ...names].join(', '))
}
