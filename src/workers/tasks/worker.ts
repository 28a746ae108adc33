import { openFailures } from '../../adapters/failures.ts'
import type { Configuration } from '../../config/config.ts'
import type { Reads } from '../../db/pools.ts'
import type { Writes } from '../../events/commit.ts'
import type { Meters } from '../../features/operations/metrics/metrics.ts'
import {
  type AttemptOutcome,
  type ClaimedTask,
  claimDue,
  creatorLeftMessage,
  nextDueMs,
  recoverTasks,
} from '../../features/work/tasks/tasks.ts'
import { endWithin, openWakeup, orPause, repeat } from '../wakeup.ts'
import {
  type CircuitBreaker,
  type Claims,
  decideClaim,
  decideRecord,
  decideSleep,
  isIsolated,
  openCircuitBreaker,
  openClaims,
  openSlots,
  type Slots,
} from './claims.ts'
import { type InstanceLock, openInstanceLock } from './instance-lock.ts'
import { openRunners, type RunnerPool, startRunner, type TaskRunner } from './runners.ts'
import { openSchedules } from './schedules.ts'
import { openTasksService, type TaskWorkerWrites } from './service.ts'

/** The task worker of a process. */
type TaskWorker = {
  /** Claims nothing more, waits up to `waitMs` for what runs, then ends it and gives its tasks back. Never rejects. */
  stop(waitMs: number): Promise<void>
}

/** Of the slots of a process; at least one. */
const isolatedShare = 1 / 4

/**
 * Runs the tasks of svc_Tasks whose types have a handler, and the schedules, until stopped: due tasks in the order of
 * their time, at most TASK_CONCURRENCY at once, each in a process of its own. Rejects when the extensions do not load.
 */
export async function openTasks(deps: TaskWorkerWrites): Promise<TaskWorker> {
  const { concurrency, listRefreshIntervalSeconds } = deps.config.tasks
  // Before anything is opened that would have to be closed where the database is away.
  await recoverTasks(deps)
  const instanceId = deps.newId()
  const { wake, wait } = openWakeup()
  const claims = openClaims(deps)
  const slots = openSlots(concurrency, wake)
  const lock = openInstanceLock(deps, instanceId)
  const service = openTasksService(deps, { instanceId, claims, slots, lock, wake })
  const { openCalls } = service
  const first = await startRunner(deps, { openCalls })
  const isolatedAtMost = Math.max(1, Math.floor(concurrency * isolatedShare))
  const worker: Worker = {
    ...{ deps, claims, slots, lock },
    timeouts: new Map(first.abilities.handlers.map(({ type, timeoutSeconds }) => [type, timeoutSeconds])),
    runners: openRunners(deps, { openCalls, atMost: concurrency + 1, first }),
    quarantine: openRunners(deps, { openCalls, yields: true, atMost: isolatedAtMost, onReady: wake }),
    breaker: openCircuitBreaker(),
    running: new Set(),
    isStopping: false,
    isEnding: false,
  }
  deps.listener.on('svc_tasks', wake)
  deps.listener.onReconnect(wake)
  const refreshes = repeat(
    deps,
    'the list of tasks could not be read',
    listRefreshIntervalSeconds * 1000,
    service.refresh,
  )
  const schedules = openSchedules(deps, { openCalls, known: first.abilities.schedules })
  const worked = work(worker, wait)

  return {
    async stop(waitMs) {
      worker.isStopping = true
      refreshes.close()
      wake()
      const idle = Promise.all([worked.then(() => Promise.all(worker.running)), schedules.stop()])
      await endWithin(waitMs, idle, () => {
        worker.isEnding = true
        service.stop()
        claims.giveUp()
        return Promise.all([worker.runners.stop(), worker.quarantine.stop(), schedules.kill()])
      })
      claims.close()
      await lock.release()
    },
  }
}

type Worker = {
  readonly deps: Reads & Writes & Meters
  readonly claims: Claims
  readonly slots: Slots
  readonly lock: InstanceLock
  /** Seconds, for each type that has a handler; undefined where it has TASK_TIMEOUT. */
  readonly timeouts: ReadonlyMap<string, number | undefined>
  readonly runners: RunnerPool
  /** For tasks that run in isolation. */
  readonly quarantine: RunnerPool
  readonly breaker: CircuitBreaker
  readonly running: Set<Promise<void>>
  isStopping: boolean
  /** The time to stop is over: what runs is ended. */
  isEnding: boolean
}

