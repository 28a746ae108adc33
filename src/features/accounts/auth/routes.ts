import type { FastifyReply, FastifyRequest } from 'fastify'
import { identified, signedIn } from '../../../access/principal.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import { turnAwayFromHash } from '../../../adapters/passwords.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import type { Writes } from '../../../events/commit.ts'
import { type App, turnOf } from '../../../http/http.ts'
import type { Declaration } from '../../../http/route.ts'
import { Said, Text } from '../../../http/shapes.ts'
import { deliver, dropSessionCookie, prepare, refuseForeignVisit, signInMode } from './browser.ts'
import { type AuthWrites, afterwardsDone } from './capabilities.ts'
import {
  changeOwnPassword,
  changePasswordOf,
  checkMayChangePasswords,
  requestEmailChange,
  requestPasswordReset,
  resendVerification,
  resetPassword,
  verifyEmail,
} from './credentials.ts'
import { register, requireOpen } from './register.ts'
import {
  endAllSessionsOf,
  endSession,
  endSessionOf,
  listSessions,
  listSessionsOf,
  me,
  refreshSession,
} from './sessions.ts'
import {
  AuthModeBody,
  authRoute,
  CheckShape,
  EmailChangeBody,
  EndedShape,
  FirstSignInBody,
  LinkBody,
  LoginBody,
  MagicLinkQuery,
  MeShape,
  PasswordChangeBody,
  PasswordOfBody,
  RefreshedShape,
  RegisterBody,
  RegisteredShape,
  ResendBody,
  ResetBody,
  ResetQuery,
  SessionsShape,
  SignedInShape,
  TokenParams,
} from './shapes.ts'
import { checkLocal, firstSignIn, login, requestMagicLink, signInByMagicLink } from './sign-in.ts'

/** Scanners look at mailed links with HEAD: that must not use a token up. */
const opened = <const D extends Declaration>(declaration: D) => authRoute(declaration, { exposeHeadRoute: false })

/** For what hashes a password of anybody: a flood of them is refused before a body or an account is read. */
const hashed = <const D extends Declaration>(declaration: D) =>
  authRoute(declaration, { onRequest: async (request: FastifyRequest) => turnAwayFromHash(turnOf(request)) })

/**
 * `/auth` for everybody. They emit auth.register, auth.login, auth.login_failed, auth.2fa_challenged, auth.magic_link_*,
 * auth.password_reset*, auth.email_verified, auth.email_changed, auth.unverified_credentials_dropped and mail.queued.
 */
export function authPublicRoutes(app: App, deps: AuthWrites): void {
  prepare(app)
  app.addHook('onClose', () => afterwardsDone(deps))
  const local = { preValidation: async () => checkLocal(deps) }

  // Where registration is closed, nothing of the body matters but an invitation.
  const open = {
    preValidation: async ({ body }: FastifyRequest) => {
      checkLocal(deps)
      requireOpen(deps, body)
    },
  }
  app.post('/auth/register', { ...registerRoute, ...open }, async (request, reply) => {
    const authMode = signInMode(deps, request, request.body.authMode)
    const { token, body } = await register(deps, request, request.body)
    return deliver(deps, reply, authMode, token, body)
  })
  app.post('/auth/login', { ...loginRoute, ...local }, async (request, reply) => {
    const authMode = signInMode(deps, request, request.body.authMode)
    const { token, body } = await login(deps, request, request.body)
    return deliver(deps, reply, authMode, token, body)
  })
  app.post('/auth/first-sign-in', { ...firstSignInRoute, ...local }, async (request, reply) => {
    const authMode = signInMode(deps, request, request.body.authMode)
    const { token, body } = await firstSignIn(deps, request, request.body)
    return deliver(deps, reply, authMode, token, body)
  })
  app.post('/auth/magiclink', { ...magicLinkRoute, ...local }, (request) =>
    requestMagicLink(deps, request, request.body),
  )
  app.get('/auth/magiclink/:token', { ...openMagicLinkRoute, ...local }, async (request, reply) => {
    const authMode = signInMode(deps, request, request.query.authMode)
    const { token, body } = await signInByMagicLink(deps, request, request.params.token, request.query)
    return deliver(deps, reply, authMode, token, body)
  })
  app.post('/auth/password/reset', { ...askResetRoute, ...local }, (request) =>
    requestPasswordReset(deps, request, request.body),
  )
  app.post('/auth/password/reset/:token', { ...resetRoute, ...local }, (request) =>
    resetPassword(deps, request, request.params.token, {
      password: request.body.password,
      email: request.body.email ?? request.query.email,
    }),
  )
  app.post('/auth/email/verify/resend', resendRoute, (request) => resendVerification(deps, request, request.body))
  app.get('/auth/email/verify/:token', verifyRoute, async (request) => {
    await verifyEmail(deps, request, request.params.token)
    return { message: 'Email verified successfully' }
  })
}

