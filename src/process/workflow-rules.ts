import { checkScope } from '../access/scopes.ts'
import { seal } from '../adapters/sealing.ts'
import { rawQuery } from '../db/sql.ts'
import {
  type Cell,
  type CollectionRules,
  keyCell,
  keyCondition,
  type PayloadContext,
  withCells,
} from '../features/data/items/items.ts'
import type { Workflows } from '../features/work/workflows/capabilities.ts'
import type { Saved, StoredWorkflow } from '../features/work/workflows/save.ts'
import { createParams } from '../query/sql.ts'

/**
 * The rules for rows of svc_Workflow and svc_Secret, however they are written: by items, workflows, import, upsert,
 * nested, undo and restore; also where workflows are off. The folder of workflows decides; none of it is loaded before
 * the first write of such a row.
 */

const decisions = () => import('../features/work/workflows/save.ts')

/** Columns whose change is decided upon. */
const decided: ReadonlySet<string> = new Set([
  ...['flow_data', 'variables', 'options', 'allowed_roles', 'status', 'deletedAt', 'tenant_Id'],
  ...['trigger_type', 'trigger_cron', 'trigger_webhook_path', 'trigger_webhook_method'],
  ...['trigger_hook_collection', 'trigger_hook_action'],
])

export const workflowRules = (own: Workflows): CollectionRules => ({
  serversOwn: new Set(['authority_Id', 'version']),
  // It goes on to act for its author when the program's token has ended.
  checkCaller: (_deps, access) => checkScope(access, 'admin'),
  written: () => own.workflows.changed(),
  beforeWrite: async (deps, context, cells, id) => {
    if (id !== undefined) return cells
    const { decideSave } = await decisions()
    const row = { status: 'draft', trigger_type: 'manual', flow_data: { nodes: [], edges: [] }, ...valuesOf(cells) }
    return saved(context, cells, await decideSave({ ...deps, ...own }, context.access, undefined, row as never))
  },
  guard: {
    applies: (action, cells) => action === 'update' && cells.some(({ field }) => decided.has(field.name)),
    updates: async ({ deps, tx }, context, changes) => {
      const { decideSave } = await decisions()
      const params = createParams()
      const where = keyCondition(
        context.collection,
        changes.map(({ id }) => id),
        params,
      )
      const rows = await tx.any<StoredWorkflow>(
        rawQuery(`select t.* from "svc_Workflow" t where ${where} order by t.id for update of t`, params.values),
      )
      const guarded = []
      for (const { id, cells } of changes) {
        const before = rows.find((row) => row.id === id)
        const found =
          before && (await decideSave({ ...deps, ...own }, context.access, before, { ...before, ...valuesOf(cells) }))
        guarded.push({
          cells: found === undefined ? [] : saved(context as never, [], found),
          after: async () => undefined,
        })
      }
      return guarded
    },
  },
})

function saved({ collection }: PayloadContext, cells: readonly Cell[], changed: Saved): readonly Cell[] {
  const own = Object.entries(changed).map(([name, value]) => keyCell(collection.fields.get(name)!, value))
  return withCells(cells, own)
}

/** Cells of JSON hold its text. */
function valuesOf(cells: readonly Cell[]): Record<string, unknown> {
  return Object.fromEntries(
    cells.map(({ field, value }) => [
      field.name,
      field.kind === 'json' && typeof value === 'string' ? JSON.parse(value) : value,
    ]),
  )
}

/** Values are sealed, and never read again but by the node that uses them. */
export const secretRules: CollectionRules = {
  beforeWrite: async ({ config }, _context, cells) => {
    const { sealedForWorkflows } = await import('../features/work/workflows/capabilities.ts')
    return cells.map((cell) =>
      cell.field.name === 'value' && cell.value !== null
        ? { ...cell, value: seal(config, sealedForWorkflows, String(cell.value)) }
        : cell,
    )
  },
}
