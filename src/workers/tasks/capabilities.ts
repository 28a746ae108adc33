import type { IdSource } from '../../adapters/ids.ts'
import type { Logs } from '../../adapters/logger.ts'
import type { Configuration } from '../../config/config.ts'
import type { Clock } from '../../db/clock.ts'
import type { Listening } from '../../db/listener.ts'
import type { Reads } from '../../db/pools.ts'
import type { UnloggedWrites } from '../../db/sql.ts'
import type { Writes } from '../../events/commit.ts'
import type { Meters } from '../../features/operations/metrics/metrics.ts'

/** The capabilities that changes of this folder need. */
export type TaskWorkerWrites = Reads &
  Writes &
  UnloggedWrites &
  Clock &
  Configuration &
  IdSource &
  Listening &
  Logs &
  Meters