/** `/auth` for callers with a session or an API key: who am I. */
export function authSelfRoutes(app: App, deps: AuthWrites): void {
  prepare(app)

  app.get('/auth/me', meRoute, (request) => me(deps, request))
  app.get('/auth/check', checkRoute, async ({ caller }) => ({
    valid: true,
    user: { id: identified(caller).userId },
    ...(deps.config.tenancy.enabled && { tenant: caller.tenantId === undefined ? null : { id: caller.tenantId } }),
  }))
}

/**
 * `/auth` for callers with a session. They emit auth.refresh, auth.logout, auth.session_ended, auth.password_change*,
 * auth.email_change_* and mail.queued.
 */
export function authBearerRoutes(app: App, deps: AuthWrites): void {
  prepare(app)

  app.post('/auth/refresh', refreshRoute, async (request, reply) => {
    const authMode = signInMode(deps, request, request.body.authMode)
    const token = await refreshSession(deps, request)
    return deliver(deps, reply, authMode, token, { expiresIn: deps.config.auth.accessTokenExpiresIn })
  })
  app.get('/auth/sessions', sessionsRoute, (request) => listSessions(deps, request, signedIn(request.caller).userId))
  app.delete('/auth/sessions/:sessionId', endSessionRoute, async (request, reply) => {
    const { userId } = signedIn(request.caller)
    const wasOwn = await endSessionOf(deps, request, userId, request.params.sessionId)
    if (wasOwn) dropSessionCookie(deps, reply)
    return { message: 'Session ended successfully' }
  })
  app.post('/auth/email/change', emailChangeRoute, (request) => requestEmailChange(deps, request, request.body))
  app.post('/auth/password/change', passwordChangeRoute, (request) => changeOwnPassword(deps, request, request.body))
  // Both spellings of existing clients.
  for (const path of ['/auth/admin/password/change', '/auth/admin/change-password'])
    app.post(path, passwordOfRoute, (request) => changePasswordOf(deps, request, request.body))
  // The legacy alias of resend for signed-in callers.
  app.post('/auth/email/verify', resendRoute, (request) => resendVerification(deps, request, request.body))
}

/** The end of a session, or of a cookie that has outlived its own. They emit auth.logout. */
export function authLeavingRoutes(app: App, deps: Writes & CurrentAccess): void {
  prepare(app)

  const logout = async (request: FastifyRequest, reply: FastifyReply) => {
    if (request.sessionCookie === 'live') refuseForeignVisit(deps.config, request)
    if (request.sessionCookie !== 'dead') await endSession(deps, request)
    dropSessionCookie(deps, reply)
    return { message: 'Logged out successfully' }
  }
  app.get('/auth/logout', { ...logoutRoute, exposeHeadRoute: false }, logout)
  app.post('/auth/logout', logoutRoute, logout)
}

/** Sessions of any user, for administrators. They emit auth.session_ended. */
export function authAdminRoutes(app: App, deps: Reads & Writes & CurrentCatalog): void {
  prepare(app)

  app.get('/auth/admin/users/:userId/sessions', sessionsOfRoute, (request) =>
    listSessionsOf(deps, request, request.params.userId),
  )
  app.delete('/auth/admin/users/:userId/sessions', endSessionsOfRoute, async (request) => {
    const ended = await endAllSessionsOf(deps, request, request.params.userId)
    return { message: 'Sessions ended successfully', ended }
  })
  app.delete('/auth/admin/users/:userId/sessions/:sessionId', endSessionOfRoute, async (request) => {
    await endSessionOf(deps, request, request.params.userId, request.params.sessionId)
    return { message: 'Session ended successfully' }
  })
}

/** A value that is no UUID is not found. */
const someId = Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44')

