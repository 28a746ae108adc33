import { newId } from '../../../adapters/ids.ts'
import { clientError } from '../../../db/errors.ts'
import { AppError, errors, inFull } from '../../../errors.ts'
import { type Actor, systemActor } from '../../../events/actor.ts'
import { commit } from '../../../events/commit.ts'
import { isObject } from '../../../query/guards.ts'
import { type HookEvent, isTooManyForHooks } from '../../data/hooks/hooks.ts'
import {
  type Accountability,
  actorOfHook,
  inTransaction,
  type Requester,
  type Run,
  requesterFor,
  scopeOfHook,
} from '../../data/items/items.ts'
import { type Authority, partyOf, platform } from './authority.ts'
import { type HookBudget, withinBudget } from './budget.ts'
import type { WorkflowDefinition, WorkflowWrites } from './capabilities.ts'
import { databaseEffects, type NodeRun, nodeRunOf, runScriptNode } from './effects.ts'
import type { Graph } from './flow.ts'
import { isScript, mapped, NodeError, nodeTypes } from './nodes.ts'
import {
  definitionFor,
  graphFor,
  insertExecutions,
  type LogRow,
  logRowOf,
  type NewExecution,
  record,
  requireKeepable,
} from './queries.ts'
import { calledWorkflow, causeOfNext, mayTrigger, refusedChain } from './starting.ts'
import { begin, goOn, type NodeResult, type State, type StepCommand, step } from './step.ts'
import { optionsOf } from './validate.ts'

/**
 * Workflows that run within the change that triggers them: in its process and its transaction, in memory, and within a
 * budget. The caller's rights apply to the `data` or `query` that they leave (ADR 7).
 */

/** A workflow that runs in the process where something is changed or read. */
export type HookedWorkflow = {
  readonly id: string
  readonly version: number
  readonly tenant_Id: string | null
  readonly allowed_roles: unknown
  readonly collection: string
  readonly event: HookEvent
}

type ChangeContext = { readonly collection: string; readonly [member: string]: unknown }

/** Runs the workflows one after the other; gives what they leave of `data` or `query`. Throws what refuses the change. */
export async function runBefore(
  deps: WorkflowWrites,
  workflows: readonly HookedWorkflow[],
  event: string,
  context: ChangeContext,
): Promise<object> {
  const key = scopeOfHook(deps)?.tx ?? context
  return withinBudget(deps, key, event.startsWith('items.read') ? 'read' : 'row', async (budget) => {
    const left: Record<string, unknown> = {}
    for (const workflow of workflows)
      Object.assign(left, await runOne(deps, workflow, event, { ...context, ...left }, budget))
    return left
  })
}

type HookedChange = {
  readonly deps: WorkflowWrites
  readonly actor: Actor
  readonly authority: Authority
  readonly scope: Run['scope'] | undefined
  readonly budget: HookBudget
  /** Workflows that call each other. */
  readonly depth: number
  readonly notes: LogRow[]
  /** The statuses that refusing nodes ask for. */
  readonly statuses: Map<string, number>
  /** The reader is an administrator who looks as somebody else: nothing is written then. */
  readonly isPreview: boolean
}

async function runOne(
  deps: WorkflowWrites,
  workflow: HookedWorkflow,
  event: string,
  context: ChangeContext,
  budget: HookBudget,
): Promise<object> {
  const scope = scopeOfHook(deps)
  const trigger = triggerOf(event, context)
  const writer = context.accountability == null ? undefined : requesterFor(context.accountability as Accountability)
  const asker = actorOfHook(deps) ?? systemActor
  if (!isMeant(deps, workflow, writer)) return {}
  const isPreview = writer?.access.isPreview === true
  const record = context.id === undefined ? undefined : `${context.collection} ${context.id}`
  const cause = {
    ...causeOfNext(asker, workflow.id, record),
    ...(asker.cause && { depth: asker.cause.depth, request: asker.cause.request }),
  }
  const actor: Actor = { ...asker, cause }
  const notes: LogRow[] = []
  let definition: WorkflowDefinition | undefined
  try {
    const refusal = refusedChain(cause)
    if (refusal !== undefined) throw new NodeError(refusal)
    definition = await definitionFor(deps, { workflow_Id: workflow.id, version: workflow.version })
    if (definition === undefined) throw new NodeError('The version of the workflow is gone')
    const authority = await authorityBefore(deps, definition, writer)
    const state = await walk(
      { deps, actor, authority, scope, budget, depth: 1, notes, statuses: new Map(), isPreview },
      definition,
      workflow,
      trigger,
    )
    if (optionsOf(definition.options).record === 'all' && !isPreview)
      recordLater(deps, workflow, { actor, trigger, notes, state, writer })
    return leftBy(state, graphFor(definition))
  } catch (error) {
    const refusal = refusalOf(error)
    if (!isPreview)
      recordLater(deps, workflow, { actor, trigger, notes, error: refusal?.message ?? 'Internal error', writer })
    throw refusal ?? error
  }
}

