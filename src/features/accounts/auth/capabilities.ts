import type { CurrentAccess } from '../../../access/store.ts'
import type { IdSource } from '../../../adapters/ids.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads, ReservedReads } from '../../../db/pools.ts'
import type { UnloggedWrites } from '../../../db/sql.ts'
import type { Writes } from '../../../events/commit.ts'
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
