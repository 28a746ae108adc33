import type { CurrentAccess } from '../../../access/store.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { AdmissionLane } from '../../../admission/lane.ts'
import type { ResultCache } from '../../../cache/data-cache.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import type { ReplicaReads } from '../../../db/replicas/replicas.ts'
import type { Writes } from '../../../events/commit.ts'
import type { ItemHooks } from '../../data/hooks/hooks.ts'
import type { SystemRules } from '../../data/items/items.ts'
import type { CurrentSettings } from '../../settings/settings.ts'

/** The capabilities that reads of this folder need. */
export type PermissionReads = Reads &
  ReplicaReads &
  AdmissionLane &
  Clock &
  Configuration &
  CurrentAccess &
  CurrentCatalog &
  CurrentSettings &
  ItemHooks &
  Logs &
  ResultCache &
  SystemRules

/** The capabilities that changes of this folder need. */
export type PermissionWrites = Reads &
  Writes &
  AdmissionLane &
  Clock &
  CurrentAccess &
  CurrentCatalog &
  CurrentSettings &
  ItemHooks &
  ResultCache &
  SystemRules
