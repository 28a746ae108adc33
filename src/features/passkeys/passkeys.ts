import type { FastifyRequest } from 'fastify'
import type { PasskeyConfig } from '../../config.ts'
import { AppError } from '../../errors.ts'
import { commit } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { signedIn } from '../permissions/permissions.ts'
import { deletePasskey, passkeysOf } from './queries.ts'

/** 400 unless PASSKEY is listed in AUTH_SERVICES_ENABLED and all of PASSKEY_RP_ID, _RP_NAME and _ORIGIN are set. */
export function enabledPasskeys({ config }: Runtime): PasskeyConfig {
  if (config.passkey !== undefined) return config.passkey
  throw new AppError(400, 'Passkeys are not enabled on this server', { code: 'PASSKEY_NOT_ENABLED' })
}

/** The caller's passkeys. */
export async function listPasskeys(rt: Runtime, request: FastifyRequest) {
  enabledPasskeys(rt)
  return { passkeys: [...(await passkeysOf(rt.db, signedIn(request.caller).userId))] }
}

/** Ends a passkey of the caller's; sessions that it opened go on. 404 when there is none. */
export async function removePasskey(rt: Runtime, request: FastifyRequest, id: string): Promise<{ deleted: true }> {
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

/** 401, and nothing about what was wrong. */
export function refusedPasskey(message: string): AppError {
  return new AppError(401, message, { code: 'INVALID_PASSKEY_RESPONSE' })
}
