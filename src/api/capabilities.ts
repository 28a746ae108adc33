import type { CurrentAccess } from '../access/store.ts'
import type { IdSource } from '../adapters/ids.ts'
import type { Logs } from '../adapters/logger.ts'
import type { Configuration } from '../config/config.ts'
import type { ProcessVariables } from '../config/variable.ts'
import type { Listening } from '../db/listener.ts'
import type { ServerLine } from '../db/poolers/line.ts'
import type { FeedReads, PoolStates, ReservedReads } from '../db/pools.ts'
import type { ReplicaReads } from '../db/replicas/replicas.ts'
import type { UnloggedWrites } from '../db/sql.ts'
import type { Writes } from '../events/commit.ts'
import type { ProgressNotices } from '../events/progress.ts'
import type { Sessions } from '../features/accounts/auth/auth.ts'
import type { ItemReads } from '../features/data/items/items.ts'
import type { ImageProcessing } from '../features/files/images/images.ts'
import type { StorageServices } from '../features/files/storage/storage.ts'
import type { Sockets } from '../features/messaging/rooms/rooms.ts'
import type { MailLogo, MailRenderer } from '../features/messaging/templates/templates.ts'
import type { Meters } from '../features/operations/metrics/metrics.ts'
import type { CurrentSettings } from '../features/settings/settings.ts'
import type { Workflows } from '../features/work/workflows/workflows.ts'

/** The capabilities that changes of this folder need. */
export type WebWrites = RealtimeWrites &
  ImageProcessing &
  MailLogo &
  MailRenderer &
  Meters &
  PoolStates &
  ProgressNotices &
  ProcessVariables &
  ServerLine &
  StorageServices &
  Workflows

/** The capabilities that reads of this folder need. */
export type WebReads = ReservedReads &
  ReplicaReads &
  Configuration &
  CurrentAccess &
  Listening &
  Logs &
  ServerLine &
  Sockets

/** The capabilities that reads of this folder need. */
export type RealtimeReads = ItemReads & FeedReads & IdSource & Listening & Sockets

/** The capabilities that changes of this folder need. */
export type RealtimeWrites = RealtimeReads & ReservedReads & Writes & UnloggedWrites & CurrentSettings & Sessions
