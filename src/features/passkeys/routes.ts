import type { App } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { deliver } from '../auth/answers.ts'
import { answers, prepare, signInMode } from '../auth/routes.ts'
import { SignedInShape } from '../auth/schema.ts'
import { beginAuthentication, finishAuthentication } from './authenticate.ts'
import { listPasskeys, removePasskey } from './passkeys.ts'
import { beginRegistration, finishRegistration } from './register.ts'
import {
  AuthenticationOptionsShape,
  DeletedShape,
  PasskeysShape,
  RegisteredPasskeyShape,
  RegistrationOptionsShape,
} from './schema.ts'

/** Signing in with a passkey. Emits auth.login and auth.login_failed. */
export function passkeyPublicRoutes(app: App, rt: Runtime): void {
  prepare(app)
  app.post('/auth/passkey/authenticate/options', answers(AuthenticationOptionsShape), (request) =>
    beginAuthentication(rt, request),
  )
  app.post('/auth/passkey/authenticate/verify', answers(SignedInShape), async (request, reply) => {
    const authMode = signInMode(rt, request)
    const { token, body } = await finishAuthentication(rt, request, authMode)
    return deliver(rt, reply, authMode, token, body)
  })
}

/** A user's own passkeys. They emit auth.passkey_added and auth.passkey_removed. */
export function passkeyRoutes(app: App, rt: Runtime): void {
  prepare(app)
  app.post('/auth/passkey/register/options', answers(RegistrationOptionsShape), (request) =>
    beginRegistration(rt, request),
  )
  app.post('/auth/passkey/register/verify', answers(RegisteredPasskeyShape), (request) =>
    finishRegistration(rt, request),
  )
  app.get('/auth/passkey', answers(PasskeysShape), (request) => listPasskeys(rt, request))
  app.delete<{ Params: { id: string } }>('/auth/passkey/:id', answers(DeletedShape), (request) =>
    removePasskey(rt, request, request.params.id),
  )
}
