import { isDeepStrictEqual } from 'node:util'
import type { TSchema } from 'typebox'
import { fits, problemsOf } from '../../../adapters/typebox.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, rawQuery, sql } from '../../../db/sql.ts'
import { AppError, errors, inFull } from '../../../errors.ts'
import { isUuid } from '../../../language/text.ts'
import type { Access } from '../../../query/access.ts'
import { isObject } from '../../../query/guards.ts'
import { parseListQuery } from '../../../query/parse.ts'
import { resolveEnv, resolveList } from '../../../query/resolve.ts'
import { type Change, changeItems, listItems, type Requester, wholeText } from '../../data/items/items.ts'
import { scriptsRefusal, type Workflows, type WorkflowWrites } from './capabilities.ts'
import { valueAt } from './expressions.ts'
import { type Flow, readFlow, type WorkflowProblem } from './flow.ts'
import { isScript, isTemplate, nodeTypes } from './nodes.ts'
import {
  checkShape,
  optionsOf,
  roleProblems,
  runsBefore,
  type Surroundings,
  type Trigger,
  validate,
  webhookPath,
} from './validate.ts'

/** The conditions for saving a workflow, and its authority afterwards. */

export type StoredWorkflow = Trigger & {
  readonly id: string
  readonly status: string | null
  readonly flow_data: unknown
  readonly authority_Id: string | null
  readonly tenant_Id: string | null
  readonly deletedAt: unknown
}

/** Columns that the platform writes with the others. */
export type Saved = {
  readonly authority_Id?: string | null
  readonly flow_data?: object
  readonly trigger_webhook_path?: string
}

type SaveReads = Reads & Configuration & CurrentCatalog & Workflows & Clock

/** Columns that define a workflow's behaviour, trigger and users: the user who changes one becomes its author. */
const definition = [
  ...[
    'allowed_roles',
    'tenant_Id',
    'flow_data',
    'variables',
    'options',
    'trigger_type',
    'trigger_cron',
    'trigger_webhook_path',
  ],
  ...['trigger_webhook_method', 'trigger_hook_collection', 'trigger_hook_action'],
] as const

const isRewritten = (before: StoredWorkflow, row: StoredWorkflow): boolean =>
  definition.some((name) => !isDeepStrictEqual(before[name] ?? null, row[name] ?? null))

/** Out of the trash it is as if the caller had made it. */
const isBack = (before: StoredWorkflow, row: StoredWorkflow): boolean =>
  before.deletedAt != null && row.deletedAt == null

/**
 * Throws what is wrong with the workflow as it shall be, or with the caller's saving it: 400 with every problem and its node,
 * 403 for what takes an administrator, 409 for a webhook's path that is taken.
 */
export async function decideSave(
  deps: SaveReads,
  access: Access,
  before: StoredWorkflow | undefined,
  row: StoredWorkflow,
): Promise<Saved> {
  const around = surroundingsOf(deps, access)
  const isChanged = before === undefined || isBack(before, row) || isRewritten(before, row)
  const stored = [...checkShape(row.flow_data ?? {}, around).errors, ...roleProblems(row.allowed_roles)]
  if (isChanged && stored.length > 0) throw invalid('Invalid workflow data', stored, [])
  const struck = isChanged && !access.admin ? withoutBypass(row, before) : undefined
  if (isChanged && !access.admin) requireAdmin(access, { ...row, flow_data: struck ?? row.flow_data })
  const isActive = row.status === 'active' && row.deletedAt == null
  const wasActive = before?.status === 'active' && before.deletedAt == null
  if (isActive && (isChanged || !wasActive)) {
    const { valid, errors: found, warnings } = validate(row.flow_data, around, row)
    const broken = valid ? [...(await scriptProblems(deps, row)), ...(await calledProblems(deps, row))] : found
    if (broken.length > 0) throw invalid('The workflow cannot be active', broken, warnings)
    await requireFreePath(deps, row)
  }
  const path = row.trigger_webhook_path
  return {
    ...(isChanged && { authority_Id: access.userId ?? null }),
    ...(struck !== undefined && { flow_data: struck }),
    ...(path != null && webhookPath(path) !== path && { trigger_webhook_path: webhookPath(path) }),
  }
}

/** Problems of scripts that show before they run, such as a missing brace. */
async function scriptProblems(
  { workflows: { scripts } }: Workflows,
  { flow_data }: StoredWorkflow,
): Promise<readonly WorkflowProblem[]> {
  const problems: WorkflowProblem[] = []
  for (const { id, type, data } of readFlow(flow_data, []).nodes) {
    const failure = isScript(type, data) ? await scripts?.check(String(data.script)) : undefined
    if (failure !== undefined) problems.push({ code: 'script', message: failure.message, nodeId: id })
  }
  return problems
}

/**
 * Problems of workflows that a workflow before a change calls, directly or not: they must not do what a change cannot.
 */
