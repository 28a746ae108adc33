import type { Logs } from '../../../adapters/logger.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import type { UnloggedWrites } from '../../../db/sql.ts'
import type { ItemWrites } from '../../data/items/items.ts'
import type { ImageProcessing } from '../images/images.ts'
import type { StorageServices } from '../storage/storage.ts'

/** The capabilities to store content. */
export type ContentWrites = UnloggedWrites & Configuration & StorageServices & ImageProcessing & Logs

/** The capabilities that this folder takes to read. */
export type FileReads = Reads & Configuration & StorageServices

/** The capabilities that this folder takes to change. */
export type FileWrites = ItemWrites & ContentWrites
