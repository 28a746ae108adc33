import { logKeys } from '../adapters/log-key.ts'
import type { Logs } from '../adapters/logger.ts'
import type { Configuration } from '../config/config.ts'
import { rawQuery, sql } from '../db/sql.ts'
import { deleteExpired, expiringKinds } from '../db/unlogged/expiry.ts'
import type { Writes } from '../events/commit.ts'
import { type DirectSession, openDirectSession } from '../events/direct-session.ts'
import type { LogDb } from '../events/log-reader.ts'
import { ensurePartitionsSql } from '../events/log-table.ts'
import { type Expiry, expireEvents } from '../events/retention.ts'
import { pruneLinks, raiseSealFloor } from '../events/seals/seals.ts'
import { systemActor } from '../events/types.ts'
import { endInvites } from '../features/accounts/membership/membership.ts'

const monthsAhead = 3

/** Creates the log's partitions of the coming months. Needs a session that may change tables. */
export async function ensureLogPartitions({ config }: Configuration): Promise<void> {
  const session = await openDirectSession(config)
  try {
    for (const statement of ensurePartitionsSql(monthsAhead)) await session.any(rawQuery(statement))
  } finally {
    await session.close()
  }
}

const progressEveryMs = 5000
/** For the lock that drops a month: two seconds in all, of which writers wait a quarter of a second at a time. */
const lockAttempts = 5

/**
 * Removes events that are older than AUDIT_LOG_RETENTION_DAYS, where AUDIT_LOG_CLEANUP_ENABLED: whole months by dropping
 * their partition, the rest in batches. Of several workers one does it. Stops between two transactions and goes on there
 * the next time. Throws when a month was in use, so that the job is tried again.
 */
export async function cleanAuditLog(deps: Configuration & Logs, signal: AbortSignal): Promise<void> {
  const { auditCleanupEnabled, auditRetentionDays, consumerKeepDays, consumerKeepGb } = deps.config.log
  if (!auditCleanupEnabled) return
  const session = await openDirectSession(deps.config)
  try {
    if (!(await session.tryLock('daybook log cleanup'))) return deps.log.info('another worker cleans the log')
    const before = await raiseFloor(deps, session, await limitOf(session, auditRetentionDays))
    const forConsumers = { days: consumerKeepDays, bytes: consumerKeepGb * 2 ** 30 }
    const options = { signal, lockAttempts, forConsumers, onProgress: reportTo(deps) }
    const expiry = await expireEvents(logDbOf(session), before, options)
    deps.log.info({ ...expiry, before }, 'the log is clean')
    if (expiry.held.length > 0)
      deps.log.warn(
        { partitions: expiry.held },
        'expired months of the log stay for consumers that have yet to read them',
      )
    if (expiry.postponed.length > 0) throw new Error(`in use, to be dropped later: ${expiry.postponed.join(', ')}`)
  } finally {
    await session.close()
  }
}

/** By the database's clock, which has written the events. */
async function limitOf(session: DirectSession, days: number): Promise<Date> {
  const { before } = await session.one<{ before: Date }>(
    sql.unsafe`select now() - make_interval(days => ${days}) as before`,
  )
  return before
}

/** A sealed log says what may be gone before it goes, in whole days; so also where sealing was turned off since. */
async function raiseFloor({ config }: Configuration, session: DirectSession, limit: Date): Promise<Date> {
  const { keys } = logKeys(config)
  if (keys === undefined) throw new Error('SECRET_KEY is missing: the floor of the sealed log cannot be signed')
  const before = await session.transaction(systemActor, (tx) => raiseSealFloor(tx, keys, limit))
  while ((await pruneLinks(session)) > 0);
  return before
}

function logDbOf(session: DirectSession): LogDb {
  return { query: async (text, values = []) => ({ rows: [...(await session.any(rawQuery(text, values)))] }) }
}

function reportTo({ log }: Logs): (soFar: Expiry) => void {
  let reportedAt = performance.now()
  return ({ dropped, deleted }) => {
    if (performance.now() - reportedAt < progressEveryMs) return
    reportedAt = performance.now()
    log.info({ dropped: dropped.length, deleted }, 'old events are being removed')
  }
}

const batchSize = 1000

/**
 * Deletes what nobody can use any more: one-time secrets, tries, challenges, idempotency keys, counters and locks. Each
 * batch is a statement of its own; stops between two.
 */
export async function deleteWhatExpired(deps: Writes, signal: AbortSignal): Promise<void> {
  for (const what of expiringKinds) {
    let deleted = 0
    for (let count = batchSize; count === batchSize; deleted += count) {
      signal.throwIfAborted()
      count = await deleteExpired(deps, what, batchSize)
    }
    if (deleted > 0) deps.log.info({ deleted, what }, 'what had expired was deleted')
  }
  await endInvites(deps, signal)
}
