import type { App } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { deliver } from '../auth/answers.ts'
import { answers, prepare } from '../auth/routes.ts'
import { SignedInShape } from '../auth/schema.ts'
import { DisabledShape, EnabledShape, SetupShape } from './schema.ts'
import { beginSetup, disable, finishSetup } from './two-factor.ts'
import { verifyTwoFactor } from './verify.ts'

/** The second step of signing in. Emits auth.login and auth.2fa_failed. */
export function twoFactorPublicRoutes(app: App, rt: Runtime): void {
  prepare(app)
  app.post('/auth/2fa/verify', answers(SignedInShape), async (request, reply) => {
    const { authMode, token, body } = await verifyTwoFactor(rt, request)
    return deliver(rt, reply, authMode, token, body)
  })
}

/** A user's own second factor. They emit auth.2fa_enabled and auth.2fa_disabled. */
export function twoFactorRoutes(app: App, rt: Runtime): void {
  prepare(app)
  app.post('/auth/2fa/enable', answers(SetupShape), (request) => beginSetup(rt, request))
  app.post('/auth/2fa/verify-setup', answers(EnabledShape), (request) => finishSetup(rt, request))
  app.post('/auth/2fa/disable', answers(DisabledShape), (request) => disable(rt, request))
}
