import { deleteExpiredSessions } from '../../db/unlogged/sessions.ts'
import type { Runtime } from '../../runtime.ts'

/** As many as are notified one by one: more at once would make every process look at all of its sessions. */
const batchSize = 50

/** Deletes the rows of expired sessions, unless DISABLE_SESSION_CLEANUP (auth facts §1). Stops between two batches. */
export async function deleteOldSessions(rt: Runtime, signal: AbortSignal): Promise<void> {
  if (rt.config.auth.disableSessionCleanup) return
  let deleted = 0
  for (let count = batchSize; count === batchSize; deleted += count) {
    signal.throwIfAborted()
    count = await deleteExpiredSessions(rt, batchSize)
  }
  if (deleted > 0) rt.log.info({ deleted }, 'expired sessions were deleted')
}
