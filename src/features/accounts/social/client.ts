import { fetchUrl, UrlFetchError } from '../../../adapters/fetch-url.ts'
import {
  type ClientAuthentication,
  clientSecretBasic,
  clientSecretPost,
  type OAuthClient,
  OAuthRefusal,
  OAuthUnavailable,
  openOAuthClient,
  providerLimits,
  signedClientSecret,
  type TokenEndpointAdapter,
  type Tokens,
} from '../../../adapters/oauth.ts'
import type { Configuration } from '../../../config/config.ts'
import type { SocialProvider } from '../../../config/families.ts'
import {
  type Profile,
  type ProfileRequest,
  type Provider,
  profileOf,
  providers,
  standardProvider,
} from './providers.ts'

/** A provider as it is configured here. */
export type ProviderClient = { readonly id: string; readonly provider: Provider; readonly oauth: OAuthClient }

/**
 * The client of an active provider. It lives as long as the process: it keeps the provider's keys and, where they had to
 * be asked for, its endpoints.
 *
 * @throws {OAuthUnavailable} when the endpoints have to be asked for and can't be
 */
export function clientOf(deps: Configuration, configured: SocialProvider): Promise<ProviderClient> {
  const known = clients.get(configured)
  if (known !== undefined) return known
  const opened = openClient(deps, configured, providerOf(configured))
  clients.set(configured, opened)
  opened.catch(() => clients.delete(configured))
  return opened
}

const clients = new WeakMap<SocialProvider, Promise<ProviderClient>>()

/** The provider's row; that of any OpenID Connect issuer where another one is configured (`<PROVIDERID>_ISSUER`). */
export function providerOf({ id, issuer, extra }: SocialProvider): Provider {
  if (issuer !== undefined) return standardProvider(issuer)
  const row = providers[id]
  if (row === undefined) throw new Error(`${id} is missing in the table of providers`)
  return filled(row, { tenant: extra.tenantId ?? 'common', domain: extra.domain ?? '' })
}

export async function openClient(
  { config }: Configuration,
  configured: SocialProvider,
  provider: Provider,
): Promise<ProviderClient> {
  const { id, clientId, clientSecret } = configured
  const usesSecret = id === 'line' && configured.issuer === undefined
  const oauth = await openOAuthClient({
    clientId,
    server: 'discover' in provider ? provider : { ...provider, issuer: issuerOf(provider) },
    authenticate: authenticationOf(configured, provider),
    hmacSecret: usesSecret ? clientSecret : undefined,
    adapt: adapterOf(configured, provider),
    allowPrivate: config.files.allowPrivateUrlFetch,
  })
  return { id, provider, oauth }
}

/** Whether the provider signs its users' identity. */
export function hasIdTokens(provider: Provider): boolean {
  return 'discover' in provider || provider.issuer !== undefined
}

/** Where the row holds no issuer none of its ID tokens is looked at, so any name of the server does. */
function issuerOf(provider: Exclude<Provider, { discover: string }>): string {
  return provider.issuer ?? new URL(provider.authorize).origin
}

function adapterOf({ id, issuer }: SocialProvider, provider: Provider): TokenEndpointAdapter {
  return { byGet: id === 'wechat' && issuer === undefined, withoutIdToken: !hasIdTokens(provider) }
}

function authenticationOf(configured: SocialProvider, provider: Provider): ClientAuthentication {
  const { id, clientSecret, issuer } = configured
  const secret = clientSecret ?? ''
  const own = issuer === undefined ? ownAuthentication[id] : undefined
  if (own !== undefined) return own(configured)
  if (id === 'apple' && issuer === undefined && clientSecret === undefined) return signedAuthentication(configured)
  return provider.basic === true ? clientSecretBasic(secret) : clientSecretPost(secret)
}

/** Providers that call the client's id and secret by other names. */
const ownAuthentication: Readonly<Record<string, (configured: SocialProvider) => ClientAuthentication>> = {
  tiktok:
    ({ clientId, clientSecret }) =>
    (_server, _client, body) => {
      body.set('client_key', clientId)
      body.set('client_secret', clientSecret ?? '')
    },
  wechat:
    ({ clientId, clientSecret }) =>
    (_server, _client, body) => {
      body.set('appid', clientId)
      body.set('secret', clientSecret ?? '')
    },
}

