import type { CurrentAccess } from '../access/store.ts'
import type { IdSource } from '../adapters/ids.ts'
import type { AdmissionLanes } from '../admission/lane.ts'
import type { ResultCache } from '../cache/data-cache.ts'
import type { CurrentCatalog } from '../catalog/store.ts'
import type { Clock } from '../db/clock.ts'
import type { Listening } from '../db/listener.ts'
import type { Reads } from '../db/pools.ts'
import type { ReplicaReads } from '../db/replicas/replicas.ts'
import type { Writes } from '../events/commit.ts'
import type { StorageServices } from '../features/files/storage/storage.ts'
import type { Sockets } from '../features/messaging/rooms/rooms.ts'
import type { LogoReads, MailRenderer } from '../features/messaging/templates/templates.ts'
import type { Meters } from '../features/operations/metrics/metrics.ts'
import type { CurrentSettings } from '../features/settings/settings.ts'
import type { WorkflowWrites } from '../features/work/workflows/workflows.ts'

/** The capabilities that changes of this folder need. */
export type WorkerWrites = Reads &
  Writes &
  Clock &
  CurrentSettings &
  IdSource &
  Listening &
  LogoReads &
  MailRenderer &
  Meters &
  ResultCache &
  StorageServices &
  ReplicaReads &
  AdmissionLanes &
  CurrentAccess &
  CurrentCatalog &
  WorkflowWrites &
  Sockets

export type OpenedService = {
  /** Ends what runs, within about `waitMs`. Never rejects. */
  stop(waitMs: number): Promise<void>
  /** Its part of `GET /ready` of the process. */
  readiness?(): Promise<Readonly<Record<string, { readonly ok: boolean }>>>
}
