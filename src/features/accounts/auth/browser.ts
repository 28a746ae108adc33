import { createHash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { CurrentAccess, Role } from '../../../access/store.ts'
import type { Config, Configuration } from '../../../config/config.ts'
import { AppError } from '../../../errors.ts'
import type { App } from '../../../http/http.ts'
import { oncePer } from '../../../language/once.ts'
import type { Person } from './queries.ts'
import type { AuthMode } from './shapes.ts'

type TenantFields = Readonly<Record<string, unknown>>

/** The members of every answer about a signed-in user, beside the user. */
export function roleAndPermissions({ access }: CurrentAccess, role: Role) {
  const rows = access.current().permissions.get(role.id) ?? []
  return { role: roleBody(role), permissions: [...rows] }
}

/** Exactly these members, whatever else the row holds. */
export function personBody({ id, email, firstName, lastName }: Person): Person {
  return { id, email, firstName, lastName }
}

/** A null where multi-tenancy is not used. */
export function tenantBody({ config }: Configuration, tenant: TenantFields | null): Record<string, unknown> | null {
  return config.tenancy.enabled && tenant !== null ? { ...tenant } : null
}

/**
 * Hands the token over: in the body, or as a cookie and then not in the body . A browser that came with a
 * session cookie gets the next token as its cookie whatever it asks for: its scripts must not get hold of what the cookie
 * keeps from them. Without a token, when something else is asked for first, the body is the whole answer.
 */
export function deliver<Body extends object>(...of: [...TokenDelivery, token: string, body: Body]): SignInBody<Body>
export function deliver<Body extends object>(
  ...of: [...TokenDelivery, token: string | undefined, body: Body]
): Body | SignInBody<Body>
export function deliver<Body extends object>(
  ...[deps, reply, authMode, token, body]: [...TokenDelivery, token: string | undefined, body: Body]
): Body | SignInBody<Body> {
  if (token === undefined) return body
  const mode = deliveryTo(reply.request, authMode)
  if (mode === 'jwt') return { ...body, token, authMode: mode }
  setSessionCookie(deps, reply, token)
  return { message: 'Authentication successful', ...body, authMode: mode }
}

/** How this client gets a token, whatever it has asked for. */
export function deliveryTo({ sessionCookie }: FastifyRequest, asked: AuthMode): AuthMode {
  return sessionCookie === 'live' ? 'cookie' : asked
}

/** No answer may be kept by a cache. */
export function prepare(app: App): void {
  app.addHook('onSend', async (_request, reply) => {
    reply.header('cache-control', 'no-store')
  })
}

/** How the caller gets its token; 403 where another site's page would sign it in. */
export function signInMode({ config }: Configuration, request: FastifyRequest, asked: AuthMode = 'jwt'): AuthMode {
  const authMode = deliveryTo(request, asked)
  if (authMode === 'cookie') refuseForeignPage(config, request)
  return authMode
}

type TokenDelivery = [deps: Configuration & CurrentAccess, reply: FastifyReply, authMode: AuthMode]
type SignInBody<Body> = Body & { readonly authMode: AuthMode; readonly token?: string; readonly message?: string }

function roleBody(role: Role) {
  const { id, name, description, isTenantSpecific, canInviteRoleIds } = role
  return { id, name, description, isTenantSpecific, canInviteRoleIds, app_access: role.app_access ?? null }
}

/**
 * The names of an installation's session cookie. Browsers send cookies to every port of a host, so installations side
 * by side must not share a name: each would end the sessions of the other. Browsers take the `host` name only over
 * HTTPS, for the whole host and for no other one, so it is used wherever the configuration allows; both are read.
 */
type CookieNames = { readonly plain: string; readonly host: string }

/** The names for an installation that is known by this text. */
export function cookieNames(installation: string): CookieNames {
  const mark = createHash('sha256').update(`session cookie of ${installation}`).digest('hex').slice(0, 8)
  return { plain: `token_${mark}`, host: `__Host-token_${mark}` }
}

/** The session cookie of cookie mode, as text for `Set-Cookie`. */
export function sessionCookie(config: Config, names: CookieNames, token: string): string {
  return cookieText(config, nameInForce(config, names), token, config.auth.accessTokenExpiresIn)
}

/** The header that makes a browser drop the session cookie. */
export function clearedSessionCookie(config: Config, names: CookieNames): string {
  return cookieText(config, nameInForce(config, names), '', 0)
}

/** The token in a request's Cookie header; undefined when there is none. */
export function tokenOfCookies(names: CookieNames, header: string | undefined): string | undefined {
  if (header === undefined) return undefined
  const cookies = cookiesOf(header)
  return findCookie(cookies, names.host) ?? findCookie(cookies, names.plain)
}

/** The names of this installation. Its role `public` is made with it and never again, so its id tells installations apart. */
export function cookieNamesOf({ access }: CurrentAccess): CookieNames {
  return namesByRole(access.current().publicRole)
}

/** Hands a token to the browser, in the place of whatever the answer said of the cookie before. */
export function setSessionCookie(deps: Configuration & CurrentAccess, reply: FastifyReply, token: string): void {
  answerCookies(deps, reply, [sessionCookie(deps.config, cookieNamesOf(deps), token)])
}

/** Makes the browser drop its session cookie; the one of the other name too, where that is the one it has sent. */
export function dropSessionCookie(deps: Configuration & CurrentAccess, reply: FastifyReply): void {
  const names = cookieNamesOf(deps)
  const sent = cookiesOf(reply.request.headers.cookie ?? '')
  const inForce = nameInForce(deps.config, names)
  const others = [names.host, names.plain].filter((name) => name !== inForce && findCookie(sent, name) !== undefined)
  const dropped = others.map((name) => cookieText(deps.config, name, '', 0))
  answerCookies(deps, reply, [...dropped, clearedSessionCookie(deps.config, names)])
}

const cookiesOf = (header: string): string[] => header.split(';').map((pair) => pair.trim())

/** The value of a cookie that has one. */
function findCookie(cookies: readonly string[], name: string): string | undefined {
  const found = cookies.find((pair) => pair.startsWith(`${name}=`))
  return found === undefined || found.length === name.length + 1 ? undefined : found.slice(name.length + 1)
}

const namesByRole = oncePer(({ id }: { readonly id: string }) => cookieNames(id))

/** Other cookies of the answer stay. */
function answerCookies(deps: CurrentAccess, reply: FastifyReply, cookies: readonly string[]): void {
  const { plain, host } = cookieNamesOf(deps)
  const before = [reply.getHeader('set-cookie') ?? []].flat().map(String)
  const kept = before.filter((cookie) => !cookie.startsWith(`${plain}=`) && !cookie.startsWith(`${host}=`))
  reply.removeHeader('set-cookie')
  for (const cookie of [...kept, ...cookies]) reply.header('set-cookie', cookie)
}

function nameInForce({ cookie: { domain, path, secure } }: Config, names: CookieNames): string {
  return secure && path === '/' && domain === undefined ? names.host : names.plain
}

function cookieText({ cookie }: Config, name: string, value: string, maxAge: number): string {
  const { domain, path, secure, httpOnly, sameSite } = cookie
  // Browsers take it with exactly these attributes.
  const host = name.startsWith('__Host-')
  const attributes = [
    `${name}=${value}`,
    `Path=${host ? '/' : path}`,
    `Max-Age=${maxAge}`,
    ...(domain === undefined || host ? [] : [`Domain=${domain}`]),
    ...(httpOnly ? ['HttpOnly'] : []),
    ...(secure || host ? ['Secure'] : []),
    `SameSite=${sameSite.charAt(0).toUpperCase()}${sameSite.slice(1)}`,
  ]
  return attributes.join('; ')
}

/**
 * Whether a browser page of this origin may call the API with its user's cookies: the origins of AUTH_APP_URL and
 * AUTH_CORS_ALLOWED_ORIGINS, with AUTH_CORS_ALLOW_ANY_PORT any port of the same scheme and host.
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
  const { referer, 'sec-fetch-site': site = 'none' } = request.headers
  // Older browsers say where a visit comes from by the Referer alone.
  const origin = request.headers.origin ?? (referer === undefined ? undefined : originOf(referer))
  if ((origin !== undefined || site !== 'none') && !fromTrustedPage(config, request, origin)) throw crossSite()
}

/** For a text that is no address, an origin that is never trusted. */
const originOf = (address: string): string => (URL.canParse(address) ? new URL(address).origin : 'null')

/**
 * Refuses (403) a sign-in that another site's page or mail starts: it would sign its victim in as another user. A
 * navigation or an image has no Origin, but browsers say `Sec-Fetch-Site`; a client that says neither is no browser.
 */
export function refuseForeignPage(config: Config, request: FastifyRequest): void {
  const { origin, 'sec-fetch-site': site } = request.headers
  if ((origin !== undefined || site !== undefined) && !fromTrustedPage(config, request)) throw crossSite()
}

const safeMethods = new Set(['GET', 'HEAD', 'OPTIONS'])

function fromTrustedPage(config: Config, request: FastifyRequest, origin = request.headers.origin): boolean {
  if (request.headers['sec-fetch-site'] === 'same-origin') return true
  return origin !== undefined && (origin === `${request.protocol}://${request.host}` || isTrustedOrigin(config, origin))
}

const crossSite = () => new AppError(403, 'Cross-site request refused', { code: 'CROSS_SITE_REQUEST' })

function withoutPort(origin: string): string {
  const { protocol, hostname } = new URL(origin)
  return `${protocol}//${hostname}`
}
