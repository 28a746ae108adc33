import type { CurrentAccess } from '../access/store.ts'
import type { IdSource } from '../adapters/ids.ts'
import type { AdmissionLane } from '../admission/lane.ts'
import type { ResultCache } from '../cache/data-cache.ts'
import type { CurrentCatalog } from '../catalog/store.ts'
import type { Configuration } from '../config/config.ts'
import type { Clock } from '../db/clock.ts'
import type { Reads } from '../db/pools.ts'
import type { UnloggedWrites } from '../db/sql.ts'
import type { Writes } from '../events/commit.ts'
import type { ItemHooks } from '../features/data/hooks/hooks.ts'
import type { SystemRules } from '../features/data/items/items.ts'
import type { Sockets } from '../features/messaging/rooms/rooms.ts'

/** The capabilities that changes of this folder need. */
export type ExtensionWrites = Reads &
  Writes &
  UnloggedWrites &
  AdmissionLane &
  Clock &
  Configuration &
  CurrentAccess &
  CurrentCatalog &
  IdSource &
  ItemHooks &
  ResultCache &
  Sockets &
  SystemRules
