import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import type { CurrentAccess } from '../../../access/store.ts'
import type { IdSource } from '../../../adapters/ids.ts'
import {
  authorizationUrl,
  codeChallenge,
  exchangeCode,
  OAuthRefusal,
  OAuthUnavailable,
  type Tokens,
  verifyIdToken,
} from '../../../adapters/oauth.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { SocialProvider } from '../../../config/families.ts'
import type { Clock } from '../../../db/clock.ts'
import { AppError } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { isObject } from '../../../query/guards.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import {
  type AuthMode,
  checkMaySignIn,
  deliveryTo,
  membershipOf,
  type SignInAnswer,
  signIn,
  trustedReturn,
} from '../auth/auth.ts'
import { clientOf, hasIdTokens, type ProviderClient, readProfile } from './client.ts'
import {
  beginJourney,
  type Callback,
  endJourney,
  type Journey,
  journeyCookie,
  type SocialBody,
  type SocialLinkQuery,
  secretsOf,
} from './journey.ts'
import { type Identity, linkedAccount } from './link.ts'
import { type Provider, profileOf } from './providers.ts'

/** Where to send the browser, and the cookie to give it, if any. */
export type Start = { readonly url: string; readonly cookie: string | undefined }

/**
 * Begins a sign-in for a frontend that sends the browser itself. `callbackURL` replaces
 * our callback as the provider's return address; `errorCallbackURL` is where our callback sends the browser when
 * something goes wrong.
 *
 * @throws {AppError} 400 for an unknown provider or an address that is not trusted; 502 when the provider is out of reach
 */
export function startByRequest(
  deps: Writes & CurrentSettings,
  request: FastifyRequest,
  body: Static<typeof SocialBody>,
): Promise<Start> {
  const configured = namedProvider(deps, body.provider)
  const { callbackURL, errorCallbackURL: errorUrl } = body
  const own = callbackOf(deps, configured.id)
  const redirectUri = !callbackURL || callbackURL === own ? own : trustedCallback(deps, callbackURL)
  const errorTo = !errorUrl ? null : trustedReturn(deps, errorUrl, 'Invalid errorCallbackURL')
  return start(
    deps,
    request,
    configured,
    { ...wantedOf(request, body), redirectUri, returnTo: null, errorTo },
    body.scopes,
  )
}

/**
 * Begins a sign-in by a link, which ends at `redirect_url`. Throws as above.
 */
export function startByLink(
  deps: Writes & CurrentSettings,
  request: FastifyRequest,
  provider: string,
  query: Static<typeof SocialLinkQuery>,
): Promise<Start> {
  const configured = namedProvider(deps, provider)
  const returnTo = trustedReturn(deps, query.redirect_url, 'Invalid or missing redirect_url')
  const redirectUri = callbackOf(deps, configured.id)
  return start(
    deps,
    request,
    configured,
    { ...wantedOf(request, query), redirectUri, returnTo, errorTo: returnTo },
    query.scopes,
  )
}

/** Begins a sign-in for a page of this server, which gets the session as its cookie. Throws as above. */
export function startForPage(
  deps: Writes,
  request: FastifyRequest,
  provider: string,
  returnTo: string,
): Promise<Start> {
  const configured = namedProvider(deps, provider)
  const wanted = { authMode: 'cookie', type: 'default', tenantId: null, returnTo, errorTo: returnTo } as const
  return start(deps, request, configured, { ...wanted, redirectUri: callbackOf(deps, configured.id) }, undefined)
}

/** The active provider of this id; 400 where there is none. */
function namedProvider({ config }: Configuration, typed: string): SocialProvider {
  const id = typed.trim().toLowerCase()
  const { providers } = config.oauth
  const provider = Object.hasOwn(providers, id) ? providers[id] : undefined
  if (provider === undefined) throw new AppError(400, `Provider '${id.slice(0, 40)}' not found`)
  return provider
}

/** The client of a provider, 502 when it can't be asked for its endpoints. */
async function reachableClient(deps: Configuration, configured: SocialProvider): Promise<ProviderClient> {
  try {
    return await clientOf(deps, configured)
  } catch (error) {
    if (error instanceof OAuthUnavailable) throw outOfReach(error)
    throw error
  }
}

/** The answer for a provider that does not answer; the reason goes to the log. */
function outOfReach(cause: unknown): AppError {
  return new AppError(502, 'The sign-in provider cannot be reached. Please try again later.', { cause })
}

/** The parameters of the authorization request. */
export async function authorizationParameters(
  provider: Provider,
  { redirectUri, scopes, state, verifier, nonce }: ProviderRequest,
): Promise<Record<string, string>> {
  return {
    ...provider.parameters,
    redirect_uri: redirectUri,
    state,
    ...(scopes.length > 0 && { scope: scopes.join(provider.separator ?? ' ') }),
    ...(provider.pkce && { code_challenge: await codeChallenge(verifier), code_challenge_method: 'S256' }),
    ...(hasIdTokens(provider) && { nonce }),
  }
}