async function calledProblems(deps: SaveReads, row: StoredWorkflow): Promise<readonly WorkflowProblem[]> {
  if (!runsBefore(row)) return []
  const problems: WorkflowProblem[] = []
  const seen = new Set<string>([row.id])
  const callsOf = (flowData: unknown) =>
    readFlow(flowData ?? {}, []).nodes.flatMap(({ id, type, data }) =>
      type === 'workflow' && typeof data.workflowId === 'string' ? [{ node: id, called: data.workflowId }] : [],
    )
  const look = async (node: string, called: string) => {
    if (seen.has(called)) return
    seen.add(called)
    const found = await deps.db.maybeOne<{ flow_data: unknown }>(
      sql`select flow_data from "svc_Workflow" where id = ${called} and "deletedAt" is null`,
    )
    for (const { id, type, data } of readFlow(found?.flow_data ?? {}, []).nodes) {
      const known = Object.hasOwn(nodeTypes, type) ? nodeTypes[type]! : undefined
      const reason = known === undefined ? 'nodes of extensions run after the change alone' : known.notBefore?.(data)
      if (reason === undefined) continue
      problems.push({ code: 'before_hook', nodeId: node, message: `${called} calls ${type} (${id}): ${reason}` })
    }
    for (const { called: further } of callsOf(found?.flow_data)) await look(node, further)
  }
  for (const { node, called } of callsOf(row.flow_data)) await look(node, called)
  return problems
}

/** `access`: of the author, with whose rights nodes ask. */
export function surroundingsOf(deps: CurrentCatalog & Configuration & Workflows & Clock, access: Access): Surroundings {
  const catalog = deps.catalog.current()
  const nodes = [...deps.workflows.nodes.values()].map(
    ({ type, input }) => [type, (data: unknown) => problemsIn(input, data)] as const,
  )
  return {
    catalog,
    scriptsRefusal: scriptsRefusal(deps),
    extensionNodes: new Map(nodes),
    refusalOf({ collection, query }) {
      try {
        resolveList(catalog, access, collection, parseListQuery(query), resolveEnv(deps))
        return undefined
      } catch (error) {
        if (error instanceof AppError) return inFull(error)
        throw error
      }
    },
  }
}

/** Of what a template stands for nothing can be said yet. */
function problemsIn(input: TSchema, data: unknown): readonly string[] {
  const { label: _label, ...own } = isObject(data) ? data : {}
  if (fits(input, own)) return []
  const isOfTemplate = ({ instancePath }: { instancePath: string }) =>
    isTemplate(valueAt(own, instancePath.split('/').slice(1)))
  return problemsOf(input, own)
    .filter((problem) => !isOfTemplate(problem))
    .map(wordsOf)
}

const wordsOf = ({ instancePath, message }: { instancePath: string; message: string }): string =>
  `${instancePath.replace(/^\//, '').replaceAll('/', '.') || 'data'} ${message}`

function invalid(what: string, found: readonly WorkflowProblem[], warnings: readonly WorkflowProblem[]): AppError {
  const first = found
    .slice(0, 3)
    .map(({ nodeId, message }) => (nodeId === undefined ? message : `${nodeId}: ${message}`))
  const more = found.length > 3 ? ` and ${found.length - 3} more` : ''
  return new AppError(400, `${what}: ${first.join('; ')}${more}`, {
    code: 'WORKFLOW_INVALID',
    details: { errors: found, warnings },
  })
}

/**
 * The flow without flags of bypassing permissions that the row had already: an administrator set them, and somebody else
 * saves. Undefined where there are none.
 */
function withoutBypass(row: StoredWorkflow, before: StoredWorkflow | undefined): object | undefined {
  const had = bypassing(before?.flow_data)
  return had.size === 0 ? undefined : strike(row.flow_data, (id) => had.has(id))
}

const bypassing = (flowData: unknown): ReadonlySet<string> =>
  new Set(readFlow(flowData ?? {}, []).nodes.flatMap(({ id, data }) => (data.bypassPermissions === true ? [id] : [])))

/** The flow data without flags of bypassing permissions; undefined where there is nothing to strike. */
function strike(flowData: unknown, which: (nodeId: string) => boolean = () => true): object | undefined {
  if (!isObject(flowData) || !Array.isArray(flowData.nodes)) return undefined
  let isStruck = false
  const nodes = flowData.nodes.map((node: unknown) => {
    if (!isObject(node) || !isObject(node.data) || node.data.bypassPermissions !== true || !which(String(node.id)))
      return node
    isStruck = true
    return { ...node, data: { ...node.data, bypassPermissions: false } }
  })
  return isStruck ? { ...flowData, nodes } : undefined
}

