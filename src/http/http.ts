import { createHash } from 'node:crypto'
import { parse as parseForm } from 'node:querystring'
import type { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Caller } from '../access/principal.ts'
import { type App, acceptMultipart, formParts } from '../adapters/fastify.ts'
import { clientNetwork } from '../adapters/network-addresses.ts'
import type { Config } from '../config/config.ts'
import type { ResourceName } from '../config/issuer.ts'
import type { RepeatableRequest } from '../db/unlogged/requests.ts'
import { AppError, type CredentialFault, errors } from '../errors.ts'
import type { Actor, Agent, Cause } from '../events/types.ts'
import { decodeText, isTooDeep, keepable } from './json-values.ts'

export type { App }

/** Which of the specification's two error bodies a route answers with; realtime's validation errors are a third, those of RFC 6749 a fourth. */
export type ErrorStyle = 'auth' | 'general' | 'realtime' | 'oauth'

declare module 'fastify' {
  interface FastifyRequest {
    /** The caller; set before the handler of every route, the public role without a valid session. */
    caller: Caller
    /** Why its Authorization header makes no caller, where a route `toleratesFaults`; undefined for any other. */
    credentialFault: CredentialFault | undefined
    /** The state of its session cookie: `live` makes the caller, `dead` does not. `none` also if the header decides. */
    sessionCookie: 'none' | 'live' | 'dead'
    /** The secret of the session that its token names, where a route `takesRepetitions`. */
    sessionToken: string | undefined
    /** What has replaced that session: the request repeats the one that did it. Then its caller is that of the new session. */
    renewed: { readonly sessionToken: string; readonly userRoleId: string | null } | undefined
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
    /** Every caller is the public role: other sites lead browsers here, so a cookie says nothing about the caller. */
    ignoresSession?: boolean
    /** The route reads the Authorization header itself, e.g. of another service that calls it; the platform does not. */
    ownAuthorization?: boolean
    /** Callers whose Authorization header opens nothing are the public role, and `credentialFault` says why: the route decides. */
    toleratesFaults?: boolean
    /** A renewal of the session: it may come again with the token that it has ended, for a short time. */
    takesRepetitions?: boolean
    /** Throws where nobody may call the route, before it matters who calls. */
    precondition?: () => void
    /** The body is read as it comes, and may come for as long as it moves. */
    streamedBody?: boolean
    /** Where there is no Authorization header, `access_token` may hold a sign-in's token: pages send no headers with an image. */
    takesTokenInQuery?: boolean
    /** Differences from the configured CORS. An OPTIONS route that answers more than a preflight continues. */
    cors?:
      | { readonly strictPreflight: boolean; readonly preflightContinue: boolean }
      | { readonly origin: '*'; readonly credentials: false }
  }
}

/** The actor of a request, as the log records it. `caller` may be another one than the request's own, for example at login. */
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

/** Lets the routes of this scope take forms with one JSON file, as large as any other body; 413 beyond. */
export function acceptJsonUploads(app: App, { server }: Config): void {
  const size = server.bodySizeLimit
  acceptMultipart(app, { fileSize: size, fieldSize: size })
}

/**
 * Reads the JSON file (or field) in a part of a form. 400 with the message `missing` if there is no such part, with
 * other messages if the body is no form, or the part no JSON or nested more deeply than any other body may be.
 */
export async function uploadedJson(request: FastifyRequest, part: string, missing: string): Promise<unknown> {
  return (await uploadedForm(request, part, missing)).value
}

/** The same with the other fields of the form, the last of each name. */
export async function uploadedForm(
  request: FastifyRequest,
  part: string,
  missing: string,
): Promise<{ readonly value: unknown; readonly fields: ReadonlyMap<string, string> }> {
  const { text, fields } = request.isMultipart()
    ? await partsOf(request, part)
    : { text: undefined, fields: new Map<string, string>() }
  if (text === undefined) throw errors.badBody(missing, `send it as the part ${part} of multipart/form-data`)
  identifyBody(request, createHash('sha256').update(text).digest('base64url'))
  if (isTooDeep(text)) throw errors.badBody(`${what} is nested too deeply`)
  return { value: keepable(text, jsonOf(text), what), fields }
}

const what = 'The uploaded file'

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) throw errors.badBody('Invalid JSON file')
    throw error
  }
}

async function partsOf(
  request: FastifyRequest,
  wanted: string,
): Promise<{ readonly text?: string; readonly fields: ReadonlyMap<string, string> }> {
  const fields = new Map<string, string>()
  let text: string | undefined
  let isJson = true
  for await (const part of formParts(request, wanted)) {
    const content = part.type === 'field' ? part.value : decodeText(await buffer(part.content), what)
    if (part.name !== wanted) fields.set(part.name, content)
    else {
      text = content
      isJson = part.type === 'field' || /\.json$/i.test(part.filename) || /^application\/json\b/i.test(part.mimetype)
    }
  }
  if (!isJson) throw errors.badBody('Invalid file type. Please upload a JSON file')
  return { ...(text !== undefined && { text }), fields }
}

/** Lets the routes of a scope read forms (`application/x-www-form-urlencoded`) as objects of text. 400 for a repeated name. */
export function acceptForms(app: App): void {
  const read = async (_request: FastifyRequest, body: string) => {
    const fields = formFields(body)
    const repeated = Object.keys(fields).find((name) => typeof fields[name] !== 'string')
    if (repeated !== undefined) throw new AppError(400, `The parameter '${repeated.slice(0, 40)}' is repeated`)
    return fields
  }
  app.addContentTypeParser('application/x-www-form-urlencoded', { parseAs: 'string' }, read)
}

/** Each takes time and memory to make, however short it is written. */
export const mostFields = 10_000

/** The fields of a form: a name that is repeated has the list of its values. 413 for more than ten thousand. */
export function formFields(text: string): Readonly<Record<string, string | readonly string[] | undefined>> {
  let count = 1
  for (let at = text.indexOf('&'); at >= 0 && count <= mostFields; at = text.indexOf('&', at + 1)) count += 1
  if (count > mostFields) throw errors.tooManyValues()
  // URLSearchParams takes quadratic time for names without values.
  return { ...parseForm(text, '&', '=', { maxKeys: 0 }) }
}
