import type { JobWithMetadata } from 'pg-boss'
import { type Failures, openFailures } from '../adapters/failures.ts'
import type { Logs } from '../adapters/logger.ts'
import { pauseAfter, retryTransient } from '../adapters/retry.ts'
import type { Traces } from '../adapters/tracing.ts'
import type { ResultCache } from '../cache/data-cache.ts'
import type { Writes } from '../events/commit.ts'
import { actorOfJob, type JobData, type Jobs, misfitOf, putBackJobs, type QueueName } from '../events/jobs.ts'
import type { Actor } from '../events/types.ts'
import type { Meters } from '../features/operations/metrics/metrics.ts'
import type { WorkerWrites } from './capabilities.ts'
import { endWithin, graceMs, openWakeup, within } from './wakeup.ts'

/** One claim of a job by this process. It lapses when the queue's time limit is over, or when the job was given away. */
type JobAttempt = {
  readonly id: string
  /** 0 for the first attempt. With `retryCount === retryLimit` a failure is final and the job becomes a dead letter. */
  readonly retryCount: number
  readonly retryLimit: number
  /** The group that the job was enqueued with. */
  readonly group: string | undefined
  /** The actor for whom it is done: everything that the job changes is written by it, with what led to it. */
  readonly actor: Actor
  /** Aborts when the attempt lapses and when the worker cannot wait any longer; a handler that goes on then is a zombie. */
  readonly signal: AbortSignal
}

/** Shares the places of a queue among groups of jobs, so that one group cannot take them all. */
export type Admission = {
  /** Groups whose jobs stay in the queue for now. */
  full(): readonly string[]
  /** How many jobs of any one group can start now, 1 or more. */
  room(): number
  /** Whether the job may start. One that may not goes back as it was: it has made no attempt. */
  enter(jobId: string, group: string | undefined): boolean
}

/**
 * Does one job. Runs at least once per job, so its effects must bear a repetition. Throwing means a retry with the
 * queue's backoff; throwing a `PermanentError` means that no retry can help.
 */
export type Handler<Name extends QueueName> = (
  deps: Writes & ResultCache,
  data: JobData[Name],
  job: JobAttempt,
) => Promise<void>

/** No retry can help. The job ends at once, its output says why; the record of the failure belongs in a row of ours. */
export class PermanentError extends Error {
  override readonly name = 'PermanentError'
}

export type QueueOptions<Name extends QueueName> = {
  readonly queue: Name
  readonly handler: Handler<Name>
  /** Jobs that run at the same time in this process. Every fetched job starts at once, so no claim grows old unused. */
  readonly concurrency: number
  /** Jobs fetched at once; as many as may run when not given. */
  readonly batchSize?: number
  /** Milliseconds between looks at the queue when nothing wakes the loop. Retries and schedules are found by it. */
  readonly pollMs?: number
  /** Milliseconds between signs of life of running jobs, where the queue asks for them. */
  readonly heartbeatMs?: number
  /** None where all jobs are alike. */
  readonly admission?: Admission
}

export type QueueRun = {
  /**
   * Takes no new job, waits up to `waitMs` for the running ones, then aborts them. Jobs that end because of that go
   * back to the queue and are retried; others come back when their time limit is over. Never rejects.
   */
  stop(waitMs: number): Promise<void>
}

const defaultPollMs = 2000
/** A third of what the queues allow: one that fails is no death. */
const defaultHeartbeatMs = 10_000
const backoff = { firstMs: 100, longestMs: 10_000 }
const afterRefusalMs = 100

/**
 * Works on a queue until stopped: fetches batches, runs them with bounded concurrency and reports their outcomes in
 * batches. New jobs wake it by NOTIFY; a backlog is drained without pauses. Database errors only slow it down.
 *
 * Ours, because pg-boss's own `work()` waits a poll interval between batches.
 */
export function runQueue<Name extends QueueName>(deps: WorkerWrites, options: QueueOptions<Name>): QueueRun {
  const { queue, heartbeatMs = defaultHeartbeatMs } = options
  const { wake, wait } = openWakeup()
  const loop: QueueLoop<Name> = {
    deps,
    options,
    wake,
    running: new Map(),
    outcomes: openOutcomes(deps, queue),
    heartbeat: openHeartbeat(deps, queue, heartbeatMs),
    isStopping: false,
    isEnding: false,
  }
  deps.listener.on('svc_jobs', (name) => name === queue && wake())
  deps.listener.onReconnect(wake)
  const worked = work(loop, wait)
  return { stop: (waitMs) => stop(loop, worked, waitMs) }
}

type QueueLoop<Name extends QueueName> = {
  readonly deps: Writes & Meters & ResultCache
  readonly options: QueueOptions<Name>
  wake(): void
  readonly running: Map<AbortController, Promise<void>>
  readonly outcomes: ReturnType<typeof openOutcomes>
  readonly heartbeat: ReturnType<typeof openHeartbeat>
  isStopping: boolean
  /** The time to stop is over: what runs is aborted. */
  isEnding: boolean
}

