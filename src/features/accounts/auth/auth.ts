/**
 * Accounts, sessions and the ways to sign in: the face of this slice for other slices and the API. Only `routes.ts`
 * uses the functions behind requests under `/auth`.
 */

import { createHmac, randomBytes } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { publicRole } from '../../../access/access.ts'
import {
  accessOfPrincipal,
  accessOfRole,
  type Caller,
  type PrincipalRow,
  principalOf,
  principalSql,
} from '../../../access/principal.ts'
import { highestScope } from '../../../access/scopes.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import { openBoundedMemory } from '../../../adapters/bounded-memory.ts'
import type { Logs } from '../../../adapters/logger.ts'
import { inTurn, verifyPassword } from '../../../adapters/passwords.ts'
import { type VerifiedClaims, verifyToken } from '../../../adapters/tokens.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import { type CurrentCatalog, withFreshPlan } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import { issuerOf, type ResourceName } from '../../../config/issuer.ts'
import type { Clock } from '../../../db/clock.ts'
import { withoutWaiting } from '../../../db/pools.ts'
import type { UnloggedWrites } from '../../../db/sql.ts'
import { beginUse, extendSession, touchApiKey, touchSession } from '../../../db/unlogged/sessions.ts'
import { AppError, type CredentialFault } from '../../../errors.ts'
import { commit } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { oncePer } from '../../../language/once.ts'
import { withGrants } from '../../../query/access.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { findApiKey, readsLikeApiKey } from '../api-keys/api-keys.ts'
import { hasSecondFactor } from '../proofs/proofs.ts'
import { cookieNamesOf, dropSessionCookie, refuseForgedWrite, tokenOfCookies } from './browser.ts'
import { type AuthWrites, afterwards } from './capabilities.ts'
import { decidePassword } from './decisions.ts'
import { findAccount } from './queries.ts'
import { repeatedRenewal } from './renewals.ts'
import type { Session, Sessions } from './session-store.ts'
import { emailOf } from './shapes.ts'
import { checkLocal, membershipOf } from './sign-in.ts'

export {
  cookieNamesOf,
  deliver,
  deliveryTo,
  dropSessionCookie,
  isTrustedOrigin,
  personBody,
  prepare,
  refuseForeignPage,
  roleAndPermissions,
  setSessionCookie,
  signInMode,
  tenantBody,
  tokenOfCookies,
} from './browser.ts'
export { type AuthWrites, afterwards } from './capabilities.ts'
export { queueVerification } from './credentials.ts'
export { decideAcceptance, sessionOver, signInRefusal } from './decisions.ts'
export {
  endAccess,
  holdsProof,
  lockCaller,
  type ProvenAccount,
  proveOwnership,
  requireFreshProof,
} from './ownership.ts'
export {
  type Account,
  accountOf,
  findAccount,
  lockAccount,
  type Membership,
  membershipsOf,
  type Person,
} from './queries.ts'
export { checkRegisteredRole, registeredRole } from './register.ts'
export { openSessionStore, type Sessions, type SessionType } from './session-store.ts'
export { deleteOldSessions, endSession, moveSession } from './sessions.ts'
export {
  type AuthMode,
  authRoute,
  authRoutes,
  checkNewPassword,
  defaultLink,
  emailOf,
  Link,
  Proof,
  ProofBody,
  type ProofInput,
  SignedInShape,
  SignIn,
  TokenParams,
  trustedLink,
  trustedReturn,
} from './shapes.ts'
export {
  checkMaySignIn,
  type FirstFactor,
  invitationOf,
  login,
  membershipOf,
  type PendingSignIn,
  placeOf,
  requestMagicLink,
  type SignInAnswer,
  signIn,
  signInAtOnce,
  signInByMagicLink,
  signingIn,
} from './sign-in.ts'

/**
 * The caller of a request. An Authorization header decides wherever there is one: the user of the live session or API key
 * that it names, or why it opens nothing, which no route answers like the public role. Else, where a route takes one, the
 * access token of the query, if it is of a user's own session. Else the session cookie: its user; a dead one is dropped, and its caller is the public role like any other without a credential.
 *
 * At once where memory knows it, which is most of the time. Throws 503 when the database can't tell, 403 when a
 * cookie's write comes from another site.
 */
export function resolveCaller(
  deps: AuthWrites,
  request: FastifyRequest,
  reply: FastifyReply,
): Caller | CredentialFault | Promise<Caller | CredentialFault> {
  if (request.routeOptions.config?.takesRepetitions) return callerOfRenewal(deps, request, reply)
  return callerOfCredentials(deps, request, reply)
}

