import { deleteExpired, expiringKinds } from '../db/unlogged/expiry.ts'
import { endInvites } from '../features/tenants/jobs.ts'
import type { Runtime } from '../runtime.ts'

const batchSize = 1000

/**
 * Deletes what nobody can use any more: one-time secrets, tries, challenges, idempotency keys, counters and locks. Each
 * batch is a statement of its own; stops between two.
 */
export async function deleteWhatExpired(rt: Runtime, signal: AbortSignal): Promise<void> {
  for (const what of expiringKinds) {
    let deleted = 0
    for (let count = batchSize; count === batchSize; deleted += count) {
      signal.throwIfAborted()
      count = await deleteExpired(rt, what, batchSize)
    }
    if (deleted > 0) rt.log.info({ deleted, what }, 'what had expired was deleted')
  }
  await endInvites(rt, signal)
}
