import { commitRow } from '../../events/commit.ts'
import { systemActor } from '../../events/types.ts'
import type { Runtime } from '../../runtime.ts'
import { expireOldInvites } from './queries.ts'

const batchSize = 500

/** Says of invitations that nobody has accepted in time that they are over; they stay, as a record of who was invited. */
export async function endInvites(rt: Runtime, signal: AbortSignal): Promise<void> {
  for (let count = batchSize; count === batchSize; ) {
    signal.throwIfAborted()
    count = (await commitRow(rt, systemActor, expireOldInvites(batchSize))).length
    if (count > 0) rt.log.info({ invitations: count }, 'invitations have expired')
  }
}
