import type { Socket } from 'socket.io'
import { statedRefusal } from '../../features/hooks/refusals.ts'
import type { Runtime } from '../../runtime.ts'
import { socketUser } from './users.ts'

/**
 * Whether a user may be in a room: every validator that extensions have for it agrees, and there is one where
 * REALTIME_ROOMS is `validated` (quality R-09). One that fails does not agree.
 */
export async function isAdmitted(rt: Runtime, socket: Socket, name: string, metadata: unknown): Promise<boolean> {
  const validators = rt.sockets.validatorsOf(name)
  if (validators.length === 0) return rt.config.realtime.rooms === 'open'
  for (const { owner, fn } of validators) {
    try {
      if (!(await fn(socketUser(rt, socket), name, metadata))) return false
    } catch (error) {
      if (statedRefusal(error) === undefined) rt.log.error({ err: error, extension: owner }, 'a room validator failed')
      return false
    }
  }
  return true
}
