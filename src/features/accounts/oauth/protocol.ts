import { scopesOfAccess } from '../../../access/scopes.ts'
import { idTokenAlgorithms, idTokenJwks } from '../../../adapters/id-tokens.ts'
import type { Config } from '../../../config/config.ts'
import { issuerOf, type ResourceName, resourceNamed } from '../../../config/issuer.ts'
import { AppError } from '../../../errors.ts'
import { firstRepeated, withoutLastSlashes } from '../../../language/text.ts'
import { type Client, isRegistered } from './clients.ts'

// Reads and checks an authorization request (RFC 6749 §4.1.1, 7636, 8707, OpenID Connect Core §3.1.2).

/** Scopes besides those of access: what an ID token and `userinfo` tell, and a refresh token. */
const identityScopes = ['openid', 'profile', 'email', 'offline_access'] as const
export const supportedScopes: readonly string[] = [...scopesOfAccess, ...identityScopes]

/** The query of a request to `authorize`, as it came: what every step of signing in takes along and reads anew. */
const longestQuery = 4096

/** A request that may be shown to the user. */
export type AuthorizationRequest = {
  readonly redirectUri: string
  readonly state: string | undefined
  readonly challenge: string
  readonly scopes: readonly string[]
  /** Identifiers: what the token will be for. */
  readonly resources: readonly string[]
  readonly nonce: string | undefined
  readonly prompt: readonly string[]
  /** Seconds since the user has signed in. */
  readonly maxAge: number | undefined
  readonly loginHint: string | undefined
}

/** Why a request is refused, in a word that its client understands. */
export type Refusal = { readonly error: string; readonly description: string }
/** Where a client is answered. */
export type ReplyAddress = Pick<AuthorizationRequest, 'redirectUri' | 'state'>

/** To be asked before anything else. 400 for one without a client, too long or misspelt: its client cannot be told. */
export function clientIdOf(query: string): string {
  if (query.length > longestQuery) throw new AppError(400, 'The request is too long')
  // As browsers write it: it comes back in forms, and goes into headers.
  if (!/^[\x21-\x7e]*$/.test(query)) throw new AppError(400, 'The request is not written as an address')
  const { client_id: clientId } = parametersOf(query)
  if (clientId === undefined) throw new AppError(400, 'The request names no program (client_id)')
  return clientId
}

/**
 * The request of a known client: a request, or a refusal that the client is told.
 *
 * @throws {AppError} 400 where the client must not be answered: without an address of its own, its owner is unknown
 */
export function readRequest(
  config: Config,
  client: Client,
  query: string,
): { readonly request: AuthorizationRequest } | { readonly refusal: Refusal; readonly to: ReplyAddress } {
  const parameters = parametersOf(query)
  const redirectUri = parameters.redirect_uri
  if (redirectUri === undefined || !isRegistered(client, redirectUri))
    throw new AppError(400, 'The request names an address (redirect_uri) that the program has not registered')
  const to = { redirectUri, state: parameters.state }
  const resources = resourcesOf(config, new URLSearchParams(query).getAll('resource'))
  const refusal = refusalOf(parameters, query) ?? (resources === undefined ? badTarget : undefined)
  if (refusal !== undefined || resources === undefined) return { refusal: refusal ?? badTarget, to }
  const scopes = scopesOf(parameters.scope)
  if (scopes.length === 0) return { refusal: { error: 'invalid_scope', description: 'No scope is known' }, to }
  return {
    request: {
      ...to,
      challenge: parameters.code_challenge!,
      scopes,
      resources,
      nonce: parameters.nonce,
      prompt: (parameters.prompt ?? '').split(' ').filter((one) => one !== ''),
      maxAge: parameters.max_age === undefined ? undefined : Number(parameters.max_age),
      loginHint: parameters.login_hint,
    },
  }
}

type Parameters = Readonly<Record<string, string | undefined>>

/** The last of a repeated one; such a request is refused. Empty ones count as absent. */
const parametersOf = (query: string): Parameters =>
  Object.fromEntries([...new URLSearchParams(query)].filter(([, value]) => value !== ''))

