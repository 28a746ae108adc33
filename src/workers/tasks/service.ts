import { dropLock, takeLock } from '../../db/unlogged/tasks.ts'
import {
  type TaskStats,
  type TasksService,
  tasksServiceMethods,
  type WaitingTask,
} from '../../extensions/tasks-service.ts'
import { claimById, type Outcome, recoverTasks } from '../../features/tasks/outcomes.ts'
import { comingTasks } from '../../features/tasks/queries.ts'
import { type AttemptClaim, messageOf, resultJson, windowHours } from '../../features/tasks/tasks.ts'
import type { Runtime } from '../../runtime.ts'
import { within } from '../alarm.ts'
import type { Claims } from './claims.ts'
import type { InstanceLock } from './instance-lock.ts'
import type { Place, Places } from './places.ts'
import type { Calls } from './runner.ts'

type Parts = {
  readonly instanceId: string
  readonly claims: Claims
  readonly places: Places
  readonly lock: InstanceLock
  /** Looks for due tasks. */
  wake(): void
}

const maxRefreshSeconds = 10_800
const defaultPlaceSeconds = 60
const defaultJobLockSeconds = 300
const defaultWaitSeconds = 30

/** The tasks of this process as its handlers may ask about them and run some themselves (realtime facts §3). */
export function openTasksService(rt: Runtime, { instanceId, claims, places, lock, wake }: Parts) {
  const { tasks } = rt.config
  let isStopping = false
  let coming: readonly WaitingTask[] = []
  let lastRefreshed: string | null = null

  /** Recovers what has stalled, reads the list and looks for what is due. */
  const refresh = async () => {
    await recoverTasks(rt)
    await list()
    wake()
  }
  const list = async () => {
    coming = (await comingTasks(rt.db)) as readonly WaitingTask[]
    lastRefreshed = rt.clock().toISOString()
    return coming
  }
  /** What one runner has taken. */
  const openHoldings = () => {
    const taken: { readonly place: Place; readonly timer: NodeJS.Timeout }[] = []
    const jobLocks = new Map<string, string>()
    const claimed = new Map<number, AttemptClaim>()
    const end = async (id: number, outcome: Outcome) => {
      const claim = claimed.get(id)
      claimed.delete(id)
      return claim !== undefined && claims.settle(claim, outcome)
    }
    const freePlace = () => {
      const last = taken.shift()
      clearTimeout(last?.timer)
      last?.place.free()
    }

    const service: TasksService = {
      getNotStartedTasks: list,
      async claimTask(id) {
        const task = await claimById(rt, id)
        if (task === undefined) return null
        const { token, creatorLeft: _left, data, ...shown } = task
        claimed.set(id, { id, token })
        claims.hold({ id, token }, () => claimed.delete(id))
        return { ...shown, task_data: data }
      },
      completeTask: (id, result) => end(id, { state: 'completed', result: resultJson(result) }),
      failTask: (id, message) => end(id, { state: 'failed', message: messageOf(message) }),
      async tryAcquireLock(ttl = defaultPlaceSeconds) {
        if (places.free() === 0 || !(await lock.mayRun())) return false
        const place = places.take()
        taken.push({ place, timer: setTimeout(place.free, ttl * 1000) })
        return true
      },
      releaseLock: async () => freePlace(),
      isTaskRunning: async () => places.free() === 0,
      getRunningCount: async () => places.taken(),
      setTaskRunning: async (running) => (running ? void (await service.tryAcquireLock()) : freePlace()),
      async acquireJobLock(name, ttl = defaultJobLockSeconds) {
        const holder = rt.newId()
        if (!(await takeLock(rt, `job ${name}`, holder, ttl))) return false
        jobLocks.set(name, holder)
        return true
      },
      async releaseJobLock(name) {
        const holder = jobLocks.get(name)
        jobLocks.delete(name)
        return holder !== undefined && dropLock(rt, `job ${name}`, holder)
      },
      async waitForTaskCompletion(timeout = defaultWaitSeconds) {
        await within(timeout * 1000, places.idle())
        return places.taken() === 0
      },
      forceRefresh: refresh,
      getCacheStats: async (): Promise<TaskStats> => ({
        cachedTasksCount: coming.length,
        runningCount: places.taken(),
        concurrency: tasks.concurrency,
        isAtCapacity: places.free() === 0,
        stallTimeout: tasks.stallTimeoutSeconds,
        refreshInterval: tasks.listRefreshIntervalSeconds * 1000,
        refreshIntervalSeconds: tasks.listRefreshIntervalSeconds,
        maxRefreshIntervalSeconds: maxRefreshSeconds,
        taskTimeWindow: `${windowHours} hours`,
        initialized: lastRefreshed !== null,
        lastRefreshed,
        distributedMode: tasks.redisEnabled,
        hasInstanceLock: lock.isHeld(),
        instanceId,
      }),
    }

    const close = async (how: string) => {
      while (taken.length > 0) freePlace()
      const left = isStopping ? ({ state: 'given back' } as const) : ({ state: 'broken', message: how } as const)
      for (const id of [...claimed.keys()]) await end(id, left)
      for (const name of [...jobLocks.keys()]) await service.releaseJobLock(name)
    }
    return { service, close }
  }

  const openCalls = (): Calls => {
    const own = openHoldings()
    return {
      async call(method, args) {
        const known = tasksServiceMethods.find((name) => name === method)
        if (known === undefined) throw new TypeError(`tasksService has no method ${method}`)
        return (own.service[known] as (...args: unknown[]) => Promise<unknown>)(...args)
      },
      close: own.close,
    }
  }
  return {
    openCalls,
    refresh,
    /** From here on what a runner leaves behind has not failed. */
    stop() {
      isStopping = true
    },
  }
}
