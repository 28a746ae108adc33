import type { FastifyRequest } from 'fastify'
import type { Config } from '../../config.ts'
import { AppError } from '../../errors.ts'

/**
 * Whether a browser page of this origin may call the API with its user's cookies: the origins of AUTH_APP_URL and
 * AUTH_CORS_ALLOWED_ORIGINS, with AUTH_CORS_ALLOW_ANY_PORT any port of the same scheme and host (decisions A21).
 */
export function isTrustedOrigin({ auth, cors }: Config, origin: string): boolean {
  if (!URL.canParse(origin) || new URL(origin).origin !== origin) return false
  const trusted = [...cors.allowedOrigins, ...auth.appUrls.map((url) => new URL(url).origin)]
  return trusted.some((other) => other === origin || (cors.allowAnyPort && withoutPort(other) === withoutPort(origin)))
}

/**
 * Refuses (403) what a page of another site could make a browser send with its user's cookies: a write whose origin is
 * neither ours nor trusted, or whose body is no JSON (a form needs no permission of ours to be sent). Whoever is no
 * browser sends the token in the Authorization header.
 */
export function refuseForgedWrite(config: Config, request: FastifyRequest): void {
  if (safeMethods.has(request.method)) return
  if (!fromTrustedPage(config, request)) throw new AppError(403, 'Cross-site request refused')
  if (hasBody(request) && !isJson(request)) throw new AppError(403, 'Cross-site request refused')
}

/**
 * Refuses (403) a sign-in that another site's page or mail starts: it would sign its victim in as somebody else. A
 * navigation or an image has no Origin, but browsers say `Sec-Fetch-Site`; whoever says neither is no browser.
 */
export function refuseForeignPage(config: Config, request: FastifyRequest): void {
  const { origin, 'sec-fetch-site': site } = request.headers
  if ((origin !== undefined || site !== undefined) && !fromTrustedPage(config, request))
    throw new AppError(403, 'Cross-site request refused')
}

const safeMethods = new Set(['GET', 'HEAD', 'OPTIONS'])

function fromTrustedPage(config: Config, request: FastifyRequest): boolean {
  const { origin } = request.headers
  if (request.headers['sec-fetch-site'] === 'same-origin') return true
  return origin !== undefined && (origin === `${request.protocol}://${request.host}` || isTrustedOrigin(config, origin))
}

function hasBody({ headers }: FastifyRequest): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}

function isJson({ headers }: FastifyRequest): boolean {
  return /^application\/json\s*(;|$)/i.test(headers['content-type'] ?? '')
}

function withoutPort(origin: string): string {
  const { protocol, hostname } = new URL(origin)
  return `${protocol}//${hostname}`
}
