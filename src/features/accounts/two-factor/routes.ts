import type { Reads } from '../../../db/pools.ts'
import type { Writes } from '../../../events/commit.ts'
import type { App } from '../../../http/http.ts'
import { authRoute, deliver, ProofBody, prepare, SignedInShape } from '../auth/auth.ts'
import {
  beginSetup,
  CodeBody,
  checkEnabled,
  DisabledShape,
  disable,
  EnabledShape,
  finishSetup,
  PasswordBody,
  type SecondFactorWrites,
  SetupShape,
  StateShape,
  stateOf,
  VerifyBody,
  verifyTwoFactor,
} from './two-factor.ts'

/** The second step of signing in. Emits auth.login and auth.2fa_failed. */
export function twoFactorPublicRoutes(app: App, deps: SecondFactorWrites): void {
  prepare(app)
  const enabled = { preValidation: async () => checkEnabled(deps) }
  app.post('/auth/2fa/verify', { ...verifyRoute, ...enabled }, async (request, reply) => {
    const { authMode, token, body } = await verifyTwoFactor(deps, request, request.body)
    return deliver(deps, reply, authMode, token, body)
  })
}

/** A user's own second factor. They emit auth.2fa_enabled and auth.2fa_disabled. */
export function twoFactorRoutes(app: App, deps: Reads & Writes): void {
  prepare(app)
  const enabled = { preValidation: async () => checkEnabled(deps) }
  app.get('/auth/2fa', { ...stateRoute, ...enabled }, (request) => stateOf(deps, request))
  app.post('/auth/2fa/enable', { ...enableRoute, ...enabled }, (request) => beginSetup(deps, request, request.body))
  app.post('/auth/2fa/verify-setup', { ...verifySetupRoute, ...enabled }, (request) =>
    finishSetup(deps, request, request.body.code),
  )
  app.post('/auth/2fa/disable', disableRoute, (request) => disable(deps, request, request.body.password))
}

const tag = 'Two-factor'

const verifyRoute = authRoute({
  summary: 'Sign in with the second factor',
  scope: 'none',
  tag,
  body: VerifyBody,
  response: { 200: SignedInShape },
})
const stateRoute = authRoute({
  summary: 'Read whether you have a second factor',
  scope: 'none',
  tag,
  response: { 200: StateShape },
})
const enableRoute = authRoute({
  summary: 'Begin to set up a second factor',
  scope: 'none',
  tag,
  body: ProofBody,
  response: { 200: SetupShape },
})
const verifySetupRoute = authRoute({
  summary: 'Switch the second factor on',
  scope: 'none',
  tag,
  body: CodeBody,
  response: { 200: EnabledShape },
})
const disableRoute = authRoute({
  summary: 'Switch the second factor off',
  scope: 'none',
  tag,
  body: PasswordBody,
  response: { 200: DisabledShape },
})