function callerOfCredentials(deps: AuthWrites, request: FastifyRequest, reply: FastifyReply): PendingCaller {
  const { authorization = '', cookie } = request.headers
  const {
    ignoresSession = false,
    ownAuthorization = false,
    takesTokenInQuery = false,
    resource = 'api',
  } = request.routeOptions.config ?? {}
  // An empty one is how some clients say that they have none.
  if (authorization !== '' && !ownAuthorization) {
    const found = callerOfHeader(deps, authorization, resource)
    return ignoresSession ? forgotten(deps, found) : found
  }
  const inQuery = takesTokenInQuery ? (request.query as { access_token?: unknown }).access_token : undefined
  if (inQuery !== undefined && inQuery !== '') return callerOfQuery(deps, String(inQuery))
  if (cookie === undefined) return publicCaller(deps)
  const token = tokenOfCookies(cookieNamesOf(deps), cookie)
  if (token === undefined) return publicCaller(deps)
  const visit = { deps, request, reply, ignoresSession }
  const session = liveSession(deps, token)
  return session instanceof Promise ? session.then((found) => byCookie(visit, found)) : byCookie(visit, session)
}

/** As of any other request; where its session has been replaced, and that may be repeated, the caller of the new one. */
async function callerOfRenewal(deps: AuthWrites, request: FastifyRequest, reply: FastifyReply): Promise<CallerResult> {
  const { authorization = '', cookie } = request.headers
  const isByCookie = authorization === ''
  const token = isByCookie ? tokenOfCookies(cookieNamesOf(deps), cookie) : bearerOf(authorization)
  const claims = token === undefined ? undefined : verifyToken(deps.config, token, deps.clock())
  request.sessionToken = claims?.sessionToken
  const hasEnded = claims !== undefined && (await liveSession(deps, token!)) === 'SESSION_ENDED'
  const repeated = hasEnded ? await repeatedRenewal(deps, claims) : undefined
  if (repeated === undefined) return callerOfCredentials(deps, request, reply)
  request.renewed = repeated.renewed
  const caller = callerOf(deps, repeated.session)
  if (!isByCookie) return caller
  request.sessionCookie = 'live'
  refuseForgedWrite(deps.config, request)
  return withCookie(caller)
}

type PendingCaller = CallerResult | Promise<CallerResult>

function callerOfHeader(deps: AuthWrites, authorization: string, resource: ResourceName): PendingCaller {
  const token = bearerOf(authorization)
  return token === undefined ? 'INVALID_TOKEN' : callerOfCredential(deps, token, resource)
}

function callerOfCredential(deps: AuthWrites, token: string, resource: ResourceName): PendingCaller {
  if (readsLikeApiKey(token)) return callerOfKey(deps, token).then((found) => found?.caller ?? 'INVALID_API_KEY')
  const session = liveSession(deps, token, resource)
  return session instanceof Promise ? session.then((found) => admitted(deps, found)) : admitted(deps, session)
}

/** Addresses end up in logs and histories, so they take no credential that outlives the user's own session. */
function callerOfQuery(deps: AuthWrites, token: string): PendingCaller {
  if (readsLikeApiKey(token)) return 'HEADER_ONLY'
  const admit = (found: LiveSession) =>
    typeof found !== 'string' && found.client !== null ? 'HEADER_ONLY' : admitted(deps, found)
  const session = liveSession(deps, token)
  return session instanceof Promise ? session.then(admit) : admit(session)
}

/** The credential of an Authorization header with the scheme Bearer. */
export function bearerOf(authorization: string): string | undefined {
  return /^bearer +(\S+) *$/i.exec(authorization)?.[1]
}

type CallerResult = Caller | CredentialFault

/** Refuses a bad header also on routes that need no caller. */
function forgotten(deps: CurrentAccess & CurrentCatalog & CurrentSettings, found: PendingCaller): PendingCaller {
  if (found instanceof Promise) return found.then((settled) => forgotten(deps, settled))
  return typeof found === 'string' ? found : publicCaller(deps)
}

type Authentication = {
  readonly deps: AuthWrites
  readonly request: FastifyRequest
  readonly reply: FastifyReply
  readonly ignoresSession: boolean
}

