import type { JWTPayload, JWTVerifyGetKey } from 'jose'
import type { ClientAuth, Configuration, CustomFetch } from 'openid-client'
import { onFirstUse } from '../language/once.ts'
import { fetchUrl, UrlFetchError } from './fetch-url.ts'

const oauth = onFirstUse<typeof import('openid-client')>('openid-client')
const jose = onFirstUse<typeof import('jose')>('jose')

type OAuthClientOptions = {
  readonly clientId: string
  readonly server: OAuthServer
  /** Puts the client's proof into a request to the token endpoint. */
  readonly authenticate: ClientAuth
  /** Of its ID tokens where it is none of its published keys that signs them but the client's secret (HS256). */
  readonly hmacSecret?: string | undefined
  /** Repairs what a token endpoint does otherwise than the standard. */
  readonly adapt?: TokenEndpointAdapter | undefined
  /** SSRF_ALLOW_PRIVATE_URL_FETCH; plain http is spoken only with it. */
  readonly allowPrivate: boolean
}

/** Known endpoints, or an OpenID Connect issuer that publishes them. */
type OAuthServer =
  | { readonly issuer: string; readonly authorize: string; readonly token: string; readonly jwks?: string | undefined }
  | { readonly discover: string }

/** The result of exchanging a provider's code. */
export type Tokens = {
  readonly accessToken: string
  readonly refreshToken: string | undefined
  readonly idToken: string | undefined
  readonly scope: string | undefined
  /** Seconds from now. */
  readonly expiresIn: number | undefined
  /** Of the verified ID token. */
  readonly claims: Readonly<Record<string, unknown>> | undefined
  /** The whole answer; a few providers put more into it. */
  readonly raw: Readonly<Record<string, unknown>>
}

export type OAuthClient = {
  readonly clientId: string
  readonly config: Configuration
  readonly options: OAuthClientOptions
}

/** The provider refused, or what it said does not hold; its words, for the log and the user. */
export class OAuthRefusal extends Error {}
/** The provider could not be asked. */
export class OAuthUnavailable extends Error {}

/** Asks the issuer for its endpoints where they are not known. Throws {@link OAuthUnavailable}. */
export async function openOAuthClient(options: OAuthClientOptions): Promise<OAuthClient> {
  const { clientId, server, authenticate, hmacSecret, allowPrivate } = options
  const metadata = hmacSecret === undefined ? {} : { id_token_signed_response_alg: 'HS256' }
  const config =
    'discover' in server
      ? await saying(() => discover(server.discover, options, metadata))
      : new (oauth().Configuration)(metadataOf(server), clientId, metadata, authenticate)
  if (allowPrivate) oauth().allowInsecureRequests(config)
  config[oauth().customFetch] = fetchOf(options, config.serverMetadata().token_endpoint)
  // A token signed with the client's secret has come from the token endpoint over TLS (OpenID Connect Core 3.1.3.7, 6).
  if (hmacSecret === undefined && config.serverMetadata().jwks_uri !== undefined)
    oauth().enableNonRepudiationChecks(config)
  return { clientId, config, options }
}

/** The address to send the browser to. */
export function authorizationUrl({ config }: OAuthClient, parameters: Readonly<Record<string, string>>): URL {
  return oauth().buildAuthorizationUrl(config, parameters)
}

type CodeChecks = {
  readonly state: string
  readonly verifier: string | undefined
  readonly nonce: string | undefined
  /** Further parameters of the token request. */
  readonly parameters?: Readonly<Record<string, string>>
}

/**
 * Trades the code of a callback for tokens. `callback` is the redirect address with the parameters of the callback. The
 * ID token, where there is one, is verified: signature, issuer, audience, expiry and nonce.
 *
 * @throws {OAuthRefusal}
 * @throws {OAuthUnavailable}
 */
export async function exchangeCode({ config }: OAuthClient, callback: URL, checks: CodeChecks): Promise<Tokens> {
  const answer = await saying(() =>
    oauth().authorizationCodeGrant(
      config,
      callback,
      {
        expectedState: checks.state,
        ...(checks.verifier !== undefined && { pkceCodeVerifier: checks.verifier }),
        ...(checks.nonce !== undefined && { expectedNonce: checks.nonce }),
      },
      { ...checks.parameters },
    ),
  )
  return {
    accessToken: answer.access_token,
    refreshToken: answer.refresh_token,
    idToken: answer.id_token,
    scope: answer.scope,
    expiresIn: answer.expires_in,
    claims: answer.claims(),
    raw: answer,
  }
}

