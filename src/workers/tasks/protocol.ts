import type { AttemptOutcome, ClaimedTask } from '../../features/work/tasks/tasks.ts'

/** Messages between the task worker and the processes that run its handlers; every one is JSON. */

type TaskHandlerInfo = { readonly type: string; readonly timeoutSeconds: number | undefined }
export type ScheduleInfo = { readonly id: string; readonly cron: string }

/** The abilities of a runner, said once when it has loaded the extensions. */
export type Abilities = { readonly handlers: readonly TaskHandlerInfo[]; readonly schedules: readonly ScheduleInfo[] }

export type Order =
  | { readonly kind: 'task'; readonly run: number; readonly task: ClaimedTask }
  | { readonly kind: 'schedule'; readonly run: number; readonly id: string }

export type ToRunner =
  | Order
  | { readonly kind: 'answer'; readonly call: number; readonly result?: unknown; readonly error?: string }

export type FromRunner =
  | ({ readonly kind: 'ready' } & Abilities)
  /** The event loop turns. */
  | { readonly kind: 'alive' }
  | { readonly kind: 'done'; readonly run: number; readonly outcome: AttemptOutcome }
  | { readonly kind: 'progress'; readonly run: number; readonly share: number; readonly message: string | null }
  | { readonly kind: 'call'; readonly call: number; readonly method: string; readonly args: readonly unknown[] }

/** The argument of a runner that takes the processors only where others leave them. */
export const yieldingFlag = '--yielding'

/** How often a runner says that it is alive. */
export const aliveMs = 1000