/** The caller's answer if a node refuses the change; undefined for faults, and for errors that pass. */
function refusalOf(error: unknown): AppError | undefined {
  if (error instanceof NodeError)
    return new AppError(error.status ?? 400, error.message, { code: 'HOOK_REFUSED', cause: error })
  const known = clientError(error)
  if (known === undefined || known.status >= 500 || endsAll(known)) return known
  return new AppError(400, known.message, { code: 'HOOK_REFUSED', details: known.details, cause: error })
}

const isPreviewRefusal = (error: unknown) => error instanceof AppError && error.code === errors.previewOnly().code

/** Refusals that are no node's own, and stay what they are: no node catches them. */
const endsAll = (error: unknown) => isPreviewRefusal(error) || isTooManyForHooks(error)

/** Workflows of a tenant, and those for some roles, do not concern the changes of others. */
function isMeant({ config }: WorkflowWrites, workflow: HookedWorkflow, writer: Requester | undefined): boolean {
  const { tenant_Id } = workflow
  if (config.tenancy.enabled && tenant_Id !== null && tenant_Id !== writer?.access.tenantId) return false
  return mayTrigger(workflow, { admin: writer?.access.admin === true, roleId: writer?.access.roleId })
}

/** Only an administrator's workflow runs within the changes of others; it acts as who makes the change. */
async function authorityBefore(
  deps: WorkflowWrites,
  { authority_Id, tenant_Id }: WorkflowDefinition,
  writer: Requester | undefined,
): Promise<Authority> {
  const author = authority_Id === null ? undefined : await partyOf(deps, authority_Id, tenant_Id)
  if (author === undefined || !author.access.admin)
    throw new NodeError('A workflow that guards this collection has no author who may: an administrator has to save it')
  // The platform itself, for an administrator's node or an extension that says so.
  if (writer === undefined)
    return { access: platform, user: undefined, userId: null, tenantId: undefined, mayBypass: true }
  const { access, user } = writer
  return {
    access: { ...access, byKey: true },
    user,
    userId: access.userId ?? null,
    tenantId: deps.config.tenancy.enabled ? (tenant_Id ?? access.tenantId) : undefined,
    mayBypass: true,
  }
}

function triggerOf(
  event: string,
  { db: _db, transaction: _tx, accountability, ...members }: ChangeContext,
): Record<string, unknown> {
  const { user, tenant } = (accountability ?? {}) as Partial<Accountability>
  return { event, ...members, userId: user?.id ?? null, tenant: tenant ?? null }
}

async function walk(
  change: HookedChange,
  definition: WorkflowDefinition,
  { id }: Pick<HookedWorkflow, 'id'>,
  trigger: unknown,
): Promise<State> {
  const graph = graphFor(definition)
  const variables = isObject(definition.variables) ? definition.variables : {}
  let [state, commands] = begin(graph, { trigger, variables, execution: { workflowId: id } })
  for (;;) {
    for (const command of commands) if (command.kind === 'note') change.notes.push(logRowOf(command))
    const last = commands.at(-1)!
    if (last.kind === 'complete') return state
    if (last.kind === 'fail') throw new NodeError(last.error.message, change.statuses.get(last.error.nodeId))
    if (performance.now() > change.budget.deadline) throw change.budget.over(id)
    if (last.kind === 'pause') [state, commands] = goOn(graph, state)
    else if (last.kind === 'run') [state, commands] = step(graph, state, await resultOf(change, id, last))
  }
}

