import type { Logs } from '../../../adapters/logger.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import type { UnloggedWrites } from '../../../db/sql.ts'
import type { ItemWrites } from '../../data/items/items.ts'
import type { ImageProcessing } from '../images/images.ts'
import type { StorageServices } from '../storage/storage.ts'

/** What storing content takes of the process. */
export type ContentWrites = UnloggedWrites & Configuration & StorageServices & ImageProcessing & Logs

/** What this folder takes of the process where it reads. */
export type FileReads = Reads & Configuration & StorageServices

/** What this folder takes of the process where it changes. */
export type FileWrites = ItemWrites & ContentWrites
