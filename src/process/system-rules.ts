import { checkScope } from '../access/scopes.ts'
import { seal } from '../adapters/sealing.ts'
import { platformColumns } from '../catalog/system-collections.ts'
import type { Clock } from '../db/clock.ts'
import { rawQuery } from '../db/sql.ts'
import { errors } from '../errors.ts'
import {
  inviteRules,
  membershipRules,
  roleRules,
  sessionRules,
  tenantRules,
  userRules,
} from '../features/accounts/identity/identity.ts'
import { checkRuleCells, checkRuleDelete } from '../features/accounts/permissions/permissions.ts'
import type { Rules, Run, WriteAction } from '../features/data/items/context.ts'
import {
  type Cell,
  type CollectionRules,
  keyCell,
  keyCondition,
  type PayloadContext,
  withCells,
} from '../features/data/items/items.ts'
import { type ContentWrites, fileRules } from '../features/files/files/files.ts'
import { checkTemplateCells, type MailRenderer } from '../features/messaging/templates/templates.ts'
import { deliveriesAbout } from '../features/messaging/webhooks/webhooks.ts'
import { type CurrentSettings, checkSettingsDelete, settingsCells } from '../features/settings/settings.ts'
import type { Workflows } from '../features/work/workflows/capabilities.ts'
import type { Saved, StoredWorkflow } from '../features/work/workflows/save.ts'
import { createParams } from '../query/sql.ts'

/** The capabilities that the rules need: to try templates, to find content, and the parts of workflows. */
type RenderedSamples = Clock & CurrentSettings & MailRenderer & ContentWrites & Workflows

const permissionRules: CollectionRules = {
  beforeWrite: async (deps, { collection }, cells, id) => {
    await checkRuleCells(deps, collection.name, cells, id)
    return cells
  },
}

/** A named rule that is in use stays. */
const aclRules: CollectionRules = {
  ...permissionRules,
  beforeDelete: (deps, ids) => checkRuleDelete(deps, 'svc_ACL', ids),
}

const settingsRules: CollectionRules = {
  beforeWrite: (deps, _context, cells, id) => settingsCells(deps, cells, id),
  beforeDelete: checkSettingsDelete,
}

const templateRules = (deps: RenderedSamples): CollectionRules => ({
  beforeWrite: async (_deps, _context, cells) => {
    await checkTemplateCells(deps, cells)
    return cells
  },
})

/** A task begins as not started; afterwards only a permission that names the field may reset what workers write. */
const stateOfTask = (_config: unknown, action: WriteAction) => (action === 'update' ? 'name' : 'nothing')

const taskRules: CollectionRules = {
  protectedFields: {
    task_status: stateOfTask,
    result_data: stateOfTask,
    error_data: stateOfTask,
    retry_count: stateOfTask,
    started_at: stateOfTask,
    progress: stateOfTask,
    progress_message: stateOfTask,
    attempt_token: stateOfTask,
    heartbeat_at: stateOfTask,
    retry_at: stateOfTask,
  },
  beforeWrite: async (deps, context, cells, id) => {
    const retries = cells.find(({ field }) => field.name === 'max_retries')?.value
    if (Number(retries ?? 0) < 0) throw errors.badBody('max_retries must be 0 or more')
    return id === undefined ? cells : statusCells(deps, context, cells)
  },
}

/**
 * A status that is set by hand takes the task away from the attempt that runs it: `started_at` says since when it is
 * Running, or that it is not.
 */
function statusCells({ clock }: Clock, { collection }: PayloadContext, cells: readonly Cell[]): readonly Cell[] {
  const status = cells.find((cell) => cell.field.name === 'task_status')?.value
  if (status === undefined) return cells
  const startedAt = status === 'Running' ? clock().toISOString() : null
  const state = { started_at: startedAt, heartbeat_at: null, attempt_token: null, retry_at: null }
  const set = Object.entries(state).map(([name, value]) => keyCell(collection.fields.get(name)!, value))
  return withCells(cells, set)
}

/** THE list of rules for rows of system collections, for every way to write them. `items` knows none of these collections. */
export const openSystemRules = (deps: RenderedSamples): Rules =>
  new Map([
    ['svc_User', userRules],
    ['svc_UserRole', membershipRules],
    ['svc_Role', roleRules],
    ['svc_Tenant', tenantRules],
    ['svc_Invite', inviteRules],
    ['svc_Sessions', sessionRules],
    ['svc_Permission', permissionRules],
    ['svc_ACL', aclRules],
    ['svc_Settings', settingsRules],
    ['svc_Template', templateRules(deps)],
    ['svc_Tasks', taskRules],
    ['svc_File', fileRules(deps)],
    ['svc_WebhookDelivery', { lasting: deliveriesAbout }],
    ['svc_Workflow', workflowRules(deps)],
    ['svc_Secret', secretRules],
  ])

/**
 * The rules for rows of svc_Workflow and svc_Secret, however they are written: by items, workflows, import, upsert,
 * nested, undo and restore; also where workflows are off. The folder of workflows decides; none of it is loaded before
 * the first write of such a row.
 */

const decisions = () => import('../features/work/workflows/save.ts')

/** To be done after the workflows were deleted. */
const cancelling =
  ({ tx }: Pick<Run, 'tx'>, ids: readonly string[]) =>
  async () => {
    const { cancelExecutionsOf } = await import('../features/work/workflows/queries.ts')
    await cancelExecutionsOf(tx, ids)
  }

/** Columns whose change is decided upon. */
const decided: ReadonlySet<string> = new Set([
  ...['flow_data', 'variables', 'options', 'allowed_roles', 'status', 'deletedAt', 'tenant_Id'],
  ...['trigger_type', 'trigger_cron', 'trigger_webhook_path', 'trigger_webhook_method'],
  ...['trigger_hook_collection', 'trigger_hook_action'],
])

const workflowRules = (own: Workflows): CollectionRules => ({
  serversOwn: new Set(platformColumns('svc_Workflow')),
  // It goes on to act for its author when the program's token has ended.
  checkCaller: (_deps, access) => checkScope(access, 'admin'),
  written: () => own.workflows.changed(),
  beforeWrite: async (deps, context, cells, id) => {
    if (id !== undefined) return cells
    const { decideSave } = await decisions()
    const row = { status: 'draft', trigger_type: 'manual', flow_data: { nodes: [], edges: [] }, ...valuesOf(cells) }
    return saved(context, cells, await decideSave({ ...own, ...deps }, context.access, undefined, row as never))
  },
  guard: {
    applies: (action, cells) => action === 'delete' || cells.some(({ field }) => decided.has(field.name)),
    deletes: async (run, _context, ids) => cancelling(run, ids),
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
        const row = before && { ...before, ...valuesOf(cells) }
        const found = row && (await decideSave({ ...own, ...deps }, context.access, before, row))
        guarded.push({
          cells: found === undefined ? [] : saved(context as never, [], found),
          after: row?.deletedAt == null ? async () => undefined : cancelling({ tx }, [id]),
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
const secretRules: CollectionRules = {
  beforeWrite: async ({ config }, _context, cells) => {
    const { sealedForWorkflows } = await import('../features/work/workflows/capabilities.ts')
    return cells.map((cell) =>
      cell.field.name === 'value' && cell.value !== null
        ? { ...cell, value: seal(config, sealedForWorkflows, String(cell.value)) }
        : cell,
    )
  },
}