/** 403 with all that only an administrator may save. */
function requireAdmin(access: Access, row: StoredWorkflow): void {
  const flow: Flow = readFlow(row.flow_data ?? {}, [])
  const refused = flow.nodes.flatMap(({ id, type, data }) => {
    const what = Object.hasOwn(nodeTypes, type) ? nodeTypes[type]!.needsAdmin?.(data) : 'nodes of extensions'
    return what === undefined
      ? []
      : [{ nodeId: id, code: 'admin_only', message: `Only administrators can save ${what}` }]
  })
  const { notify, webhookSecret } = optionsOf(row.options)
  const whole = [
    ...(runsBefore(row) || row.trigger_hook_action?.startsWith('items.read')
      ? ['hooks that run before a change, or at a read']
      : []),
    ...(notify.some((id) => id !== access.userId) ? ['notifications of others'] : []),
    ...(webhookSecret === undefined ? [] : ['secrets']),
  ].map((what): WorkflowProblem => ({ code: 'admin_only', message: `Only administrators can save ${what}` }))
  const { trigger_type, trigger_hook_collection: read } = row
  // It is triggered by a change that its author could not have read.
  const isBlind = trigger_type === 'hook' && read !== null && access.grant(read, 'read') === undefined
  const unreadable = {
    code: 'unreadable',
    message: `You may not read '${read}': its changes cannot trigger your workflow`,
  }
  const problems = [...whole, ...(isBlind ? [unreadable] : []), ...refused]
  if (problems.length > 0)
    throw new AppError(403, [...new Set(problems.map(({ message }) => message))].join('; '), {
      code: 'WORKFLOW_NEEDS_ADMINISTRATOR',
      details: { errors: problems },
    })
}

/** Which of two workflows a request means must not depend on chance. The index keeps it where two save at once. */
async function requireFreePath(
  { db }: Reads,
  { id, trigger_type, trigger_webhook_path, trigger_webhook_method }: StoredWorkflow,
) {
  if (trigger_type !== 'webhook') return
  const path = webhookPath(trigger_webhook_path ?? '')
  const taken = await db.maybeOne(sql`
    select 1 as one from "svc_Workflow"
    where status = 'active' and trigger_type = 'webhook' and "deletedAt" is null and id is distinct from ${id ?? null}
      and trigger_webhook_path = ${path} and coalesce(trigger_webhook_method, 'POST') = ${trigger_webhook_method ?? 'POST'} limit 1`)
  if (taken !== undefined)
    throw errors.conflict(`Another active workflow has the webhook ${trigger_webhook_method ?? 'POST'} ${path}`)
}

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
  const wanted = await withRoleIds(deps.db, workflowsIn(file))
  const known = await existing(deps.db, wanted)
  const around = surroundingsOf(deps, writer.access)
  const brought = new Set(wanted.map(idOf))
  const shown = []
  for (const one of wanted) {
    const flow = one.flow_data ?? {}
    const { errors: ofFlow, warnings } = validate(flow, around)
    const found = [...ofFlow, ...roleProblems(one.allowed_roles)]
    const missing = await missingIn(deps, { reader: writer }, flow, brought)
    const action = actionOn(one, known, overwrite)
    shown.push({ id: idOf(one) ?? null, name: nameOf(one), action, errors: found, warnings: [...warnings, ...missing] })
  }
  return shown
}

/** Each workflow on its own: one that is refused keeps none of the others out. */
export async function importWorkflows(deps: WorkflowWrites, writer: Requester, file: unknown, overwrite: boolean) {
  requireAdministrator(writer, 'import')
  const wanted = await withRoleIds(deps.db, workflowsIn(file))
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

/** Roles by their ids here: a file that is to mean the same elsewhere names them. What names no role stays as it is. */
async function withRoleIds(db: Reader, workflows: readonly Carried[]): Promise<readonly Carried[]> {
  const listOf = ({ allowed_roles }: Carried): readonly unknown[] => (Array.isArray(allowed_roles) ? allowed_roles : [])
  const names = workflows.flatMap(listOf).filter((role) => typeof role === 'string' && !isUuid(role))
  if (names.length === 0) return workflows
  const rows = await db.any<{ name: string; id: string }>(
    rawQuery(`select name, id::text from "svc_Role" where name = any($1::text[])`, [names.map(String)]),
  )
  const ids = new Map<unknown, string>(rows.map(({ name, id }) => [name, id]))
  return workflows.map((one) =>
    Array.isArray(one.allowed_roles)
      ? { ...one, allowed_roles: listOf(one).map((role) => ids.get(role) ?? role) }
      : one,
  )
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
  const { data } = JSON.parse(await wholeText(list))
  return new Set(data.map(({ id }: { readonly id: string }) => id))
}

/** Several may be named, with commas between; the value of a template is not known yet. */
const textsOf = (value: unknown): readonly string[] =>
  (Array.isArray(value) ? value : [value])
    .flatMap((one) => (typeof one === 'string' ? one.split(',') : []))
    .map((one) => one.trim())
    .filter((one) => one !== '' && !one.includes('{{'))
