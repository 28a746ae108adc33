import type { CurrentAccess } from '../../../access/store.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { AdmissionLane } from '../../../admission/lane.ts'
import type { ResultCache } from '../../../cache/data-cache.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import type { ReplicaReads } from '../../../db/replicas/replicas.ts'
import type { ItemHooks } from '../hooks/hooks.ts'
import type { SystemRules } from '../items/items.ts'

/** The capabilities that reads of this folder need. */
export type ReportReads = Reads &
  ReplicaReads &
  AdmissionLane &
  Clock &
  Configuration &
  CurrentAccess &
  CurrentCatalog &
  ItemHooks &
  Logs &
  ResultCache &
  SystemRules
