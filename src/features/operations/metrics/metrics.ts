/* What other slices and the processes use of this folder; its other files are its own. */

export { registerAdmissionGauges } from './admission.ts'
export { registerCacheGauges } from './cache.ts'
export { registerDatabaseGauges } from './database.ts'
export type { Meters } from './instruments.ts'
export { registerProcessGauges } from './process.ts'
export { registerReplicaGauges } from './replicas.ts'
export { holdsMetricsToken } from './token.ts'
