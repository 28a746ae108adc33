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
 * neither ours nor trusted, whatever its body is, and one of which nothing says where it comes from. Clients that are no
 * browser send the token in the Authorization header.
 */
export function refuseForgedWrite(config: Config, request: FastifyRequest): void {
  if (!safeMethods.has(request.method) && !fromTrustedPage(config, request)) throw crossSite()
}

/**
 * The same for a GET that changes something: pages of other sites can lead a browser to it, or show it as an image. An
 * address that the user has typed, and a client that says nothing of pages, may.
 */
export function refuseForeignVisit(config: Config, request: FastifyRequest): void {
  const { origin, 'sec-fetch-site': site = 'none' } = request.headers
  if ((origin !== undefined || site !== 'none') && !fromTrustedPage(config, request)) throw crossSite()
}

/**
 * Refuses (403) a sign-in that another site's page or mail starts: it would sign its victim in as somebody else. A
 * navigation or an image has no Origin, but browsers say `Sec-Fetch-Site`; whoever says neither is no browser.
 */
export function refuseForeignPage(config: Config, request: FastifyRequest): void {
  const { origin, 'sec-fetch-site': site } = request.headers
  if ((origin !== undefined || site !== undefined) && !fromTrustedPage(config, request)) throw crossSite()
}

const safeMethods = new Set(['GET', 'HEAD', 'OPTIONS'])

function fromTrustedPage(config: Config, request: FastifyRequest): boolean {
  const { origin } = request.headers
  if (request.headers['sec-fetch-site'] === 'same-origin') return true
  return origin !== undefined && (origin === `${request.protocol}://${request.host}` || isTrustedOrigin(config, origin))
}

const crossSite = () => new AppError(403, 'Cross-site request refused', { code: 'CROSS_SITE_REQUEST' })

function withoutPort(origin: string): string {
  const { protocol, hostname } = new URL(origin)
  return `${protocol}//${hostname}`
}