async function work<Name extends QueueName>(
  loop: QueueLoop<Name>,
  wait: (ms: number | undefined) => Promise<void>,
): Promise<void> {
  const { deps, options, running } = loop
  const { queue, concurrency, batchSize = concurrency, pollMs = defaultPollMs, admission } = options
  const failures = openFailures(deps, 'jobs could not be fetched', { queue })
  while (!loop.isStopping) {
    const free = concurrency - running.size
    const most = Math.min(free, batchSize, admission?.room() ?? free)
    const jobs = free === 0 ? [] : await fetchJobs<Name>(deps, queue, most, failures, admission?.full())
    if (typeof jobs === 'number') {
      await wait(pauseAfter(jobs, backoff))
      continue
    }
    const refused = jobs.filter((job) => !begin(loop, job))
    if (refused.length > 0) await putBack(deps, queue, refused)
    if (jobs.length === 0) await wait(free === 0 ? undefined : pollMs)
    // The next look leaves out the groups of these; where it cannot, looking again and again would not help.
    else if (refused.length === jobs.length) await wait(Math.min(pollMs, afterRefusalMs))
  }
}

/** False for a job that may not start now: also one that a fetch brings after the waiting for running ones ended. */
function begin<Name extends QueueName>(loop: QueueLoop<Name>, job: FetchedJob<Name>): boolean {
  if (loop.isEnding) return false
  const misfit = misfitOf(loop.options.queue, job.data)
  if (misfit === undefined && loop.options.admission?.enter(job.id, groupOf(job)) === false) return false
  start(loop, job, misfit)
  return true
}

/** A job whose data do not fit is given up without a place and a handler. */
function start<Name extends QueueName>(loop: QueueLoop<Name>, job: FetchedJob<Name>, misfit: string | undefined): void {
  const { deps, options, wake, running, outcomes, heartbeat } = loop
  const { queue, handler, concurrency, admission } = options
  const controller = new AbortController()
  heartbeat.begin(job)
  const startedAt = performance.now()
  const run = async () => (misfit === undefined ? runJob(deps, handler, job, controller) : new PermanentError(misfit))
  const attempt = runTraced(deps, queue, job, run).then((error) => {
    heartbeat.end(job)
    deps.instruments.job(queue, outcomeOf(error), (performance.now() - startedAt) / 1000)
    outcomes.add({ id: job.id, retryCount: job.retryCount, error })
    const wasFull = running.size >= concurrency
    running.delete(controller)
    // Its group may start another job.
    if (wasFull || admission !== undefined) wake()
  })
  running.set(controller, attempt)
}

async function stop<Name extends QueueName>(
  loop: QueueLoop<Name>,
  worked: Promise<void>,
  waitMs: number,
): Promise<void> {
  const { deps, options, wake, running, heartbeat, outcomes } = loop
  const idle = worked.then(() => Promise.all(running.values()))
  loop.isStopping = true
  wake()
  await endWithin(waitMs, idle, () => {
    loop.isEnding = true
    for (const controller of running.keys()) controller.abort(stopReason())
  })
  if (running.size > 0)
    deps.log.warn({ queue: options.queue, jobs: running.size }, 'jobs did not stop; they will be run again')
  heartbeat.stop()
  await within(graceMs, outcomes.written())
}

function stopReason(): Error {
  return new Error('the worker is stopping')
}

type FetchedJob<Name extends QueueName> = JobWithMetadata<JobData[Name]>

/** Continues the trace of the request that the job came from, however much later. Its errors are in the log. */
async function runTraced<Name extends QueueName>(
  { tracing }: Traces,
  queue: Name,
  { id, data, retryCount }: FetchedJob<Name>,
  run: () => Promise<Error | undefined>,
): Promise<Error | undefined> {
  if (!tracing.isOn) return run()
  const { traceparent: parent } = (data ?? {}) as { traceparent?: unknown }
  const attributes = { 'messaging.destination.name': queue, 'messaging.message.id': id, 'daybook.retry': retryCount }
  const span = tracing.begin(`job ${queue}`, { kind: 'consumer', attributes, parent })
  const error = await span.within(run)
  span.end(error && outcomeOf(error))
  return error
}

function outcomeOf(error: Error | undefined) {
  if (error === undefined) return 'completed'
  return error instanceof PermanentError ? 'given up' : 'failed'
}

/** When the database could not answer, how often in a row it could not. */
async function fetchJobs<Name extends QueueName>(
  { boss }: Jobs,
  queue: Name,
  batchSize: number,
  failures: Failures,
  ignoreGroups: readonly string[] = [],
): Promise<FetchedJob<Name>[] | number> {
  try {
    const jobs = await (await boss()).fetch<JobData[Name]>(queue, {
      batchSize,
      includeMetadata: true,
      ignoreGroups: [...ignoreGroups],
    })
    failures.worked()
    return jobs
  } catch (error) {
    return failures.failed(error)
  }
}

