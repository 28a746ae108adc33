import { storeProgress, tellTaskEnded, touchTasks } from '../../db/unlogged/work.ts'
import type { Writes } from '../../events/commit.ts'
import {
  type AttemptClaim,
  type AttemptOutcome,
  type ClaimedTask,
  type ClaimFilter,
  record,
  type TaskProgress,
} from '../../features/work/tasks/tasks.ts'
import { repeat } from '../wakeup.ts'

/** The attempts that this process answers for: it gives their signs of life and records how they end. */
export type Claims = {
  /** `onLost` is called when another worker has the task by now. */
  hold(claim: AttemptClaim, onLost: () => void): void
  progress(id: number, progress: TaskProgress): void
  /** Records the outcome and lets go; false when the task was lost. */
  settle(claim: AttemptClaim, outcome: AttemptOutcome): Promise<boolean>
  /** Outcomes that the database will not take are left to the recovery from here on. */
  giveUp(): void
  close(): void
}

type ClaimHold = AttemptClaim & {
  readonly onLost: () => void
  unsaved: TaskProgress | undefined
  hasReported: boolean
  /** How many times in succession the task was found to be another worker's. */
  misses: number
}

const progressMs = 250
const longestBeatMs = 10_000

export function openClaims(deps: Writes): Claims {
  const held = new Map<string, ClaimHold>()
  const givenUp = new AbortController()

  const beat = async () => {
    const attempts = [...held.values()]
    if (attempts.length === 0) return
    const owned = await touchTasks(deps, attempts)
    for (const attempt of attempts) {
      if (owned.has(attempt.id)) continue
      attempt.misses += 1
      // Missed once it may just have ended, its handler's word being on the way.
      if (attempt.misses < 2 || !held.delete(attempt.token)) continue
      deps.log.warn({ taskId: attempt.id }, 'a running task was given to another attempt or set back')
      attempt.onLost()
    }
  }
  const save = async () => {
    for (const attempt of held.values()) {
      const { unsaved } = attempt
      if (unsaved === undefined) continue
      if ((await storeProgress(deps, attempt, unsaved)) && attempt.unsaved === unsaved) attempt.unsaved = undefined
    }
  }
  const { stallTimeoutSeconds } = deps.config.tasks
  const beats = repeat(
    deps,
    'signs of life of running tasks could not be given',
    Math.min(longestBeatMs, (stallTimeoutSeconds * 1000) / 6),
    beat,
  )
  const saves = repeat(deps, 'the progress of tasks could not be stored', progressMs, save)

  return {
    hold: (claim, onLost) =>
      void held.set(claim.token, { ...claimOnly(claim), onLost, unsaved: undefined, hasReported: false, misses: 0 }),
    progress(id, progress) {
      for (const attempt of held.values())
        if (attempt.id === id) Object.assign(attempt, { unsaved: progress, hasReported: true })
    },
    async settle(claim, outcome) {
      // Held until then, so that a slow database does not make it look abandoned.
      const reported = held.get(claim.token)?.hasReported
      const isRecorded = await record(deps, claim, outcome, givenUp.signal)
      held.delete(claim.token)
      if (isRecorded && reported) await tellTaskEnded(deps, claim.id)
      return isRecorded
    },
    giveUp: () => givenUp.abort(),
    close() {
      beats.close()
      saves.close()
    },
  }
}

const claimOnly = ({ id, token }: AttemptClaim): AttemptClaim => ({ id, token })

/** The TASK_CONCURRENCY slots of a process: taken by the tasks that it runs and by handlers that run some themselves. */
export type Slots = {
  free(): number
  taken(): number
  take(): TaskSlot
  /** Resolves when none is taken. */
  idle(): Promise<void>
}

export type TaskSlot = { free(): void }

export function openSlots(concurrency: number, onFree: () => void): Slots {
  const taken = new Set<TaskSlot>()
  let waiting: (() => void)[] = []
  return {
    free: () => Math.max(0, concurrency - taken.size),
    taken: () => taken.size,
    take() {
      const slot = {
        free() {
          if (!taken.delete(slot)) return
          onFree()
          if (taken.size > 0) return
          for (const resolve of waiting) resolve()
          waiting = []
        },
      }
      taken.add(slot)
      return slot
    },
    idle: () => (taken.size === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve))),
  }
}

/* Decisions of the task worker: what to claim, how long to sleep, where a task runs and what is recorded of it. */

/** The state of a worker that looks for due tasks. */
type Capacity = ClaimFilter & { readonly freeSlots: number; readonly mayRun: boolean }

/** `sleepMs` undefined: until a slot is free. */
type ClaimDecision = { readonly claim: ClaimFilter; readonly limit: number } | { readonly sleepMs: number | undefined }

/** The longest sleep: the timers' own clock may differ from the database's, and a notification may be lost. */
const longestSleepMs = 60_000
const standbyMs = 5000

export function decideClaim({ freeSlots, mayRun, ...wanted }: Capacity): ClaimDecision {
  if (freeSlots === 0) return { sleepMs: undefined }
  if (!mayRun) return { sleepMs: standbyMs }
  return wanted.types.length === 0 ? { sleepMs: longestSleepMs } : { claim: wanted, limit: freeSlots }
}

/** How long to sleep after a claim that got no task; `nextDueMs` undefined when none waits. */
export function decideSleep(nextDueMs: number | undefined): number {
  return Math.min(nextDueMs ?? longestSleepMs, longestSleepMs)
}

/** The record of an attempt; undefined for none. An attempt that ended because the worker stops has not failed. */
export function decideRecord(
  outcome: AttemptOutcome,
  { isLost, isStopping }: { readonly isLost: boolean; readonly isStopping: boolean },
): AttemptOutcome | undefined {
  if (isLost) return undefined
  return isStopping && outcome.state === 'broken' ? { state: 'given back' } : outcome
}

type AttemptFacts = Pick<ClaimedTask, 'type' | 'retry_count'>

/** Whether a task runs in isolation: the statements ask the same question (features/work/tasks/tasks.ts). */
export function isIsolated({ type, retry_count }: AttemptFacts, isolatedTypes: readonly string[]): boolean {
  return retry_count > 0 || isolatedTypes.includes(type)
}

/**
 * A circuit breaker per type of task, as one worker knows it: open while one of the last five first attempts of the type
 * has broken its process. A handler that throws breaks nothing.
 */
export type CircuitBreaker = {
  /** The types whose breaker is open; their tasks run in isolation. */
  openTypes(): readonly string[]
  /** Takes an attempt into account; says when that changes the breaker of its type. */
  note(task: AttemptFacts, isBroken: boolean): 'opened' | 'closed' | undefined
}

const goodAttemptsToClose = 5

export function openCircuitBreaker(): CircuitBreaker {
  /** How many first attempts of a type must still end well. */
  const missing = new Map<string, number>()
  return {
    openTypes: () => [...missing.keys()],
    note({ type, retry_count }, isBroken) {
      // One bad task that is tried again and again says nothing about the others.
      if (retry_count > 0) return undefined
      const before = missing.get(type)
      const now = isBroken ? goodAttemptsToClose : (before ?? 0) - 1
      if (now > 0) missing.set(type, now)
      else missing.delete(type)
      if (missing.has(type) === (before !== undefined)) return undefined
      return isBroken ? 'opened' : 'closed'
    },
  }
}