type ProviderRequest = {
  readonly redirectUri: string
  readonly scopes: readonly string[]
  readonly state: string
  readonly verifier: string
  readonly nonce: string
}

/** How the address differs for those that call the client's id by another name. */
export function addressed(id: string, url: URL, clientId: string): URL {
  const name = ({ tiktok: 'client_key', wechat: 'appid' } as Record<string, string>)[id]
  if (name === undefined) return url
  url.searchParams.delete('client_id')
  url.searchParams.set(name, clientId)
  if (id === 'wechat') url.hash = 'wechat_redirect'
  return url
}

type JourneyRequest = Omit<Journey, 'provider' | 'bound'>

async function start(
  deps: Writes,
  request: FastifyRequest,
  configured: SocialProvider,
  wanted: JourneyRequest,
  furtherScopes: Scopes | undefined,
): Promise<Start> {
  const { id } = configured
  const { oauth, provider } = await reachableClient(deps, configured)
  const scopes = [...new Set([...provider.scopes, ...scopesOf(furtherScopes)])]
  // A session that comes as a cookie is as good as forced upon a browser that did not begin it.
  const bound = deps.config.oauth.stateCookieBinding || wanted.authMode === 'cookie'
  const state = await beginJourney(deps, request, { ...wanted, provider: id, bound })
  const secrets = secretsOf(deps.config, state)
  const parameters = await authorizationParameters(provider, {
    redirectUri: wanted.redirectUri,
    scopes,
    state,
    ...secrets,
  })
  const url = authorizationUrl(oauth, parameters)
  const address = configured.issuer === undefined ? addressed(id, url, oauth.clientId) : url
  return { url: address.href, cookie: bound ? journeyCookie(deps.config, id, state) : undefined }
}

function wantedOf(
  request: FastifyRequest,
  { authMode = 'jwt', authType: type = 'default', tenant_Id }: Static<typeof SocialLinkQuery>,
) {
  return { authMode: deliveryTo(request, authMode), type, tenantId: tenant_Id ?? null }
}

/** Of configured values only: no header of a request has a say in it. */
function callbackOf({ config }: Configuration, id: string): string {
  return new URL(`${config.server.baseUrl}/auth/callback/${id}`).href
}

/** Written as the token request will write it again; a query would not come back. */
function trustedCallback(deps: Configuration & CurrentSettings, callbackURL: string): string {
  const refusal = 'Invalid callbackURL'
  const { href, search } = new URL(trustedReturn(deps, callbackURL, refusal))
  if (search !== '') throw new AppError(400, refusal)
  return href
}

type Scopes = NonNullable<Static<typeof SocialBody>['scopes']>

/** A list, or a text with commas; 400 for what is no scope by RFC 6749. */
function scopesOf(value: Scopes = []): readonly string[] {
  const scopes = typeof value === 'string' ? value.split(/[\s,]+/).filter((scope) => scope !== '') : value
  if (scopes.length <= 50 && scopes.every(isScope)) return scopes
  throw new AppError(400, 'Invalid scopes')
}

function isScope(value: string): boolean {
  return /^[\x21\x23-\x5b\x5d-\x7e]{1,200}$/.test(value)
}

/** The outcome of a callback: an answer or a refusal, and the journey that decides how to deliver it. */
export type JourneyEnd =
  | { readonly journey: Journey; readonly answer: SignInAnswer }
  | { readonly journey: Journey; readonly refusal: AppError }

/**
 * Ends a journey: trades the code, finds or makes the account, signs in. A refusal after the journey is known is a
 * value, because the journey decides how to deliver it.
 *
 * @throws {AppError} 400 where there is no journey to end
 */
export async function endSocialSignIn(
  deps: SocialWrites,
  request: FastifyRequest,
  provider: string,
  parameters: Callback,
): Promise<JourneyEnd> {
  const { id } = namedProvider(deps, provider)
  const { state, code, error: failure } = parameters
  if (state === undefined || (code === undefined && failure === undefined))
    throw new AppError(400, 'Missing code or state parameter')
  const journey = await endJourney(deps, request, id, state)
  try {
    if (failure !== undefined) throw new AppError(400, saidBy(parameters.error_description ?? failure))
    return { journey, answer: await arrive(deps, request, journey, state, parameters) }
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    return { journey, refusal: error }
  }
}

async function arrive(
  deps: SocialWrites,
  request: FastifyRequest,
  journey: Journey,
  state: string,
  parameters: Callback,
): Promise<SignInAnswer> {
  const client = await reachableClient(deps, namedProvider(deps, journey.provider))
  try {
    const tokens = await trade(deps, client, journey, state, parameters)
    const profile = await readProfile(deps, client, withName(tokens, parameters))
    return await enter(deps, request, { provider: client.id, profile, grant: tokens }, journey)
  } catch (error) {
    if (error instanceof OAuthUnavailable) throw outOfReach(error)
    if (!(error instanceof OAuthRefusal)) throw error
    request.log.info({ err: error, provider: client.id }, 'a social sign-in was refused')
    throw new AppError(400, saidBy(error.message))
  }
}

