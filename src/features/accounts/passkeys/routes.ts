import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { signedIn } from '../../../access/principal.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import { newSecret } from '../../../adapters/tokens.ts'
import { Type } from '../../../adapters/typebox.ts'
import { authenticationOptions, registrationOptions, verifyRegistration } from '../../../adapters/webauthn.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { type Reads, withoutWaiting } from '../../../db/pools.ts'
import type { Tx } from '../../../db/sql.ts'
import { insertChallenge, takeChallenge } from '../../../db/unlogged/secrets.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type WorkResult, type Writes } from '../../../events/commit.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { Deleted, Filled, Id, IdParams, NullableText, Text } from '../../../http/shapes.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import {
  type AuthMode,
  accountOf,
  afterwards,
  authRoutes,
  deliver,
  type FirstFactor,
  invitationOf,
  lockCaller,
  ProofBody,
  type ProofInput,
  placeOf,
  prepare,
  requireFreshProof,
  SignedInShape,
  SignIn,
  type SignInAnswer,
  signInAtOnce,
  signInMode,
  signInRefusal,
  signingIn,
} from '../auth/auth.ts'
import {
  type ChallengeResponse,
  challengeKey,
  checkPasskey,
  credentialIdsOf,
  deletePasskey,
  enabledPasskeys,
  insertPasskey,
  noteUse,
  type PasskeyProof,
  type PasskeyWrites,
  passkeysOf,
  refusedPasskey,
  type StoredCredential,
} from '../proofs/proofs.ts'

/** Signing in with a passkey. Emits auth.login and auth.login_failed. */
export function passkeyPublicRoutes(app: App, deps: PasskeyWrites): void {
  prepare(app)
  requirePasskeys(app, deps)
  app.post('/auth/passkey/authenticate/options', authenticationOptionsRoute, (request) =>
    beginAuthentication(deps, request),
  )
  app.post('/auth/passkey/authenticate/verify', authenticateRoute, async (request, reply) => {
    const authMode = signInMode(deps, request, request.body.authMode)
    const { token, body } = await finishAuthentication(deps, request, request.body, authMode)
    return deliver(deps, reply, authMode, token, body)
  })
}

/** A user's own passkeys. They emit auth.passkey_added and auth.passkey_removed. */
export function passkeyRoutes(app: App, deps: Reads & Writes): void {
  prepare(app)
  requirePasskeys(app, deps)
  app.post('/auth/passkey/register/options', registrationOptionsRoute, (request) =>
    beginRegistration(deps, request, request.body),
  )
  app.post('/auth/passkey/register/verify', registerRoute, (request) => finishRegistration(deps, request, request.body))
  app.get('/auth/passkey', listRoute, (request) => listPasskeys(deps, request))
  app.delete('/auth/passkey/:id', removeRoute, (request) => removePasskey(deps, request, request.params.id))
}

/** Each route of the scope is 400 where passkeys are off, to callers who would be refused besides, too. */
function requirePasskeys(app: App, deps: Configuration): void {
  app.addHook('onRoute', (route) => {
    route.config = { ...route.config, precondition: () => void enabledPasskeys(deps) }
  })
}

const declared = authRoutes('Passkeys')

/**
 * The options from which the caller's authenticator makes a passkey; the challenge in it replaces an earlier one. Needs a fresh
 * proof, without which there is no challenge that a new passkey could answer.
 */
async function beginRegistration(deps: Reads & Writes, request: FastifyRequest, proof: ProofInput) {
  const passkey = enabledPasskeys(deps)
  const { userId } = signedIn(request.caller)
  const account = await accountOf(withoutWaiting(deps), userId)
  if (account === undefined) throw errors.unauthorized('Unauthorized')
  const proven = await requireFreshProof(deps, request, proof)
  const { email, firstName, lastName } = account
  const person = { id: userId, email: email ?? userId, name: [firstName, lastName].filter(Boolean).join(' ') }
  const options = await registrationOptions(passkey, person, await credentialIdsOf(withoutWaiting(deps), userId))
  await commit(deps, actorOf(request), async (tx) => {
    await lockCaller(tx, request, proven)
    await insertChallenge(tx, { identifier: identifierOf(userId), userId, data: { challenge: options.challenge } })
    return { result: undefined }
  })
  return options
}

