import type { FastifyReply, FastifyRequest } from 'fastify'
import type { TSchema } from 'typebox'
import { turnAwayFromHash } from '../../adapters/passwords.ts'
import { type App, turnOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { afterwardsDone } from './afterwards.ts'
import { deliver, deliveryTo } from './answers.ts'
import { dropSessionCookie } from './cookie.ts'
import { requestEmailChange } from './email-change.ts'
import { type AuthMode, authModeOf, membersOf } from './input.ts'
import { login } from './login.ts'
import { requestMagicLink, signInByMagicLink } from './magic-link.ts'
import { me } from './me.ts'
import { refuseForeignPage, refuseForeignVisit } from './origins.ts'
import { endAllSessionsOf, endSessionOf, listSessions, listSessionsOf } from './own-sessions.ts'
import { changeOwnPassword, changePasswordOf } from './password-change.ts'
import { requestPasswordReset, resetPassword } from './password-reset.ts'
import { register } from './register.ts'
import {
  CheckShape,
  EndedShape,
  MeShape,
  MessageShape,
  RefreshedShape,
  RegisteredShape,
  SessionsShape,
  SignedInShape,
} from './schema.ts'
import { endSession, identified, refreshSession, signedIn } from './sessions.ts'
import { resendVerification, verifyEmail } from './verification.ts'

/** Answers 200 by the shape; bodies are small here. */
export const answers = <Shape extends TSchema>(shape: Shape) => ({
  schema: { response: { 200: shape } },
  bodyLimit: 16_384,
})

/** As above. Scanners look at mailed links with HEAD: that must not use a token up (quality, facts). */
const opened = <Shape extends TSchema>(shape: Shape) => ({ ...answers(shape), exposeHeadRoute: false })

/** As above, for what hashes a password of anybody: a flood of them is refused before a body or an account is read. */
const hashed = <Shape extends TSchema>(shape: Shape) => ({
  ...answers(shape),
  onRequest: async (request: FastifyRequest) => turnAwayFromHash(turnOf(request)),
})

/**
 * `/auth` for everybody. They emit auth.register, auth.login, auth.login_failed, auth.2fa_challenged, auth.magic_link_*,
 * auth.password_reset*, auth.email_verified, auth.email_changed, auth.unverified_credentials_dropped and mail.queued.
 */
export function authPublicRoutes(app: App, rt: Runtime): void {
  prepare(app)
  app.addHook('onClose', () => afterwardsDone(rt))

  app.post('/auth/register', hashed(RegisteredShape), async (request, reply) => {
    const authMode = signInMode(rt, request)
    const { token, body } = await register(rt, request)
    return deliver(rt, reply, authMode, token, body)
  })
  app.post('/auth/login', hashed(SignedInShape), async (request, reply) => {
    const authMode = signInMode(rt, request)
    const { token, body } = await login(rt, request)
    return deliver(rt, reply, authMode, token, body)
  })
  app.post('/auth/magiclink', answers(MessageShape), (request) => requestMagicLink(rt, request))
  app.get<{ Params: { token: string } }>('/auth/magiclink/:token', opened(SignedInShape), async (request, reply) => {
    const authMode = signInMode(rt, request, request.query)
    const { token, body } = await signInByMagicLink(rt, request, request.params.token)
    return deliver(rt, reply, authMode, token, body)
  })
  app.post('/auth/password/reset', answers(MessageShape), (request) => requestPasswordReset(rt, request))
  app.post<{ Params: { token: string } }>('/auth/password/reset/:token', answers(MessageShape), (request) =>
    resetPassword(rt, request, request.params.token),
  )
  app.post('/auth/email/verify/resend', answers(MessageShape), (request) => resendVerification(rt, request))
  app.get<{ Params: { token: string } }>('/auth/email/verify/:token', opened(MessageShape), async (request) => {
    await verifyEmail(rt, request, request.params.token)
    return { message: 'Email verified successfully' }
  })
}

/** `/auth` for callers with a session or an API key: who am I. */
export function authSelfRoutes(app: App, rt: Runtime): void {
  prepare(app)

  app.get('/auth/me', answers(MeShape), (request) => me(rt, request))
  app.get('/auth/check', answers(CheckShape), async (request) => ({
    valid: true,
    user: { id: identified(request.caller).userId },
  }))
}

/**
 * `/auth` for callers with a session. They emit auth.refresh, auth.logout, auth.session_ended, auth.password_change*,
 * auth.email_change_* and mail.queued.
 */
export function authBearerRoutes(app: App, rt: Runtime): void {
  prepare(app)

  app.post('/auth/refresh', answers(RefreshedShape), async (request, reply) => {
    const authMode = signInMode(rt, request)
    const token = await refreshSession(rt, request)
    return deliver(rt, reply, authMode, token, { expiresIn: rt.config.auth.accessTokenExpiresIn })
  })
  app.get('/auth/sessions', answers(SessionsShape), (request) =>
    listSessions(rt, request, signedIn(request.caller).userId),
  )
  app.delete<OfSession>('/auth/sessions/:sessionId', answers(MessageShape), async (request, reply) => {
    const { userId } = signedIn(request.caller)
    const wasOwn = await endSessionOf(rt, request, userId, request.params.sessionId)
    if (wasOwn) dropSessionCookie(rt, reply)
    return { message: 'Session ended successfully' }
  })
  app.post('/auth/email/change', answers(MessageShape), (request) => requestEmailChange(rt, request))
  app.post('/auth/password/change', answers(MessageShape), (request) => changeOwnPassword(rt, request))
  // Both spellings of existing clients (decisions E).
  for (const path of ['/auth/admin/password/change', '/auth/admin/change-password'])
    app.post(path, answers(MessageShape), (request) => changePasswordOf(rt, request))
  // The legacy alias of resend for signed-in callers.
  app.post('/auth/email/verify', answers(MessageShape), (request) => resendVerification(rt, request))
}

/** The end of a session, or of a cookie that has outlived its own. They emit auth.logout. */
export function authLeavingRoutes(app: App, rt: Runtime): void {
  prepare(app)

  const logout = async (request: FastifyRequest, reply: FastifyReply) => {
    if (request.sessionCookie === 'live') refuseForeignVisit(rt.config, request)
    if (request.sessionCookie !== 'dead') await endSession(rt, request)
    dropSessionCookie(rt, reply)
    return { message: 'Logged out successfully' }
  }
  app.get('/auth/logout', { ...answers(MessageShape), exposeHeadRoute: false }, logout)
  app.post('/auth/logout', answers(MessageShape), logout)
}

/** Sessions of any user, for administrators. They emit auth.session_ended. */
export function authAdminRoutes(app: App, rt: Runtime): void {
  prepare(app)

  app.get<OfUser>('/auth/admin/users/:userId/sessions', answers(SessionsShape), (request) =>
    listSessionsOf(rt, request, request.params.userId),
  )
  app.delete<OfUser>('/auth/admin/users/:userId/sessions', answers(EndedShape), async (request) => {
    const ended = await endAllSessionsOf(rt, request, request.params.userId)
    return { message: 'Sessions ended successfully', ended }
  })
  app.delete<OfUser & OfSession>(
    '/auth/admin/users/:userId/sessions/:sessionId',
    answers(MessageShape),
    async (request) => {
      await endSessionOf(rt, request, request.params.userId, request.params.sessionId)
      return { message: 'Session ended successfully' }
    },
  )
}

type OfUser = { Params: { userId: string } }
type OfSession = { Params: { sessionId: string } }

/** Bodies are JSON only (a form of another site can't send that), and no answer may be kept by a cache. */
export function prepare(app: App): void {
  app.removeContentTypeParser('text/plain')
  app.addHook('onSend', async (_request, reply) => {
    reply.header('cache-control', 'no-store')
  })
}

export function modeOf(members: unknown): AuthMode {
  return authModeOf(membersOf(members).authMode)
}

/** How the caller gets its token; 400 for a mode that there is not, 403 where another site's page would sign it in. */
export function signInMode(rt: Runtime, request: FastifyRequest, members: unknown = request.body): AuthMode {
  const authMode = deliveryTo(request, modeOf(members))
  if (authMode === 'cookie') refuseForeignPage(rt.config, request)
  return authMode
}
