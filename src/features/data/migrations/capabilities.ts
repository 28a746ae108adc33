import type { SettingsInForce } from '../../../access/principal.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { ProcessVariables } from '../../../config/read.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import type { ReplicaReads } from '../../../db/replicas.ts'

/** What this folder takes of the process where it reads. */
export type MigrationReads = Reads &
  ReplicaReads &
  Clock &
  Configuration &
  CurrentAccess &
  CurrentCatalog &
  SettingsInForce &
  Logs &
  ProcessVariables