/**
 * Keeps the passkey that answers the caller's challenge. The challenge is used up whatever becomes of it.
 *
 * @throws {AppError} 401 for one that does not fit, also a passkey that a user has already
 */
async function finishRegistration(
  deps: Writes,
  request: FastifyRequest,
  { response, name: typedName }: Static<typeof RegisterPasskeyBody>,
) {
  const passkey = enabledPasskeys(deps)
  const { userId } = signedIn(request.caller)
  const name = nameOf(typedName)
  const data = await commit(deps, actorOf(request), async (tx) => ({
    result: await takeChallenge(tx, identifierOf(userId)),
  }))
  if (data === undefined) throw registrationFailed()
  const credential = await verifyRegistration(passkey, response, data.challenge as string)
  if ('refused' in credential) {
    request.log.info({ err: credential.refused }, 'a passkey was refused')
    throw registrationFailed()
  }
  return commit(deps, actorOf(request), async (tx) => {
    await lockCaller(tx, request)
    const row = await insertPasskey(tx, userId, name, credential)
    if (row === undefined) throw registrationFailed()
    const result = { verified: true as const, passkey: row }
    return { result, events: [{ type: 'auth.passkey_added', data: { userId, passkey: row.id } }] }
  })
}

const identifierOf = (userId: string) => `passkey:reg:${userId}`

const registrationFailed = () => refusedPasskey('Passkey registration failed')

function nameOf(typed = 'Passkey'): string {
  const name = typed.trim()
  if (name.length > 100 || name.includes('\0')) throw new AppError(400, 'name must be at most 100 characters long')
  return name
}

/** The caller's passkeys. */
async function listPasskeys(deps: Reads, request: FastifyRequest) {
  return { passkeys: [...(await passkeysOf(deps.db, signedIn(request.caller).userId))] }
}

/** Ends a passkey of the caller's; sessions that it opened go on. 404 when there is none. */
async function removePasskey(deps: Writes, request: FastifyRequest, id: string): Promise<{ deleted: true }> {
  const { userId } = signedIn(request.caller)
  await commit(deps, actorOf(request), async (tx) => {
    if (!(await deletePasskey(tx, userId, id))) throw new AppError(404, 'Passkey not found')
    return {
      result: undefined,
      events: [{ type: 'auth.passkey_removed', data: { userId, passkey: id.toLowerCase() } }],
    }
  })
  return { deleted: true }
}

/** A challenge for any user with a passkey; it names no account, so it tells nothing about any. */
async function beginAuthentication(deps: Writes, request: FastifyRequest) {
  const options = await authenticationOptions(enabledPasskeys(deps))
  const challengeId = newSecret()
  await commit(deps, actorOf(request), async (tx) => {
    const data = { challenge: options.challenge }
    await insertChallenge(tx, { identifier: challengeKey(challengeId), userId: null, data })
    return { result: undefined }
  })
  return { options, challengeId }
}

/**
 * Signs in with a passkey. No second factor is asked for; instead a user who has one must have been verified by the
 * authenticator (PIN, finger), so that a found key alone opens nothing. The challenge is used up whatever comes of it.
 *
 * @throws {AppError} 401, always alike, for everything that does not fit and for accounts
 *   that are not active; 403 for a tenant that the user has no role at
 */
