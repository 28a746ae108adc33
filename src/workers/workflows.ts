import { deleteUnusedVersions, touchExecutions } from '../db/unlogged/workflows.ts'
import { loadExtensions } from '../extensions/extensions.ts'
import type { ClaimedExecution } from '../features/work/workflows/workflows.ts'
import type { OpenedService, WorkerWrites } from './capabilities.ts'
import { openConsumers } from './consumers.ts'
import { openWakeup, repeat, within } from './wakeup.ts'

/** Signs of life, well within the lease of an execution. */
const beatMs = 5000
const longestSleepMs = 30_000
const pauseAfterErrorMs = 2000
/** Executions that share a transaction make more of them than of their own (group-commit.ts). */
const transactionsAtOnce = 3
/** While most places are taken. */
const betweenClaimsMs = 50
/** A moment more, or what is not yet due by a hair would be asked for again at once. */
const afterDueMs = 5

/**
 * The worker of workflows: runs executions that are due, WORKFLOW_CONCURRENCY at a time; follows the log for those that are
 * triggered by changes; and starts those that are scheduled. Any number of processes may run it.
 */
export async function openWorkflows(rt: WorkerWrites): Promise<OpenedService> {
  if (!rt.config.workflows.enabled) {
    rt.log.warn('WORKFLOWS_ENABLED is false: executions of workflows wait')
    return { stop: async () => undefined }
  }
  // What nodes write meets the hooks of extensions, and nodes may be theirs.
  await loadExtensions(rt)
  const workflows = await import('../features/work/workflows/workflows.ts')
  const triggers = await workflows.openTriggers(rt)
  const consumers = await openConsumers(rt, [triggers.consumer])
  const executions = openExecutions(rt, workflows)
  const schedules = openTicks(rt, triggers.tick)
  const tidying = repeat(rt, tidyMs, () => tidy(rt, workflows))
  return {
    readiness: consumers.readiness,
    stop: async (waitMs) => {
      tidying.close()
      await Promise.all([consumers.stop(waitMs), schedules.stop(waitMs), executions.stop(waitMs)])
    },
  }
}

const tidyMs = 600_000
const deletedAtOnce = 500

/** Removes what is older than it is kept, a little at a time. */
async function tidy(rt: WorkerWrites, { deleteOldExecutions }: Workflows): Promise<void> {
  const days = rt.config.workflows.executionRetentionDays
  while ((await deleteOldExecutions(rt, days, deletedAtOnce)) === deletedAtOnce);
  while ((await deleteUnusedVersions(rt, days, deletedAtOnce)) === deletedAtOnce);
}

type Workflows = typeof import('../features/work/workflows/workflows.ts')

/** The executions that run in this process; `onEnd` is called when one has ended, or waits. */
function openPlaces(rt: WorkerWrites, workflows: Workflows, stopping: AbortSignal, onEnd: () => void) {
  const { giveBack, runExecution, ClaimLost } = workflows
  const commitInGroup = workflows.openGroupCommit(rt, transactionsAtOnce)
  const running = new Map<ClaimedExecution, Promise<void>>()
  const run = async (claim: ClaimedExecution) => {
    const startedAt = performance.now()
    const passed = () => (performance.now() - startedAt) / 1000
    try {
      const ended = await runExecution(rt, commitInGroup, claim, stopping)
      if (ended === 'stopped') await giveBack(rt, claim)
      rt.instruments.workflow(ended, passed())
    } catch (error) {
      if (error instanceof ClaimLost) return rt.instruments.workflow('lost', passed())
      const about = { err: error, execution: claim.id }
      rt.log.warn(about, 'an execution of a workflow stopped; it goes on when its lease is over')
    }
  }
  return {
    running,
    start: (claim: ClaimedExecution) => {
      const attributes = { 'daybook.execution.id': claim.id }
      const attempt = rt.tracing
        .span(`workflow ${claim.workflow_Id}`, { kind: 'consumer', attributes }, () => run(claim))
        .finally(() => {
          running.delete(claim)
          // It may have become a delay that is over before what is waited for.
          onEnd()
        })
      running.set(claim, attempt)
    },
  }
}

function openExecutions(rt: WorkerWrites, workflows: Workflows) {
  const { claimDueExecutions, nextExecutionMs, recoverExecutions } = workflows
  const { concurrency } = rt.config.workflows
  const stopping = new AbortController()
  const { wake, wait } = openWakeup()
  const { running, start } = openPlaces(rt, workflows, stopping.signal, wake)
  rt.listener.on('svc_executions', wake)
  rt.listener.onReconnect(wake)

  let lookedAt = Number.NEGATIVE_INFINITY
  /** Claims what is due and gives how long to sleep; undefined: until something ends. */
  const look = async (): Promise<number | undefined> => {
    const free = concurrency - running.size
    if (free === 0) return undefined
    // Some at a time: a claim for each that has ended would cost more than what most of them do.
    const early = lookedAt + betweenClaimsMs - performance.now()
    if (free * 2 < concurrency && early > 0) return early
    lookedAt = performance.now()
    const claims = await claimDueExecutions(rt, free)
    for (const claim of claims) start(claim)
    if (claims.length === free) return 0
    const ms = await nextExecutionMs(rt)
    return Math.min(longestSleepMs, ms === undefined ? longestSleepMs : ms + afterDueMs)
  }
  const work = async () => {
    while (!stopping.signal.aborted) {
      const ms = await look().catch((error: unknown) => {
        rt.log.warn({ err: error }, 'due executions of workflows could not be claimed yet')
        return pauseAfterErrorMs
      })
      if (ms !== 0 && !stopping.signal.aborted) await wait(ms)
    }
    await Promise.all(running.values())
  }
  const beats = repeat(rt, beatMs, async () => {
    if (running.size > 0) await touchExecutions(rt, [...running.keys()])
    const recovered = await recoverExecutions(rt)
    for (const { id, status } of recovered)
      rt.log.warn({ execution: id, status }, 'an execution was taken back from a process that is gone')
    // What another process has put off, and did not live to see.
    wake()
  })
  const worked = work()
  return {
    stop: async (waitMs: number) => {
      stopping.abort()
      wake()
      await within(waitMs, worked)
      beats.close()
    },
  }
}

/** Calls `tick`, which says when it wants to be called again, or when a workflow has changed. */
function openTicks(rt: WorkerWrites, tick: () => Promise<number | undefined>) {
  const { wake, wait } = openWakeup()
  let isStopping = false
  rt.listener.on('svc_workflows', wake)
  rt.listener.onReconnect(wake)
  const work = async () => {
    while (!isStopping) {
      const ms = await tick().catch((error: unknown) => {
        rt.log.warn({ err: error }, 'scheduled workflows could not be started yet')
        return pauseAfterErrorMs
      })
      if (!isStopping) await wait(Math.min(longestSleepMs, ms ?? longestSleepMs))
    }
  }
  const worked = work()
  return {
    stop: async (waitMs: number) => {
      isStopping = true
      wake()
      await within(waitMs, worked)
    },
  }
}
