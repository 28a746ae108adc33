import type { AttemptOutcome, ClaimedTask, ClaimFilter } from '../../features/work/tasks/tasks.ts'

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

/** Whether a task runs in isolation: the statements ask the same question (features/work/tasks/queries.ts). */
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