/**
 * The claims of an ID token that a client presents: signed by the provider, made for this client, not expired and with
 * this nonce.
 *
 * @throws {OAuthRefusal}
 * @throws {OAuthUnavailable}
 */
export async function verifyIdToken(client: OAuthClient, token: string, nonce: string): Promise<JWTPayload> {
  const { issuer } = client.config.serverMetadata()
  const verified = await saying(() => signedClaims(client, token))
  const expected = issuer.replace('{tenantid}', String(verified.tid))
  if (verified.iss !== expected) throw new OAuthRefusal('the ID token is of another issuer')
  if (verified.nonce !== nonce) throw new OAuthRefusal('the ID token has another nonce')
  const { azp } = verified
  if (azp !== undefined && azp !== client.clientId) throw new OAuthRefusal('the ID token is for another party')
  return verified
}

/** S256 (RFC 7636). */
export function codeChallenge(verifier: string): Promise<string> {
  return oauth().calculatePKCECodeChallenge(verifier)
}

/** A JWT that stands for a client's secret, signed with its private key (ES256, PKCS#8 in PEM), for five minutes. */
export async function signedClientSecret(key: {
  readonly privateKey: string
  readonly keyId: string
  readonly issuer: string
  readonly subject: string
  readonly audience: string
}): Promise<string> {
  return new (jose().SignJWT)()
    .setProtectedHeader({ alg: 'ES256', kid: key.keyId })
    .setIssuer(key.issuer)
    .setSubject(key.subject)
    .setAudience(key.audience)
    .setIssuedAt()
    .setExpirationTime('5 minutes')
    .sign(await jose().importPKCS8(key.privateKey, 'ES256'))
}

export const clientSecretBasic = (secret: string): ClientAuth => oauth().ClientSecretBasic(secret)
export const clientSecretPost = (secret: string): ClientAuth => oauth().ClientSecretPost(secret)
export type ClientAuthentication = ClientAuth

function fetchOf({ adapt = {}, allowPrivate }: OAuthClientOptions, endpoint: string | undefined): CustomFetch {
  const fetch = tokenEndpointFetch(endpoint, adapt, allowPrivate)
  return (url, init) => fetch(url, init as FetchInit)
}

function discover(issuer: string, { clientId, authenticate, allowPrivate }: OAuthClientOptions, metadata: object) {
  return oauth().discovery(new URL(issuer), clientId, metadata, authenticate, {
    [oauth().customFetch]: (url, init) => fetchResponse(url, init as FetchInit, allowPrivate),
    execute: allowPrivate ? [oauth().allowInsecureRequests] : [],
  })
}

function metadataOf({ issuer, authorize, token, jwks }: Exclude<OAuthServer, { discover: string }>) {
  return {
    issuer,
    authorization_endpoint: authorize,
    token_endpoint: token,
    ...(jwks !== undefined && { jwks_uri: jwks }),
  }
}

async function signedClaims({ clientId, config, options }: OAuthClient, token: string): Promise<JWTPayload> {
  const demands = { audience: clientId, requiredClaims: ['iss', 'sub', 'exp', 'iat', 'nonce'] }
  if (options.hmacSecret !== undefined) {
    const key = new TextEncoder().encode(options.hmacSecret)
    return (await jose().jwtVerify(token, key, { ...demands, algorithms: ['HS256'] })).payload
  }
  return (await jose().jwtVerify(token, keysOf(config, options), { ...demands, algorithms: signatures })).payload
}

const signatures = ['RS256', 'PS256', 'ES256', 'EdDSA']

const keysByConfig = new WeakMap<Configuration, JWTVerifyGetKey>()

function keysOf(config: Configuration, { allowPrivate }: OAuthClientOptions): JWTVerifyGetKey {
  const { jwks_uri } = config.serverMetadata()
  if (jwks_uri === undefined) throw new OAuthRefusal('the provider publishes no keys')
  const keys =
    keysByConfig.get(config) ??
    jose().createRemoteJWKSet(new URL(jwks_uri), {
      [jose().customFetch]: (url, init) => fetchResponse(url, init, allowPrivate),
    })
  keysByConfig.set(config, keys)
  return keys
}

/** Turns what the libraries throw into the two errors that callers tell apart. */
async function saying<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask()
  } catch (error) {
    const broken = [error, (error as Error).cause].find(isUnavailable)
    if (broken !== undefined) throw new OAuthUnavailable((broken as Error).message, { cause: error })
    if (isRefusal(error)) throw new OAuthRefusal(wordsOf(error as Error), { cause: error })
    throw error
  }
}

