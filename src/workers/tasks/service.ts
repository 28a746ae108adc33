import type { IdSource } from '../../adapters/ids.ts'
import type { Logs } from '../../adapters/logger.ts'
import type { Configuration } from '../../config/config.ts'
import type { Clock } from '../../db/clock.ts'
import type { Listening } from '../../db/listener.ts'
import type { Reads } from '../../db/pools.ts'
import type { UnloggedWrites } from '../../db/sql.ts'
import { dropLock, takeLock } from '../../db/unlogged/work.ts'
import type { Writes } from '../../events/commit.ts'
import { type TaskStats, type TasksService, tasksServiceMethods, type WaitingTask } from '../../extensions/context.ts'
import type { Meters } from '../../features/operations/metrics/metrics.ts'
import {
  type AttemptClaim,
  type AttemptOutcome,
  claimById,
  comingTasks,
  messageOf,
  recoverTasks,
  resultJson,
  windowHours,
} from '../../features/work/tasks/tasks.ts'
import { within } from '../wakeup.ts'
import type { Claims, Slots, TaskSlot } from './claims.ts'
import type { InstanceLock } from './instance-lock.ts'
import type { Calls } from './runners.ts'

type ServiceParts = {
  readonly instanceId: string
  readonly claims: Claims
  readonly slots: Slots
  readonly lock: InstanceLock
  /** Looks for due tasks. */
  wake(): void
}

const maxRefreshSeconds = 10_800
const defaultSlotSeconds = 60
const defaultJobLockSeconds = 300
const defaultWaitSeconds = 30

/** The tasks of this process as its handlers may ask about them and run some themselves. */
export function openTasksService(deps: TaskWorkerWrites, parts: ServiceParts) {
  const list: TaskList = { ...parts, deps, coming: [], lastRefreshed: null, isStopping: false }
  const openCalls = (): Calls => {
    const held: RunnerHold = { slots: [], jobLocks: new Map(), claims: new Map() }
    const service = serviceFor(list, held)
    return {
      async call(method, args) {
        const known = tasksServiceMethods.find((name) => name === method)
        if (known === undefined) throw new TypeError(`tasksService has no method ${method}`)
        return (service[known] as (...args: unknown[]) => Promise<unknown>)(...args)
      },
      close: (how) => letGo(list, held, how),
    }
  }
  return {
    openCalls,
    refresh: () => refresh(list),
    /** From here on what a runner leaves behind has not failed. */
    stop() {
      list.isStopping = true
    },
  }
}

type TaskList = ServiceParts & {
  readonly deps: TaskWorkerWrites
  coming: readonly WaitingTask[]
  lastRefreshed: string | null
  isStopping: boolean
}

/** The claims of one runner. */
type RunnerHold = {
  readonly slots: { readonly slot: TaskSlot; readonly timer: NodeJS.Timeout }[]
  /** Holders by the name of the lock. */
  readonly jobLocks: Map<string, string>
  readonly claims: Map<number, AttemptClaim>
}

function serviceFor(list: TaskList, held: RunnerHold): TasksService {
  const { deps, slots } = list
  return {
    getNotStartedTasks: () => readComing(list),
    claimTask: (id) => claimTask(list, held, id),
    completeTask: (id, result) => settle(list, held, id, { state: 'completed', result: resultJson(result) }),
    failTask: (id, message) => settle(list, held, id, { state: 'failed', message: messageOf(message) }),
    tryAcquireLock: (ttl) => takeSlot(list, held, ttl),
    releaseLock: async () => freeSlot(held),
    isTaskRunning: async () => slots.free() === 0,
    getRunningCount: async () => slots.taken(),
    setTaskRunning: async (running) => (running ? void (await takeSlot(list, held)) : freeSlot(held)),
    async acquireJobLock(name, ttl = defaultJobLockSeconds) {
      const holder = deps.newId()
      if (!(await takeLock(deps, `job ${name}`, holder, ttl))) return false
      held.jobLocks.set(name, holder)
      return true
    },
    releaseJobLock: (name) => releaseJobLock(deps, held, name),
    async waitForTaskCompletion(timeout = defaultWaitSeconds) {
      await within(timeout * 1000, slots.idle())
      return slots.taken() === 0
    },
    forceRefresh: () => refresh(list),
    getCacheStats: async () => statsOf(list),
  }
}

