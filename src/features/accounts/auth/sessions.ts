import type { FastifyRequest } from 'fastify'
import { administratorRole } from '../../../access/access.ts'
import { identified, signedIn } from '../../../access/principal.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import type { Logs } from '../../../adapters/logger.ts'
import { hashSecret, newSecret, signToken } from '../../../adapters/tokens.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { type Reads, type ReservedReads, withoutWaiting } from '../../../db/pools.ts'
import type { Tx, UnloggedWrites } from '../../../db/sql.ts'
import {
  deleteExpiredSessions,
  deleteSession,
  deleteSessionsOf,
  insertSession,
  replaceSession,
  type SessionOrigin,
  type SessionRequest,
  takeSession,
  touchLastAccess,
} from '../../../db/unlogged/sessions.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { isUuid } from '../../../language/text.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { roleAndPermissions } from './browser.ts'
import { type AuthReads, type AuthWrites, afterwards } from './capabilities.ts'
import {
  decideMove,
  decideRefresh,
  endingOf,
  type RenewedSession,
  sessionLimit,
  sessionOver,
  sessionRefusal,
  unknownUser,
} from './decisions.ts'
import { countSessionsOf, liveSessionsOf, lockSessionsOf, readOwnRow, userExists } from './queries.ts'
import { findSuccessor, successorsOf } from './renewals.ts'
import type { SessionType } from './session-store.ts'

/**
 * Opens a session in the transaction of whatever signs its user in. The access token, or undefined when the account
 * was suspended or got another password meanwhile. 403 over the limit of the session's type.
 */
export async function openSession(
  deps: AuthReads,
  tx: Tx,
  request: FastifyRequest,
  wanted: SessionRequest,
): Promise<string | undefined> {
  await checkSessionLimit(deps, tx, wanted)
  return openUnlimited(deps, tx, request, wanted)
}

async function openUnlimited(
  deps: Clock & Configuration,
  tx: Tx,
  request: FastifyRequest,
  wanted: SessionRequest,
): Promise<string | undefined> {
  const sessionToken = newSecret()
  const opened = await insertSession(tx, { ...wanted, ...originOf(deps, request, sessionToken) })
  if (opened === undefined) return undefined
  const { userId, roleId, tenantId } = wanted
  const claims = { userId, roleId, tenantId: tenantId ?? undefined, userRoleId: opened.userRoleId ?? undefined }
  return signToken(deps.config, { ...claims, sessionToken }, deps.clock())
}

/**
 * Replaces the caller's session by a new one and gives its token. Simultaneous calls get tokens of one new session, and so do
 * those that ask again for an answer which may have been lost.
 */
export async function refreshSession(deps: Writes & Clock, request: FastifyRequest): Promise<string> {
  const { userId, role, tenantId } = signedIn(request.caller)
  const { userRoleId, sessionToken } = request.renewed ?? (await replaceOwn(deps, request))
  const claims = { userId, roleId: role.id, tenantId, userRoleId: userRoleId ?? undefined, sessionToken }
  return signToken(deps.config, claims, deps.clock())
}

function replaceOwn(
  deps: Writes,
  request: FastifyRequest,
): Promise<Pick<RenewedSession, 'sessionToken' | 'userRoleId'>> {
  const { sessionId, userId, role } = signedIn(request.caller)
  const { config } = deps
  const former = request.sessionToken
  const sessionToken = former === undefined ? newSecret() : successorsOf(config, former)[0]
  return commit(deps, actorOf(request), async (tx) => {
    const opened = await replaceSession(tx, sessionId, role.id, originOf(deps, request, sessionToken))
    const isLate = opened === undefined && former !== undefined
    const other = isLate ? await findSuccessor(tx, config, former) : undefined
    const { session: result, events } = decideRefresh(userId, opened && { ...opened, sessionToken }, other)
    return { result, events }
  })
}

/**
 * Replaces the caller's session by one at another tenant, in the transaction that lets it go there: the
 * access token; 401 for all but one of simultaneous calls.
 */
export async function moveSession(
  deps: AuthReads,
  tx: Tx,
  request: FastifyRequest,
  { roleId, tenantId, type }: { roleId: string; tenantId: string; type: SessionType | undefined },
): Promise<string> {
  const { sessionId, userId } = signedIn(request.caller)
  const old = await takeSession(tx, sessionId)
  const { isLimited, ...session } = decideMove(old, type)
  const open = isLimited ? openSession : openUnlimited
  const token = await open(deps, tx, request, { userId, roleId, tenantId, passwordHash: undefined, ...session })
  if (token === undefined) throw sessionOver()
  return token
}

/** Ends the caller's session; when this resolves, no process takes the token any more. */
export async function endSession(deps: Writes, request: FastifyRequest): Promise<void> {
  const { sessionId, userId } = signedIn(request.caller)
  await commit(deps, actorOf(request), async (tx) => {
    const ended = await deleteSession(tx, sessionId)
    return { result: undefined, events: ended ? [{ type: 'auth.logout', data: { userId } }] : [] }
  })
}

