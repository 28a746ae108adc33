import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import { clientNetwork } from '../adapters/client-address.ts'
import { hashSecret } from '../adapters/tokens.ts'
import { AppError } from '../errors.ts'
import { canonicalEmail } from '../features/auth/email-address.ts'
import { membersOf, textOf } from '../features/auth/input.ts'
import type { App } from '../http.ts'
import type { Runtime } from '../runtime.ts'
import { type AttemptLimit, type Budget, openAttemptLimit } from './attempt-limit.ts'
import { openCounters } from './counters.ts'
import { openRequestLimit, type RequestLimit } from './request-limit.ts'
import type { Verdict } from './windows.ts'

/** Names a budget of a request, `limit` times AUTH_RATE_LIMIT per window; undefined where the request has none. */
type BudgetOf = (request: FastifyRequest) => { readonly key: string; readonly times?: number } | undefined

/** Any e-mail address, from one client: the budget that trying one password on many accounts uses up. */
const client: BudgetOf = (request) => ({ key: `client ${clientOf(request)}`, times: 10 })
/** The pair of the specification. The route reads this e-mail address and no other. */
const clientAndEmail: BudgetOf = (request) => {
  const typed = textOf(membersOf(request.body).email)
  const email = typed === undefined ? undefined : canonicalEmail(typed)
  return { key: `client ${clientOf(request)} of ${email ?? 'nobody'}` }
}
/** A signed-in caller's mail goes to its own address, whatever the body says. */
const clientAndRecipient: BudgetOf = (request) => {
  const { userId } = request.caller
  return userId === undefined ? clientAndEmail(request) : { key: `client ${clientOf(request)} of user ${userId}` }
}
const clientFor =
  (what: string): BudgetOf =>
  (request) => ({ key: `${what} by ${clientOf(request)}` })
/** Guesses at one challenge from anywhere. */
const challenge =
  (member: string): BudgetOf =>
  (request) => {
    const id = textOf(membersOf(request.body)[member])
    return id === undefined ? undefined : { key: `challenge ${id}` }
  }
/** Whoever has stolen a session does not know the password yet. */
const user: BudgetOf = ({ caller }) => (caller.userId === undefined ? undefined : { key: `user ${caller.userId}` })

const mailed = [clientAndEmail, client]
const codes = clientFor('code')
const starts = clientFor('start')
const callbacks = clientFor('callback')

/**
 * THE table: the routes whose requests count as attempts (AUTH_RATE_LIMIT), and against what. Successful ones count
 * too. A body's e-mail address counts only where the route is about it: elsewhere anybody could vary it.
 */
export const attemptRoutes: Readonly<Record<string, readonly BudgetOf[]>> = {
  'POST /auth/login': mailed,
  'POST /auth/magiclink': mailed,
  'POST /auth/password/reset': mailed,
  'POST /auth/email/verify/resend': [clientAndRecipient, client],
  'POST /auth/email/verify': [clientAndRecipient, client],
  'POST /auth/register': [clientFor('register')],
  'GET /auth/magiclink/:token': [codes],
  'POST /auth/password/reset/:token': [codes],
  'GET /auth/email/verify/:token': [codes],
  'GET /auth/verify-invite/:token': [codes],
  'POST /auth/2fa/verify': [codes, challenge('twoFactorToken')],
  'POST /auth/passkey/authenticate/options': [starts],
  'POST /auth/passkey/authenticate/verify': [codes, challenge('challengeId')],
  'POST /auth/social/signin': [starts],
  'GET /auth/signin/:provider': [starts],
  'GET /auth/callback/:provider': [callbacks],
  'POST /auth/callback/:provider': [callbacks],
  'POST /auth/callback/apple': [callbacks],
  'POST /auth/password/change': [user],
  'POST /auth/email/change': [user],
  'POST /auth/2fa/verify-setup': [user],
  'POST /auth/2fa/disable': [user],
  'POST /settings/test-email': [clientFor('test-email')],
}

/** How a route is written in the table, whatever its parameters are called. */
export function attemptsOf(method: string, url: string): readonly BudgetOf[] | undefined {
  return byShape.get(shapeOf(`${method === 'HEAD' ? 'GET' : method} ${url}`))
}

