import type { CurrentAccess } from '../../../access/store.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { ReservedReads } from '../../../db/pools.ts'

/** What this folder takes of the process where it reads. */
export type ApiKeyReads = ReservedReads & Configuration & CurrentAccess & CurrentCatalog & Logs