async function resultOf(
  change: HookedChange,
  workflowId: string,
  command: Extract<StepCommand, { kind: 'run' }>,
): Promise<NodeResult> {
  const { node, input, scope } = command
  try {
    const known = Object.hasOwn(nodeTypes, node.type) ? nodeTypes[node.type]! : undefined
    const refusal = known === undefined ? 'nodes of extensions run after the change alone' : known.notBefore?.(input)
    if (refusal !== undefined) throw new NodeError(`${node.type}: ${refusal}`)
    if (node.type === 'workflow') return { output: await called(change, input, scope) }
    const { budget } = change
    const msLeft = Math.max(1, budget.deadline - performance.now())
    const run = (open: Run['scope'] | undefined): NodeRun =>
      nodeRunOf({ ...change, workflowId }, command, newId(), { scope: open, msLeft, budget })
    const output = await within(change, (open) =>
      isScript(node.type, node.data)
        ? runScriptNode(run(open))
        : databaseEffects[node.type]!(run(open), { scope: open }),
    )
    requireKeepable(output)
    return { output }
  } catch (error) {
    if (error instanceof NodeError) {
      if (error.status !== undefined) change.statuses.set(node.id, error.status)
      return { error: error.message }
    }
    const refused = clientError(error)
    // The transaction is broken, the caller has to try again, or may write nothing: no node can go on with that.
    const isNodes = refused !== undefined && refused.status < 500 && error instanceof AppError
    if (!isNodes || endsAll(error)) throw error
    return { error: inFull(refused) }
  }
}

/**
 * In the change's transaction, or, at a read, in one of its own. Reading needs none in a preview, where the actor's guard
 * refuses each transaction that a node would write in.
 */
function within<Result>(
  { deps, scope, actor, isPreview }: HookedChange,
  work: (scope: Run['scope'] | undefined) => Promise<Result>,
): Promise<Result> {
  if (scope !== undefined || isPreview) return work(scope)
  return inTransaction(deps, { actor, access: platform }, (run) => work(run.scope))
}

const calledAtMost = 4

/** A called workflow runs within the same change, under the same rules. */
async function called(
  change: HookedChange,
  input: Readonly<Record<string, unknown>>,
  scope: Readonly<Record<string, unknown>>,
): Promise<object> {
  const { deps, depth, authority } = change
  if (depth >= calledAtMost) throw new NodeError(`Workflows may call each other ${calledAtMost} deep before a change`)
  const workflow = await calledWorkflow(deps, String(input.workflowId), authority.access)
  const definition = await definitionFor(deps, { workflow_Id: workflow.id, version: workflow.version })
  const author =
    definition?.authority_Id == null ? undefined : await partyOf(deps, definition.authority_Id, definition.tenant_Id)
  if (definition === undefined || author === undefined)
    throw new NodeError(`The author of workflow ${workflow.id} may not act any more`)
  const own = author.access.admin ? authority : { ...author, userId: definition.authority_Id, mayBypass: false }
  const data = isObject(input.dataMapping) ? mapped(input.dataMapping, scope) : {}
  const trigger = input.passData === false ? data : { ...(scope.trigger as object), ...data }
  const state = await walk({ ...change, authority: own, depth: depth + 1, notes: [] }, definition, workflow, trigger)
  return { success: true, executionId: null, status: 'completed', result: state.outputs }
}

/** The change after transforms and scripts, by the last one that replaces it: their outputs are their authors' own. */
function leftBy({ outputs }: State, { nodes }: Graph): object {
  const left: Record<string, unknown> = {}
  for (const [id, output] of Object.entries(outputs)) {
    const type = nodes.get(id)?.type
    const said = type === 'script' ? (output as { result: unknown }).result : output
    if ((type !== 'transform' && type !== 'script') || !isObject(said)) continue
    const data = said.data ?? said.document
    if (isObject(data)) left.data = data
    if (isObject(said.query)) left.query = said.query
  }
  return left
}

type Ran = {
  readonly actor: Actor
  readonly trigger: Record<string, unknown>
  readonly notes: readonly LogRow[]
  readonly writer: Requester | undefined
  readonly state?: State
  readonly error?: string
}