/** Recovers what has stalled, reads the list and looks for what is due. */
async function refresh(list: TaskList): Promise<void> {
  await recoverTasks(list.deps)
  await readComing(list)
  list.wake()
}

async function readComing(list: TaskList): Promise<readonly WaitingTask[]> {
  list.coming = (await comingTasks(list.deps.db)) as readonly WaitingTask[]
  list.lastRefreshed = list.deps.clock().toISOString()
  return list.coming
}

async function claimTask({ deps, claims }: TaskList, held: RunnerHold, id: number): Promise<WaitingTask | null> {
  const task = await claimById(deps, id)
  if (task === undefined) return null
  const { token, creatorLeft: _left, data, ...shown } = task
  held.claims.set(id, { id, token })
  claims.hold({ id, token }, () => held.claims.delete(id))
  return { ...shown, task_data: data }
}

async function settle({ claims }: TaskList, held: RunnerHold, id: number, outcome: AttemptOutcome): Promise<boolean> {
  const claim = held.claims.get(id)
  held.claims.delete(id)
  return claim !== undefined && claims.settle(claim, outcome)
}

async function takeSlot({ slots, lock }: TaskList, held: RunnerHold, ttl = defaultSlotSeconds): Promise<boolean> {
  if (slots.free() === 0 || !(await lock.mayRun())) return false
  const slot = slots.take()
  held.slots.push({ slot, timer: setTimeout(slot.free, ttl * 1000) })
  return true
}

/** The one that was taken first. */
function freeSlot(held: RunnerHold): void {
  const first = held.slots.shift()
  clearTimeout(first?.timer)
  first?.slot.free()
}

async function releaseJobLock(deps: UnloggedWrites, { jobLocks }: RunnerHold, name: string): Promise<boolean> {
  const holder = jobLocks.get(name)
  jobLocks.delete(name)
  return holder !== undefined && dropLock(deps, `job ${name}`, holder)
}

/** After the runner has ended in this way. */
async function letGo(list: TaskList, held: RunnerHold, how: string): Promise<void> {
  while (held.slots.length > 0) freeSlot(held)
  const left: AttemptOutcome = list.isStopping ? { state: 'given back' } : { state: 'broken', message: how }
  for (const id of [...held.claims.keys()]) await settle(list, held, id, left)
  for (const name of [...held.jobLocks.keys()]) await releaseJobLock(list.deps, held, name)
}

function statsOf({ deps, slots, lock, coming, lastRefreshed, instanceId }: TaskList): TaskStats {
  const { concurrency, stallTimeoutSeconds, listRefreshIntervalSeconds, redisEnabled } = deps.config.tasks
  return {
    cachedTasksCount: coming.length,
    runningCount: slots.taken(),
    concurrency,
    isAtCapacity: slots.free() === 0,
    stallTimeout: stallTimeoutSeconds,
    refreshInterval: listRefreshIntervalSeconds * 1000,
    refreshIntervalSeconds: listRefreshIntervalSeconds,
    maxRefreshIntervalSeconds: maxRefreshSeconds,
    taskTimeWindow: `${windowHours} hours`,
    initialized: lastRefreshed !== null,
    lastRefreshed,
    distributedMode: redisEnabled,
    hasInstanceLock: lock.isHeld(),
    instanceId,
  }
}

/** The capabilities that changes of this folder need. */
export type TaskWorkerWrites = Reads &
  Writes &
  UnloggedWrites &
  Clock &
  Configuration &
  IdSource &
  Listening &
  Logs &
  Meters
