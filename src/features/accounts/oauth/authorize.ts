import type { FastifyReply, FastifyRequest } from 'fastify'
import { signedIn } from '../../../access/principal.ts'
import { hashSecret, newSecret } from '../../../adapters/tokens.ts'
import { issuerOf } from '../../../config/issuer.ts'
import { withoutWaiting } from '../../../db/pools.ts'
import { insertChallenge, takeChallenge } from '../../../db/unlogged/secrets.ts'
import { lockSession } from '../../../db/unlogged/sessions.ts'
import { AppError } from '../../../errors.ts'
import { commit } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { senderOf } from '../../messaging/mail/mail.ts'
import {
  dropSessionCookie,
  endSession,
  login,
  requestMagicLink,
  type SignInAnswer,
  setSessionCookie,
  signInByMagicLink,
  signInMode,
} from '../auth/auth.ts'
import { type SocialWrites, startForPage } from '../social/social.ts'
import { type SecondFactorWrites, verifyTwoFactor } from '../two-factor/two-factor.ts'
import { type Client, findClient } from './clients.ts'
import { allow, type GrantWrites } from './grants.ts'
import {
  codePage,
  consentPage,
  type HtmlPage,
  leavingPage,
  problemPage,
  refusalPage,
  reloadingPage,
  type SignInWays,
  secondFactorPage,
  sendPage,
  signInPage,
} from './pages.ts'
import { type AuthorizationRequest, clientIdOf, type Refusal, type ReplyAddress, readRequest } from './protocol.ts'
import { type Consent, hasGrant } from './queries.ts'

// The steps of a browser between a program's request and its answer. `query` is that request: every page passes it on,
// and every step reads it again, so that the server stores nothing for users who never finish.

/** A browser on its way. */
type Visit = {
  readonly deps: OAuthWrites
  readonly request: FastifyRequest
  readonly reply: FastifyReply
  readonly query: string
}

/** `GET /oauth/authorize`: the sign-in page, the question, or an answer for the program. */
export async function authorize(visit: Visit): Promise<FastifyReply> {
  const { deps, request, query } = visit
  const client = await knownClient(visit)
  const read = readRequest(deps.config, client, query)
  if ('refusal' in read) {
    return refuse(visit, client, read.to, read.refusal)
  }
  const asked = read.request
  const isSignedIn = request.sessionCookie === 'live'
  if (!isSignedIn && isSentByOthers(request)) return show(visit, reloadingPage(query))
  const isQuiet = asked.prompt.includes('none')
  const wantsAnew = asked.prompt.some((prompt) => prompt === 'login' || prompt === 'select_account')
  const consent = isSignedIn && !wantsAnew && !isQuiet ? await askConsent(visit, client, asked) : undefined
  if (consent !== undefined) return show(visit, consent)
  if (!isQuiet) return show(visit, signInPage({ ...offered(visit), client, email: asked.loginHint }))
  const error = isSignedIn ? 'consent_required' : 'login_required'
  return refuse(visit, client, asked, { error, description: 'The user has to be asked' })
}

/**
 * Tells a program why there is no code. Anybody can register an address and would thereby get an open redirect through
 * ours (RFC 9700 §4.11.2). So the browser goes there at once only for a user who has given the program access; others
 * see the address first.
 */
async function refuse(visit: Visit, client: Client, to: ReplyAddress, refusal: Refusal): Promise<FastifyReply> {
  const { deps, request, reply } = visit
  const { error, description } = refusal
  const address = answerAddress(deps, to, { error, error_description: description })
  const isKnown =
    request.sessionCookie === 'live' &&
    (await hasGrant(withoutWaiting(deps), signedIn(request.caller).userId, client.id))
  return isKnown ? reply.redirect(address, 302) : show(visit, refusalPage(to.redirectUri, address, description), 400)
}

/** Cookies with SameSite=Strict do not come along then: a page of ours that asks again has them. */
const isSentByOthers = ({ headers }: FastifyRequest): boolean =>
  headers['sec-fetch-site'] === 'cross-site' || headers['sec-fetch-site'] === 'same-site'

async function knownClient({ deps, query }: Visit): Promise<Client> {
  const client = await findClient(deps, clientIdOf(query))
  if (client === undefined)
    throw new AppError(400, 'The program (client_id) is not known here. It has to register again.')
  return client
}

/** The answer of RFC 6749 §4.1.2, with the issuer (RFC 9207), so that no other server's can be taken for it. */
function answerAddress(
  { config }: OAuthWrites,
  { redirectUri, state }: ReplyAddress,
  parameters: Readonly<Record<string, string>>,
) {
  const { issuer } = issuerOf(config)!
  const answer = new URLSearchParams({ ...parameters, ...(state !== undefined && { state }), iss: issuer })
  return `${redirectUri}${redirectUri.includes('?') ? '&' : '?'}${answer}`
}

