import type { FastifyReply, FastifyRequest } from 'fastify'
import type { CurrentAccess } from '../../../access/store.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { Configuration } from '../../../config/config.ts'
import { type App, acceptForms } from '../../../http/http.ts'
import { Text } from '../../../http/shapes.ts'
import { authRoutes, deliver, deliveryTo, prepare, SignedInShape, setSessionCookie, signInMode } from '../auth/auth.ts'
import { type Callback, CallbackShape, journeyCookie, SocialBody, SocialLinkQuery, StartedShape } from './journey.ts'
import {
  endSocialSignIn,
  type JourneyEnd,
  type SocialWrites,
  type Start,
  signInByIdToken,
  startByLink,
  startByRequest,
} from './social.ts'

/**
 * Social sign-in. The callbacks and POST /auth/social/signin emit auth.register, auth.social_linked,
 * auth.login, auth.2fa_challenged, auth.email_verified and auth.unverified_credentials_dropped.
 */
export function socialRoutes(app: App, deps: SocialWrites): void {
  prepare(app)

  app.post('/auth/social/signin', startRoute, async (request, reply) => {
    const authMode = signInMode(deps, request, request.body.authMode)
    if (request.body.idToken === undefined) return started(reply, await startByRequest(deps, request, request.body))
    const { token, body } = await signInByIdToken(deps, request, request.body, authMode)
    return { redirect: false, ...deliver(deps, reply, authMode, token, body) }
  })
  app.get('/auth/signin/:provider', startByLinkRoute, async (request, reply) => {
    const { url } = started(reply, await startByLink(deps, request, request.params.provider, request.query))
    return reply.redirect(url, 302)
  })
  const finish = async (request: FastifyRequest, reply: FastifyReply, provider: string, parameters: Callback) => {
    const ended = await endSocialSignIn(deps, request, provider, parameters)
    return delivered(deps, reply, ended)
  }
  app.get('/auth/callback/:provider', callbackRoute, (request, reply) =>
    finish(request, reply, request.params.provider, request.query),
  )
  app.register(async (scope) => {
    const forms = scope as App
    acceptForms(forms)
    forms.post('/auth/callback/apple', appleCallbackRoute, (request, reply) =>
      finish(request, reply, 'apple', request.body),
    )
  })
}

/** Other sites lead browsers here, so their cookies say nothing about the caller; and no mere look may use a state up. */
const opened = { exposeHeadRoute: false, config: { ignoresSession: true } }

function started(reply: FastifyReply, { url, cookie }: Start) {
  if (cookie !== undefined) reply.header('set-cookie', cookie)
  return { redirect: true, url }
}

/**
 * To the app's address where the journey has one, else as JSON. A token is in the address only where the app asked for
 * tokens and the browser has no session cookie.
 */
function delivered(deps: Configuration & CurrentAccess, reply: FastifyReply, ended: JourneyEnd) {
  const { journey } = ended
  if (journey.bound) reply.header('set-cookie', journeyCookie(deps.config, journey.provider, undefined))
  if ('refusal' in ended) {
    if (journey.errorTo === null) throw ended.refusal
    const { message: error, code } = ended.refusal
    return redirect(reply, journey.errorTo, { error, error_code: code })
  }
  const { token, body } = ended.answer
  if (journey.returnTo === null) return deliver(deps, reply, journey.authMode, token, body)
  if (token === undefined) return redirect(reply, journey.returnTo, { ...body } as Record<string, unknown>)
  if (deliveryTo(reply.request, journey.authMode) === 'jwt') return redirect(reply, journey.returnTo, { token })
  setSessionCookie(deps, reply, token)
  return redirect(reply, journey.returnTo, {})
}

function redirect(reply: FastifyReply, address: string, parameters: Readonly<Record<string, unknown>>) {
  const url = new URL(address)
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, String(value))
  // The token must not reach the hosts of the page's parts (as a referrer). A POST must not be repeated.
  const status = reply.request.method === 'POST' ? 303 : 302
  return reply.header('referrer-policy', 'no-referrer').redirect(url.href, status)
}

const ProviderParams = Type.Object({ provider: Text('google') })
const declared = authRoutes('Signing in')

const startRoute = declared({
  summary: 'Begin a social sign-in, or sign in with an ID token',
  scope: 'none',
  body: SocialBody,
  response: { 200: StartedShape },
})
const startByLinkRoute = declared(
  {
    summary: 'Begin a social sign-in by a link',
    scope: 'none',
    params: ProviderParams,
    query: SocialLinkQuery,
    response: { 302: Type.Null({ description: 'To the provider.' }) },
    sendsText: true,
  },
  opened,
)
const callbackRoute = declared(
  {
    summary: 'End a social sign-in',
    scope: 'none',
    description: 'Where the provider sends the browser; the app may have an address of its own.',
    params: ProviderParams,
    query: CallbackShape,
    response: {
      200: SignedInShape,
      302: Type.Null({ description: 'To the app, where the sign-in began with a link.' }),
    },
    sendsText: true,
  },
  opened,
)
const appleCallbackRoute = declared(
  {
    summary: 'End a sign-in with Apple',
    scope: 'none',
    body: CallbackShape,
    response: {
      200: SignedInShape,
      303: Type.Null({ description: 'To the app, where the sign-in began with a link.' }),
    },
    sendsText: true,
  },
  opened,
)
