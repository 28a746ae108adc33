import type { FastifyReply, FastifyRequest } from 'fastify'
import { ownerOf } from '../access/principal.ts'
import { canonicalEmail } from '../adapters/email-address.ts'
import { hooksOf } from '../adapters/fastify.ts'
import type { Logs } from '../adapters/logger.ts'
import { clientNetwork } from '../adapters/network-addresses.ts'
import { hashSecret, isToken } from '../adapters/tokens.ts'
import type { Config, Configuration } from '../config/config.ts'
import type { UnloggedWrites } from '../db/sql.ts'
import { AppError } from '../errors.ts'
import { holdsProof, isHeaderAttempt } from '../features/accounts/auth/auth.ts'
import type { App } from '../http/http.ts'
import { isObject } from '../query/guards.ts'
import {
  type Attempt,
  type AttemptLimit,
  type Budget,
  type LimitVerdict,
  openAttemptLimit,
  openCounters,
  openRequestLimit,
  type RequestLimit,
} from './counters.ts'

/** A budget of a request, `times` AUTH_RATE_LIMIT per window. */
type AttemptBudget = { readonly key: string; readonly times?: number; readonly isGivenBack?: boolean }
/** Undefined where the request has none. */
type BudgetOf = (request: FastifyRequest, config: Config) => AttemptBudget | undefined

/** A member of a body that is not checked yet: attempts count whatever else is wrong with them. */
function textIn(body: unknown, member: string): string | undefined {
  const text = isObject(body) ? body[member] : undefined
  return typeof text === 'string' && text.trim() !== '' ? text : undefined
}

/** Requests of one client, about any account. */
const byClient =
  (what: string, times: number): BudgetOf =>
  (request) => ({ key: `${what} by ${clientOf(request)}`, times })
/** The same, of which a success gives back what it took: an office behind one address, or a frontend's server, does it for many. */
const failuresByClient =
  (what: string, times = 10): BudgetOf =>
  (request) => ({ key: `${what} by ${clientOf(request)}`, times, isGivenBack: true })
/** The pair of the specification. The route reads this e-mail address and no other. */
const clientAndEmail: BudgetOf = (request) => {
  const typed = textIn(request.body, 'email')
  const email = typed === undefined ? undefined : canonicalEmail(typed)
  return { key: `client ${clientOf(request)} of ${email ?? 'nobody'}` }
}
/** A signed-in caller's mail goes to its own address, whatever the body says. */
const clientAndRecipient: BudgetOf = (request, config) => {
  const { userId } = request.caller
  return userId === undefined
    ? clientAndEmail(request, config)
    : { key: `client ${clientOf(request)} of user ${userId}` }
}
/** Where the answer may not tell whether there was an account, neither may what is left. */
const unknownAddresses: BudgetOf = (request, { auth }) => ({
  key: `magic link mails by ${clientOf(request)}`,
  times: 10,
  isGivenBack: !auth.genericResponses,
})
/** A token of a link can't be guessed; whatever has not its form is no token at all. */
const linked =
  (what: string): BudgetOf =>
  (request) => {
    const isLink = isToken((request.params as { token?: unknown }).token)
    const key = `${what} ${isLink ? 'link' : 'guess'} by ${clientOf(request)}`
    return { key, times: isLink ? 10 : 1, isGivenBack: true }
  }
/** Guesses at one challenge from anywhere. */
const challenge =
  (member: string): BudgetOf =>
  (request) => {
    const id = textIn(request.body, member)
    return id === undefined ? undefined : { key: `challenge ${id}` }
  }
/** The thief of a session does not know the password yet. */
const user: BudgetOf = ({ caller }) =>
  caller.userId === undefined ? undefined : { key: `user ${caller.userId}`, isGivenBack: true }
/** The same where a password or factor is shown besides. */
const proof: BudgetOf = (request, config) => (holdsProof(request.body) ? user(request, config) : undefined)

/** Mails that a user asks for, to any address; those that were sent count. */
const mailsOfUser =
  (what: string, times: number): BudgetOf =>
  ({ caller }) =>
    caller.userId === undefined ? undefined : { key: `${what} of user ${caller.userId}`, times }

/** Mails to one address, whoever asks for them. */
const mailsTo =
  (what: string): BudgetOf =>
  ({ body }) => {
    const email = canonicalEmail(textIn(body, 'email') ?? '')
    return email === undefined ? undefined : { key: `${what} to ${email}` }
  }

/** Begins something that others may end. Nothing can be guessed by it, but each takes a row. */
const starts = (what: string) => byClient(what, 100)

/**
 * THE table: the routes whose requests count as attempts (AUTH_RATE_LIMIT), and against what (docs/signing-in.md). Each
 * purpose has budgets of its own. A body's e-mail address counts only where the route is about it: elsewhere anybody
 * could vary it.
 */
