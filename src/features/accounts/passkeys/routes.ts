import type { Reads } from '../../../db/pools.ts'
import type { Writes } from '../../../events/commit.ts'
import type { App } from '../../../http/http.ts'
import { Deleted, IdParams } from '../../../http/shapes.ts'
import { authRoutes, deliver, ProofBody, prepare, SignedInShape, signInMode } from '../auth/auth.ts'
import { enabledPasskeys, type PasskeyWrites } from '../proofs/proofs.ts'
import {
  AuthenticateBody,
  AuthenticationOptionsShape,
  beginAuthentication,
  beginRegistration,
  finishAuthentication,
  finishRegistration,
  listPasskeys,
  OptionsShape,
  PasskeysShape,
  RegisteredPasskeyShape,
  RegisterPasskeyBody,
  removePasskey,
} from './ceremonies.ts'

/** Signing in with a passkey. Emits auth.login and auth.login_failed. */
export function passkeyPublicRoutes(app: App, deps: PasskeyWrites): void {
  prepare(app)
  const enabled = { preValidation: async () => void enabledPasskeys(deps) }
  app.post('/auth/passkey/authenticate/options', { ...authenticationOptionsRoute, ...enabled }, (request) =>
    beginAuthentication(deps, request),
  )
  app.post('/auth/passkey/authenticate/verify', { ...authenticateRoute, ...enabled }, async (request, reply) => {
    const authMode = signInMode(deps, request, request.body.authMode)
    const { token, body } = await finishAuthentication(deps, request, request.body, authMode)
    return deliver(deps, reply, authMode, token, body)
  })
}

/** A user's own passkeys. They emit auth.passkey_added and auth.passkey_removed. */
export function passkeyRoutes(app: App, deps: Reads & Writes): void {
  prepare(app)
  const enabled = { preValidation: async () => void enabledPasskeys(deps) }
  app.post('/auth/passkey/register/options', { ...registrationOptionsRoute, ...enabled }, (request) =>
    beginRegistration(deps, request, request.body),
  )
  app.post('/auth/passkey/register/verify', { ...registerRoute, ...enabled }, (request) =>
    finishRegistration(deps, request, request.body),
  )
  app.get('/auth/passkey', listRoute, (request) => listPasskeys(deps, request))
  app.delete('/auth/passkey/:id', removeRoute, (request) => removePasskey(deps, request, request.params.id))
}

const declared = authRoutes('Passkeys')

const authenticationOptionsRoute = declared({
  summary: 'Begin to sign in with a passkey',
  scope: 'none',
  response: { 200: AuthenticationOptionsShape },
})
const authenticateRoute = declared({
  summary: 'Sign in with a passkey',
  scope: 'none',
  body: AuthenticateBody,
  response: { 200: SignedInShape },
})
const registrationOptionsRoute = declared({
  summary: 'Begin to add a passkey',
  scope: 'none',
  body: ProofBody,
  response: { 200: OptionsShape },
})
const registerRoute = declared({
  summary: 'Add a passkey',
  scope: 'none',
  body: RegisterPasskeyBody,
  response: { 200: RegisteredPasskeyShape },
})
const listRoute = declared({ summary: 'List your passkeys', scope: 'none', response: { 200: PasskeysShape } })
const removeRoute = declared({
  summary: 'Remove a passkey',
  scope: 'none',
  params: IdParams,
  response: { 200: Deleted },
})
