import type { CurrentAccess } from '../../access/store.ts'
import type { IdSource } from '../../adapters/ids.ts'
import type { Logs } from '../../adapters/logger.ts'
import type { AdmissionLane } from '../../admission/lane.ts'
import type { ResultCache } from '../../cache/data-cache.ts'
import type { CurrentCatalog } from '../../catalog/store.ts'
import type { Configuration } from '../../config/config.ts'
import type { Clock } from '../../db/clock.ts'
import type { Listening } from '../../db/listener.ts'
import type { FeedReads, Reads, ReservedReads } from '../../db/pools.ts'
import type { ReplicaReads } from '../../db/replicas/replicas.ts'
import type { UnloggedWrites } from '../../db/sql.ts'
import type { Writes } from '../../events/commit.ts'
import type { Sessions } from '../../features/accounts/auth/auth.ts'
import type { ItemHooks } from '../../features/data/hooks/hooks.ts'
import type { SystemRules } from '../../features/data/items/items.ts'
import type { Sockets } from '../../features/messaging/rooms/rooms.ts'
import type { CurrentSettings } from '../../features/settings/settings.ts'

/** The capabilities that reads of this folder need. */
export type RealtimeReads = Reads &
  FeedReads &
  ReplicaReads &
  AdmissionLane &
  Clock &
  Configuration &
  CurrentAccess &
  CurrentCatalog &
  IdSource &
  ItemHooks &
  Listening &
  Logs &
  ResultCache &
  Sockets &
  SystemRules

/** The capabilities that changes of this folder need. */
export type RealtimeWrites = Reads &
  FeedReads &
  ReservedReads &
  ReplicaReads &
  Writes &
  UnloggedWrites &
  AdmissionLane &
  Clock &
  Configuration &
  CurrentAccess &
  CurrentCatalog &
  CurrentSettings &
  IdSource &
  ItemHooks &
  Listening &
  Logs &
  ResultCache &
  Sessions &
  Sockets &
  SystemRules