const groupOf = (job: { readonly groupId?: string | null }) => job.groupId ?? undefined

/** Jobs that no handler has seen. Where the database cannot take them they come back as those of a killed worker do. */
async function putBack(deps: Jobs & Logs, queue: QueueName, jobs: readonly JobWithMetadata[]): Promise<void> {
  try {
    await putBackJobs(deps, queue, jobs)
  } catch (error) {
    deps.log.warn({ err: error, queue, jobs: jobs.length }, 'jobs could not be put back')
  }
}

/** Resolves with what the handler threw, undefined when it succeeded. */
async function runJob<Name extends QueueName>(
  deps: Writes & ResultCache,
  handler: Handler<Name>,
  job: FetchedJob<Name>,
  controller: AbortController,
): Promise<Error | undefined> {
  const { id, data, retryCount, retryLimit, expireInSeconds } = job
  const lapse = () => controller.abort(new Error(`the job took longer than ${expireInSeconds} s`))
  const timer = setTimeout(lapse, expireInSeconds * 1000)
  try {
    const attempt = { id, retryCount, retryLimit, group: groupOf(job), actor: actorOfJob(data) }
    await handler(deps, data, { ...attempt, signal: controller.signal })
    return undefined
  } catch (thrown) {
    return thrown instanceof Error ? thrown : new Error(String(thrown))
  } finally {
    clearTimeout(timer)
  }
}

type JobOutcome = { readonly id: string; readonly retryCount: number; readonly error: Error | undefined }

/** Collects outcomes while one batch of them is being written, and writes them until the database has taken them. */
function openOutcomes(deps: Jobs & Logs, queue: QueueName) {
  let waiting: JobOutcome[] = []
  let writing: Promise<void> | undefined

  const writeWaiting = async () => {
    const batch = waiting
    waiting = []
    try {
      await writeOutcomes(deps, queue, batch)
    } catch (error) {
      waiting = [...batch, ...waiting]
      throw error
    }
  }
  const failures = openFailures(deps, 'outcomes of jobs could not be written yet', { queue })
  const onRetry = failures.failed
  const write = async () => {
    while (waiting.length > 0) await retryTransient(writeWaiting, { backoff, unref: true, onRetry })
    failures.worked()
    writing = undefined
  }

  return {
    add(outcome: JobOutcome) {
      waiting.push(outcome)
      writing ??= write()
    },
    written: async () => writing,
  }
}

/**
 * Every report names the attempt (`id` and `retryCount`): pg-boss ignores it when the job has been given to another worker
 * meanwhile. Writing one twice is harmless for the same reason. One round trip for all successes, one for each
 * reason of failure.
 */
async function writeOutcomes(
  { log, boss: started }: Jobs & Logs,
  queue: QueueName,
  batch: readonly JobOutcome[],
): Promise<void> {
  const boss = await started()
  for (const group of Map.groupBy(batch, reasonOf).values()) {
    const attempts = group.map(({ id, retryCount }) => ({ id, retryCount }))
    const error = group[0]?.error
    const permanent = error instanceof PermanentError
    if (error !== undefined)
      log.warn({ queue, attempts, err: error }, permanent ? 'jobs ended in failure' : 'jobs failed')
    if (error === undefined) await boss.complete(queue, attempts)
    else if (permanent) await boss.complete(queue, attempts, { message: error.message, permanent })
    else await boss.fail(queue, attempts, { message: error.message })
  }
}

function reasonOf({ error }: JobOutcome): string {
  return error === undefined ? '' : `${error.name} ${error.message}`
}

type Heartbeat = { readonly id: string; readonly retryCount: number; readonly heartbeatSeconds: number | null }

/**
 * Says of running jobs that they run, where their queue asks for it: a job whose process has died is given to another
 * one after `heartbeatSeconds`, long before its time limit. Signs name the attempt, so a zombie's count for nothing.
 */
function openHeartbeat(deps: Jobs & Logs, queue: QueueName, everyMs: number) {
  const beating = new Set<Heartbeat>()
  const failures = openFailures(deps, 'heartbeats of running jobs could not be sent', { queue })
  const beat = async () => {
    if (beating.size === 0) return
    try {
      await (await deps.boss()).touch(
        queue,
        [...beating].map(({ id, retryCount }) => ({ id, retryCount })),
      )
      failures.worked()
    } catch (error) {
      failures.failed(error)
    }
  }
  const timer = setInterval(beat, everyMs)
  timer.unref()
  return {
    begin(job: Heartbeat) {
      if (job.heartbeatSeconds !== null) beating.add(job)
    },
    end: (job: Heartbeat) => void beating.delete(job),
    stop: () => clearInterval(timer),
  }
}
