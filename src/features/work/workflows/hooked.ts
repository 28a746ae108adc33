import type { Logs } from '../../../adapters/logger.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Listening } from '../../../db/listener.ts'
import type { ReservedReads } from '../../../db/pools.ts'
import { inRounds } from '../../../db/rounds.ts'
import { rawQuery } from '../../../db/sql.ts'
import type { HookEvent, HookSource } from '../../data/hooks/hooks.ts'
import type { HookedWorkflow } from './before.ts'
import type { WorkflowWrites } from './capabilities.ts'

/**
 * Which workflows are asked before a change, or at a read: known in every process that changes items, and all that it has of
 * them until one is to run.
 */

type Hooked = WorkflowWrites & ReservedReads & Listening & Logs & Configuration

export async function openHookedWorkflows(deps: Hooked): Promise<HookSource> {
  let known = await readHooked(deps)
  const reload = inRounds<never, void>(async () => {
    known = await readHooked(deps)
  })
  const reloadSoon = () => {
    deps.workflows.definitions.clear()
    void reload().catch((error: unknown) => deps.log.error({ err: error }, 'the workflows of hooks could not be read'))
  }
  deps.workflows.changed = reload
  deps.listener.on('svc_workflows', reloadSoon)
  deps.listener.onReconnect(reloadSoon)
  const of = (collection: string, event: HookEvent) => known.get(`${collection} ${event}`) ?? []
  return {
    isEmpty: () => known.size === 0,
    has: (collection, event) => known.has(`${collection} ${event}`),
    before: async (event, context) => {
      const { runBefore } = await import('./before.ts')
      return runBefore(deps, of(context.collection, event), event, context)
    },
    after: async (event, context) => {
      const { queueAfterRead } = await import('./before.ts')
      queueAfterRead(deps, of(context.collection, event), event, context)
    },
  }
}

/** Changes that are made already are told by the log. */
async function readHooked({ reserved }: Hooked): Promise<ReadonlyMap<string, readonly HookedWorkflow[]>> {
  const rows = await reserved.any<HookedWorkflow>(
    rawQuery(
      `select id, version, "tenant_Id", allowed_roles, trigger_hook_collection as collection, trigger_hook_action as event
       from "svc_Workflow"
       where status = 'active' and "deletedAt" is null and trigger_type = 'hook' and trigger_hook_collection is not null
         and trigger_hook_action not in ('items.create.after', 'items.update.after', 'items.delete.after')
       order by id`,
    ),
  )
  return Map.groupBy(rows, ({ collection, event }) => `${collection} ${event}`)
}
