import type { FastifyReply, FastifyRequest } from 'fastify'
import { accessOfPrincipal, accessOfRole, type Caller } from '../../../access/principal.ts'
import { publicRole } from '../../../access/roles.ts'
import { highestScope } from '../../../access/scopes.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import type { Logs } from '../../../adapters/logger.ts'
import { type VerifiedClaims, verifyToken } from '../../../adapters/tokens.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import { issuerOf, type ResourceName } from '../../../config/issuer.ts'
import type { Clock } from '../../../db/clock.ts'
import type { UnloggedWrites } from '../../../db/sql.ts'
import { extendSession, touchApiKey, touchSession } from '../../../db/unlogged/sessions.ts'
import type { CredentialFault } from '../../../errors.ts'
import { oncePer } from '../../../language/once.ts'
import { withGrants } from '../../../query/access.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { findApiKey, readsLikeApiKey } from '../proofs/proofs.ts'
import { afterwards } from './afterwards.ts'
import { cookieNamesOf, dropSessionCookie, refuseForgedWrite, tokenOfCookies } from './browser.ts'
import type { AuthWrites } from './capabilities.ts'
import type { Session, Sessions } from './session-store.ts'

/**
 * The caller of a request. An Authorization header decides wherever there is one: the user of the live session or API key
 * that it names, or why it opens nothing, which no route answers like the public role. Else the session cookie: its
 * user; a dead one is dropped, and its caller is the public role like any other without a credential.
 *
 * At once where memory knows it, which is most of the time. Throws 503 when the database can't tell, 403 when a
 * cookie's write comes from another site.
 */
export function resolveCaller(
  rt: AuthWrites,
  request: FastifyRequest,
  reply: FastifyReply,
): Caller | CredentialFault | Promise<Caller | CredentialFault> {
  const { authorization = '', cookie } = request.headers
  const {
    ignoresSession = false,
    ownAuthorization = false,
    takesTokenInQuery = false,
    resource = 'api',
  } = request.routeOptions.config ?? {}
  // An empty one is how some clients say that they have none.
  if (authorization !== '' && !ownAuthorization) {
    const found = callerOfHeader(rt, authorization, resource)
    return ignoresSession ? forgotten(rt, found) : found
  }
  const inQuery = takesTokenInQuery ? (request.query as { access_token?: unknown }).access_token : undefined
  if (inQuery !== undefined && inQuery !== '') return callerOfCredential(rt, String(inQuery), resource)
  if (cookie === undefined) return publicCaller(rt)
  const token = tokenOfCookies(cookieNamesOf(rt), cookie)
  if (token === undefined) return publicCaller(rt)
  const visit = { rt, request, reply, ignoresSession }
  const session = liveSession(rt, token)
  return session instanceof Promise ? session.then((found) => byCookie(visit, found)) : byCookie(visit, session)
}

type PendingCaller = CallerResult | Promise<CallerResult>

function callerOfHeader(rt: AuthWrites, authorization: string, resource: ResourceName): PendingCaller {
  const token = bearerOf(authorization)
  return token === undefined ? 'INVALID_TOKEN' : callerOfCredential(rt, token, resource)
}

function callerOfCredential(rt: AuthWrites, token: string, resource: ResourceName): PendingCaller {
  if (readsLikeApiKey(token)) return callerOfKey(rt, token).then((found) => found?.caller ?? 'INVALID_API_KEY')
  const session = liveSession(rt, token, resource)
  return session instanceof Promise ? session.then((found) => admitted(rt, found)) : admitted(rt, session)
}

/** What an Authorization header of the scheme Bearer holds. */
export function bearerOf(authorization: string): string | undefined {
  return /^bearer +(\S+) *$/i.exec(authorization)?.[1]
}

type CallerResult = Caller | CredentialFault

/** On routes where nobody is anybody a bad header is refused all the same. */
function forgotten(rt: CurrentAccess & CurrentCatalog & CurrentSettings, found: PendingCaller): PendingCaller {
  if (found instanceof Promise) return found.then((settled) => forgotten(rt, settled))
  return typeof found === 'string' ? found : publicCaller(rt)
}

type Authentication = {
  readonly rt: AuthWrites
  readonly request: FastifyRequest
  readonly reply: FastifyReply
  readonly ignoresSession: boolean
}

function byCookie(
  { rt, request, reply, ignoresSession }: Authentication,
  session: LiveSession,
): Caller | Promise<Caller> {
  // A program's token is none of a browser's.
  const isOwn = typeof session !== 'string' && session.client === null
  request.sessionCookie = isOwn ? 'live' : 'dead'
  if (!isOwn) {
    dropSessionCookie(rt, reply)
    return publicCaller(rt)
  }
  if (ignoresSession) return publicCaller(rt)
  refuseForgedWrite(rt.config, request)
  const caller = admitted(rt, session) as Caller | Promise<Caller>
  return caller instanceof Promise ? caller.then(withCookie) : withCookie(caller)
}

/** The same caller, known to have come with the cookie, which scripts of the origin can use, too. */
function withCookie(caller: Caller): Caller {
  return remembered(caller, () => ({
    ...caller,
    access: { ...caller.access, byCookie: true },
    ...(caller.preview && { preview: { owner: withCookie(caller.preview.owner) } }),
  }))
}

function admitted(rt: AuthWrites, session: LiveSession): CallerResult | Promise<Caller> {
  if (typeof session === 'string') return session
  if (session.idle) afterwards(rt, 'noting the use of a session', () => touchSession(rt, session.id))
  const caller = callerOf(rt, session)
  return session.extendable ? extend(rt, session).then(() => caller) : caller
}

type LiveSession = Session | CredentialFault

