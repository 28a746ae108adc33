import { type Failures, openFailures } from '../adapters/failures.ts'
import type { Logs } from '../adapters/logger.ts'
import { type Backoff, pauseAfter } from '../adapters/retry.ts'

/** A signal for one waiter. A wakeup that comes without a waiter ends the next wait at once. */
export function openWakeup() {
  let isAwake = false
  let end: (() => void) | undefined
  const wake = () => {
    isAwake = true
    end?.()
  }
  /** Until the next wakeup, at most `ms`. */
  const wait = async (ms: number | undefined) => {
    if (!isAwake) {
      let timer: NodeJS.Timeout | undefined
      await new Promise<void>((resolve) => {
        end = resolve
        if (ms !== undefined) timer = setTimeout(resolve, ms)
      })
      clearTimeout(timer)
    }
    isAwake = false
  }
  return { wake, wait }
}

/** Waits for the end of something, at most `ms`. */
export async function within(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const over = new Promise((resolve) => {
    timer = setTimeout(resolve, ms)
  })
  await Promise.race([work, over])
  clearTimeout(timer)
}

/** The time for work that is aborted to clean up and to hand back what it holds. */
export const graceMs = 5000

/** Lets work end within `waitMs`. Then `abort` ends what is left of it, for which it has `graceMs`. */
export async function endWithin(waitMs: number, work: Promise<unknown>, abort: () => unknown): Promise<void> {
  await within(waitMs, work)
  await abort()
  await within(graceMs, work)
}

const afterFailure: Backoff = { firstMs: 250, longestMs: 5000 }

/** Does work that says how long to wait before it is done again; where it fails, a pause that grows with each failure in a row. */
export async function orPause<Wait extends number | undefined>(
  failures: Failures,
  work: () => Promise<Wait>,
  backoff: Backoff = afterFailure,
): Promise<Wait | number> {
  try {
    const ms = await work()
    failures.worked()
    return ms
  } catch (error) {
    return pauseAfter(failures.failed(error), backoff)
  }
}

/**
 * Runs `work` again and again, `ms` after its last end. A failure is only logged, with `problem`, and the pauses grow: not by much, as some
 * of this work are signs of life.
 */
export function repeat(deps: Logs, problem: string, ms: number, work: () => Promise<void>) {
  const failures = openFailures(deps, `${problem}; it is tried again`)
  const backoff = { firstMs: ms, longestMs: Math.max(ms, Math.min(4 * ms, afterFailure.longestMs)) }
  const once = async () => {
    await work()
    return ms
  }
  let isClosed = false
  let timer: NodeJS.Timeout
  const run = async () => {
    const pauseMs = await orPause(failures, once, backoff)
    if (!isClosed) timer = setTimeout(run, pauseMs)
  }
  timer = setTimeout(run, ms)
  return {
    close() {
      isClosed = true
      clearTimeout(timer)
    },
  }
}
