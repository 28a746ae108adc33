import type { FastifyRequest } from 'fastify'
import { deleteSessionsOf } from '../../db/unlogged/sessions.ts'
import { withoutWaiting } from '../../db/without-waiting.ts'
import { AppError } from '../../errors.ts'
import { commit } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { isUuid } from '../../uuid.ts'
import { signedIn } from '../permissions/permissions.ts'
import { liveSessionsOf, userExists } from './queries.ts'

/** The live sessions of a user, the newest first; `current` is the caller's own. */
export async function listSessions(rt: Runtime, request: FastifyRequest, userId: string) {
  const sessions = await liveSessionsOf(withoutWaiting(rt), rt.catalog.current(), userId)
  return { sessions: sessions.map((session) => ({ ...session, current: session.id === request.caller.sessionId })) }
}

/** As above, for administrators. 404 when there is no such user. */
export async function listSessionsOf(rt: Runtime, request: FastifyRequest, userId: string) {
  await checkUser(rt, userId)
  return listSessions(rt, request, userId)
}

/**
 * Ends one live session of a user, wherever it was opened; the caller's own is a logout. True when it was the caller's.
 *
 * @throws {AppError} 404 when the user has no such session: of those of others nothing is told
 */
export async function endSessionOf(
  rt: Runtime,
  request: FastifyRequest,
  userId: string,
  sessionId: string,
): Promise<boolean> {
  const ended = isUuid(sessionId) ? await endSessions(rt, request, userId, sessionId) : []
  if (ended.length === 0) throw new AppError(404, 'Session not found')
  return ended.includes(request.caller.sessionId ?? '')
}

/** Ends all live sessions of a user; gives how many. 404 when there is no such user. */
export async function endAllSessionsOf(rt: Runtime, request: FastifyRequest, userId: string): Promise<number> {
  await checkUser(rt, userId)
  return (await endSessions(rt, request, userId)).length
}

async function endSessions(
  rt: Runtime,
  request: FastifyRequest,
  userId: string,
  sessionId?: string,
): Promise<readonly string[]> {
  const { sessionId: current } = signedIn(request.caller)
  return commit(rt, actorOf(request), async (tx) => {
    const result = await deleteSessionsOf(tx, userId, sessionId)
    return { result, events: result.map((id) => eventOf(userId, id, id === current)) }
  })
}

function eventOf(userId: string, sessionId: string, isOwn: boolean) {
  return isOwn
    ? ({ type: 'auth.logout', data: { userId } } as const)
    : ({ type: 'auth.session_ended', data: { userId, sessionId } } as const)
}

async function checkUser(rt: Runtime, userId: string): Promise<void> {
  if (!isUuid(userId) || !(await userExists(withoutWaiting(rt), userId))) throw new AppError(404, 'User not found')
}