const show = ({ deps, reply }: Pick<Visit, 'deps' | 'reply'>, page: HtmlPage, status = 200): FastifyReply =>
  sendPage(reply, { project: projectOf(deps) }, page, status)

function projectOf({ settings, config }: OAuthWrites): string {
  const { project_name: name } = settings.current(undefined)
  return typeof name === 'string' && name !== '' ? name : (config.project.name ?? 'Daybook')
}

/** The user has just signed in, so the way back drops `prompt` and `max_age`. */
function offered({ deps, query }: Visit): { readonly query: string; readonly ways: SignInWays } {
  const parameters = new URLSearchParams(query)
  parameters.delete('prompt')
  parameters.delete('max_age')
  const { config } = deps
  const origin = new URL(issuerOf(config)!.issuer).origin
  const ways = {
    password: config.auth.local,
    mail: config.auth.local && senderOf(deps, undefined) !== undefined,
    passkey: config.passkey?.origins.includes(origin) === true,
    providers: Object.keys(config.oauth.providers),
  }
  return { query: String(parameters), ways }
}

const consentSeconds = 600
const consentKey = (ticket: string): string => `oauth-consent:${hashSecret(ticket)}`

/** The question, and a ticket for its one answer, from this session; undefined where the user is to sign in anew. */
async function askConsent(
  { deps, request, query }: Visit,
  client: Client,
  asked: AuthorizationRequest,
): Promise<HtmlPage | undefined> {
  const { userId, sessionId, user, tenantId } = signedIn(request.caller)
  const ticket = newSecret()
  const isFresh = await commit(deps, actorOf(request), async (tx) => {
    const session = await lockSession(tx, sessionId)
    const age = deps.clock().getTime() / 1000 - (session?.beganAt ?? 0)
    if (session === undefined || (asked.maxAge !== undefined && age > asked.maxAge)) return { result: false }
    await insertChallenge(tx, { identifier: consentKey(ticket), userId, data: { sessionId, query } }, consentSeconds)
    return { result: true }
  })
  if (!isFresh) return undefined
  const { redirectUri, scopes } = asked
  const email = typeof user?.email === 'string' ? user.email : 'your account'
  return consentPage({
    client,
    query,
    ticket,
    redirectUri,
    scopes,
    email,
    tenant: tenantId && (await tenantName(deps, tenantId)),
  })
}

async function tenantName({ settings }: OAuthWrites, tenantId: string): Promise<string> {
  const { project_name: name } = settings.current(tenantId)
  return typeof name === 'string' && name !== '' ? name : tenantId
}

/** `POST /oauth/consent`: what the user has decided, for the program. Only our own page may say so. */
export async function decide(visit: Visit, ticket: string, isAllowed: boolean): Promise<FastifyReply> {
  const { deps, request, query } = visit
  if (request.sessionCookie !== 'live') throw new AppError(401, 'You have been signed out. Begin again at the program.')
  refuseOtherPages(deps, request)
  const client = await knownClient(visit)
  const read = readRequest(deps.config, client, query)
  if ('refusal' in read) throw tooOld()
  const code = await commit(deps, actorOf(request), async (tx) => {
    const { sessionId, userId } = signedIn(request.caller)
    const asked = await takeChallenge(tx, consentKey(ticket))
    if (asked?.sessionId !== sessionId || asked.query !== query) throw tooOld()
    return isAllowed ? allow(tx, client, userId, consentOf(request, client, read.request)) : { result: undefined }
  })
  const answer: Record<string, string> = code === undefined ? { error: 'access_denied' } : { code }
  return show(visit, leavingPage(client, answerAddress(deps, read.request, answer)))
}

const tooOld = () => new AppError(400, 'This page is too old. Begin again at the program.')

function consentOf({ caller }: FastifyRequest, client: Client, asked: AuthorizationRequest): Consent {
  const { role, tenantId, sessionId } = signedIn(caller)
  const { redirectUri, challenge, scopes, resources, nonce } = asked
  const refreshes = client.refreshes || scopes.includes('offline_access')
  const { id: clientId, name: clientName, idTokenAlgorithm } = client
  const who = { clientId, clientName, refreshes, idTokenAlgorithm }
  return {
    ...who,
    redirectUri,
    challenge,
    scopes,
    resources,
    nonce,
    roleId: role.id,
    tenantId: tenantId ?? null,
    sessionId,
  }
}

/** Trusted frontends may act with the cookie, but not answer this question. */
function refuseOtherPages({ config }: OAuthWrites, { headers, protocol, host }: FastifyRequest): void {
  const own = [`${protocol}://${host}`, new URL(issuerOf(config)!.issuer).origin]
  const isOwn = headers['sec-fetch-site'] === 'same-origin' || own.includes(headers.origin ?? '')
  if (!isOwn) throw new AppError(403, 'Cross-site request refused', { code: 'CROSS_SITE_REQUEST' })
}

