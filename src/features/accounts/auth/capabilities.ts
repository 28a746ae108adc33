import type { CurrentAccess } from '../../../access/store.ts'
import type { IdSource } from '../../../adapters/ids.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads, ReservedReads } from '../../../db/pools.ts'
import type { UnloggedWrites } from '../../../db/sql.ts'
import type { Writes } from '../../../events/commit.ts'
import { oncePer } from '../../../language/once.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import type { Sessions } from './session-store.ts'

/** The capabilities that changes of this folder need. */
export type AuthWrites = Reads &
  ReservedReads &
  Writes &
  UnloggedWrites &
  Clock &
  Configuration &
  CurrentAccess &
  CurrentCatalog &
  CurrentSettings &
  IdSource &
  Logs &
  Sessions

/** The capabilities that reads of this folder need. */
export type AuthReads = Clock & Configuration & CurrentAccess & CurrentSettings

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