function signedAuthentication({ clientId, extra }: SocialProvider): ClientAuthentication {
  const { teamId = '', keyId = '', privateKey = '' } = extra
  const audience = 'https://appleid.apple.com'
  return async (_server, _client, body) => {
    body.set('client_id', clientId)
    body.set(
      'client_secret',
      await signedClientSecret({ privateKey, keyId, issuer: teamId, subject: clientId, audience }),
    )
  }
}

/** `{name}` replaced by the value of the name in every address. */
function filled(provider: Provider, values: Readonly<Record<string, string>>): Provider {
  const fill = (text: string) => text.replaceAll(/\{(tenant|domain)\}/g, (_all, name: string) => values[name] ?? '')
  if ('discover' in provider) return { ...provider, discover: fill(provider.discover) }
  const { authorize, token, profile } = provider
  return {
    ...provider,
    authorize: fill(authorize),
    token: fill(token),
    ...(profile !== undefined && { profile: { ...profile, url: fill(profile.url) } }),
  }
}

/**
 * The owner of the tokens: by the claims of the ID token, else by asking the provider.
 *
 * @throws {OAuthRefusal}
 * @throws {OAuthUnavailable}
 */
export async function readProfile(deps: Configuration, client: ProviderClient, tokens: Tokens): Promise<Profile> {
  const { provider } = client
  const raw =
    provider.profile === undefined ? (tokens.claims ?? {}) : await askProfile(deps, client, provider.profile, tokens)
  const profile = profileOf(provider.map(raw))
  if (profile === undefined) throw new OAuthRefusal('the provider did not say whose account it is')
  return profile
}

async function askProfile(deps: Configuration, client: ProviderClient, wanted: ProfileRequest, tokens: Tokens) {
  const answer = objectOf(await ask(deps, client, wanted, tokens))
  if (wanted.emails === undefined) return answer
  return { ...answer, emails: await ask(deps, client, { url: wanted.emails }, tokens) }
}

async function ask(
  deps: Configuration,
  { oauth }: ProviderClient,
  wanted: ProfileRequest,
  tokens: Tokens,
): Promise<unknown> {
  const { url, headers, json, form, query } = wanted
  const address = new URL(url)
  for (const name of query ?? []) address.searchParams.set(name, String(tokens.raw[name]))
  const bearer = query === undefined && form === undefined && { authorization: `Bearer ${tokens.accessToken}` }
  const sent =
    form === undefined ? jsonBody(json) : formBody({ access_token: tokens.accessToken, client_id: oauth.clientId })
  const answer = await reached(() =>
    fetchUrl(address, {
      ...(sent !== undefined && { method: 'POST', body: sent.body }),
      headers: { accept: 'application/json', ...bearer, ...headers, ...sent?.headers },
      allowPrivate: deps.config.files.allowPrivateUrlFetch,
      ...providerLimits,
    }),
  )
  const complaint = `the provider answered ${answer.status} when asked for the profile`
  if (answer.status >= 500) throw new OAuthUnavailable(complaint)
  if (answer.status !== 200) throw new OAuthRefusal(complaint)
  return parsed(answer.body.toString())
}

function jsonBody(json: object | null | undefined) {
  return json === undefined
    ? undefined
    : { body: JSON.stringify(json), headers: { 'content-type': 'application/json' } }
}

function formBody(fields: Record<string, string>) {
  const headers = { 'content-type': 'application/x-www-form-urlencoded' }
  return { body: new URLSearchParams(fields).toString(), headers }
}

async function reached<T>(fetched: () => Promise<T>): Promise<T> {
  try {
    return await fetched()
  } catch (error) {
    if (error instanceof UrlFetchError) throw new OAuthUnavailable(error.message, { cause: error })
    throw error
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new OAuthRefusal('the provider did not answer with JSON', { cause: error })
  }
}

function objectOf(value: unknown): Readonly<Record<string, unknown>> {
  return value !== null && typeof value === 'object' ? (value as Record<string, unknown>) : {}
}