/** The parameters of the callback that the code is checked with, by RFC 6749, RFC 9207 and VK ID. */
function trade(
  { config }: Configuration,
  { id, oauth, provider }: ProviderClient,
  { redirectUri }: Journey,
  state: string,
  parameters: Callback,
): Promise<Tokens> {
  const callback = new URL(redirectUri)
  // A provider whose issuer is not known has nothing to compare it with.
  for (const name of ['code', 'state', ...(hasIdTokens(provider) ? (['iss'] as const) : [])] as const) {
    const value = parameters[name]
    if (value !== undefined) callback.searchParams.set(name, value)
  }
  const { verifier, nonce } = secretsOf(config, state)
  const deviceId = id === 'vk' ? parameters.device_id : undefined
  return exchangeCode(oauth, callback, {
    state,
    verifier: provider.pkce ? verifier : undefined,
    nonce: hasIdTokens(provider) ? nonce : undefined,
    ...(deviceId !== undefined && { parameters: { device_id: deviceId, state } }),
  })
}

/** Apple tells the name beside its ID token, once, as JSON in the form. Only a name is taken from there. */
function withName(tokens: Tokens, { user }: Callback): Tokens {
  if (tokens.claims === undefined || user === undefined) return tokens
  const told = jsonOf(user)
  const { firstName, lastName } = isObject(told) && isObject(told.name) ? told.name : {}
  return { ...tokens, claims: { given_name: firstName, family_name: lastName, ...tokens.claims } }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // It is the user's own browser that hands the name over; without one the account has a plain name.
    return undefined
  }
}

/** Words of others, short and of visible characters. */
function saidBy(words: string): string {
  return (
    words
      .replaceAll(/[^\x20-\x7e]+/g, ' ')
      .trim()
      .slice(0, 200) || 'The provider refused'
  )
}

/**
 * Signs in with an ID token that an app got from the provider itself (OAUTH_ALLOW_DIRECT_IDTOKEN). It must be made for
 * our client and hold the nonce that is given with it.
 *
 * @throws {AppError} 400 where that is switched off or the provider has no ID tokens; 401 for any token that does not hold
 */
export async function signInByIdToken(
  deps: SocialWrites,
  request: FastifyRequest,
  { provider, idToken = {}, authType: type = 'default', tenant_Id }: Static<typeof SocialBody>,
  authMode: AuthMode,
): Promise<SignInAnswer> {
  const configured = namedProvider(deps, provider)
  if (!deps.config.oauth.allowDirectIdToken)
    throw new AppError(400, 'Direct ID-token sign-in is disabled. Use the OAuth redirect flow.')
  const client = await reachableClient(deps, configured)
  const { token, nonce, accessToken, refreshToken } = idToken
  if (!token || !nonce || !hasIdTokens(client.provider)) throw invalidIdToken()
  const profile = profileOf(client.provider.map(await verified(request, client, token, nonce)))
  if (profile === undefined) throw invalidIdToken()
  const grant = {
    accessToken: accessToken || undefined,
    refreshToken: refreshToken || undefined,
    idToken: token,
    scope: undefined,
    expiresIn: undefined,
  }
  const wanted = { authMode, type, tenantId: tenant_Id ?? null }
  return enter(deps, request, { provider: client.id, profile, grant }, wanted)
}

async function verified(request: FastifyRequest, client: ProviderClient, token: string, nonce: string) {
  try {
    return await verifyIdToken(client.oauth, token, nonce)
  } catch (error) {
    if (error instanceof OAuthUnavailable) throw outOfReach(error)
    if (!(error instanceof OAuthRefusal)) throw error
    request.log.info({ err: error, provider: client.id }, 'an ID token was refused')
    throw invalidIdToken()
  }
}

const invalidIdToken = () => new AppError(401, 'Invalid ID token')

/** The session that is wanted. */
type WantedSession = Pick<Journey, 'authMode' | 'type' | 'tenantId'>

/** Signs an identity in: finds or makes its account and ends like every first factor. One transaction. 403 where it may not. */
async function enter(
  deps: SocialWrites,
  request: FastifyRequest,
  identity: Identity,
  wanted: WantedSession,
): Promise<SignInAnswer> {
  const answer = await commit(deps, actorOf(request), async (tx) => {
    const { account, events } = await linkedAccount(deps, tx, identity)
    checkMaySignIn(deps, account)
    const membership = await membershipOf(deps, tx, account.id, wanted.tenantId ?? undefined)
    const { authMode, type } = wanted
    const entered = await signIn(deps, tx, request, { account, membership, type, authMode })
    return { ...entered, events: [...events, ...(entered.events ?? [])] }
  })
  if (answer === undefined) throw new AppError(403, 'The account can not be signed in to')
  return answer
}

/** The capabilities that changes of this folder need. */
export type SocialWrites = Writes & Clock & CurrentAccess & CurrentCatalog & CurrentSettings & IdSource
