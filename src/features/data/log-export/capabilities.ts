import type { AdmissionLane } from '../../../admission/lane.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'

/** The capabilities that this folder takes from the process. */
export type LogReads = Reads & AdmissionLane & Clock & Configuration & CurrentCatalog
