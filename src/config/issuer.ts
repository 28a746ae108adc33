import { withoutLastSlashes } from '../language/text.ts'
import type { Config } from './config.ts'

/** The audiences of access tokens: the API, or its MCP endpoint. */
export type ResourceName = 'api' | 'mcp'

/** The identifiers of the OAuth server (RFC 8414) and of what it gives access to (RFC 8707). */
type Issuer = {
  readonly issuer: string
  /** Without `mcp` where there is no such endpoint. */
  readonly resources: Readonly<Partial<Record<ResourceName, string>>> & { readonly api: string }
}

/**
 * The identifiers of this installation. They come from BASE_URL; without it, outside production and listening on loopback,
 * from PORT. Nothing that a request says has a part in them. Undefined where OAuth is off: OAUTH_SERVER_ENABLED is false, or
 * there is no address that a token could be safe for.
 */
export function issuerOf({ server, mcp, oauthServer }: Config): Issuer | undefined {
  const issuer = oauthServer.enabled ? addressOf(server) : undefined
  if (issuer === undefined) return undefined
  return { issuer, resources: { api: issuer, ...(mcp.enabled && { mcp: issuer + mcp.path }) } }
}

/** Which resource a client means: its identifier, with or without a slash at the end, `localhost` being 127.0.0.1. */
export function resourceNamed(config: Config, text: string): ResourceName | undefined {
  const { resources } = issuerOf(config) ?? {}
  const names = Object.keys(resources ?? {}) as ResourceName[]
  const meant = comparable(text)
  return meant === undefined ? undefined : names.find((name) => comparable(resources![name]!) === meant)
}

/** Where the metadata of a resource is (RFC 9728); undefined where there is none. */
export function resourceMetadataUrl(config: Config, resource: ResourceName): string | undefined {
  const { issuer, resources } = issuerOf(config) ?? {}
  const identifier = resources?.[resource]
  return identifier && `${issuer}/.well-known/oauth-protected-resource${identifier.slice(issuer!.length)}`
}

function addressOf({ baseUrl, host, port, environment }: Config['server']): string | undefined {
  if (baseUrl === undefined) {
    const isLocal = environment !== 'production' && isLoopback(host) && port !== 0
    return isLocal ? `http://127.0.0.1:${port}` : undefined
  }
  const url = URL.parse(baseUrl)
  if (url === null || url.username !== '' || url.search !== '' || url.hash !== '') return undefined
  const isSafe =
    url.protocol === 'https:' ||
    (url.protocol === 'http:' && (environment !== 'production' || isLoopback(url.hostname)))
  return isSafe ? withoutLastSlashes(url.href) : undefined
}

/** Whether a host, as an address has it, is this machine. */
export const isLoopback = (host: string): boolean =>
  /^(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\]|::1)$/i.test(host)

function comparable(text: string): string | undefined {
  const url = URL.parse(text)
  if (url === null || url.search !== '' || url.hash !== '' || url.username !== '' || url.password !== '')
    return undefined
  if (url.hostname === 'localhost') url.hostname = '127.0.0.1'
  return withoutLastSlashes(url.href)
}
