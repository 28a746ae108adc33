import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { signedIn } from '../../../access/principal.ts'
import { registrationOptions, verifyRegistration } from '../../../adapters/webauthn.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import { insertChallenge, takeChallenge } from '../../../db/unlogged/challenges.ts'
import { withoutWaiting } from '../../../db/without-waiting.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import { commit } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { accountOf, type Proven, requireFreshProof } from '../auth/auth.ts'
import { enabledPasskeys, refusedPasskey } from './passkeys.ts'
import { credentialIdsOf, deletePasskey, insertPasskey, passkeysOf } from './queries.ts'
import type { RegisterPasskeyBody } from './schema.ts'

/**
 * What the caller's authenticator needs to make a passkey; the challenge in it replaces an earlier one. Needs a fresh
 * proof, without which there is no challenge that a new passkey could answer.
 */
export async function beginRegistration(rt: Reads & Writes, request: FastifyRequest, proof: Proven) {
  const passkey = enabledPasskeys(rt)
  const { userId } = signedIn(request.caller)
  const account = await accountOf(withoutWaiting(rt), userId)
  if (account === undefined) throw errors.unauthorized('Unauthorized')
  await requireFreshProof(rt, request, proof)
  const { email, firstName, lastName } = account
  const person = { id: userId, email: email ?? userId, name: [firstName, lastName].filter(Boolean).join(' ') }
  const options = await registrationOptions(passkey, person, await credentialIdsOf(withoutWaiting(rt), userId))
  await commit(rt, actorOf(request), async (tx) => {
    await insertChallenge(tx, { identifier: identifierOf(userId), userId, data: { challenge: options.challenge } })
    return { result: undefined }
  })
  return options
}

/**
 * Keeps the passkey that answers the caller's challenge. The challenge is used up whatever becomes of it.
 *
 * @throws {AppError} 401 for one that does not fit, also a passkey that somebody has already
 */
export async function finishRegistration(
  rt: Writes,
  request: FastifyRequest,
  { response, name: typedName }: Static<typeof RegisterPasskeyBody>,
) {
  const passkey = enabledPasskeys(rt)
  const { userId } = signedIn(request.caller)
  const name = nameOf(typedName)
  const data = await commit(rt, actorOf(request), async (tx) => ({
    result: await takeChallenge(tx, identifierOf(userId)),
  }))
  if (data === undefined) throw refused()
  const credential = await verifyRegistration(passkey, response, data.challenge as string)
  if ('refused' in credential) {
    request.log.info({ err: credential.refused }, 'a passkey was refused')
    throw refused()
  }
  return commit(rt, actorOf(request), async (tx) => {
    const row = await insertPasskey(tx, userId, name, credential)
    if (row === undefined) throw refused()
    const result = { verified: true as const, passkey: row }
    return { result, events: [{ type: 'auth.passkey_added', data: { userId, passkey: row.id } }] }
  })
}

const identifierOf = (userId: string) => `passkey:reg:${userId}`

const refused = () => refusedPasskey('Passkey registration failed')

function nameOf(typed = 'Passkey'): string {
  const name = typed.trim()
  if (name.length > 100 || name.includes('\0')) throw new AppError(400, 'name must be at most 100 characters long')
  return name
}

/** The caller's passkeys. */
export async function listPasskeys(rt: Reads & Configuration, request: FastifyRequest) {
  enabledPasskeys(rt)
  return { passkeys: [...(await passkeysOf(rt.db, signedIn(request.caller).userId))] }
}

/** Ends a passkey of the caller's; sessions that it opened go on. 404 when there is none. */
export async function removePasskey(rt: Writes, request: FastifyRequest, id: string): Promise<{ deleted: true }> {
  enabledPasskeys(rt)
  const { userId } = signedIn(request.caller)
  await commit(rt, actorOf(request), async (tx) => {
    if (!(await deletePasskey(tx, userId, id))) throw new AppError(404, 'Passkey not found')
    return {
      result: undefined,
      events: [{ type: 'auth.passkey_removed', data: { userId, passkey: id.toLowerCase() } }],
    }
  })
  return { deleted: true }
}
