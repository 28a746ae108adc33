import type { Logs } from '../../../adapters/logger.ts'
import { oncePer } from '../../../language/once.ts'

/**
 * Does something beside the answer to a request: its time must not show in the answer (whether an account exists would
 * be told by it), or the answer does not depend on it. A failure is logged. The server waits for all of it when it closes.
 */
export function afterwards(deps: Logs, what: string, work: () => Promise<unknown>): void {
  const pending = pendingOf(deps)
  const done = work()
    .catch((error: unknown) => deps.log.warn({ err: error }, `${what} failed`))
    .finally(() => pending.delete(done))
  pending.add(done)
}

/** Resolves when everything begun so far has ended. */
export async function afterwardsDone(deps: object): Promise<void> {
  await Promise.all(pendingOf(deps))
}

const pendingOf = oncePer((_deps: object) => new Set<Promise<unknown>>())
