import { commitRow } from '../../events/commit.ts'
import { systemActor } from '../../events/types.ts'
import type { Runtime } from '../../runtime.ts'
import { deleteOldMails } from './queries.ts'

/** Deletions are events with the rows in them, so a batch is small. */
const batchSize = 500

/**
 * Deletes mails that were sent or have failed EMAIL_LOG_RETENTION_DAYS ago, where EMAIL_LOG_CLEANUP_ENABLED. Each batch is
 * a transaction; stops between two.
 */
export async function cleanMailLog(rt: Runtime, signal: AbortSignal): Promise<void> {
  const { emailCleanupEnabled, emailRetentionDays } = rt.config.log
  if (!emailCleanupEnabled) return
  let deleted = 0
  for (const status of ['sent', 'failed'] as const)
    for (let count = batchSize; count === batchSize; deleted += count) {
      signal.throwIfAborted()
      count = (await commitRow(rt, systemActor, deleteOldMails(status, emailRetentionDays, batchSize))).length
      if (count > 0) rt.log.info({ deleted: deleted + count, status }, 'old mails are being deleted')
    }
}
