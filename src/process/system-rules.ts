import type { Clock } from '../db/clock.ts'
import {
  inviteRules,
  membershipRules,
  roleRules,
  sessionRules,
  tenantRules,
  userRules,
} from '../features/accounts/identity/identity.ts'
import { checkRuleCells, checkRuleDelete } from '../features/accounts/permissions/permissions.ts'
import {
  type Cell,
  type CollectionRules,
  keyCell,
  type PayloadContext,
  type Rules,
  type WriteAction,
  withCells,
} from '../features/data/items/context.ts'
import { type ContentWrites, fileRules } from '../features/files/files/files.ts'
import { checkTemplateCells, type MailRenderer } from '../features/messaging/templates/templates.ts'
import { deliveriesAbout } from '../features/messaging/webhooks/webhooks.ts'
import { checkSettingsDelete, settingsCells } from '../features/settings/change.ts'
import type { CurrentSettings } from '../features/settings/store.ts'
import type { Workflows } from '../features/work/workflows/capabilities.ts'
import { secretRules, workflowRules } from './workflow-rules.ts'

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
  beforeWrite: async (deps, context, cells, id) => (id === undefined ? cells : statusCells(deps, context, cells)),
}

/**
 * A status that somebody sets takes the task away from the attempt that runs it: `started_at` says since when it is
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

/** THE list of what holds for rows of system collections, whichever way they are written. `items` knows none of them. */
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
