import { onceASecond } from '../../../db/rounds.ts'

/**
 * Reads at most once a second however many scrapes there are, and keeps none waiting longer than `patienceMs`: undefined
 * when the answer was not there by then, or there was none.
 */
export function askAtScrape<T>(
  read: (signal: AbortSignal) => Promise<T>,
  patienceMs: number,
  onError: (error: unknown) => void,
): () => Promise<T | undefined> {
  const ask = onceASecond(async () => {
    try {
      return await read(AbortSignal.timeout(patienceMs))
    } catch (error) {
      onError(error)
      return undefined
    }
  })
  return () => withPatience(ask(), patienceMs)
}

function withPatience<T>(answer: Promise<T>, ms: number): Promise<T | undefined> {
  const { promise, resolve } = Promise.withResolvers<undefined>()
  const timer = setTimeout(() => resolve(undefined), ms)
  return Promise.race([answer, promise]).finally(() => clearTimeout(timer))
}