const shapeOf = (route: string) => route.replaceAll(/:\w+/g, ':')
const byShape = new Map(Object.entries(attemptRoutes).map(([route, budgets]) => [shapeOf(route), budgets]))

/** What the limits ask of whoever finds out who calls. */
export type Limits = {
  /** To be called once the caller is known; refuses with 429. */
  countCaller(request: FastifyRequest, reply: FastifyReply): void
}

/**
 * Both limiters (spec: Limits; auth facts §10): RATE_LIMIT on every route but those that say `unlimited`, and
 * AUTH_RATE_LIMIT on those of the table. 429 with Retry-After; RateLimit-Limit, -Remaining and -Reset (seconds) on every
 * answer, of the attempts where they are counted.
 */
export function registerLimits(app: App, rt: Runtime): Limits {
  const { rateLimit } = rt.config
  const counters = openCounters(rt)
  app.addHook('onClose', () => counters.close())
  if (!rateLimit.authDisabled) limitAttempts(app, rt, openAttemptLimit(counters, rateLimit.authIntervalMs))
  if (rateLimit.disabled) return { countCaller: () => undefined }
  const { limit, intervalMs: windowMs } = rateLimit
  return limitRequests(app, rt, openRequestLimit({ limit, windowMs, counters, log: rt.log }))
}

function limitAttempts(app: App, rt: Runtime, attempt: AttemptLimit): void {
  app.addHook('onRoute', (route) => {
    const budgets = [route.method].flat().flatMap((method) => attemptsOf(method, route.url) ?? [])
    if (budgets.length === 0) return
    const count = async (request: FastifyRequest, reply: FastifyReply) => {
      const verdict = await attempt(budgetsOf(rt, request, budgets))
      obey(reply, verdict, 'Too many attempts. Please try again later.')
    }
    route.preValidation = [count, ...listOf(route.preValidation)]
  })
}

/** Hashed, because a key may hold an e-mail address or a token. */
function budgetsOf(rt: Runtime, request: FastifyRequest, budgets: readonly BudgetOf[]): Budget[] {
  return budgets
    .map((budget) => budget(request))
    .filter((budget) => budget !== undefined)
    .map(({ key, times = 1 }) => ({ key: hashSecret(key), limit: times * rt.config.rateLimit.authLimit }))
}

/** By address before anything else is done for the request; by user as soon as that is known. */
function limitRequests(app: App, rt: Runtime, requests: RequestLimit): Limits {
  const { byUser } = rt.config.rateLimit
  app.addHook('onClose', () => requests.close())
  const count = (reply: FastifyReply, key: string) =>
    obey(reply, requests.take(key), 'Too many requests, please try again later.')
  app.addHook('onRequest', (request, reply, done) => {
    if ((!byUser || request.is404) && !isUnlimited(request)) count(reply, clientOf(request))
    done()
  })
  return {
    countCaller: (request, reply) => {
      if (!byUser || isUnlimited(request)) return
      count(reply, request.caller.userId ?? clientOf(request))
    },
  }
}

function isUnlimited(request: FastifyRequest): boolean {
  const { unlimited = false } = request.routeOptions.config
  return typeof unlimited === 'function' ? unlimited(request) : unlimited
}

function obey(reply: FastifyReply, { allowed, limit, remaining, resetMs }: Verdict, message: string): void {
  const reset = String(Math.ceil(resetMs / 1000))
  reply.header('ratelimit-limit', limit).header('ratelimit-remaining', remaining).header('ratelimit-reset', reset)
  if (!allowed) throw new AppError(429, message, { headers: { 'retry-after': reset === '0' ? '1' : reset } })
}

function clientOf(request: FastifyRequest): string {
  return clientNetwork(request.ip)
}

function listOf(hooks: RouteOptions['preValidation']) {
  return hooks === undefined ? [] : Array.isArray(hooks) ? hooks : [hooks]
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Not counted by RATE_LIMIT: what those who watch the process ask. */
    unlimited?: boolean | ((request: FastifyRequest) => boolean)
  }
}
