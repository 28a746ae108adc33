import type { CurrentAccess } from '../../../access/store.ts'
import type { AdmissionLane } from '../../../admission/lane.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import type { ReplicaReads } from '../../../db/replicas.ts'

/** What this folder takes of the process where it reads. */
export type ChangesReads = Reads & ReplicaReads & AdmissionLane & Clock & Configuration & CurrentAccess & CurrentCatalog
