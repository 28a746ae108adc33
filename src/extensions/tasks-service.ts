/** A waiting task, with the columns of svc_Tasks. */
export type WaitingTask = { readonly id: number; readonly type: string; readonly scheduled_time: string } & Readonly<
  Record<string, unknown>
>

/**
 * Tasks for schedules that want to run them themselves. It is the task worker's: slots, claims and
 * statistics are those of its process, whichever handler asks. Times to live are in seconds.
 */
export type TasksService = {
  /** Not started tasks of the coming four hours, the earliest first. Those of the future must not be run yet. */
  getNotStartedTasks(): Promise<readonly WaitingTask[]>
  /**
   * Makes the task Running and one's own until `completeTask` or `failTask`, and for as long as the process lives; null
   * when it does not wait any more.
   */
  claimTask(id: number): Promise<WaitingTask | null>
  /** Records the success of a claimed task; false when it was lost meanwhile. */
  completeTask(id: number, result?: unknown): Promise<boolean>
  failTask(id: number, message: string): Promise<boolean>
  /** Takes one of the TASK_CONCURRENCY places; false when all are taken. It comes back after `ttl` by itself. */
  tryAcquireLock(ttl?: number): Promise<boolean>
  releaseLock(): Promise<void>
  /** Whether all places are taken. */
  isTaskRunning(): Promise<boolean>
  getRunningCount(): Promise<number>
  /** The older form of `tryAcquireLock` and `releaseLock`. */
  setTaskRunning(running: boolean): Promise<void>
  /** A lock among all processes, for `ttl`; false while somebody else has it. */
  acquireJobLock(name: string, ttl?: number): Promise<boolean>
  releaseJobLock(name: string): Promise<boolean>
  /** Resolves when this process runs no task: true, or after `timeout` seconds false. */
  waitForTaskCompletion(timeout?: number): Promise<boolean>
  /** Reads the list again, takes stalled tasks back and looks for due ones. */
  forceRefresh(): Promise<void>
  getCacheStats(): Promise<TaskStats>
}

export type TaskStats = {
  readonly cachedTasksCount: number
  readonly runningCount: number
  readonly concurrency: number
  readonly isAtCapacity: boolean
  readonly stallTimeout: number
  readonly refreshInterval: number
  readonly refreshIntervalSeconds: number
  readonly maxRefreshIntervalSeconds: number
  readonly taskTimeWindow: string
  readonly initialized: boolean
  readonly lastRefreshed: string | null
  readonly distributedMode: boolean
  readonly hasInstanceLock: boolean
  readonly instanceId: string
}

export const tasksServiceMethods = [
  'getNotStartedTasks',
  'claimTask',
  'completeTask',
  'failTask',
  'tryAcquireLock',
  'releaseLock',
  'isTaskRunning',
  'getRunningCount',
  'setTaskRunning',
  'acquireJobLock',
  'releaseJobLock',
  'waitForTaskCompletion',
  'forceRefresh',
  'getCacheStats',
] as const satisfies readonly (keyof TasksService)[]
