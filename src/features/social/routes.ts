import type { FastifyReply, FastifyRequest } from 'fastify'
import type { App } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { deliver, deliveryTo } from '../auth/answers.ts'
import { setSessionCookie } from '../auth/cookie.ts'
import { membersOf } from '../auth/input.ts'
import { answers, prepare, signInMode } from '../auth/routes.ts'
import { SignedInShape } from '../auth/schema.ts'
import { type Ended, endSocialSignIn } from './callback.ts'
import { signInByIdToken } from './id-token.ts'
import { StartedShape } from './schema.ts'
import { type Start, startByLink, startByRequest } from './start.ts'
import { journeyCookie } from './state.ts'

type OfProvider = { Params: { provider: string } }

/**
 * Social sign-in (auth facts §6). The callbacks and POST /auth/social/signin emit auth.register, auth.social_linked,
 * auth.login, auth.2fa_challenged, auth.email_verified and auth.unverified_credentials_dropped.
 */
export function socialRoutes(app: App, rt: Runtime): void {
  prepare(app)

  app.post('/auth/social/signin', answers(StartedShape), async (request, reply) => {
    const authMode = signInMode(rt, request)
    const { idToken } = membersOf(request.body)
    if (idToken === undefined || idToken === null) return started(reply, await startByRequest(rt, request))
    const { token, body } = await signInByIdToken(rt, request, authMode)
    return { redirect: false, ...deliver(rt, reply, authMode, token, body) }
  })
  app.get<OfProvider>('/auth/signin/:provider', opened, async (request, reply) => {
    const { url } = started(reply, await startByLink(rt, request, request.params.provider))
    return reply.redirect(url, 302)
  })
  const finish = async (request: FastifyRequest, reply: FastifyReply, provider: string, parameters: unknown) => {
    const ended = await endSocialSignIn(rt, request, provider, membersOf(parameters))
    return delivered(rt, reply, ended)
  }
  app.get<OfProvider>('/auth/callback/:provider', { ...answers(SignedInShape), ...opened }, (request, reply) =>
    finish(request, reply, request.params.provider, request.query),
  )
  app.register(async (scope) => {
    acceptForms(scope as App)
    scope.post('/auth/callback/apple', { ...answers(SignedInShape), ...opened }, (request, reply) =>
      finish(request, reply, 'apple', request.body),
    )
  })
}

/** Other sites lead browsers here, so their cookies say nothing about who asks; and no mere look may use a state up. */
const opened = { exposeHeadRoute: false, config: { ignoresSession: true } }

function started(reply: FastifyReply, { url, cookie }: Start) {
  if (cookie !== undefined) reply.header('set-cookie', cookie)
  return { redirect: true, url }
}

/**
 * To the app's address where the journey has one, else as JSON. A token is in the address only where the app asked for
 * tokens (decisions A35) and the browser has no session cookie.
 */
function delivered(rt: Runtime, reply: FastifyReply, ended: Ended) {
  const { journey } = ended
  if (journey.bound) reply.header('set-cookie', journeyCookie(rt.config, journey.provider, undefined))
  if ('refusal' in ended) {
    if (journey.errorTo === null) throw ended.refusal
    const { message: error, code } = ended.refusal
    return redirect(reply, journey.errorTo, { error, error_code: code })
  }
  const { token, body } = ended.answer
  if (journey.returnTo === null) return deliver(rt, reply, journey.authMode, token, body)
  if (token === undefined) return redirect(reply, journey.returnTo, { ...body } as Record<string, unknown>)
  if (deliveryTo(reply.request, journey.authMode) === 'jwt') return redirect(reply, journey.returnTo, { token })
  setSessionCookie(rt, reply, token)
  return redirect(reply, journey.returnTo, {})
}

function redirect(reply: FastifyReply, address: string, parameters: Readonly<Record<string, unknown>>) {
  const url = new URL(address)
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, String(value))
  // The token must not travel on to where the page gets its parts from.
  // What was posted is not posted again.
  const status = reply.request.method === 'POST' ? 303 : 302
  return reply.header('referrer-policy', 'no-referrer').redirect(url.href, status)
}

function acceptForms(app: App): void {
  app.addContentTypeParser('application/x-www-form-urlencoded', { parseAs: 'string' }, (_request, body, done) =>
    done(null, Object.fromEntries(new URLSearchParams(String(body)))),
  )
}
