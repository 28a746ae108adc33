import { scopesOfAccess } from '../../../access/scopes.ts'
import { idTokenAlgorithms, idTokenJwks } from '../../../adapters/id-tokens.ts'
import type { Config } from '../../../config/config.ts'
import { issuerOf, type ResourceName } from '../../../config/issuer.ts'
import { supportedScopes } from './requests.ts'

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
  const wanted = path.replace(/\/+$/, '')
  return names.find((name) => {
    const identifier = resources[name]!
    return [identifier.slice(issuer.length), new URL(identifier).pathname.replace(/\/+$/, '')].includes(wanted)
  })
}

/** Whether the path after `/.well-known/…` is that of the issuer, or none. */
export function isIssuerPath(config: Config, path: string): boolean {
  const wanted = path.replace(/\/+$/, '')
  return wanted === '' || wanted === new URL(issuerOf(config)!.issuer).pathname.replace(/\/+$/, '')
}

export async function publicKeys(config: Config) {
  return { keys: (await idTokenJwks(config)).map((key) => ({ ...key })) }
}
