import type { CurrentAccess } from '../../../access/store.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import type { Writes } from '../../../events/commit.ts'
import type { CurrentSettings } from '../../settings/settings.ts'

/** What this folder takes of the process where it changes. */
export type TenantWrites = Reads & Writes & Clock & CurrentAccess & CurrentCatalog & CurrentSettings