/** The live session that an access token names, or why there is none. */
function liveSession(
  rt: Clock & Configuration & Sessions,
  token: string,
  resource: ResourceName = 'api',
): LiveSession | Promise<LiveSession> {
  const claims = verifyToken(rt.config, token, rt.clock())
  if (claims === undefined) return 'INVALID_TOKEN'
  const known = rt.sessions.recall(claims.sessionToken)
  if (known !== undefined) return ownSession(rt, claims, known, resource)
  return rt.sessions.find(claims.sessionToken).then((session) => ownSession(rt, claims, session, resource))
}

/** A program's session opens nothing by a token that does not say for whom it was made, and nothing but what it was made for. */
function ownSession(
  { config }: Configuration,
  claims: VerifiedClaims,
  session: Session | undefined,
  resource: ResourceName,
): LiveSession {
  if (session?.userId !== claims.userId) return 'SESSION_ENDED'
  const { delegation } = claims
  if ((delegation === undefined) !== (session.client === null)) return 'INVALID_TOKEN'
  if (delegation === undefined) return session
  const identifier = issuerOf(config)?.resources[resource]
  if (identifier === undefined || !delegation.audience.includes(identifier)) return 'WRONG_AUDIENCE'
  return delegated(session)(claims)
}

/** The session as a token has it, made once for each. */
const delegated = oncePer((session: Session) =>
  oncePer(({ delegation }: VerifiedClaims): Session => ({ ...session, delegation })),
)

/** The caller, and in how many milliseconds to ask again: nothing is notified of a session that merely expires. */
export type FoundCaller = { readonly caller: Caller; readonly endsInMs: number }

/** The user of a token or API key, for channels other than HTTP requests, or why it opens nothing. 503 as above. */
export async function callerOfToken(rt: AuthWrites, token: string): Promise<FoundCaller | CredentialFault> {
  if (readsLikeApiKey(token)) return (await callerOfKey(rt, token)) ?? 'INVALID_API_KEY'
  const session = await liveSession(rt, token)
  if (typeof session === 'string') return session
  const claims = verifyToken(rt.config, token, rt.clock())
  if (claims === undefined) return 'INVALID_TOKEN'
  const endsInMs = Math.min(session.endsAt - performance.now(), claims.expiresAt.getTime() - rt.clock().getTime())
  return { caller: callerOf(rt, session), endsInMs }
}

/** The caller without a session: the role `public`. */
export function publicCaller(rt: CurrentAccess & CurrentCatalog & CurrentSettings): Caller {
  const rules = rt.access.current()
  return remembered(rules, () => {
    const access = accessOfRole(rt, rules, rules.publicRole, undefined)
    const nobody = { userId: undefined, tenantId: undefined, sessionId: undefined, keyId: undefined, user: undefined }
    return { ...nobody, role: rules.publicRole, admin: access.admin, access }
  })
}

function callerOf(rt: CurrentAccess & CurrentCatalog & CurrentSettings, session: Session): Caller {
  return remembered(session, () => {
    const { id: sessionId, role, userId, tenantId, user, delegation, client } = session
    const own = accessOfPrincipal(rt, session)
    const caller = { sessionId, keyId: undefined, role, userId, tenantId, user, admin: own.admin }
    if (delegation === undefined || client === null) return previewed(rt, session, { ...caller, access: own })
    const access = { ...own, byKey: true, scope: highestScope(delegation.scopes) }
    return { ...caller, access, client: { ...delegation, name: client } }
  })
}

/** The caller whose view the session shows, or its owner. */
function previewed(rt: CurrentAccess & CurrentCatalog & CurrentSettings, { preview }: Session, owner: Caller): Caller {
  if (preview === undefined) return owner
  const { of } = preview
  const limits = { isPreview: true, scope: 'read' } as const
  if (of === undefined || of.role.name === publicRole) {
    const nobody = publicCaller(rt)
    // Nobody at all, not even the public, where there is nothing to look at any more.
    const access = of === undefined ? withGrants(nobody.access, () => undefined, { admin: false }) : nobody.access
    return { ...nobody, sessionId: owner.sessionId, access: { ...access, ...limits }, preview: { owner } }
  }
  const { role, userId, tenantId, user } = of
  const access = { ...accessOfPrincipal(rt, of), ...limits }
  const seen = { sessionId: owner.sessionId, keyId: undefined, role, userId, tenantId, user, admin: access.admin }
  return { ...seen, access, preview: { owner } }
}

async function callerOfKey(rt: AuthWrites, text: string): Promise<FoundCaller | undefined> {
  const found = await findApiKey(rt, text)
  if (found === undefined) return undefined
  const { keyId, idle, endsInMs, role, userId, tenantId, user } = found
  if (idle) afterwards(rt, 'noting the use of an API key', () => touchApiKey(rt, keyId))
  const access = { ...accessOfPrincipal(rt, found), byKey: true }
  const caller = { sessionId: undefined, keyId, role, userId, tenantId, user, admin: access.admin, access }
  return { caller, endsInMs }
}

const callers = new WeakMap<object, Caller>()

/** One caller per session, or per version of the rules for the public role. */
function remembered(key: object, make: () => Caller): Caller {
  const caller = callers.get(key) ?? make()
  callers.set(key, caller)
  return caller
}

/** Failing to extend is no reason to refuse: the session is live, and the next request tries again. */
async function extend(rt: UnloggedWrites & Configuration & Logs, { id }: Session): Promise<void> {
  try {
    await extendSession(rt, id, rt.config.auth.accessTokenExpiresIn)
  } catch (error) {
    rt.log.warn({ err: error }, 'a session could not be extended')
  }
}
