import { scopesOfAccess } from '../../../access/scopes.ts'
import type { Config } from '../../../config/config.ts'
import { issuerOf, resourceNamed } from '../../../config/issuer.ts'
import { AppError } from '../../../errors.ts'
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
 * @throws {AppError} 400 where the client must not be answered: without an address of its own, nobody knows whose it is
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
  const repeated = names.find((name, index) => names.indexOf(name) !== index)
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
