import { openFailures } from '../adapters/failures.ts'
import { deleteUnusedVersions, touchExecutions } from '../db/unlogged/work.ts'
import { loadExtensions } from '../extensions/extensions.ts'
import type { ClaimedExecution } from '../features/work/workflows/workflows.ts'
import { oncePer } from '../language/once.ts'
import type { OpenedService, WorkerWrites } from './capabilities.ts'
import { openConsumers } from './consumers.ts'
import { openWakeup, orPause, repeat, within } from './wakeup.ts'

/** Signs of life, well within the lease of an execution. */
const beatMs = 5000
const longestSleepMs = 30_000
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
export async function openWorkflows(deps: WorkerWrites): Promise<OpenedService> {
  if (!deps.config.workflows.enabled) {
    deps.log.warn('WORKFLOWS_ENABLED is false: executions of workflows wait')
    return { stop: async () => undefined }
  }
  // Writes of nodes run the hooks of extensions, and nodes may be theirs.
  await extensionsOf(deps)
  const workflows = await import('../features/work/workflows/workflows.ts')
  const triggers = await workflows.openTriggers(deps)
  const consumers = await openConsumers(deps, [triggers.consumer])
  const executions = openExecutions(deps, workflows)
  const schedules = openTicks(deps, triggers.tick)
  const tidying = repeat(deps, 'old executions of workflows could not be deleted', tidyMs, () => tidy(deps, workflows))
  return {
    readiness: consumers.readiness,
    stop: async (waitMs) => {
      tidying.close()
      await Promise.all([consumers.stop(waitMs), schedules.stop(waitMs), executions.stop(waitMs)])
    },
  }
}

/** Once per process, also where the rest of the start is done again: hooks would run twice. */
const extensionsOf = oncePer((deps: WorkerWrites) => loadExtensions(deps))

const tidyMs = 600_000
const deletedAtOnce = 500

/** Removes what is older than it is kept, a little at a time. */
async function tidy(deps: WorkerWrites, { deleteOldExecutions }: WorkflowsModule): Promise<void> {
  const days = deps.config.workflows.executionRetentionDays
  while ((await deleteOldExecutions(deps, days, deletedAtOnce)) === deletedAtOnce);
  while ((await deleteUnusedVersions(deps, days, deletedAtOnce)) === deletedAtOnce);
}

type WorkflowsModule = typeof import('../features/work/workflows/workflows.ts')

/** The executions that run in this process; `onEnd` is called when one has ended, or waits. */
function openPlaces(deps: WorkerWrites, workflows: WorkflowsModule, stopping: AbortSignal, onEnd: () => void) {
  const { giveBack, runExecution, ClaimLost } = workflows
  const commitInGroup = workflows.openGroupCommit(deps, transactionsAtOnce)
  const running = new Map<ClaimedExecution, Promise<void>>()
  const run = async (claim: ClaimedExecution) => {
    const startedAt = performance.now()
    const passed = () => (performance.now() - startedAt) / 1000
    try {
      const ended = await runExecution(deps, commitInGroup, claim, stopping)
      if (ended === 'stopped') await giveBack(deps, claim)
      deps.instruments.workflow(ended, passed())
    } catch (error) {
      if (error instanceof ClaimLost) return deps.instruments.workflow('lost', passed())
      const about = { err: error, execution: claim.id }
      deps.log.warn(about, 'an execution of a workflow stopped; it goes on when its lease is over')
    }
  }
  return {
    running,
    start: (claim: ClaimedExecution) => {
      const attributes = { 'daybook.execution.id': claim.id }
      const attempt = deps.tracing
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

function openExecutions(deps: WorkerWrites, workflows: WorkflowsModule) {
  const { claimDueExecutions, nextExecutionMs, recoverExecutions } = workflows
  const { concurrency } = deps.config.workflows
  const stopping = new AbortController()
  const { wake, wait } = openWakeup()
  const { running, start } = openPlaces(deps, workflows, stopping.signal, wake)
  deps.listener.on('svc_executions', wake)
  deps.listener.onReconnect(wake)

  let lookedAt = Number.NEGATIVE_INFINITY
  /** Claims what is due and gives how long to sleep; undefined: until something ends. */
  const look = async (): Promise<number | undefined> => {
    const free = concurrency - running.size
    if (free === 0) return undefined
    // Some at a time: a claim for each that has ended would cost more than what most of them do.
    const early = lookedAt + betweenClaimsMs - performance.now()
    if (free * 2 < concurrency && early > 0) return early
    lookedAt = performance.now()
    const claims = await claimDueExecutions(deps, free)
    for (const claim of claims) start(claim)
    if (claims.length === free) return 0
    const ms = await nextExecutionMs(deps)
    return Math.min(longestSleepMs, ms === undefined ? longestSleepMs : ms + afterDueMs)
  }
  const failures = openFailures(deps, 'due executions of workflows could not be claimed yet')
  const work = async () => {
    while (!stopping.signal.aborted) {
      const ms = await orPause(failures, look)
      if (ms !== 0 && !stopping.signal.aborted) await wait(ms)
    }
    await Promise.all(running.values())
  }
  const beats = repeat(deps, 'the leases of executions could not be renewed', beatMs, async () => {
    if (running.size > 0) await touchExecutions(deps, [...running.keys()])
    const recovered = await recoverExecutions(deps)
    for (const { id, status } of recovered)
      deps.log.warn({ execution: id, status }, 'an execution was taken back from a process that is gone')
    // Another process may have postponed an execution and died since.
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
function openTicks(deps: WorkerWrites, tick: () => Promise<number | undefined>) {
  const { wake, wait } = openWakeup()
  let isStopping = false
  deps.listener.on('svc_workflows', wake)
  deps.listener.onReconnect(wake)
  const failures = openFailures(deps, 'scheduled workflows could not be started yet')
  const work = async () => {
    while (!isStopping) {
      const ms = await orPause(failures, tick)
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