const registerRoute = hashed({
  summary: 'Register',
  reachesOutside: true,
  scope: 'none',
  description: 'In the role and at the tenant of an invitation, or where registration is open.',
  tag: 'Signing in',
  body: RegisterBody,
  response: { 200: RegisteredShape },
})
const loginRoute = hashed({
  summary: 'Sign in with a password',
  scope: 'none',
  tag: 'Signing in',
  body: LoginBody,
  response: { 200: SignedInShape },
})
const firstSignInRoute = hashed({
  summary: "Sign in with the first administrator's link",
  scope: 'none',
  description:
    'The link that `npm start` prints when it has made the first administrator: it works once, within ten minutes, and sets a new password. Opening it uses nothing up; this request does.',
  tag: 'Signing in',
  body: FirstSignInBody,
  response: { 200: SignedInShape },
})
const magicLinkRoute = authRoute({
  summary: 'Have a link or code mailed to sign in with',
  reachesOutside: true,
  scope: 'none',
  tag: 'Signing in',
  body: LinkBody,
  response: { 200: Said('If an account exists for this email, a sign-in link has been sent.') },
})
const openMagicLinkRoute = opened({
  summary: 'Sign in with a mailed link or code',
  scope: 'none',
  tag: 'Signing in',
  params: TokenParams,
  query: MagicLinkQuery,
  response: { 200: SignedInShape },
})
const askResetRoute = authRoute({
  summary: 'Forgot password: have a link or code mailed',
  description: 'Also for a new user. An administrator may leave out the link: then it is the first trusted frontend.',
  scope: 'none',
  tag: 'Account',
  body: LinkBody,
  response: { 200: Said('If an account exists, a reset link will be sent') },
})
const resetRoute = authRoute({
  summary: 'Set a new password with a mailed link or code',
  scope: 'none',
  tag: 'Account',
  params: TokenParams,
  query: ResetQuery,
  body: ResetBody,
  response: { 200: Said('Password reset successfully') },
})
const resendRoute = authRoute({
  summary: 'Have the verification mail sent again',
  scope: 'none',
  tag: 'Account',
  body: ResendBody,
  response: { 200: Said('If an account exists for this email, a verification email has been sent.') },
})
const verifyRoute = opened({
  summary: 'Verify an e-mail address with a mailed link',
  scope: 'none',
  tag: 'Account',
  params: TokenParams,
  response: { 200: Said('Email verified successfully') },
})
const meRoute = authRoute({
  summary: 'Read your account, role and permissions',
  description: 'Of the account what your role may read of svc_User: without a permission for that, 403.',
  scope: 'read',
  tag: 'Account',
  response: { 200: MeShape },
})
const checkRoute = authRoute({
  summary: 'Check whether the token is valid',
  scope: 'none',
  tag: 'Sessions',
  response: { 200: CheckShape },
})
const refreshRoute = authRoute(
  {
    summary: 'Renew the token',
    scope: 'none',
    description:
      'The one that was sent ends. Where the answer is lost, the same request within a minute gets a token of the same new session, as long as nobody has used it.',
    tag: 'Sessions',
    body: AuthModeBody,
    response: { 200: RefreshedShape },
  },
  { config: { takesRepetitions: true } },
)
const sessionsRoute = authRoute({
  summary: 'List your sessions',
  tag: 'Sessions',
  scope: 'none',
  response: { 200: SessionsShape },
})
const endSessionRoute = authRoute({
  summary: 'End one of your sessions',
  scope: 'none',
  tag: 'Sessions',
  params: Type.Object({ sessionId: someId }),
  response: { 200: Said('Session ended successfully') },
})
const emailChangeRoute = authRoute({
  summary: 'Ask for another e-mail address',
  scope: 'none',
  description: 'A link is mailed to the new address; following it changes the address.',
  tag: 'Account',
  body: EmailChangeBody,
  response: { 200: Said('A mail to confirm the new address has been sent to it.') },
})
const passwordChangeRoute = authRoute({
  summary: 'Change your password',
  scope: 'none',
  description: 'Your other sessions end.',
  tag: 'Account',
  body: PasswordChangeBody,
  response: { 200: Said('Password changed successfully') },
})
const passwordOfRoute = authRoute(
  {
    summary: "Change a user's password",
    scope: 'none',
    description: 'For administrators. The sessions of the user end.',
    tag: 'Account',
    body: PasswordOfBody,
    response: { 200: Said('Password changed successfully') },
  },
  { preValidation: async (request: FastifyRequest) => checkMayChangePasswords(request) },
)
const logoutRoute = authRoute(
  {
    summary: 'Sign out',
    scope: 'none',
    tag: 'Sessions',
    response: { 200: Said('Logged out successfully') },
  },
  { config: { inPreview: 'as owner' } },
)
const sessionsOfRoute = authRoute({
  summary: 'List the sessions of a user',
  scope: 'none',
  tag: 'Sessions',
  params: Type.Object({ userId: someId }),
  response: { 200: SessionsShape },
})
const endSessionsOfRoute = authRoute({
  summary: 'End all sessions of a user',
  scope: 'none',
  tag: 'Sessions',
  params: Type.Object({ userId: someId }),
  response: { 200: EndedShape },
})
const endSessionOfRoute = authRoute({
  summary: 'End a session of a user',
  scope: 'none',
  tag: 'Sessions',
  params: Type.Object({ userId: someId, sessionId: someId }),
  response: { 200: Said('Session ended successfully') },
})
