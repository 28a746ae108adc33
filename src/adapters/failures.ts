import type { Logs } from './logger.ts'

/** Failures of work that is done again and again, as they are told. */
export type Failures = {
  /** Notes one, and gives how many there were in a row. */
  failed(error: unknown): number
  /** The work is done: whatever was the matter is over. */
  worked(): void
}

/** When each reason was last told, on the monotonic clock. */
type ToldReasons = ReadonlyMap<string, number>

/** A failure that lasts is told again after so long. */
const againMs = 60_000

/** Whether a failure is news: it has another reason than those before it, or has lasted for long. */
export function isNews(told: ToldReasons, reason: string, nowMs: number): boolean {
  const toldAt = told.get(reason)
  return toldAt === undefined || nowMs - toldAt >= againMs
}

/** What went wrong in the first place, without what differs from one attempt to the next. */
export function reasonOf(error: unknown): string {
  const { message, code, cause } = (error ?? {}) as { message?: string; code?: string; cause?: unknown }
  if (cause instanceof Error) return reasonOf(cause)
  return code || (message || String(error)).replaceAll(/\d+/g, '')
}

/**
 * Makes an outage a line in the log for each thing that goes wrong in it, instead of a line for each attempt: a failure that is no
 * news is for debugging. The end of it is told, too.
 */
export function openFailures({ log }: Logs, message: string, about: object = {}): Failures {
  const told = new Map<string, number>()
  let failures = 0
  return {
    failed(error) {
      failures += 1
      const [reason, now] = [reasonOf(error), performance.now()]
      const level = isNews(told, reason, now) ? 'warn' : 'debug'
      log[level]({ ...about, err: error, failures }, message)
      if (level === 'warn') told.set(reason, now)
      return failures
    },
    worked() {
      if (failures === 0) return
      log.info({ ...about, failures }, `works again, after: ${message}`)
      told.clear()
      failures = 0
    },
  }
}
