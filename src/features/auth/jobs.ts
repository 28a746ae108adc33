import { deleteExpiredSessions } from '../../db/unlogged.ts'
import type { Runtime } from '../../runtime.ts'

/** As many as are notified one by one: more at once would make every process look at all of its sessions. */
const batchSize = 50

/** Deletes the rows of expired sessions, unless DISABLE_SESSION_CLEANUP (auth facts §1). Stops between two batches. */
export async function deleteOldSessions(rt: Runtime, signal: AbortSignal): Promise<void> {
  if (rt.config.auth.disableSessionCleanup) return
  for (let deleted = batchSize; deleted === batchSize; ) {
    signal.throwIfAborted()
    deleted = await deleteExpiredSessions(rt, batchSize)
  }
}
