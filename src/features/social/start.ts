import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { authorizationUrl, codeChallenge, OAuthUnavailable } from '../../adapters/oauth.ts'
import type { SocialProvider } from '../../config/families.ts'
import { AppError } from '../../errors.ts'
import type { Runtime } from '../../runtime.ts'
import { deliveryTo } from '../auth/answers.ts'
import { trustedReturn } from '../auth/links.ts'
import { type Client, clientOf, hasIdTokens } from './client.ts'
import type { Provider } from './providers.ts'
import type { SocialBody, SocialLinkQuery } from './schema.ts'
import { beginJourney, type Journey, journeyCookie, secretsOf } from './state.ts'

/** Where to send the browser, and the cookie to give it, if any. */
export type Start = { readonly url: string; readonly cookie: string | undefined }

/**
 * Begins a sign-in for a frontend that sends the browser itself (spec: POST /auth/social/signin). `callbackURL` replaces
 * our callback as the provider's return address; `errorCallbackURL` is where our callback sends the browser when
 * something goes wrong.
 *
 * @throws {AppError} 400 for an unknown provider or an address that is not trusted; 502 when the provider is out of reach
 */
export function startByRequest(rt: Runtime, request: FastifyRequest, body: Static<typeof SocialBody>): Promise<Start> {
  const configured = namedProvider(rt, body.provider)
  const { callbackURL, errorCallbackURL: errorUrl } = body
  const own = callbackOf(rt, configured.id)
  const redirectUri = !callbackURL || callbackURL === own ? own : trustedCallback(rt, callbackURL)
  const errorTo = !errorUrl ? null : trustedReturn(rt, errorUrl, 'Invalid errorCallbackURL')
  return start(
    rt,
    request,
    configured,
    { ...wantedOf(request, body), redirectUri, returnTo: null, errorTo },
    body.scopes,
  )
}

/**
 * Begins a sign-in by a link (spec: GET /auth/signin/{provider}), which ends at `redirect_url`. Throws as above.
 */
export function startByLink(
  rt: Runtime,
  request: FastifyRequest,
  provider: string,
  query: Static<typeof SocialLinkQuery>,
): Promise<Start> {
  const configured = namedProvider(rt, provider)
  const returnTo = trustedReturn(rt, query.redirect_url, 'Invalid or missing redirect_url')
  const redirectUri = callbackOf(rt, configured.id)
  return start(
    rt,
    request,
    configured,
    { ...wantedOf(request, query), redirectUri, returnTo, errorTo: returnTo },
    query.scopes,
  )
}

/** The active provider of this id; 400 where there is none. */
export function namedProvider(rt: Runtime, typed: string): SocialProvider {
  const id = typed.trim().toLowerCase()
  const provider = rt.config.oauth.providers[id]
  if (provider === undefined) throw new AppError(400, `Provider '${id.slice(0, 40)}' not found`)
  return provider
}

/** The client of a provider, 502 when it can't be asked for its endpoints. */
export async function reachableClient(rt: Runtime, configured: SocialProvider): Promise<Client> {
  try {
    return await clientOf(rt, configured)
  } catch (error) {
    if (error instanceof OAuthUnavailable) throw outOfReach(error)
    throw error
  }
}

/** What the caller is told of a provider that does not answer; the reason is for the log. */
export function outOfReach(cause: unknown): AppError {
  return new AppError(502, 'The sign-in provider cannot be reached. Please try again later.', { cause })
}

/** The parameters of the authorization request. */
export async function authorizationParameters(
  provider: Provider,
  { redirectUri, scopes, state, verifier, nonce }: AuthorizationRequest,
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

export type AuthorizationRequest = {
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

type Wanted = Omit<Journey, 'provider' | 'bound'>

async function start(
  rt: Runtime,
  request: FastifyRequest,
  configured: SocialProvider,
  wanted: Wanted,
  furtherScopes: Scopes | undefined,
): Promise<Start> {
  const { id } = configured
  const { oauth, provider } = await reachableClient(rt, configured)
  const scopes = [...new Set([...provider.scopes, ...scopesOf(furtherScopes)])]
  // A session that comes as a cookie is as good as forced upon a browser that did not begin it.
  const bound = rt.config.oauth.stateCookieBinding || wanted.authMode === 'cookie'
  const state = await beginJourney(rt, request, { ...wanted, provider: id, bound })
  const secrets = secretsOf(rt.config, state)
  const parameters = await authorizationParameters(provider, {
    redirectUri: wanted.redirectUri,
    scopes,
    state,
    ...secrets,
  })
  const url = authorizationUrl(oauth, parameters)
  const address = configured.issuer === undefined ? addressed(id, url, oauth.clientId) : url
  return { url: address.href, cookie: bound ? journeyCookie(rt.config, id, state) : undefined }
}

function wantedOf(
  request: FastifyRequest,
  { authMode = 'jwt', authType: type = 'default', tenant_Id }: Static<typeof SocialLinkQuery>,
) {
  return { authMode: deliveryTo(request, authMode), type, tenantId: tenant_Id ?? null }
}

/** Of configured values only: no header of a request has a say in it (quality A-32). */
function callbackOf(rt: Runtime, id: string): string {
  return new URL(`${rt.config.server.baseUrl}/auth/callback/${id}`).href
}

/** Written as the token request will write it again; a query would not come back. */
function trustedCallback(rt: Runtime, callbackURL: string): string {
  const refusal = 'Invalid callbackURL'
  const { href, search } = new URL(trustedReturn(rt, callbackURL, refusal))
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