function refusalOf(parameters: Parameters, query: string): Refusal | undefined {
  const invalid = (description: string) => ({ error: 'invalid_request', description })
  const names = [...new URLSearchParams(query).keys()].filter((name) => name !== 'resource')
  const repeated = firstRepeated(names)
  if (repeated !== undefined) return invalid(`The parameter ${repeated.replaceAll(/\W/g, '').slice(0, 40)} is repeated`)
  if (parameters.request !== undefined)
    return { error: 'request_not_supported', description: 'Parameters go into the query' }
  if (parameters.request_uri !== undefined)
    return { error: 'request_uri_not_supported', description: 'Parameters go into the query' }
  if (parameters.response_type !== 'code')
    return { error: 'unsupported_response_type', description: 'The response_type must be code' }
  if ((parameters.response_mode ?? 'query') !== 'query') return invalid('The response_mode must be query')
  if (parameters.code_challenge_method !== 'S256') return invalid('PKCE is needed, with the code_challenge_method S256')
  if (!/^[\w-]{43}$/.test(parameters.code_challenge ?? ''))
    return invalid('The code_challenge is not a SHA-256 in base64url')
  if (!/^\d{1,9}$/.test(parameters.max_age ?? '0')) return invalid('The max_age is not a number of seconds')
  if (!/^[\x20-\x7e]{0,512}$/.test(parameters.nonce ?? ''))
    return invalid('The nonce is not plain text of at most 512 characters')
  const prompt = parameters.prompt?.split(' ') ?? []
  return prompt.includes('none') && prompt.length > 1 ? invalid('The prompt none stands alone') : undefined
}

const badTarget: Refusal = { error: 'invalid_target', description: 'The resource is none of this server' }

/** All of them where a client names none; undefined where one is not known. */
export function resourcesOf(config: Config, named: readonly string[]): readonly string[] | undefined {
  const { resources } = issuerOf(config)!
  if (named.length === 0) return Object.values(resources)
  const known = named.map((text) => resourceNamed(config, text))
  return known.includes(undefined) ? undefined : [...new Set(known.map((name) => resources[name!]!))]
}

/** Those that are known, `read` where none is named. */
function scopesOf(asked: string | undefined): readonly string[] {
  if (asked === undefined) return ['read']
  const words = new Set(asked.split(' '))
  return supportedScopes.filter((scope) => words.has(scope))
}

/** The server's metadata for clients (RFC 8414, OpenID Connect Discovery). */
export function serverMetadata(config: Config) {
  const { issuer, resources } = issuerOf(config)!
  const at = (path: string) => `${issuer}/oauth/${path}`
  return {
    issuer,
    authorization_endpoint: at('authorize'),
    token_endpoint: at('token'),
    ...(config.oauthServer.registration && { registration_endpoint: at('register') }),
    revocation_endpoint: at('revoke'),
    userinfo_endpoint: at('userinfo'),
    jwks_uri: at('jwks'),
    scopes_supported: supportedScopes,
    response_types_supported: ['code'],
    response_modes_supported: ['query'],
    grant_types_supported: ['authorization_code', 'refresh_token'],
    code_challenge_methods_supported: ['S256'],
    token_endpoint_auth_methods_supported: ['none'],
    revocation_endpoint_auth_methods_supported: ['none'],
    authorization_response_iss_parameter_supported: true,
    client_id_metadata_document_supported: true,
    protected_resources: Object.values(resources),
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: [...idTokenAlgorithms],
    claims_supported: ['sub', 'iss', 'aud', 'exp', 'iat', 'auth_time', 'nonce', ...userClaimNames],
    prompt_values_supported: ['none', 'login', 'consent', 'select_account'],
  }
}

const userClaimNames = ['name', 'given_name', 'family_name', 'email', 'email_verified']

/** The metadata of an existing resource for clients (RFC 9728). */
export function resourceMetadata(config: Config, name: ResourceName) {
  const { issuer, resources } = issuerOf(config)!
  return {
    resource: resources[name]!,
    authorization_servers: [issuer],
    bearer_methods_supported: ['header'],
    // The scopes to ask for at first; a refusal names the missing scope.
    scopes_supported: scopesOfAccess.filter((scope) => scope !== 'admin'),
    resource_name: `${config.project.name ?? 'Daybook'}${name === 'mcp' ? ' (MCP)' : ''}`,
  }
}

/** The resource whose metadata are at `/.well-known/oauth-protected-resource` and this path, below the issuer's or not. */
export function resourceAt(config: Config, path: string): ResourceName | undefined {
  const { issuer, resources } = issuerOf(config)!
  const names = Object.keys(resources) as ResourceName[]
  const wanted = withoutLastSlashes(path)
  return names.find((name) => {
    const identifier = resources[name]!
    return [identifier.slice(issuer.length), withoutLastSlashes(new URL(identifier).pathname)].includes(wanted)
  })
}

/** Whether the path after `/.well-known/…` is that of the issuer, or none. */
export function isIssuerPath(config: Config, path: string): boolean {
  const wanted = withoutLastSlashes(path)
  return wanted === '' || wanted === withoutLastSlashes(new URL(issuerOf(config)!.issuer).pathname)
}

export async function publicKeys(config: Config) {
  return { keys: (await idTokenJwks(config)).map((key) => ({ ...key })) }
}
