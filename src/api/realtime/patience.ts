import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from 'pino'
import { isPassing } from '../../db/errors.ts'

/**
 * Repeats what fails in passing, with growing pauses, while it is wanted: who waits for changes loses nothing by it but
 * time. Everything else that is thrown passes through.
 */
export async function patiently<Result>(
  log: Logger,
  isWanted: () => boolean,
  work: () => Promise<Result>,
): Promise<Result> {
  for (let pauseMs = shortestPauseMs; ; pauseMs = longer(pauseMs)) {
    try {
      return await work()
    } catch (error) {
      if (!isPassing(error) || !isWanted()) throw error
      log.warn({ err: error, retryInMs: pauseMs }, 'changes could not be read')
      await delay(pauseMs)
    }
  }
}

export const shortestPauseMs = 50
export const longer = (pauseMs: number): number => Math.min(pauseMs * 2, 2000)
