import pLimit from 'p-limit'
import pRetry from 'p-retry'

/** Pauses between attempts, in milliseconds: each twice as long as the one before it, up to the longest. */
export type Backoff = { readonly firstMs: number; readonly longestMs: number }

/** The pause after so many failures, 1 or more. */
export function pauseAfter(failures: number, { firstMs, longestMs }: Backoff): number {
  return Math.min(firstMs * 2 ** (failures - 1), longestMs)
}

type RetryOptions = {
  readonly backoff: Backoff
  /** Including the first; without limit when absent. */
  readonly attempts?: number
  /** Whether another attempt may help and is still wanted. Every error is retried when absent. */
  readonly mayRetry?: (error: unknown) => boolean
  /** Called before each pause, with the number of the attempt that failed, from 1. */
  readonly onRetry?: (error: unknown, pauseMs: number, attempt: number) => void
  /** Ends the retries, and a pause at once: rejects with its reason. */
  readonly signal?: AbortSignal
  /** Pauses do not keep the process alive. */
  readonly unref?: boolean
}

/**
 * Repeats work that fails until it succeeds, may not be retried, or has used up its attempts; then rejects with the
 * error of the last attempt.
 */
export async function retryTransient<Result>(
  work: () => Promise<Result>,
  { backoff, attempts = Number.POSITIVE_INFINITY, mayRetry, onRetry, signal, unref = false }: RetryOptions,
): Promise<Result> {
  try {
    return await pRetry(() => work().catch(failed), {
      retries: attempts - 1,
      minTimeout: backoff.firstMs,
      maxTimeout: backoff.longestMs,
      ...(signal && { signal }),
      unref,
      shouldRetry: ({ error: { cause }, attemptNumber }) => {
        if (mayRetry?.(cause) === false) return false
        onRetry?.(cause, pauseAfter(attemptNumber, backoff), attemptNumber)
        return true
      },
    })
  } catch (error) {
    throw error instanceof Failure ? error.cause : error
  }
}

/** p-retry never retries a TypeError and takes no other value for an error; `mayRetry` decides here. */
class Failure extends Error {}

function failed(cause: unknown): never {
  throw new Failure('an attempt failed', { cause })
}

/** Runs work so that no more than `atOnce` of it is under way; the rest waits for its turn, in order. */
type Semaphore = <Result>(work: () => Promise<Result>) => Promise<Result>

export function openSemaphore(atOnce: number): Semaphore {
  return pLimit(atOnce)
}
