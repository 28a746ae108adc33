import type { FastifyRequest } from 'fastify'
import { hashSecret, newSecret, signToken } from '../../adapters/tokens.ts'
import type { Tx } from '../../db/sql.ts'
import {
  deleteSession,
  insertSession,
  replaceSession,
  type SessionOrigin,
  type SessionRequest,
  takeSession,
} from '../../db/unlogged/sessions.ts'
import { errors } from '../../errors.ts'
import { commit } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { signedIn } from '../permissions/permissions.ts'
import { checkSessionLimit } from './session-limits.ts'
import type { SessionType } from './session-store.ts'

/**
 * Opens a session in the transaction of whatever signs its user in. The access token, or undefined when the account
 * was suspended or got another password meanwhile. 403 over the limit of the session's type.
 */
export async function openSession(
  rt: Runtime,
  tx: Tx,
  request: FastifyRequest,
  wanted: SessionRequest,
): Promise<string | undefined> {
  await checkSessionLimit(rt, tx, wanted)
  return openUnlimited(rt, tx, request, wanted)
}

async function openUnlimited(
  rt: Runtime,
  tx: Tx,
  request: FastifyRequest,
  wanted: SessionRequest,
): Promise<string | undefined> {
  const sessionToken = newSecret()
  const opened = await insertSession(tx, { ...wanted, ...originOf(rt, request, sessionToken) })
  if (opened === undefined) return undefined
  const { userId, roleId, tenantId } = wanted
  const claims = { userId, roleId, tenantId: tenantId ?? undefined, userRoleId: opened.userRoleId ?? undefined }
  return signToken(rt.config, { ...claims, sessionToken }, rt.clock())
}

/** Replaces the caller's session by a new one and gives its token; 401 for all but one of simultaneous calls. */
export async function refreshSession(rt: Runtime, request: FastifyRequest): Promise<string> {
  const { sessionId, userId, role, tenantId } = signedIn(request.caller)
  const sessionToken = newSecret()
  const { userRoleId } = await commit(rt, actorOf(request), async (tx) => {
    const replaced = await replaceSession(tx, sessionId, role.id, originOf(rt, request, sessionToken))
    if (replaced === undefined) throw errors.unauthorized('Invalid or expired token')
    return { result: replaced, events: [{ type: 'auth.refresh', data: { userId } }] }
  })
  const claims = { userId, roleId: role.id, tenantId, userRoleId: userRoleId ?? undefined, sessionToken }
  return signToken(rt.config, claims, rt.clock())
}

/**
 * Replaces the caller's session by one at another tenant, in the transaction that lets it go there (decisions F21). The
 * access token; 401 for all but one of simultaneous calls. Its type is the old one's unless another is asked for, and
 * only then the limit of the type counts: a session that was there before is none too many.
 */
export async function moveSession(
  rt: Runtime,
  tx: Tx,
  request: FastifyRequest,
  { roleId, tenantId, type }: { roleId: string; tenantId: string; type: SessionType | undefined },
): Promise<string> {
  const { sessionId, userId } = signedIn(request.caller)
  const old = await takeSession(tx, sessionId)
  if (old === undefined) throw errors.unauthorized('Invalid or expired token')
  const wanted = { userId, roleId, tenantId, passwordHash: undefined }
  const token =
    type === undefined
      ? await openUnlimited(rt, tx, request, { ...wanted, type: old.type })
      : await openSession(rt, tx, request, { ...wanted, type })
  if (token === undefined) throw errors.unauthorized('Invalid or expired token')
  return token
}

/** Ends the caller's session; when this resolves, no process takes the token any more. */
export async function endSession(rt: Runtime, request: FastifyRequest): Promise<void> {
  const { sessionId, userId } = signedIn(request.caller)
  await commit(rt, actorOf(request), async (tx) => {
    const ended = await deleteSession(tx, sessionId)
    return { result: undefined, events: ended ? [{ type: 'auth.logout', data: { userId } }] : [] }
  })
}

function originOf(rt: Runtime, request: FastifyRequest, sessionToken: string): SessionOrigin {
  return {
    tokenHash: hashSecret(sessionToken),
    seconds: rt.config.auth.accessTokenExpiresIn,
    ip: request.ip,
    userAgent: request.headers['user-agent']?.slice(0, 512) ?? null,
  }
}