export const attemptRoutes: Readonly<Record<string, readonly BudgetOf[]>> = {
  'POST /auth/login': [clientAndEmail, failuresByClient('login')],
  'POST /auth/magiclink': [clientAndEmail, unknownAddresses, byClient('all magic link mails', 100)],
  'POST /auth/password/reset': [clientAndEmail, byClient('reset mails', 10)],
  'POST /auth/email/verify/resend': [clientAndRecipient, byClient('verification mails', 10)],
  'POST /auth/email/verify': [clientAndRecipient, byClient('verification mails', 10)],
  'POST /auth/first-sign-in': [failuresByClient('first sign-in')],
  'POST /auth/register': [failuresByClient('register'), byClient('all registrations', 100)],
  // Codes have tries of their own (db/unlogged/secrets.ts).
  'GET /auth/magiclink/:token': [failuresByClient('magic link')],
  'POST /auth/password/reset/:token': [failuresByClient('reset')],
  'GET /auth/email/verify/:token': [linked('verification')],
  'GET /auth/verify-invite/:token': [linked('invitation')],
  'POST /auth/2fa/verify': [failuresByClient('second factor'), challenge('twoFactorToken')],
  'POST /auth/passkey/authenticate/options': [starts('passkey')],
  'POST /auth/passkey/authenticate/verify': [failuresByClient('passkeys'), challenge('challengeId')],
  'POST /auth/social/signin': [starts('social')],
  'GET /auth/signin/:provider': [starts('social')],
  'GET /auth/callback/:provider': [failuresByClient('callback')],
  'POST /auth/callback/:provider': [failuresByClient('callback')],
  'POST /auth/callback/apple': [failuresByClient('callback')],
  'POST /auth/password/change': [user],
  'POST /auth/email/change': [user, mailsOfUser('address changes', 1), byClient('address changes', 10)],
  'POST /auth/invite': [mailsTo('invitations'), mailsOfUser('invitations', 10), byClient('invitations', 10)],
  'POST /auth/2fa/verify-setup': [user],
  'POST /auth/2fa/disable': [user],
  'POST /auth/2fa/enable': [proof],
  'POST /auth/passkey/register/options': [proof],
  'POST /auth/keys': [proof],
  // The pages count as the routes of `/auth` do that they stand for.
  'GET /oauth/authorize': [starts('authorization')],
  'POST /oauth/sign-in': [clientAndEmail, failuresByClient('login')],
  'POST /oauth/sign-in-mail': [clientAndEmail, unknownAddresses, byClient('all magic link mails', 100)],
  'POST /oauth/sign-in-code': [failuresByClient('magic link')],
  'POST /oauth/sign-in-second-factor': [failuresByClient('second factor'), challenge('twoFactorToken')],
  'GET /oauth/sign-in-social': [starts('social')],
  'POST /oauth/consent': [failuresByClient('consent')],
  'POST /oauth/token': [failuresByClient('token')],
  'POST /oauth/register': [byClient('registrations of programs', 10)],
  'POST /settings/test-email': [byClient('test-email', 1)],
}

/** The same for addresses and passwords in headers, as long as they are not known to be right; a right one takes nothing. */
const headerAttempts: readonly BudgetOf[] = [
  (request) => {
    const email = canonicalEmail(String(request.headers['x-mcp-email']))
    const key = `headers of client ${clientOf(request)} for ${email ?? 'nobody'}`
    return isHeaderAttempt(request) ? { key, isGivenBack: true } : undefined
  },
  (request, config) => (isHeaderAttempt(request) ? failuresByClient('headers')(request, config) : undefined),
]

/** How a route is written in the table, whatever its parameters are called. */
export function attemptsOf(method: string, url: string): readonly BudgetOf[] | undefined {
  return byShape.get(shapeOf(`${method === 'HEAD' ? 'GET' : method} ${url}`))
}

const shapeOf = (route: string) => route.replaceAll(/:\w+/g, ':')
const byShape = new Map(Object.entries(attemptRoutes).map(([route, budgets]) => [shapeOf(route), budgets]))

/** The limits, as authentication calls them. */
export type Limits = {
  /** To be called once the caller is known; refuses with 429. */
  countCaller(request: FastifyRequest, reply: FastifyReply): void
}

/**
 * Both limiters: RATE_LIMIT (for assets ASSET_RATE_LIMIT) on every route but those that say `unlimited`, and
 * AUTH_RATE_LIMIT on those of the table. 429 with Retry-After; RateLimit-Limit, -Remaining and -Reset (seconds) on every
 * answer, of the attempts where they are counted.
 */
