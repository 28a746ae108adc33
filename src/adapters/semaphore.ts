import pLimit from 'p-limit'

/** Runs work so that no more than `atOnce` of it is under way; the rest waits for its turn, in order. */
type Semaphore = <Result>(work: () => Promise<Result>) => Promise<Result>

export function openSemaphore(atOnce: number): Semaphore {
  return pLimit(atOnce)
}
