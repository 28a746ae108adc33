import type { IdSource } from '../adapters/ids.ts'
import type { Configuration } from '../config/config.ts'
import type { UnloggedWrites } from '../db/sql.ts'
import type { ItemWrites } from '../features/data/items/items.ts'
import type { AssetWrites } from '../features/files/assets/assets.ts'
import type { FileWrites } from '../features/files/files/files.ts'
import type { Sockets } from '../features/messaging/rooms/rooms.ts'
import type { Workflows } from '../features/work/workflows/workflows.ts'

/** The capabilities that changes of this folder need. */
export type ExtensionWrites = ItemWrites &
  UnloggedWrites &
  Configuration &
  IdSource &
  Sockets &
  FileWrites &
  AssetWrites &
  Workflows
