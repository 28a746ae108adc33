import { text } from 'node:stream/consumers'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { isUuid } from '../../../language/text.ts'
import { isObject } from '../../../query/guards.ts'
import { type Change, changeItems, listItems, type Requester } from '../../data/items/items.ts'
import type { WorkflowWrites } from './capabilities.ts'
import { readFlow, type WorkflowProblem } from './flow.ts'
import { strike, surroundingsOf } from './save.ts'
import { validate } from './validate.ts'

/** Workflows as a file. The importer becomes the author, so flags that bypass permissions do not come along. */

const formatVersion = '1.0'

const carried = [
  ...['id', 'name', 'description', 'status', 'trigger_type', 'trigger_cron', 'trigger_webhook_path'],
  ...['trigger_webhook_method', 'trigger_hook_collection', 'trigger_hook_action', 'flow_data', 'variables', 'options'],
  ...['allowed_roles'],
] as const

type Carried = Readonly<Partial<Record<(typeof carried)[number], unknown>>>

/** The file with these workflows. 404 where one is missing. */
export async function exportWorkflows({ db, clock }: Reads & Clock, writer: Requester, ids: readonly string[]) {
  requireAdministrator(writer, 'export')
  const columns = [...carried, 'version'].map((name) => `"${name}"`).join(', ')
  const workflows = await db.any<Carried & { readonly id: string }>(
    rawQuery(
      `select ${columns} from "svc_Workflow" where id = any($1::text[]) and "deletedAt" is null order by name, id`,
      [ids],
    ),
  )
  if (workflows.length < new Set(ids).size) throw workflowNotFound()
  return {
    message: `Exported ${workflows.length} workflow(s)`,
    version: formatVersion,
    exportedAt: clock().toISOString(),
    workflows,
  }
}

export const workflowNotFound = () => new AppError(404, 'Workflow not found')

export function requireAdministrator({ access }: Requester, what: 'export' | 'import'): void {
  if (!access.admin) throw new AppError(403, `Only administrators can ${what} workflows`)
}

type ImportedWorkflow = {
  readonly id: string | null
  readonly name: string | null
  readonly status: 'created' | 'updated' | 'skipped' | 'error'
  readonly message: string | null
}

/** The effects of an import, and the problems of its workflows; nothing is written. */
export async function previewImport(deps: WorkflowWrites, writer: Requester, file: unknown, overwrite: boolean) {
  requireAdministrator(writer, 'import')
  const wanted = workflowsIn(file)
  const known = await existing(deps.db, wanted)
  const around = surroundingsOf(deps)
  const brought = new Set(wanted.map(idOf))
  const shown = []
  for (const one of wanted) {
    const flow = one.flow_data ?? {}
    const { errors: found, warnings } = validate(flow, around)
    const missing = await missingIn(deps, { reader: writer }, flow, brought)
    const action = actionOn(one, known, overwrite)
    shown.push({ id: idOf(one) ?? null, name: nameOf(one), action, errors: found, warnings: [...warnings, ...missing] })
  }
  return shown
}

/** Each workflow on its own: one that is refused keeps none of the others out. */
export async function importWorkflows(deps: WorkflowWrites, writer: Requester, file: unknown, overwrite: boolean) {
  requireAdministrator(writer, 'import')
  const wanted = workflowsIn(file)
  const results: ImportedWorkflow[] = []
  for (const one of wanted) results.push(await importOne(deps, writer, one, overwrite))
  const count = (status: ImportedWorkflow['status']) => results.filter((result) => result.status === status).length
  const summary = {
    total: results.length,
    created: count('created'),
    updated: count('updated'),
    skipped: count('skipped'),
    errors: count('error'),
  }
  return { message: 'Import completed', summary, results }
}

async function importOne(
  deps: WorkflowWrites,
  writer: Requester,
  one: Carried,
  overwrite: boolean,
): Promise<ImportedWorkflow> {
  const id = idOf(one)
  const name = nameOf(one)
  try {
    const known = await existing(deps.db, [one])
    const action = actionOn(one, known, overwrite)
    if (action === 'skip') return { id: id ?? null, name, status: 'skipped', message: 'There is one already' }
    const flow = strike(one.flow_data)
    const payload = { ...Object.fromEntries(carried.map((key) => [key, one[key]])), ...(flow && { flow_data: flow }) }
    const change: Change =
      action === 'create'
        ? { action: 'create', payloads: [payload] }
        : { action: 'update', changes: [{ id, payload: { ...payload, deletedAt: null } }] }
    const { ids } = await changeItems(deps, writer, 'svc_Workflow', change)
    return { id: JSON.parse(ids[0]!), name, status: action === 'create' ? 'created' : 'updated', message: null }
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    return { id: id ?? null, name, status: 'error', message: error.message }
  }
}

const idOf = ({ id }: Carried) => (typeof id === 'string' && id !== '' ? id : undefined)
const nameOf = ({ name }: Carried) => (typeof name === 'string' ? name : null)

