import { setTimeout as delay } from 'node:timers/promises'
import { openFailures } from '../adapters/failures.ts'
import { type LogKeys, logKeys } from '../adapters/log-key.ts'
import type { Logs } from '../adapters/logger.ts'
import type { Configuration } from '../config/config.ts'
import { rawQuery, sql } from '../db/sql.ts'
import { unregisterConsumer } from '../db/unlogged/consumers.ts'
import { deleteExpired, expiringKinds } from '../db/unlogged/requests.ts'
import { commit, type Writes } from '../events/commit.ts'
import { type Consumer, type ConsumerPage, consumerStates, moveTo } from '../events/consumer.ts'
import { type DirectSession, openDirectSession } from '../events/direct-session.ts'
import type { BriefEvent, LogDb } from '../events/log-reader.ts'
import { ensurePartitionsSql } from '../events/log-table.ts'
import { type Expiry, expireEvents } from '../events/retention.ts'
import {
  isSweepDue,
  pruneLinks,
  raiseSealFloor,
  type Sweep,
  sealPage,
  sealSummary,
  sweepGap,
  sweepOn,
} from '../events/seals/seals.ts'
import { systemActor } from '../events/types.ts'
import { endInvites } from '../features/accounts/membership/membership.ts'
import type { OpenedService, WorkerWrites } from './capabilities.ts'
import { openConsumers } from './consumers.ts'
import { type HeadFile, openHeadFile } from './head-file.ts'

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
  const { before } = await session.one<{ before: Date }>(sql`select now() - make_interval(days => ${days}) as before`)
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
 * Deletes what has become useless: one-time secrets, tries, challenges, idempotency keys, counters and locks. Each
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

/** Where nothing is sealed it has nothing to say of itself. */
type Sealing = OpenedService

/** Under which the place of sealing is kept among the consumers. */
const name = 'seals'

/** Small rounds are collected: an event is sealed within ten seconds, and a seal costs as much for one event as for many. */
const paceMs = 5000

type UpkeepTiming = { readonly paceMs: number; readonly lookMs: number }
const defaultTiming: UpkeepTiming = { paceMs, lookMs: 2000 }

/**
 * Seals the log until stopped, however many processes do so: as a consumer of the log, and beside it what the consumer has
 * passed over. Appends each head to LOG_SEAL_FILE. With LOG_SEALS=false nothing is sealed, and the log is
 * kept in vain.
 */
export async function openSeals(deps: WorkerWrites, timing: Partial<UpkeepTiming> = {}): Promise<Sealing> {
  const { keys } = logKeys(deps.config)
  if (!deps.config.log.seals || keys === undefined) {
    deps.log.info('LOG_SEALS is false: the log is not sealed')
    await unregisterConsumer(deps, name)
    return { stop: async () => undefined }
  }
  const { paceMs, lookMs } = { ...defaultTiming, ...timing }
  const consumers = await openConsumers(deps, [sealConsumer(keys, paceMs)])
  const stopping = new AbortController()
  const { sealFile } = deps.config.log
  const heads = sealFile === undefined ? undefined : openHeadFile(deps, sealFile)
  if (heads !== undefined) registerHeadFile(deps, heads)
  const looking = lookAfter(deps, { keys, heads }, lookMs, stopping.signal)
  return {
    readiness: async () => ({ ...(await consumers.readiness()), ...heads?.readiness() }),
    stop: async (waitMs) => {
      stopping.abort()
      await Promise.all([consumers.stop(waitMs), looking])
    },
  }
}

/** A wrong seal would stay wrong for ever, so the consumer halts at events that it can't seal. */
function sealConsumer(keys: LogKeys, paceMs: number): Consumer {
  let sealed = '0'
  let asked: ReturnType<typeof sealSummary> | undefined
  return {
    name,
    wants: () => {
      asked = sealSummary(sealed)
      return { brief: asked.summary }
    },
    onFailure: 'halt',
    paceMs,
    handle: async (tx, { summarized, ...page }: ConsumerPage<BriefEvent>) => {
      await sealPage(tx, keys, { ...page, leaves: asked && summarized && { ...asked, ...summarized } })
      sealed = page.events.at(-1)!.position
      return undefined
    },
  }
}

function registerHeadFile({ instruments: { metrics } }: WorkerWrites, heads: HeadFile): void {
  metrics.gauge({ name: 'daybook_log_seal_file_up', help: '1 while heads can be appended to LOG_SEAL_FILE.' }, () => [
    { value: heads.readiness().sealFile.ok ? 1 : 0 },
  ])
}

type Sealer = { readonly keys: LogKeys; readonly heads: HeadFile | undefined }

async function lookAfter(
  deps: WorkerWrites,
  { keys, heads }: Sealer,
  lookMs: number,
  stopping: AbortSignal,
): Promise<void> {
  const seal = <T>(work: Parameters<typeof commit<T>>[2]) => commit(deps, systemActor, work)
  let seen: string | undefined
  const steps = [
    // Retention went past it while no worker ran: what is left is swept up.
    async () => {
      const own = (await consumerStates(deps.db)).find((consumer) => consumer.name === name)
      if (own?.state === 'stopped') await moveTo(deps, name, 'now')
    },
    async () => {
      if (!(await isSweepDue(deps.db, name, seen))) return
      seen = await seal(async (tx) => ({ result: await sweepGap(tx, keys, name, seen) }))
      for (let sweep: Sweep = { after: '0', done: false }; !sweep.done && !stopping.aborted; )
        sweep = await seal(async (tx) => ({ result: await sweepOn(tx, keys, sweep) }))
    },
    async () => heads?.catchUp(stopping),
  ]
  const failures = openFailures(deps, 'upkeep of the seals of the log failed; it is tried again')
  while (!stopping.aborted) {
    const outcomes = []
    for (const step of steps) outcomes.push(await step().then(() => undefined, failures.failed))
    if (outcomes.every((failed) => failed === undefined)) failures.worked()
    await delay(lookMs, undefined, { signal: stopping }).catch(() => undefined)
  }
}
