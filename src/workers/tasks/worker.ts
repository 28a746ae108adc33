import { claimDue, type Outcome, recoverTasks } from '../../features/tasks/outcomes.ts'
import { nextDueMs } from '../../features/tasks/queries.ts'
import { type ClaimedTask, creatorLeftMessage } from '../../features/tasks/tasks.ts'
import type { Runtime } from '../../runtime.ts'
import { openAlarm, within } from '../alarm.ts'
import { openClaims, repeat } from './claims.ts'
import { openInstanceLock } from './instance-lock.ts'
import { openPlaces } from './places.ts'
import type { Runner } from './runner.ts'
import { startRunner } from './runner.ts'
import { openRunners, type Runners } from './runners.ts'
import { openSchedules } from './schedules.ts'
import { openTasksService } from './service.ts'
import { isSuspect, openSuspicion } from './suspicion.ts'

/** The task worker of a process. */
export type TaskWorker = {
  /** Claims nothing more, waits up to `waitMs` for what runs, then ends it and gives its tasks back. Never rejects. */
  stop(waitMs: number): Promise<void>
}

/** What a worker has when a due task is not told of: the clock of its timers and the limit of one sleep. */
const longestSleepMs = 60_000
const pauseAfterErrorMs = 2000
const standbyMs = 5000
const graceMs = 5000
/** Of the places of a process; at least one. */
const shareOfSuspects = 1 / 4

/**
 * Runs the tasks of svc_Tasks whose types have a handler, and the schedules, until stopped: due tasks in the order of
 * their time, at most TASK_CONCURRENCY at once, each in a process of its own. Rejects when the extensions do not load.
 */
export async function openTasks(rt: Runtime): Promise<TaskWorker> {
  const { tasks } = rt.config
  const instanceId = rt.newId()
  const alarm = openAlarm()
  const claims = openClaims(rt)
  const places = openPlaces(tasks.concurrency, alarm.ring)
  const lock = openInstanceLock(rt, instanceId)
  const service = openTasksService(rt, { instanceId, claims, places, lock, wake: alarm.ring })
  const { openCalls } = service
  const first = await startRunner(rt, { openCalls })
  const runners = openRunners(rt, { openCalls, atMost: tasks.concurrency + 1, first })
  const suspicion = openSuspicion()
  const quarantine = openRunners(rt, {
    openCalls,
    yields: true,
    atMost: Math.max(1, Math.floor(tasks.concurrency * shareOfSuspects)),
    onReady: alarm.ring,
  })
  const timeouts = new Map(first.abilities.handlers.map(({ type, timeoutSeconds }) => [type, timeoutSeconds]))
  const types = [...timeouts.keys()]
  const running = new Set<Promise<void>>()
  let stopping = false
  let impatient = false

  const run = async (task: ClaimedTask, processes: Runners) => {
    const startedAt = performance.now()
    let lost = false
    let runner: Runner | undefined
    claims.hold(task, () => {
      lost = true
      runner?.kill('the task was given to another attempt')
    })
    try {
      runner = isRefused(rt, task) ? undefined : await processes.take()
      const outcome = await runOn(rt, claims, runner, task, timeouts.get(task.type) ?? tasks.timeoutSeconds)
      if (runner !== undefined) processes.give(runner)
      if (!lost && !impatient) suspect(task, outcome)
      const isRecorded = !lost && (await claims.settle(task, impatient ? givenBack(outcome) : outcome))
      const came = isRecorded ? outcome.state : 'lost'
      rt.instruments.task(came, (performance.now() - startedAt) / 1000)
      rt.log.info({ taskId: task.id, type: task.type, outcome: came }, 'task attempted')
    } catch (error) {
      rt.log.error({ err: error, taskId: task.id }, 'the outcome of a task was not recorded: it will be recovered')
    }
  }

  const suspect = (task: ClaimedTask, { state }: Outcome) => {
    if (state === 'broken') quarantine.prepare()
    const change = suspicion.note(task, state === 'broken')
    if (change === 'began') rt.log.warn({ type: task.type }, 'tasks of this type break: they get fewer places')
    if (change === 'ended') rt.log.info({ type: task.type }, 'tasks of this type get all places again')
  }

  const start = (task: ClaimedTask, processes: Runners) => {
    const place = places.take()
    const attributes = { 'daybook.task.id': task.id, 'daybook.retry': task.retry_count }
    const attempt = rt.tracing
      .span(`task ${task.type}`, { kind: 'consumer', attributes }, () => run(task, processes))
      .finally(() => {
        running.delete(attempt)
        place.free()
      })
    running.add(attempt)
  }

  /** Claims what is due and gives the time to sleep. */
  const look = async (): Promise<number | undefined> => {
    if (places.free() === 0) return undefined
    if (!(await lock.mayRun())) return standbyMs
    if (types.length === 0) return longestSleepMs
    // Who waits for a process holds a place: only as many as have one.
    const wanted = { types, suspectTypes: suspicion.types(), suspects: quarantine.ready() }
    const due = await claimDue(rt, wanted, places.free())
    for (const task of due) start(task, isSuspect(task, suspicion.types()) ? quarantine : runners)
    if (due.length > 0) return 0
    return Math.min((await nextDueMs(rt.db, wanted)) ?? longestSleepMs, longestSleepMs)
  }

  const work = async () => {
    while (!stopping) {
      const sleepMs = await look().catch((error: unknown) => {
        rt.log.warn({ err: error }, 'due tasks could not be claimed yet')
        return pauseAfterErrorMs
      })
      if (sleepMs !== 0 && !stopping) await alarm.wait(sleepMs)
    }
  }

  await recoverTasks(rt)
  rt.listener.on('svc_tasks', alarm.ring)
  rt.listener.onReconnect(alarm.ring)
  const refreshes = repeat(rt, tasks.listRefreshIntervalSeconds * 1000, service.refresh)
  const schedules = openSchedules(rt, { openCalls, known: first.abilities.schedules })
  const worked = work()

  return {
    async stop(waitMs) {
      stopping = true
      refreshes.close()
      alarm.ring()
      const idle = Promise.all([worked.then(() => Promise.all(running)), schedules.stop()])
      await within(waitMs, idle)
      impatient = true
      service.stop()
      claims.giveUp()
      await Promise.all([runners.stop(), quarantine.stop(), schedules.kill()])
      await within(graceMs, idle)
      claims.close()
      await lock.release()
    },
  }
}

async function runOn(
  rt: Runtime,
  claims: ReturnType<typeof openClaims>,
  runner: Runner | undefined,
  task: ClaimedTask,
  timeoutSeconds: number,
): Promise<Outcome> {
  if (isRefused(rt, task)) {
    rt.log.warn({ taskId: task.id, tenantId: task.tenant_Id }, 'a task was refused: its tenant has lost its creator')
    return { state: 'failed', message: creatorLeftMessage }
  }
  if (runner === undefined) return { state: 'given back' }
  const timer = setTimeout(
    () => runner.kill(`Task stalled: it took longer than ${timeoutSeconds} s`),
    timeoutSeconds * 1000,
  )
  const outcome = await runner.run({ kind: 'task', task }, (progress) => claims.progress(task.id, progress))
  clearTimeout(timer)
  return outcome
}

/** What was ended because the worker stops has not failed. */
function givenBack(outcome: Outcome): Outcome {
  return outcome.state === 'broken' ? { state: 'given back' } : outcome
}

/** A tenant's work is not done for somebody who does not belong to it any more (quality T-09). */
function isRefused(rt: Runtime, { creatorLeft }: ClaimedTask): boolean {
  return rt.config.tenancy.enabled && creatorLeft
}