const isUnavailable = (error: unknown): boolean => error instanceof UrlFetchError || error instanceof OAuthUnavailable

function isRefusal(error: unknown): boolean {
  return (
    error instanceof oauth().ResponseBodyError ||
    error instanceof oauth().AuthorizationResponseError ||
    error instanceof oauth().ClientError ||
    error instanceof oauth().WWWAuthenticateChallengeError ||
    error instanceof jose().errors.JOSEError
  )
}

function wordsOf(error: Error): string {
  const { error_description: described, error: code } = error as { error_description?: string; error?: string }
  return described ?? code ?? error.message
}

/** Limits of a request to a provider. */
export const providerLimits = { timeoutMs: 10_000, maxBytes: 1_000_000 }

/** Differences of a token endpoint from the standard. */
export type TokenEndpointAdapter = {
  /** The form is sent in the query of a GET. */
  readonly byGet?: boolean
  /** ID tokens are dropped: nothing tells by which keys and issuer. */
  readonly withoutIdToken?: boolean
}

type FetchInit = {
  readonly method: string
  readonly headers: Headers | Readonly<Record<string, string>>
  readonly body?: unknown
}

/** How the client of a token endpoint fetches. */
function tokenEndpointFetch(
  endpoint: string | undefined,
  adapter: TokenEndpointAdapter,
  allowPrivate: boolean,
): (url: string, init: FetchInit) => Promise<Response> {
  return async (url, init) => {
    if (url !== endpoint) return fetchResponse(url, init, allowPrivate)
    const sent =
      adapter.byGet === true ? { url: `${url}?${init.body}`, init: { method: 'GET', headers: {} } } : { url, init }
    const answer = await fetchResponse(sent.url, sent.init, allowPrivate)
    // The library would say of it that the status is unexpected, as of an answer to a bad request.
    if (answer.status >= 500)
      throw new OAuthUnavailable(`the provider answered ${answer.status} when asked for a token`)
    return standardised(answer, adapter)
  }
}

/** `fetch` for the OAuth libraries, by {@link fetchUrl}: no redirects, no private addresses, within limits. */
async function fetchResponse(
  url: string,
  { method, headers, body }: FetchInit,
  allowPrivate: boolean,
): Promise<Response> {
  const sent = body === undefined || body === null ? undefined : String(body)
  const answer = await fetchUrl(url, {
    method,
    headers: headers instanceof Headers ? Object.fromEntries(headers) : headers,
    ...(sent !== undefined && { body: sent }),
    allowPrivate,
    ...providerLimits,
  })
  const type = answer.headers['content-type']
  const hasBody = ![204, 205, 304].includes(answer.status)
  return new Response(hasBody ? new Uint8Array(answer.body) : null, {
    status: answer.status,
    headers: type === undefined ? {} : { 'content-type': type },
  })
}

/**
 * The answer of a token endpoint in the form of RFC 6749: errors have status 400, the type is `bearer`, scopes are one
 * text. Several providers answer everything with 200, name another type or none, or list their scopes.
 */
async function standardised(response: Response, { withoutIdToken }: TokenEndpointAdapter): Promise<Response> {
  const body = jsonObjectOf(await response.text())
  if (body === undefined) return new Response(null, { status: response.ok ? 502 : response.status })
  const error = body.error ?? body.errcode
  if (error !== undefined && error !== 0 && body.access_token === undefined) {
    const described = body.error_description ?? body.errmsg
    return json(response.ok ? 400 : response.status, { error: textOf(error), error_description: textOf(described) })
  }
  const { scope, id_token, ...rest } = body
  return json(response.status, {
    ...rest,
    token_type: 'bearer',
    ...(Array.isArray(scope) ? { scope: scope.join(' ') } : typeof scope === 'string' && { scope }),
    ...(id_token !== undefined && withoutIdToken !== true && { id_token }),
  })
}

function json(status: number, body: object): Response {
  return new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json' } })
}

function jsonObjectOf(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return value !== null && typeof value === 'object' ? (value as Record<string, unknown>) : undefined
  } catch {
    // No JSON is no answer of a token endpoint.
    return undefined
  }
}

function textOf(value: unknown): string | undefined {
  return value === undefined || value === null ? undefined : typeof value === 'string' ? value : JSON.stringify(value)
}