/** A deleted one is restored, whatever is said of overwriting. */
function actionOn(one: Carried, known: ReadonlyMap<string, boolean>, overwrite: boolean): 'create' | 'update' | 'skip' {
  const isDeleted = known.get(idOf(one) ?? '')
  if (isDeleted === undefined) return 'create'
  return overwrite || isDeleted ? 'update' : 'skip'
}

/** Whether those of the ids that are known are deleted. */
async function existing(db: Reader, wanted: readonly Carried[]): Promise<ReadonlyMap<string, boolean>> {
  const ids = wanted.flatMap((one) => idOf(one) ?? [])
  const rows = await db.any<{ id: string; deleted: boolean }>(
    rawQuery(`select id, "deletedAt" is not null as deleted from "svc_Workflow" where id = any($1::text[])`, [ids]),
  )
  return new Map(rows.map(({ id, deleted }) => [id, deleted]))
}

const importedAtMost = 500

function workflowsIn(file: unknown): readonly Carried[] {
  if (!isObject(file)) throw errors.badBody('Invalid import file format')
  const { workflows } = file
  if (!Array.isArray(workflows)) throw errors.badBody('workflows array is required')
  if (workflows.length > importedAtMost) throw errors.badBody(`At most ${importedAtMost} workflows`)
  if (!workflows.every(isObject)) throw errors.badBody('Invalid import file format')
  return workflows as readonly Carried[]
}

/** Of what a workflow names, what is not there: it may be saved all the same, and fails where it is named when it runs. */

/** The asking party. `tenantId`: the tenant whose workflows they may know; undefined: every tenant. */
type Asking = { readonly reader: Requester; readonly tenantId?: string | null | undefined }

type Named = { readonly nodeId: string; readonly kind: 'workflow' | 'user'; readonly of: string }

/** `coming`: workflows that are there as good as. */
export async function missingIn(
  deps: WorkflowWrites,
  { reader, tenantId }: Asking,
  flowData: unknown,
  coming: ReadonlySet<string | undefined> = new Set(),
): Promise<readonly WorkflowProblem[]> {
  const { nodes } = readFlow(flowData, [])
  const named = nodes.flatMap(({ id, type, data }): Named[] => {
    if (type === 'workflow') return textsOf(data.workflowId).map((of) => ({ nodeId: id, kind: 'workflow', of }))
    if (type !== 'notification') return []
    return textsOf(data.userId).map((of) => ({ nodeId: id, kind: 'user', of: of.toLowerCase() }))
  })
  const idsOf = (kind: Named['kind']) => named.flatMap((one) => (one.kind === kind ? [one.of] : []))
  const known = {
    workflow: await workflowsKnown(deps, idsOf('workflow'), tenantId),
    user: await usersKnown(deps, reader, idsOf('user')),
  }
  return named.flatMap(({ nodeId, kind, of }) => {
    const isThere = known[kind]?.has(of) ?? true
    return isThere || (kind === 'workflow' && coming.has(of))
      ? []
      : [{ code: `unknown_${kind}`, message: `There is no ${kind} ${of}`, nodeId }]
  })
}

async function workflowsKnown(
  { db }: WorkflowWrites,
  ids: readonly string[],
  tenantId: string | null | undefined,
): Promise<ReadonlySet<string>> {
  if (ids.length === 0) return new Set()
  const rows = await db.any<{ id: string }>(
    rawQuery(
      `select id from "svc_Workflow" where id = any($1::text[]) and "deletedAt" is null
         and (not $2 or "tenant_Id" is null or "tenant_Id" = $3::uuid)`,
      [ids, tenantId !== undefined, tenantId ?? null],
    ),
  )
  return new Set(rows.map(({ id }) => id))
}

/** Of users the reader hears no more than `/items/svc_User` would say; undefined: nothing. */
async function usersKnown(
  deps: WorkflowWrites,
  reader: Requester,
  ids: readonly string[],
): Promise<ReadonlySet<string> | undefined> {
  if (!reader.access.admin && reader.access.grant('svc_User', 'read') === undefined) return undefined
  const asked = [...new Set(ids.filter(isUuid))]
  if (asked.length === 0) return new Set()
  const list = await listItems(deps, reader, 'svc_User', { filter: { id: { in: asked } }, fields: ['id'], limit: -1 })
  const { data } = JSON.parse(typeof list === 'string' ? list : await text(list))
  return new Set(data.map(({ id }: { readonly id: string }) => id))
}

/** Several may be named, with commas between; the value of a template is not known yet. */
const textsOf = (value: unknown): readonly string[] =>
  (Array.isArray(value) ? value : [value])
    .flatMap((one) => (typeof one === 'string' ? one.split(',') : []))
    .map((one) => one.trim())
    .filter((one) => one !== '' && !one.includes('{{'))
