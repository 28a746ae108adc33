/**
 * Reads at most once a second however many ask, never twice at the same time, and keeps nobody waiting longer than
 * `patienceMs`: undefined when the answer was not there by then, or there was none.
 */
export function onceASecond<T>(
  read: (signal: AbortSignal) => Promise<T>,
  patienceMs: number,
  onError: (error: unknown) => void,
): () => Promise<T | undefined> {
  let last: Promise<T | undefined> | undefined
  let readAt = 0
  let isReading = false
  const begin = async (): Promise<T | undefined> => {
    isReading = true
    readAt = performance.now()
    try {
      return await read(AbortSignal.timeout(patienceMs))
    } catch (error) {
      onError(error)
      return undefined
    } finally {
      isReading = false
    }
  }
  return () => {
    if (last === undefined || (!isReading && performance.now() - readAt > 1000)) last = begin()
    return withPatience(last, patienceMs)
  }
}

function withPatience<T>(answer: Promise<T>, ms: number): Promise<T | undefined> {
  const { promise, resolve } = Promise.withResolvers<undefined>()
  const timer = setTimeout(() => resolve(undefined), ms)
  return Promise.race([answer, promise]).finally(() => clearTimeout(timer))
}