function originOf({ config }: Configuration, request: FastifyRequest, sessionToken: string): SessionOrigin {
  return {
    tokenHash: hashSecret(sessionToken),
    seconds: config.auth.accessTokenExpiresIn,
    ip: request.ip,
    userAgent: request.headers['user-agent']?.slice(0, 512) ?? null,
  }
}

type LimitedSession = {
  readonly userId: string
  readonly roleId: string
  readonly tenantId: string | null
  readonly type: SessionType
}

/**
 * Refuses (403) a session over the limit of its type. The user's other sign-ins wait until this transaction has ended,
 * so any number at the same time gets no more sessions than one after the other. Sessions without a type
 * and administrators have no limit. If a limit cannot be looked up, the sign-in fails: its failure is the transaction's.
 */
async function checkSessionLimit(deps: CurrentAccess & CurrentSettings, tx: Tx, wanted: LimitedSession): Promise<void> {
  const { userId, roleId, tenantId, type } = wanted
  if (type === 'default' || deps.access.current().roles.get(roleId)?.name === administratorRole) return
  const user = await lockSessionsOf(tx, userId)
  const settings = deps.settings.current(tenantId ?? undefined).session_limits
  const limit = sessionLimit({ user, settings }, roleId, type)
  const live = limit > 0 ? await countSessionsOf(tx, userId, type) : 0
  const refusal = sessionRefusal(limit, type, live)
  if (refusal !== undefined) throw refusal
}

/** The live sessions of a user, the newest first; `current` is the caller's own. */
export async function listSessions(
  deps: Reads & ReservedReads & CurrentCatalog,
  request: FastifyRequest,
  userId: string,
) {
  const sessions = await liveSessionsOf(withoutWaiting(deps), deps.catalog.current(), userId)
  return { sessions: sessions.map((session) => ({ ...session, current: session.id === request.caller.sessionId })) }
}

/** As above, for administrators. 404 when there is no such user. */
export async function listSessionsOf(
  deps: Reads & ReservedReads & CurrentCatalog,
  request: FastifyRequest,
  userId: string,
) {
  await checkUser(deps, userId)
  return listSessions(deps, request, userId)
}

/**
 * Ends one live session of a user, wherever it was opened; the caller's own is a logout. True when it was the caller's.
 *
 * @throws {AppError} 404 when the user has no such session: of those of others nothing is told
 */
export async function endSessionOf(
  deps: Writes,
  request: FastifyRequest,
  userId: string,
  sessionId: string,
): Promise<boolean> {
  const ended = isUuid(sessionId) ? await endSessions(deps, request, userId, sessionId) : []
  if (ended.length === 0) throw new AppError(404, 'Session not found')
  return ended.includes(request.caller.sessionId ?? '')
}

/** Ends all live sessions of a user; gives how many. 404 when there is no such user. */
export async function endAllSessionsOf(deps: Reads & Writes, request: FastifyRequest, userId: string): Promise<number> {
  await checkUser(deps, userId)
  return (await endSessions(deps, request, userId)).length
}

async function endSessions(
  deps: Writes,
  request: FastifyRequest,
  userId: string,
  sessionId?: string,
): Promise<readonly string[]> {
  const { sessionId: current } = signedIn(request.caller)
  return commit(deps, actorOf(request), async (tx) => {
    const result = await deleteSessionsOf(tx, userId, sessionId)
    return { result, events: result.map((id) => endingOf(userId, id, current)) }
  })
}

async function checkUser(deps: Reads & ReservedReads, userId: string): Promise<void> {
  if (!isUuid(userId) || !(await userExists(withoutWaiting(deps), userId))) throw unknownUser()
}

/**
 * The caller's own row, role and permissions; notes that the user was here. Needs read permission on svc_User. The row is read anew, so that a caller sees what it has just changed.
 */
export async function me(deps: AuthWrites, request: FastifyRequest) {
  const { userId, role, tenantId, admin, access } = identified(request.caller)
  const noteAccess = () => {
    if (request.caller.preview === undefined)
      afterwards(deps, 'noting the last access', () => touchLastAccess(deps, userId))
  }
  if (!admin && access.grant('svc_User', 'read') === undefined) {
    noteAccess()
    throw errors.actionDenied('read', 'svc_User')
  }
  const own = await readOwnRow(withoutWaiting(deps), deps.catalog.current(), userId)
  if (own === undefined) throw unknownUser()
  if (own.idle) noteAccess()
  return { user: { ...own.user }, ...roleAndPermissions(deps, role), tenant: tenantId ?? null }
}

/** As many as are notified one by one: more at once would make every process look at all of its sessions. */
const batchSize = 50

/** Deletes the rows of expired sessions, unless DISABLE_SESSION_CLEANUP. Stops between two batches. */
export async function deleteOldSessions(
  deps: UnloggedWrites & Configuration & Logs,
  signal: AbortSignal,
): Promise<void> {
  if (deps.config.auth.disableSessionCleanup) return
  let deleted = 0
  for (let count = batchSize; count === batchSize; deleted += count) {
    signal.throwIfAborted()
    count = await deleteExpiredSessions(deps, batchSize)
  }
  if (deleted > 0) deps.log.info({ deleted }, 'expired sessions were deleted')
}