/** In a commit of its own, whatever becomes of the change. A process that dies before it has only not said so. */
function recordLater(
  deps: WorkflowWrites,
  workflow: HookedWorkflow,
  { actor, trigger, notes, writer, state, error }: Ran,
): void {
  const id = newId()
  const token = newId()
  const userId = writer?.access.userId ?? null
  const tenant_Id = writer?.access.tenantId ?? null
  const collection = deps.catalog.current().collections.get(workflow.collection)
  const execution: NewExecution = {
    ...{ id, token, workflow_Id: workflow.id, version: workflow.version, trigger: 'hook', cause: actor.cause ?? null },
    trigger_data: withoutHidden(trigger, (name) => collection?.fields.get(name)?.hidden === true),
    ...{ tenant_Id, triggered_by_Id: userId, caller_Id: userId },
  }
  const end = state ?? ({ outputs: {}, variables: {}, error: null } as unknown as State)
  const own = { ...systemActor, userId: userId ?? undefined, userAgent: `daybook workflow ${workflow.id}` }
  const write = () =>
    commit(deps, own, async (tx) => {
      await insertExecutions(tx, [execution])
      const status = error === undefined ? 'completed' : 'failed'
      const standing = { is: 'over', status, error: error ?? null, state: end } as const
      await record(tx, { claim: { id, token }, rows: notes, standing })
      return { result: null }
    })
  setImmediate(() =>
    write().catch((cause: unknown) =>
      deps.log.error({ err: cause, workflow: workflow.id }, 'the execution of a hook could not be recorded'),
    ),
  )
}

function withoutHidden(trigger: Record<string, unknown>, isHidden: (name: string) => boolean): Record<string, unknown> {
  const shown = (value: unknown) =>
    isObject(value) ? Object.fromEntries(Object.entries(value).filter(([name]) => !isHidden(name))) : value
  const rows = ['data', 'document', 'previousDocument']
  return Object.fromEntries(
    Object.entries(trigger).map(([name, value]) => [name, rows.includes(name) ? shown(value) : value]),
  )
}

const readsPerSecond = 10
const windows = new WeakMap<object, Map<string, { second: number; count: number }>>()

/**
 * Queued when the answer is on its way, at most once, and no more than some per second for each workflow. Not where the reader may
 * write nothing: the read of a preview starts no workflow.
 */
export function queueAfterRead(
  deps: WorkflowWrites,
  workflows: readonly HookedWorkflow[],
  event: string,
  context: ChangeContext,
): void {
  const writer = context.accountability == null ? undefined : requesterFor(context.accountability as Accountability)
  if (writer?.access.isPreview === true) return
  const asker = actorOfHook(deps) ?? systemActor
  for (const workflow of workflows) {
    if (!isMeant(deps, workflow, writer) || !mayCount(deps, workflow.id)) continue
    const cause = causeOfNext(asker, workflow.id)
    const refusal = refusedChain(cause)
    const userId = writer?.access.userId ?? null
    const execution: NewExecution = {
      ...{ id: newId(), workflow_Id: workflow.id, version: workflow.version, trigger: 'hook', cause },
      trigger_data: { event, collection: context.collection, query: context.query, ids: idsIn(context), userId },
      tenant_Id: workflow.tenant_Id ?? writer?.access.tenantId ?? null,
      ...{ triggered_by_Id: userId, caller_Id: userId, caller_scope: writer?.access.scope ?? null },
      ...(refusal !== undefined && { refusal }),
    }
    setImmediate(() =>
      commit(deps, { ...systemActor, userAgent: 'daybook workflows', guard: asker.guard }, async (tx) => ({
        result: await insertExecutions(tx, [execution]),
      })).catch((error: unknown) => {
        if (!isPreviewRefusal(error))
          deps.log.warn({ err: error, workflow: workflow.id }, 'a read could not start its workflow')
      }),
    )
  }
}

function mayCount(deps: object, id: string): boolean {
  const own = windows.get(deps) ?? new Map<string, { second: number; count: number }>()
  windows.set(deps, own)
  const second = Math.floor(performance.now() / 1000)
  const window = own.get(id)
  const count = window?.second === second ? window.count + 1 : 1
  own.set(id, { second, count })
  return count <= readsPerSecond
}

const idsAtMost = 1000

function idsIn({ result, document, id }: ChangeContext): readonly unknown[] {
  if (id !== undefined) return [isObject(document) && document.id !== undefined ? document.id : id]
  const list = isObject(result) && Array.isArray(result.data) ? result.data : isObject(document) ? [document] : []
  return list.slice(0, idsAtMost).flatMap((row) => (isObject(row) && row.id !== undefined ? [row.id] : []))
}
