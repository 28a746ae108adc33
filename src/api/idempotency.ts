import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import { hooksOf } from '../adapters/fastify.ts'
import { seal, unseal } from '../adapters/sealing.ts'
import type { Config, Configuration } from '../config/config.ts'
import { isPassing } from '../db/errors.ts'
import type { Reads, ReservedReads } from '../db/pools.ts'
import type { UnloggedWrites } from '../db/sql.ts'
import {
  findRepeatable,
  type KeptSealing,
  type RepeatableRequest,
  type StoredAnswer,
  storeAnswer,
} from '../db/unlogged/requests.ts'
import { errors } from '../errors.ts'
import type { App } from '../http/http.ts'
import { fingerprintOf } from '../http/json-values.ts'

/**
 * `Idempotency-Key` on everything that may write outside /auth and /oauth (POST, PUT, PATCH, DELETE): the same caller's
 * same request (path, query, body) runs once within 24 hours, however often and by however many processes it is
 * received, and gets the same answer. Another request with the same key is 409.
 *
 * The safety comes from elsewhere: each commit of the request stores its result in its own transaction
 * (events/commit.ts). The answer is stored after it, and if a crash comes between the two, the repeated request makes
 * its answer from the stored results. Answers other than 2xx are not kept: nothing was written, so the request may be
 * tried again. Of routes that answer a secret (`answersSecret`) both are sealed.
 */
export function registerIdempotency(app: App, deps: IdempotencyWrites): void {
  app.decorateRequest('repeatable', undefined)
  app.addHook('onRoute', (route) => {
    const methods = hooksOf(route.method)
    if (!methods.some((method) => writing.has(method)) || /^\/(auth|oauth)(\/|$)/.test(route.url)) return
    route.preHandler = [...hooksOf(route.preHandler), beginning(deps)]
    route.onSend = [...hooksOf(route.onSend), ending(deps)]
  })
}

type IdempotencyReads = Reads & ReservedReads & Configuration
type IdempotencyWrites = IdempotencyReads & UnloggedWrites

const writing: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH', 'DELETE'])

/** On every answer to a request that had been done before. */
const replayed = ['idempotent-replayed', 'true'] as const

/** Larger answers are made again from the results of their commits. */
const largestAnswer = 1_000_000

type RouteHooks<Name extends 'preHandler' | 'onSend'> = Extract<NonNullable<RouteOptions[Name]>, readonly unknown[]>

function beginning(deps: IdempotencyReads): RouteHooks<'preHandler'>[number] {
  return (request, reply, done) => {
    const header = request.headers['idempotency-key']
    if (header === undefined) return done()
    begin(deps, request, reply, header).then((isAnswered) => isAnswered || done(), done)
  }
}

/** True when the request was answered from what is stored. */
async function begin(
  deps: IdempotencyReads,
  request: FastifyRequest,
  reply: FastifyReply,
  header: string | string[],
): Promise<boolean> {
  if (typeof header !== 'string' || !/^[\x21-\x7e]{1,255}$/.test(header))
    throw errors.badBody('Idempotency-Key must be 1 to 255 visible characters')
  const caller = callerOf(request)
  const sealing = request.routeOptions.config.answersSecret ? sealingOf(deps.config, caller, header) : undefined
  const repeatable = { caller, key: header, fingerprint: fingerprintOf(request), commits: 0, replays: 0, sealing }
  // Of a body that only the handler reads the fingerprint knows nothing yet; see `identifyBody`.
  const isRead = !request.headers['content-type']?.startsWith('multipart/')
  const known = isRead ? await findRepeatable(deps, repeatable) : undefined
  if (known !== undefined && known.fingerprint !== repeatable.fingerprint) throw errors.keyReused()
  if (known?.answer === undefined) {
    request.repeatable = repeatable
    return false
  }
  const { status, contentType, body } = known.answer
  reply.code(status).header(...replayed)
  if (contentType !== null) reply.type(contentType)
  reply.send(body === '' ? undefined : body)
  return true
}

function ending(deps: UnloggedWrites): RouteHooks<'onSend'>[number] {
  return (request, reply, payload, done) => {
    const { repeatable } = request
    const isDone = repeatable !== undefined && repeatable.commits > 0 && reply.statusCode < 300
    // Of a form, and of a request that came while the first one ran, only the commits tell that it is a repetition.
    if (isDone && repeatable.replays === repeatable.commits) reply.header(...replayed)
    const body = payload ?? ''
    if (!isDone || typeof body !== 'string' || body.length > largestAnswer) return done(null, payload)
    keep(deps, repeatable, reply, body).then((kept) => done(null, kept), done)
  }
}

async function keep(
  deps: UnloggedWrites,
  repeatable: RepeatableRequest,
  reply: FastifyReply,
  body: string,
): Promise<unknown> {
  const type = reply.getHeader('content-type')
  const own: StoredAnswer = {
    status: reply.statusCode,
    contentType: typeof type === 'string' ? type : null,
    body,
  }
  // Its commits have stored their results, so what is lost here is made again from those.
  const kept = await storeAnswer(deps, repeatable, own).catch((error: unknown) => {
    if (!isPassing(error)) throw error
    reply.log.warn({ err: error }, 'the answer to a request with an Idempotency-Key could not be kept')
    return own
  })
  reply.code(kept.status)
  if (kept.body !== body) reply.removeHeader('content-length')
  return kept.body
}

/** Tells sealed answers from those that an earlier release kept, which are not sealed and count for a day. */
const sealedMark = 'sealed:'

function sealingOf(config: Config, caller: string, key: string): KeptSealing {
  const sealedFor = { purpose: 'repeatable request', owner: JSON.stringify([caller, key]) }
  return {
    seal: (text) => sealedMark + seal(config, sealedFor, text),
    unseal: (kept) => {
      if (!kept.startsWith(sealedMark)) return kept
      const opened = unseal(config, sealedFor, kept.slice(sealedMark.length))
      if (opened === undefined) throw errors.keptAnswerLost()
      return opened.text
    },
  }
}

/** Sessions may change under a key, who it belongs to may not. Without one, an address is all there is to tell callers apart. */
function callerOf({ caller, ip }: FastifyRequest): string {
  const { userId, tenantId, role } = caller
  return [userId ?? `address ${ip}`, role.id, tenantId ?? ''].join(' ')
}
