import type { FastifyRequest } from 'fastify'
import { type VerifiedClaims, verifyToken } from '../../adapters/tokens.ts'
import type { Collection } from '../../catalog/catalog.ts'
import { extendSession, touchApiKey, touchSession } from '../../db/unlogged/sessions.ts'
import { oncePer } from '../../once-per.ts'
import type { Access, VariableName } from '../../query/access.ts'
import type { Runtime } from '../../runtime.ts'
import { findApiKey } from '../api-keys/find-key.ts'
import { readsLikeApiKey } from '../api-keys/format.ts'
import { accessOf } from '../permissions/permissions.ts'
import type { AccessRules, Role } from '../permissions/store.ts'
import type { SettingsRow } from '../settings/store.ts'
import { afterwards } from './afterwards.ts'
import type { Caller } from './caller.ts'
import { tokenOfCookies } from './cookie.ts'
import { refuseForgedWrite } from './origins.ts'
import type { Standing } from './session-row.ts'
import type { Session } from './session-store.ts'

/**
 * Who makes a request: the user of the live session that its bearer token names, or its cookie where there is no
 * bearer token, or of its API key; the public role when the token is missing, malformed, expired or its session has ended. Routes that
 * need a session refuse the public role themselves.
 *
 * At once where memory knows it, which is most of the time. Throws 503 when the database can't tell, 403 when a
 * cookie's write comes from another site.
 */
export function resolveCaller(rt: Runtime, request: FastifyRequest): Caller | Promise<Caller> {
  if (request.routeOptions.config?.ignoresSession === true) return publicCaller(rt)
  const credential = credentialOf(request)
  if (credential === undefined) return publicCaller(rt)
  const { token, from } = credential
  if (from === 'header' && readsLikeApiKey(token))
    return callerOfKey(rt, token).then((found) => found?.caller ?? publicCaller(rt))
  const claims = verifyToken(rt.config, token, rt.clock())
  if (claims === undefined) return publicCaller(rt)
  const known = rt.sessions.recall(claims.sessionToken)
  const admit = (session: Session | undefined) => callerBy(rt, request, { from, claims, session })
  return known !== undefined ? admit(known) : rt.sessions.find(claims.sessionToken).then(admit)
}

type Presented = { from: Credential['from']; claims: VerifiedClaims; session: Session | undefined }

function callerBy(
  rt: Runtime,
  request: FastifyRequest,
  { from, claims, session }: Presented,
): Caller | Promise<Caller> {
  if (session?.userId !== claims.userId) return publicCaller(rt)
  if (from === 'cookie') refuseForgedWrite(rt.config, request)
  if (session.idle) afterwards(rt, 'noting the use of a session', () => touchSession(rt, session.id))
  const caller = callerOf(rt, session)
  return session.extendable ? extend(rt, session).then(() => caller) : caller
}

/** Who calls, and in how many milliseconds to ask again: nothing is notified of a session that merely expires. */
export type FoundCaller = { readonly caller: Caller; readonly endsInMs: number }

/** The user of a token or API key, for channels other than HTTP requests; undefined when it opens nothing. 503 as above. */
export async function callerOfToken(rt: Runtime, token: string): Promise<FoundCaller | undefined> {
  if (readsLikeApiKey(token)) return callerOfKey(rt, token)
  const found = await sessionOf(rt, token)
  if (found === undefined) return undefined
  const { session, claims } = found
  const endsInMs = Math.min(session.endsAt - performance.now(), claims.expiresAt.getTime() - rt.clock().getTime())
  return { caller: callerOf(rt, session), endsInMs }
}

/** The caller without a session: the role `public`. */
export function publicCaller(rt: Runtime): Caller {
  const rules = rt.access.current()
  return remembered(rules, () => {
    const access = accessOfRole(rt, rules, rules.publicRole, undefined)
    const nobody = { userId: undefined, tenantId: undefined, sessionId: undefined, keyId: undefined, user: undefined }
    return { ...nobody, role: rules.publicRole, admin: access.admin, access }
  })
}