export function registerLimits(app: App, deps: UnloggedWrites & Configuration & Logs): Limits {
  const { rateLimit } = deps.config
  const counters = openCounters(deps)
  app.addHook('onClose', () => counters.close())
  if (!rateLimit.authDisabled) limitAttempts(app, deps, openAttemptLimit(counters, rateLimit.authIntervalMs))
  if (rateLimit.disabled) return { countCaller: () => undefined }
  const { limit, intervalMs: windowMs } = rateLimit
  const shared = { windowMs, counters, log: deps.log }
  return limitRequests(app, deps, {
    requests: openRequestLimit({ ...shared, limit }),
    assets: openRequestLimit({ ...shared, limit: deps.config.assets.rateLimit }),
  })
}

/** A page with a hundred pictures is no attack, so these count apart. */
type RequestLimits = Readonly<Record<'requests' | 'assets', RequestLimit>>

function limitAttempts(app: App, deps: Configuration & Logs, attempt: AttemptLimit): void {
  app.decorateRequest('attempt', undefined)
  app.addHook('onRoute', (route) => {
    const ofTable = [route.method].flat().flatMap((method) => attemptsOf(method, route.url) ?? [])
    const budgets = route.config?.takesPasswordInHeaders === true ? [...ofTable, ...headerAttempts] : ofTable
    if (budgets.length === 0) return
    const count = async (request: FastifyRequest, reply: FastifyReply) => {
      const counted = budgetsOf(deps, request, budgets)
      if (counted.length === 0) return
      request.attempt = await attempt(counted)
      obey(reply, request.attempt, 'Too many attempts. Please try again later.')
    }
    route.preValidation = [count, ...hooksOf(route.preValidation)]
    route.onSend = [...hooksOf(route.onSend), giveBack(deps)]
  })
}

/**
 * A success was no guess, and a request that was too much to be looked at (503) no attempt. Before the answer: the next
 * request may follow it at once.
 */
function giveBack(deps: Logs) {
  return async (request: FastifyRequest, reply: FastifyReply, payload: unknown): Promise<unknown> => {
    const { attempt } = request
    const why = reply.statusCode === 503 ? 'not made' : reply.statusCode < 400 ? 'success' : undefined
    if (attempt === undefined || why === undefined) return payload
    try {
      tell(reply, await attempt.giveBack(why))
    } catch (error) {
      deps.log.warn({ err: error }, 'an attempt could not be given back to its limit')
    }
    return payload
  }
}

/** Hashed, because a key may hold an e-mail address or a token. */
function budgetsOf(deps: Configuration, request: FastifyRequest, budgets: readonly BudgetOf[]): Budget[] {
  return budgets
    .map((budget) => budget(request, deps.config))
    .filter((budget) => budget !== undefined)
    .map(({ key, times = 1, isGivenBack = false }) => ({
      key: hashSecret(key),
      limit: times * deps.config.rateLimit.authLimit,
      isGivenBack,
    }))
}

/** By address before anything else is done for the request; by user as soon as that is known. */
function limitRequests(app: App, { config }: Configuration, limits: RequestLimits): Limits {
  const { byUser } = config.rateLimit
  app.addHook('onClose', async () => void (await Promise.all(Object.values(limits).map((limit) => limit.close()))))
  const count = (request: FastifyRequest, reply: FastifyReply, who: string) => {
    const { limitedAs = 'requests' } = request.routeOptions.config ?? {}
    const key = limitedAs === 'assets' ? `assets ${who}` : who
    obey(reply, limits[limitedAs].take(key), 'Too many requests, please try again later.')
  }
  app.addHook('onRequest', (request, reply, done) => {
    if ((!byUser || request.is404) && !isUnlimited(request)) count(request, reply, clientOf(request))
    done()
  })
  return {
    countCaller: (request, reply) => {
      if (!byUser || isUnlimited(request)) return
      count(request, reply, ownerOf(request.caller).userId ?? clientOf(request))
    },
  }
}

function isUnlimited(request: FastifyRequest): boolean {
  const { unlimited = false } = request.routeOptions.config
  return typeof unlimited === 'function' ? unlimited(request) : unlimited
}

function obey(reply: FastifyReply, verdict: LimitVerdict, message: string): void {
  const reset = tell(reply, verdict)
  if (!verdict.allowed) throw new AppError(429, message, { headers: { 'retry-after': reset === '0' ? '1' : reset } })
}

function tell(reply: FastifyReply, { limit, remaining, resetMs }: LimitVerdict): string {
  const reset = String(Math.ceil(resetMs / 1000))
  reply.header('ratelimit-limit', limit).header('ratelimit-remaining', remaining).header('ratelimit-reset', reset)
  return reset
}

function clientOf(request: FastifyRequest): string {
  return clientNetwork(request.ip)
}

declare module 'fastify' {
  interface FastifyRequest {
    /** The attempt that the route counts as. */
    attempt: Attempt | undefined
  }
  interface FastifyContextConfig {
    /** Not counted by RATE_LIMIT: what those who watch the process ask. */
    unlimited?: boolean | ((request: FastifyRequest) => boolean)
    /** The limit that counts the route; by default `requests`. */
    limitedAs?: 'requests' | 'assets'
  }
}
