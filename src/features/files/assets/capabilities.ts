import type { CurrentAccess } from '../../../access/store.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import type { UnloggedWrites } from '../../../db/sql.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import type { ImageProcessing } from '../images/images.ts'
import type { StorageServices } from '../storage/storage.ts'

/** The capabilities to find a file and decide who may read it. */
export type AssetReads = Reads & Clock & Configuration & CurrentAccess & CurrentCatalog & CurrentSettings & Logs

/** The further capabilities to make and keep variants. */
export type AssetWrites = AssetReads & UnloggedWrites & StorageServices & ImageProcessing