/* Signing in. */

type Credentials = { readonly email: string; readonly password: string }

/** By e-mail and password. */
export function signInByPassword(visit: Visit, { email, password }: Credentials): Promise<FastifyReply> {
  const { deps, request } = visit
  return entering(visit, () => login(deps, request, { email, password, authMode: 'cookie' }), signInAgain(visit, email))
}

/** Mails a code to sign in with. */
export async function mailCode(visit: Visit, email: string): Promise<FastifyReply> {
  const { deps, request, query } = visit
  signInMode(deps, request, 'cookie')
  return orAgain(visit, signInAgain(visit, email), async () => {
    await requestMagicLink(deps, request, { email, mode: 'code' })
    return show(visit, codePage({ query, email }))
  })
}

/** By the code of that mail. */
export function signInByCode(visit: Visit, email: string, code: string): Promise<FastifyReply> {
  const { deps, request, query } = visit
  const again = async (problem: string) => codePage({ query, email, problem })
  return entering(visit, () => signInByMagicLink(deps, request, code, { email, authMode: 'cookie' }), again)
}

/** By the second factor, after any of the others. */
export function signInBySecondFactor(visit: Visit, token: string, code: string): Promise<FastifyReply> {
  const { deps, request, query } = visit
  const again = async (problem: string) => secondFactorPage({ query, token, problem })
  return entering(
    visit,
    () => verifyTwoFactor(deps, request, { twoFactorToken: token, code, authMode: 'cookie' }),
    again,
  )
}

/** At a provider, which sends the browser back to {@link comeBack}. */
export async function signInElsewhere({ deps, request, reply, query }: Visit, provider: string): Promise<FastifyReply> {
  const { issuer } = issuerOf(deps.config)!
  clientIdOf(query)
  const returnTo = `${issuer}/oauth/sign-in?${new URLSearchParams({ request: query })}`
  const { url, cookie } = await startForPage(deps, request, provider, returnTo)
  if (cookie !== undefined) reply.header('set-cookie', cookie)
  return reply.redirect(url, 302)
}

/** The outcome of a provider's sign-in, from the parameters of the address. */
export async function comeBack(
  visit: Visit,
  ended: { twoFactorToken?: string; error?: string },
): Promise<FastifyReply> {
  const { query } = visit
  clientIdOf(query)
  if (ended.twoFactorToken !== undefined) return show(visit, secondFactorPage({ query, token: ended.twoFactorToken }))
  if (ended.error === undefined) return show(visit, reloadingPage(query))
  return show(visit, await signInAgain(visit, '')('The sign-in did not work. Please try again.'), 400)
}

/** Ends the browser's session, for a user who has another account. */
export async function signOut(visit: Visit): Promise<FastifyReply> {
  const { deps, request, reply } = visit
  refuseOtherPages(deps, request)
  if (request.sessionCookie === 'live') await endSession(deps, request)
  dropSessionCookie(deps, reply)
  return show(visit, await signInAgain(visit, '')(undefined))
}

type Again = (problem: string) => Promise<HtmlPage>

const signInAgain = (visit: Visit, email: string) => async (problem: string | undefined) =>
  signInPage({ ...offered(visit), client: await knownClient(visit), email, problem })

/** Gives the browser the session of a sign-in and leads it back to the question; or asks for the second factor. */
async function entering(visit: Visit, enter: () => Promise<SignInAnswer>, again: Again): Promise<FastifyReply> {
  const { deps, request, reply, query } = visit
  clientIdOf(query)
  signInMode(deps, request, 'cookie')
  return orAgain(visit, again, async () => {
    const { token, body } = await enter()
    if (token === undefined && 'twoFactorToken' in body)
      return show(visit, secondFactorPage({ query, token: body.twoFactorToken }))
    setSessionCookie(deps, reply, token!)
    return reply.redirect(`authorize?${query}`, 303)
  })
}

/** Shows a refusal on the page that asked. */
async function orAgain(visit: Visit, again: Again, work: () => Promise<FastifyReply>): Promise<FastifyReply> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof AppError) || error.status >= 500) throw error
    return show(
      { ...visit, reply: visit.reply.headers({ ...error.headers }) },
      await again(error.message),
      error.status,
    )
  }
}

/** A refusal, as a page. */
export const showProblem = (
  deps: OAuthWrites,
  reply: FastifyReply,
  { status, message, headers }: AppError,
): FastifyReply => show({ deps, reply: reply.headers({ ...headers }) }, problemPage(message), status)

/** The capabilities that changes of this folder need. */
export type OAuthWrites = GrantWrites & SocialWrites & SecondFactorWrites & Parameters<typeof login>[0]
