import type { CurrentAccess } from '../../../access/store.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads, ReservedReads } from '../../../db/pools.ts'
import type { Writes } from '../../../events/commit.ts'
import type { CurrentSettings } from '../../settings/settings.ts'

/** What this folder takes of the process where it changes. */
export type SecondFactorWrites = Reads & Writes & Clock & CurrentAccess & CurrentCatalog & CurrentSettings

/** What this folder takes of the process where it reads. */
export type SecondFactorReads = Reads &
  ReservedReads &
  Clock &
  Configuration &
  CurrentAccess &
  CurrentCatalog &
  CurrentSettings