async function work(worker: Worker, wait: (ms: number | undefined) => Promise<void>): Promise<void> {
  const failures = openFailures(worker.deps, 'due tasks could not be claimed yet')
  while (!worker.isStopping) {
    const sleepMs = await orPause(failures, () => look(worker))
    if (sleepMs !== 0 && !worker.isStopping) await wait(sleepMs)
  }
}

/** Claims what is due and gives the time to sleep. */
async function look(worker: Worker): Promise<number | undefined> {
  const { deps, slots, lock, timeouts, breaker, quarantine, runners } = worker
  const freeSlots = slots.free()
  const decision = decideClaim({
    freeSlots,
    mayRun: freeSlots > 0 && (await lock.mayRun()),
    types: [...timeouts.keys()],
    isolatedTypes: breaker.openTypes(),
    // A task that waits for a process holds a slot: only as many as have one.
    isolatedAtMost: quarantine.ready(),
  })
  if (!('claim' in decision)) return decision.sleepMs
  const due = await claimDue(deps, decision.claim, decision.limit)
  for (const task of due) start(worker, task, isIsolated(task, breaker.openTypes()) ? quarantine : runners)
  return due.length > 0 ? 0 : decideSleep(await nextDueMs(deps.db, decision.claim))
}

function start(worker: Worker, task: ClaimedTask, pool: RunnerPool): void {
  const { deps, slots, running } = worker
  const slot = slots.take()
  const attributes = { 'daybook.task.id': task.id, 'daybook.retry': task.retry_count }
  const attempt = deps.tracing
    .span(`task ${task.type}`, { kind: 'consumer', attributes }, () => run(worker, task, pool))
    .finally(() => {
      running.delete(attempt)
      slot.free()
    })
  running.add(attempt)
}

async function run(worker: Worker, task: ClaimedTask, pool: RunnerPool): Promise<void> {
  const { deps, claims } = worker
  const startedAt = performance.now()
  let isLost = false
  let runner: TaskRunner | undefined
  claims.hold(task, () => {
    isLost = true
    runner?.kill('the task was given to another attempt')
  })
  try {
    runner = isRefused(deps, task) ? undefined : await pool.take()
    const outcome = await runOn(worker, runner, task)
    if (runner !== undefined) pool.give(runner)
    if (!isLost && !worker.isEnding) noteAttempt(worker, task, outcome)
    const recorded = decideRecord(outcome, { isLost, isStopping: worker.isEnding })
    const isRecorded = recorded !== undefined && (await claims.settle(task, recorded))
    const came = isRecorded ? outcome.state : 'lost'
    deps.instruments.task(came, (performance.now() - startedAt) / 1000)
    deps.log.info({ taskId: task.id, type: task.type, outcome: came }, 'task attempted')
  } catch (error) {
    deps.log.error({ err: error, taskId: task.id }, 'the outcome of a task was not recorded: it will be recovered')
  }
}

function noteAttempt({ deps, quarantine, breaker }: Worker, task: ClaimedTask, { state }: AttemptOutcome): void {
  if (state === 'broken') quarantine.prepare()
  const change = breaker.note(task, state === 'broken')
  if (change === 'opened') deps.log.warn({ type: task.type }, 'tasks of this type break: they get fewer slots')
  if (change === 'closed') deps.log.info({ type: task.type }, 'tasks of this type get all slots again')
}

async function runOn(
  { deps, claims, timeouts }: Worker,
  runner: TaskRunner | undefined,
  task: ClaimedTask,
): Promise<AttemptOutcome> {
  if (isRefused(deps, task)) {
    deps.log.warn({ taskId: task.id, tenantId: task.tenant_Id }, 'a task was refused: its tenant has lost its creator')
    return { state: 'failed', message: creatorLeftMessage }
  }
  if (runner === undefined) return { state: 'given back' }
  const timeoutSeconds = timeouts.get(task.type) ?? deps.config.tasks.timeoutSeconds
  const stall = () => runner.kill(`Task stalled: it took longer than ${timeoutSeconds} s`)
  const timer = setTimeout(stall, timeoutSeconds * 1000)
  const outcome = await runner.run({ kind: 'task', task }, (progress) => claims.progress(task.id, progress))
  clearTimeout(timer)
  return outcome
}

/** A tenant's work is not done for a user who does not belong to it any more. */
function isRefused({ config }: Configuration, { creatorLeft }: ClaimedTask): boolean {
  return config.tenancy.enabled && creatorLeft
}
