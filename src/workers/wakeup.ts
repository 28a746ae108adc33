import type { Logs } from '../adapters/logger.ts'

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

/** Runs `work` again and again, `ms` after its last end. A failure is only logged. */
export function repeat({ log }: Logs, ms: number, work: () => Promise<void>) {
  let isClosed = false
  let timer: NodeJS.Timeout
  const run = async () => {
    try {
      await work()
    } catch (error) {
      log.warn({ err: error }, 'regular work on tasks failed; it is done again')
    }
    if (!isClosed) timer = setTimeout(run, ms)
  }
  timer = setTimeout(run, ms)
  return {
    close() {
      isClosed = true
      clearTimeout(timer)
    },
  }
}
