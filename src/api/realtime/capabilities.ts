import type { IdSource } from '../../adapters/ids.ts'
import type { Listening } from '../../db/listener.ts'
import type { FeedReads, ReservedReads } from '../../db/pools.ts'
import type { UnloggedWrites } from '../../db/sql.ts'
import type { Writes } from '../../events/commit.ts'
import type { Sessions } from '../../features/accounts/auth/auth.ts'
import type { ItemReads } from '../../features/data/items/items.ts'
import type { Sockets } from '../../features/messaging/rooms/rooms.ts'
import type { CurrentSettings } from '../../features/settings/settings.ts'

/** The capabilities that reads of this folder need. */
export type RealtimeReads = ItemReads & FeedReads & IdSource & Listening & Sockets

/** The capabilities that changes of this folder need. */
export type RealtimeWrites = RealtimeReads & ReservedReads & Writes & UnloggedWrites & CurrentSettings & Sessions