async function finishAuthentication(
  deps: PasskeyWrites,
  request: FastifyRequest,
  { challengeId, response, authType: type = 'default', tenant_Id, inviteToken }: Static<typeof AuthenticateBody>,
  authMode: AuthMode,
): Promise<SignInAnswer> {
  const { stored, assertion } = await proven(deps, request, { challengeId, response })
  const account = await accountOf(withoutWaiting(deps), stored.userId)
  if (account === undefined || signInRefusal(account, deps.config.auth) !== undefined) throw authenticationFailed()
  const inviteId = await invitationOf(deps, inviteToken)
  const membership = await placeOf(deps, withoutWaiting(deps), account, { tenantId: tenant_Id, inviteId })
  const factor = { account, membership, type, authMode }
  const answer = await commit(deps, signingIn(request, factor), (tx) =>
    openWith(deps, tx, request, { stored, assertion, factor }),
  )
  if (answer === undefined) throw authenticationFailed()
  return answer
}

/** The passkey that signed the challenge, and what its authenticator said. */
async function proven(deps: Reads & Writes, request: FastifyRequest, given: ChallengeResponse): Promise<PasskeyProof> {
  const proof = await checkPasskey(deps, request, given)
  if (!('refused' in proof)) return proof
  if (proof.stored === undefined) throw authenticationFailed()
  throw failed(deps, request, proof.stored, proof.refused)
}

async function openWith(
  deps: Clock & Configuration & CurrentAccess & CurrentSettings,
  tx: Tx,
  request: FastifyRequest,
  { stored, assertion, factor }: PasskeyProof & { factor: FirstFactor },
): Promise<WorkResult<SignInAnswer | undefined>> {
  if (!(await noteUse(tx, stored.id, assertion.counter, assertion.backedUp))) return { result: undefined }
  return signInAtOnce(deps, tx, request, factor)
}

/** The event is appended beside the answer, as for a wrong password: its time would tell that the passkey is known. */
function failed(deps: Writes, request: FastifyRequest, { userId }: StoredCredential, reason: unknown): AppError {
  const actor = actorOf(request)
  request.log.info({ err: reason, userId }, 'a passkey was refused')
  afterwards(deps, 'recording a failed login', () =>
    commit(deps, actor, async () => ({
      result: undefined,
      events: [{ type: 'auth.login_failed', data: { userId } }],
    })),
  )
  return authenticationFailed()
}

const authenticationFailed = () => refusedPasskey('Passkey authentication failed')

/* Shapes of bodies and answers. */

/** The response of an authenticator: any object, which the adapter judges. */
const ResponseShape = (refusal: string) =>
  Type.Object(
    {},
    {
      additionalProperties: true,
      description: 'As `navigator.credentials` gives it, by toJSON().',
      examples: [{ id: 'kQ7x', rawId: 'kQ7x', type: 'public-key', response: { clientDataJSON: 'eyJ0eXBlIjoi' } }],
      refusal,
    },
  )

const bothNeeded = 'challengeId and response are required'
const AuthenticateBody = Type.Object({
  authMode: SignIn.authMode,
  challengeId: Filled('0f3a5d1f0c2b7e44', { refusal: bothNeeded }),
  response: ResponseShape(bothNeeded),
  authType: SignIn.authType,
  tenant_Id: SignIn.tenant_Id,
  inviteToken: SignIn.inviteToken,
})

const RegisterPasskeyBody = Type.Object({
  response: ResponseShape('response is required'),
  name: Type.Optional(Filled('My laptop', { lenient: true, description: 'At most 100 characters.' })),
})

/** Options are the browser's business and as the standard has them: nothing of ours is in there. */
const OptionsShape = Type.Object({ challenge: Text('d0JqUlR2') }, { additionalProperties: true })

const AuthenticationOptionsShape = Type.Object({ options: OptionsShape, challengeId: Text('0f3a5d1f0c2b7e44') })

const RegisteredPasskeyShape = Type.Object({
  verified: Type.Literal(true),
  passkey: Type.Object({ id: Id(), name: Text('My laptop') }),
})

const PasskeysShape = Type.Object({
  passkeys: Type.Array(
    Type.Object({
      id: Id(),
      name: Text('My laptop'),
      deviceType: NullableText('multiDevice'),
      backedUp: Type.Boolean(),
      createdAt: Text('2026-03-14T09:26:53.589Z'),
      lastUsedAt: NullableText('2026-03-14T09:26:53.589Z'),
    }),
  ),
})

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