function byCookie(
  { deps, request, reply, ignoresSession }: Authentication,
  session: LiveSession,
): Caller | Promise<Caller> {
  // A program's token is none of a browser's.
  const isOwn = typeof session !== 'string' && session.client === null
  request.sessionCookie = isOwn ? 'live' : 'dead'
  if (!isOwn) {
    dropSessionCookie(deps, reply)
    return publicCaller(deps)
  }
  if (ignoresSession) return publicCaller(deps)
  refuseForgedWrite(deps.config, request)
  const caller = admitted(deps, session) as Caller | Promise<Caller>
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

function admitted(deps: AuthWrites, session: LiveSession): CallerResult | Promise<Caller> {
  if (typeof session === 'string') return session
  if (session.idle) afterwards(deps, 'noting the use of a session', () => touchSession(deps, session))
  const caller = callerOf(deps, session)
  if (session.isUnused) return noteFirstUse(deps, session).then(() => caller)
  return session.extendable ? extend(deps, session).then(() => caller) : caller
}

type LiveSession = Session | CredentialFault

/** The live session that an access token names, or why there is none. */
function liveSession(
  deps: Clock & Configuration & Sessions,
  token: string,
  resource: ResourceName = 'api',
): LiveSession | Promise<LiveSession> {
  const claims = verifyToken(deps.config, token, deps.clock())
  if (claims === undefined) return 'INVALID_TOKEN'
  const known = deps.sessions.recall(claims.sessionToken)
  if (known !== undefined) return ownSession(deps, claims, known, resource)
  return deps.sessions.find(claims.sessionToken).then((session) => ownSession(deps, claims, session, resource))
}

/** A program's session opens nothing by a token that does not name its audience, and nothing but what it was made for. */
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
export async function callerOfToken(deps: AuthWrites, token: string): Promise<FoundCaller | CredentialFault> {
  if (readsLikeApiKey(token)) return (await callerOfKey(deps, token)) ?? 'INVALID_API_KEY'
  const session = await liveSession(deps, token)
  if (typeof session === 'string') return session
  if (session.isUnused) await noteFirstUse(deps, session)
  const claims = verifyToken(deps.config, token, deps.clock())
  if (claims === undefined) return 'INVALID_TOKEN'
  const endsInMs = Math.min(session.endsAt - performance.now(), claims.expiresAt.getTime() - deps.clock().getTime())
  return { caller: callerOf(deps, session), endsInMs }
}

/** The caller without a session: the role `public`. */
export function publicCaller(deps: CurrentAccess & CurrentCatalog & CurrentSettings): Caller {
  const rules = deps.access.current()
  return remembered(rules, () => {
    const access = accessOfRole(deps, rules, rules.publicRole, undefined)
    const nobody = { userId: undefined, tenantId: undefined, sessionId: undefined, keyId: undefined, user: undefined }
    return { ...nobody, role: rules.publicRole, admin: access.admin, access }
  })
}

function callerOf(deps: CurrentAccess & CurrentCatalog & CurrentSettings, session: Session): Caller {
  return remembered(session, () => {
    const { id: sessionId, role, userId, tenantId, user, delegation, client } = session
    const own = accessOfPrincipal(deps, session)
    const caller = { sessionId, keyId: undefined, role, userId, tenantId, user, admin: own.admin }
    if (delegation === undefined || client === null) return previewed(deps, session, { ...caller, access: own })
    const access = { ...own, byKey: true, scope: highestScope(delegation.scopes) }
    return { ...caller, access, client: { ...delegation, name: client } }
  })
}

/** The caller whose view the session shows, or its owner. */
function previewed(
  deps: CurrentAccess & CurrentCatalog & CurrentSettings,
  { preview }: Session,
  owner: Caller,
): Caller {
  if (preview === undefined) return owner
  const { of } = preview
  const limits = { isPreview: true, scope: 'read' } as const
  if (of === undefined || of.role.name === publicRole) {
    const nobody = publicCaller(deps)
    // No caller at all, not even the public, where nothing is left to look at.
    const access = of === undefined ? withGrants(nobody.access, () => undefined, { admin: false }) : nobody.access
    return { ...nobody, sessionId: owner.sessionId, access: { ...access, ...limits }, preview: { owner } }
  }
  const { role, userId, tenantId, user } = of
  const access = { ...accessOfPrincipal(deps, of), ...limits }
  const seen = { sessionId: owner.sessionId, keyId: undefined, role, userId, tenantId, user, admin: access.admin }
  return { ...seen, access, preview: { owner } }
}

async function callerOfKey(deps: AuthWrites, text: string): Promise<FoundCaller | undefined> {
  const found = await findApiKey(deps, text)
  if (found === undefined) return undefined
  const { keyId, idle, endsInMs, role, userId, tenantId, user } = found
  if (idle) afterwards(deps, 'noting the use of an API key', () => touchApiKey(deps, keyId))
  const access = { ...accessOfPrincipal(deps, found), byKey: true }
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

/** Before anything is answered: from then on the renewal that made the session cannot be repeated. A failure is as below. */
async function noteFirstUse(deps: UnloggedWrites & Logs, { id }: Session): Promise<void> {
  try {
    await beginUse(deps, id)
  } catch (error) {
    deps.log.warn({ err: error }, 'the first use of a session could not be noted')
  }
}

/** Failing to extend is no reason to refuse: the session is live, and the next request tries again. */
async function extend(deps: UnloggedWrites & Configuration & Logs, { id }: Session): Promise<void> {
  try {
    await extendSession(deps, id, deps.config.auth.accessTokenExpiresIn)
  } catch (error) {
    deps.log.warn({ err: error }, 'a session could not be extended')
  }
}

/*
 * E-mail address and password with every request, in `X-MCP-Email` and `X-MCP-Password`: for programs that can do nothing else.
 * There is no session. A password that was right is believed for half a minute, as long as it is still the account's.
 */

const believedMs = 30_000

type Held = { readonly email: string; readonly password: string }

/** A verified password: the account with the hash that its password had. */
type ProvenPassword = { readonly userId: string; readonly password: string; readonly userRoleId: string }

/** Keys are of this process: no other can tell the password of an entry. */
const key = randomBytes(32)
const believed = openBoundedMemory<ProvenPassword>({ maxBytes: 10_000, maxEntryBytes: 1, sizeOf: () => 1 })

/** The address and password that the headers of a request hold; undefined where there is none. */
export function passwordInHeaders({ headers, routeOptions }: FastifyRequest) {
  const { 'x-mcp-email': email, 'x-mcp-password': password } = headers
  if (routeOptions.config?.takesPasswordInHeaders !== true || headers.authorization) return undefined
  return typeof email === 'string' && typeof password === 'string' ? { email, password } : undefined
}

/** Whether the headers of a request hold a password that is yet to be verified, which makes it an attempt. */
export function isHeaderAttempt(request: FastifyRequest): boolean {
  const held = passwordInHeaders(request)
  return held !== undefined && !believed.has(entryOf(held))
}

/**
 * The user of the address and password in the headers, in the role that signing in would give; as little as an API key may do
 * to an account.
 *
 * @throws {AppError} 401 for a wrong password; 403 for an account that is not active, whose address is not verified, that has a
 *   second factor or no role, and where signing in by password is off
 */
export async function callerOfPassword(deps: AuthWrites, request: FastifyRequest, held: Held): Promise<Caller> {
  checkLocal(deps)
  const entry = entryOf(held)
  const known = believed.get(entry) ?? (await verify(deps, request, held))
  const row = await principalRow(deps, known)
  if (row === undefined) {
    believed.delete(entry)
    throw wrong()
  }
  const principal = await principalOf(deps.reserved, deps.access.current(), deps.config.tenancy.enabled, row, deps.log)
  const access = { ...accessOfPrincipal(deps, principal), byKey: true }
  const { role, userId, tenantId, user } = principal
  return { sessionId: undefined, keyId: undefined, role, userId, tenantId, user, admin: access.admin, access }
}

async function verify(deps: AuthWrites, request: FastifyRequest, held: Held): Promise<ProvenPassword> {
  const { account, matches } = await inTurn(async () => {
    const account = await findAccount(withoutWaiting(deps), emailOf(held.email))
    return {
      account,
      matches: await verifyPassword(held.password, account?.password, deps.config.auth.passwordHashCost),
    }
  })
  const decided = decidePassword(account, matches, { requireEmailVerification: true })
  if (decided.refusal !== undefined) {
    const { events } = decided
    const record = () => commit(deps, actorOf(request), async () => ({ result: undefined, events }))
    if (events.length > 0) afterwards(deps, 'recording a failed login', record)
    throw decided.refusal.status === 400 ? wrong() : decided.refusal
  }
  const { id: userId, password } = decided.account
  if (await hasSecondFactor(withoutWaiting(deps), userId))
    throw new AppError(403, 'This account has a second factor: sign in and send the token, or use an API key', {
      code: 'TWO_FACTOR_REQUIRED',
    })
  const { userRoleId } = await membershipOf(deps, withoutWaiting(deps), userId, undefined)
  const known = { userId, password: password!, userRoleId }
  believed.set(entryOf(held), known, believedMs)
  return known
}

/** Undefined where something of what was verified no longer holds. */
async function principalRow(deps: AuthWrites, known: ProvenPassword): Promise<PrincipalRow | undefined> {
  return withFreshPlan(deps.catalog, async () => {
    const values = [known.userId, known.password, known.userRoleId]
    const [row] = await deps.reserved.runQuick<PrincipalRow>(holderSql(deps.catalog.current()), values)
    return row
  })
}

const holderSql = oncePer(
  (catalog: Catalog) => `
    select u.id as "userId", ur."tenant_Id" as "tenantId", ${principalSql(catalog)}
    from "svc_User" u
    join "svc_UserRole" ur on ur.id = $3 and ur."user_Id" = u.id
    join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = ur."tenant_Id"
    where u.id = $1 and u.password = $2 and u.status = 'active' and u."emailVerified"
      and not exists (select from "svc_TwoFactor" f where f."user_Id" = u.id and f.enabled)`,
)

const entryOf = ({ email, password }: Held): string =>
  createHmac('sha256', key)
    .update(JSON.stringify([email, password]))
    .digest('base64url')

const wrong = () => new AppError(401, 'Incorrect e-mail address or password', { code: 'INVALID_CREDENTIALS' })
