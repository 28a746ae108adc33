import type { JobData } from '../events/jobs.ts'
import type { Runtime } from '../runtime.ts'
import { newestChange } from './invalidations.ts'

/** Deletes from the shared store what the writes of a table have made worthless. Nothing newer goes with it. */
export async function dropInvalidated(rt: Runtime, { table, xid }: JobData['cache-invalidation']): Promise<void> {
  const upTo = await newestChange(rt.reserved, table, xid)
  if (upTo !== undefined) await rt.dataCache.purge(table, upTo)
}
