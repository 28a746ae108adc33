import type { AdmissionLane } from '../../../admission/lane.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'

/** What this folder takes of the process. */
export type LogReads = Reads & AdmissionLane & Clock & Configuration & CurrentCatalog