/** What a user may do somewhere, with a session there. */
export function accessOfStanding(rt: Runtime, standing: Standing): Access {
  const { rules, related, role, userId, tenantId, user, tenant, userRole } = standing
  const rows = { CURRENT_USER: user, CURRENT_ROLE: role, CURRENT_TENANT: tenant, CURRENT_USERROLE: userRole }
  return accessOf(rules, { role, userId, tenantId, rows: withSettings(rt, tenantId, rows), related })
}

/** What anybody in a role may do of whom no more is known. */
export function accessOfRole(rt: Runtime, rules: AccessRules, role: Role, tenantId: string | undefined): Access {
  const rows = withSettings(rt, tenantId, { CURRENT_ROLE: role })
  return accessOf(rules, { role, userId: undefined, tenantId, rows, related: new Map() })
}

type Credential = { readonly token: string; readonly from: 'header' | 'cookie' }

/** A bearer header decides, even a broken one; tokens in bodies and query strings are never looked at (quality A-29). */
function credentialOf({ headers }: FastifyRequest): Credential | undefined {
  const [, bearer] = /^bearer +(\S+) *$/i.exec(headers.authorization ?? '') ?? []
  if (bearer !== undefined) return { token: bearer, from: 'header' }
  if (/^bearer\b/i.test(headers.authorization ?? '')) return undefined
  const token = tokenOfCookies(headers.cookie)
  return token === undefined ? undefined : { token, from: 'cookie' }
}

async function sessionOf(
  rt: Runtime,
  token: string,
): Promise<{ session: Session; claims: VerifiedClaims } | undefined> {
  const claims = verifyToken(rt.config, token, rt.clock())
  if (claims === undefined) return undefined
  const session = await rt.sessions.find(claims.sessionToken)
  return session?.userId === claims.userId ? { session, claims } : undefined
}

function callerOf(rt: Runtime, session: Session): Caller {
  return remembered(session, () => {
    const { id: sessionId, role, userId, tenantId, user } = session
    const access = accessOfStanding(rt, session)
    return { sessionId, keyId: undefined, role, userId, tenantId, user, admin: access.admin, access }
  })
}

async function callerOfKey(rt: Runtime, text: string): Promise<FoundCaller | undefined> {
  const standing = await findApiKey(rt, text)
  if (standing === undefined) return undefined
  const { keyId, idle, endsInMs, role, userId, tenantId, user } = standing
  if (idle) afterwards(rt, 'noting the use of an API key', () => touchApiKey(rt, keyId))
  const access = { ...accessOfStanding(rt, standing), byKey: true }
  const caller = { sessionId: undefined, keyId, role, userId, tenantId, user, admin: access.admin, access }
  return { caller, endsInMs }
}

type Rows = Partial<Record<VariableName, Readonly<Record<string, unknown>> | undefined>>

/** Settings are looked up when a rule asks for them: a caller may be remembered for longer than they stand. */
function withSettings(rt: Runtime, tenantId: string | undefined, rows: Rows) {
  const given = Object.fromEntries(Object.entries(rows).filter(([, row]) => row !== undefined))
  return Object.defineProperty(given, 'CURRENT_SETTINGS', {
    enumerable: true,
    get: () => visibleSettings(rt, tenantId),
  }) as Record<VariableName, Readonly<Record<string, unknown>>>
}

function visibleSettings(rt: Runtime, tenantId: string | undefined): Readonly<Record<string, unknown>> {
  return visibleBy(rt.catalog.current().collections.get('svc_Settings')!)(rt.settings.current(tenantId))
}

const visibleBy = oncePer(({ fields }: Collection) =>
  oncePer((settings: SettingsRow): Readonly<Record<string, unknown>> => {
    const visible = Object.entries(settings).filter(([name]) => fields.get(name)?.hidden === false)
    return Object.fromEntries(visible)
  }),
)

const callers = new WeakMap<object, Caller>()

/** One caller per session, or per version of the rules for the public role. */
function remembered(key: object, make: () => Caller): Caller {
  const caller = callers.get(key) ?? make()
  callers.set(key, caller)
  return caller
}

/** Failing to extend is no reason to refuse: the session is live, and the next request tries again. */
async function extend(rt: Runtime, { id }: Session): Promise<void> {
  try {
    await extendSession(rt, id, rt.config.auth.accessTokenExpiresIn)
  } catch (error) {
    rt.log.warn({ err: error }, 'a session could not be extended')
  }
}
