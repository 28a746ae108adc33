import { setTimeout as delay } from 'node:timers/promises'
import type { Caller } from '../../../access/principal.ts'
import { hasScope } from '../../../access/scopes.ts'
import { newId } from '../../../adapters/ids.ts'
import type { Configuration } from '../../../config/config.ts'
import { type Reader, rawQuery, type Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { type Actor, type Cause, deepestCause } from '../../../events/actor.ts'
import { commit } from '../../../events/commit.ts'
import { breather } from '../../../language/breather.ts'
import { isObject } from '../../../query/guards.ts'
import { inTransaction } from '../../data/items/items.ts'
import { anonymous, platform } from './authority.ts'
import type { WorkflowWrites } from './capabilities.ts'
import { carryingTo } from './carrying.ts'
import { callHttp, databaseEffects, type NodeRun, nodeRunOf, runExtensionNode, runScriptNode } from './effects.ts'
import { openRoom } from './expressions.ts'
import { isStructure, readFlow } from './flow.ts'
import { holds, inputOf, isScript, iterationsOf, NodeError, nodeTypes } from './nodes.ts'
import {
  cancelExecution,
  definitionFor,
  graphFor,
  insertExecutions,
  keepMessage,
  keptNodes,
  mayChange,
  type NewExecution,
  queueRefusal,
  type Triggerable,
  type TriggerKind,
  tenantOfWorkflow,
  triggerable,
} from './queries.ts'
import { workflowNotFound } from './save.ts'
import { rolesNamed } from './validate.ts'

/** Decides who may start which workflow, and keeps a workflow from starting itself without end. */

/** The asking party, as the routes know it. */
export type WorkflowCaller = { readonly caller: Caller; readonly actor: Actor }

const timesOnOneRecord = 3

/** The cause of an execution that an actor's change, or request, leads to. */
export function causeOfNext(
  { logRequestId, cause }: Pick<Actor, 'logRequestId' | 'cause'>,
  workflowId: string,
  record?: string,
): Cause {
  const chain = [...(cause?.chain ?? []), record === undefined ? workflowId : `${workflowId} on ${record}`]
  return { request: logRequestId ?? newId(), depth: (cause?.depth ?? 0) + 1, by: 'workflow', chain }
}

/** Why an execution does not begin: what led to it led to it too often. */
export function refusedChain({ depth, chain = [] }: Cause): string | undefined {
  const shown = chain.slice(-deepestCause - 1).join(' → ')
  if (depth > deepestCause) return `A chain of causes ended after ${deepestCause}: ${shown}`
  const last = chain.at(-1)
  if (!last?.includes(' on ') || chain.filter((one) => one === last).length <= timesOnOneRecord) return undefined
  return `A loop ended: the workflow was to run more than ${timesOnOneRecord} times on one record: ${shown}`
}

/** Whether a role may start a workflow; without any roles named everybody may. */
export function mayTrigger(
  { allowed_roles }: Pick<Triggerable, 'allowed_roles'>,
  { admin, roleId }: { readonly admin: boolean; readonly roleId: string | undefined },
): boolean {
  const named = rolesNamed(allowed_roles)
  return admin || named === undefined || (roleId !== undefined && named.includes(roleId))
}

const notAllowed = () => new AppError(403, 'You do not have permission to execute this workflow')

/** A workflow that the caller may know of; 404 for one of another tenant. */
export async function knownWorkflow(
  deps: WorkflowWrites,
  { caller }: WorkflowCaller,
  id: string,
): Promise<Triggerable> {
  const workflow = await triggerable(deps.reserved, id)
  if (workflow === undefined || !isOfTenant(deps, caller, workflow.tenant_Id)) throw workflowNotFound()
  return workflow
}

/** The same, also for a workflow in the trash: for what is asked about its executions. */
export async function requireKnown(deps: WorkflowWrites, { caller }: WorkflowCaller, id: string): Promise<void> {
  const workflow = await tenantOfWorkflow(deps.reserved, id)
  if (workflow === undefined || !isOfTenant(deps, caller, workflow.tenant_Id)) throw workflowNotFound()
}

type OfTenant = { readonly admin: boolean; readonly tenantId: string | undefined }

/** Workflows of no tenant are everybody's. */
export function isOfTenant({ config }: Configuration, { admin, tenantId }: OfTenant, tenant: string | null): boolean {
  return !config.tenancy.enabled || admin || tenant === null || tenant === tenantId
}

/**
 * The workflow that a node calls, for the party whose rights the node has. `db`: the transaction that the call is part of.
 * @throws {NodeError} where it may not be begun; of another tenant's no more is said than of one that does not exist
 */
export async function calledWorkflow(
  deps: WorkflowWrites,
  id: string,
  party: OfTenant & { readonly roleId: string | undefined },
  db: Reader = deps.reserved,
): Promise<Triggerable> {
  const called = await triggerable(db, id)
  if (called === undefined || called.status !== 'active' || !isOfTenant(deps, party, called.tenant_Id))
    throw new NodeError(`Workflow ${id} is not there, or not active`)
  if (!mayTrigger(called, party)) throw new NodeError(notAllowed().message)
  return called
}

/** The execution that a caller starts. `workflow`: its present version. */
export function executionFor(
  workflow: Triggerable,
  { actor, caller }: WorkflowCaller,
  { trigger, data, dueInMs = 0 }: { readonly trigger: TriggerKind; readonly data: unknown; readonly dueInMs?: number },
): NewExecution {
  const cause = causeOfNext(actor, workflow.id)
  const refusal = refusedChain(cause)
  if (refusal !== undefined) throw new AppError(400, refusal, { code: 'WORKFLOW_LOOP' })
  return {
    ...{
      id: newId(),
      workflow_Id: workflow.id,
      version: workflow.version,
      trigger,
      trigger_data: data ?? {},
      dueInMs,
      cause,
    },
    tenant_Id: workflow.tenant_Id ?? caller.tenantId ?? null,
    triggered_by_Id: caller.userId ?? null,
    caller_Id: caller.userId ?? null,
    caller_scope: caller.access.scope ?? null,
  }
}

/** A client can join the execution's room before it begins. */
const headStartMs = 500

export async function startByHand(deps: WorkflowWrites, asker: WorkflowCaller, id: string, data: unknown) {
  const workflow = await knownWorkflow(deps, asker, id)
  if (workflow.status !== 'active') throw errors.badBody('Workflow is not active')
  if (!mayTrigger(workflow, { admin: asker.caller.admin, roleId: asker.caller.role.id })) throw notAllowed()
  const execution = executionFor(workflow, asker, { trigger: 'manual', data, dueInMs: headStartMs })
  return queue(deps, asker.actor, execution)
}

/** A message that has begun an execution before, or at this moment: nothing was queued. */
export class RepeatedMessage extends Error {
  override readonly name = 'RepeatedMessage'
}

/** @throws {RepeatedMessage}; 503 where too many wait already */
export async function queue(deps: WorkflowWrites, actor: Actor, execution: NewExecution, message?: string) {
  const { id, workflow_Id } = execution
  const isFull = await queueRefusal(deps, workflow_Id)
  if (isFull !== undefined) throw errors.unavailable('Too many executions of this workflow wait already')
  return commit(deps, actor, async (tx) => {
    await insertExecutions(tx, [execution])
    if (message !== undefined && !(await keepMessage(tx, execution, message))) throw new RepeatedMessage()
    return { result: { id, status: 'queued', workflow_Id } }
  })
}

const longestTestMs = 30_000

/** A caller who tests a workflow or a node chooses its input, so only callers who could change this workflow may. */
async function requireChangeable(deps: WorkflowWrites, { caller }: WorkflowCaller, workflow: Triggerable) {
  const isAllowed = mayTrigger(workflow, { admin: caller.admin, roleId: caller.role.id })
  if (!isAllowed || !(await mayChange(deps, caller.access, workflow.id))) throw notAllowed()
}

/** Runs a workflow as it is now, and waits until it is over; also one that is not active. */
export async function testWorkflow(
  deps: WorkflowWrites,
  asker: WorkflowCaller,
  id: string,
  data: unknown,
  isKept: boolean,
) {
  const { actor } = asker
  const workflow = await knownWorkflow(deps, asker, id)
  await requireChangeable(deps, asker, workflow)
  const { id: executionId } = await queue(deps, actor, executionFor(workflow, asker, { trigger: 'test', data }))
  const execution = await untilOver(deps.reserved, executionId, longestTestMs)
  if (!isKept && isOver(execution.status))
    await commit(deps, actor, async (tx) => ({
      result: await tx
        .any(rawQuery('delete from "svc_WorkflowExecution" where id = $1', [executionId]))
        .then(() => null),
    }))
  return { execution, result: execution.result_data }
}

/** The words for a test whose execution has this status. */
export const testMessage = (status: string): string => `Workflow test ${isOver(status) ? status : `is still ${status}`}`

type Shown = {
  readonly id: string
  readonly status: string
  readonly result_data: unknown
  readonly errorMessage: string | null
}

const isOver = (status: string) => status !== 'queued' && status !== 'running'
const look = { firstMs: 10, longestMs: 200 }

/** The execution when it is over, or as it is after that time. */
async function untilOver(db: Reader, id: string, ms: number): Promise<Shown> {
  const until = performance.now() + ms
  for (let pause = look.firstMs; ; pause = Math.min(pause * 1.5, look.longestMs)) {
    const execution = await db.one<Shown>(
      rawQuery(
        `select id, "workflow_Id", status, "errorMessage", "startedAt", "completedAt", "durationMs", result_data
         from "svc_WorkflowExecution" where id = $1`,
        [id],
      ),
    )
    if (isOver(execution.status) || performance.now() > until) return execution
    await delay(pause)
  }
}

/** Runs one node with the caller's own rights; `context` stands for what came before it. */
export async function runNodeAlone(
  deps: WorkflowWrites,
  asker: WorkflowCaller,
  id: string,
  nodeId: string,
  context: Readonly<Record<string, unknown>>,
) {
  const { caller, actor } = asker
  const workflow = await knownWorkflow(deps, asker, id)
  await requireChangeable(deps, asker, workflow)
  const { flow_data } = await deps.reserved.one<{ flow_data: unknown }>(
    rawQuery('select flow_data from "svc_Workflow" where id = $1', [id]),
  )
  const node = readFlow(flow_data, []).nodes.find((one) => one.id === nodeId)
  if (node === undefined) throw new AppError(404, 'Node not found')
  const known = Object.hasOwn(nodeTypes, node.type) ? nodeTypes[node.type] : undefined
  const isAdmin = caller.admin && hasScope(caller.access, 'admin')
  if (!isAdmin && (known === undefined || known.needsAdmin?.(node.data) !== undefined)) throw notAllowed()
  const scope = { trigger: context.trigger ?? context, outputs: {}, variables: {}, ...context }
  const tenantId = deps.config.tenancy.enabled ? (workflow.tenant_Id ?? caller.tenantId) : undefined
  const own =
    caller.userId === undefined
      ? anonymous(deps, tenantId)
      : {
          access: { ...caller.access, byKey: true },
          userId: caller.userId,
          user: caller.user,
          tenantId,
        }
  const authority = { ...own, mayBypass: isAdmin }
  try {
    const input = node.type === 'trigger' ? {} : inputOf(node.type, node.data, scope)
    const place = { node, input, scope, step: nodeId }
    return await resultAlone(nodeRunOf({ deps, authority, actor, workflowId: id }, place, newId()))
  } catch (error) {
    if (error instanceof NodeError || error instanceof TypeError)
      throw new AppError(400, error.message, { code: 'NODE_FAILED' })
    throw error
  }
}

async function resultAlone(run: NodeRun): Promise<unknown> {
  const { node, input, scope, deps, actor } = run
  const { type, data } = node
  if (type === 'trigger') return scope.trigger
  if (type === 'condition') return { result: holds(data, scope) }
  if (type === 'loop') return { total: iterationsOf(input, scope).total }
  if (isStructure(type)) return { success: true }
  const give = isScript(type, data) ? undefined : nodeTypes[type]?.give
  if (give !== undefined) return give(input, scope, openRoom())
  const effect = Object.hasOwn(databaseEffects, type) ? databaseEffects[type] : undefined
  if (effect !== undefined)
    return inTransaction(deps, { actor, access: platform }, ({ scope: open }) => effect(run, { scope: open }))
  if (type === 'http') return callHttp(run)
  if (isScript(type, data)) return runScriptNode(run)
  if (type === 'delay') return { delayed: Number(input.delay) }
  if (type === 'workflow') throw new NodeError('A node that calls a workflow is tested with its workflow')
  return runExtensionNode(run, AbortSignal.timeout(longestTestMs))
}

/** An execution for its actions: open to the user who triggered it and to users who may change the workflow. */
async function ownExecution(deps: WorkflowWrites, asker: WorkflowCaller, id: string, executionId: string) {
  const { caller } = asker
  await requireKnown(deps, asker, id)
  const execution = await deps.reserved.maybeOne<
    Shown & { triggered_by_Id: string | null; tenant_Id: string | null; version: number }
  >(
    rawQuery(
      `select id, status, result_data, "errorMessage", "triggered_by_Id", "tenant_Id", version from "svc_WorkflowExecution"
      where id::text = $1 and "workflow_Id" = $2`,
      [executionId.toLowerCase(), id],
    ),
  )
  const isOwn = execution !== undefined && caller.userId !== undefined && execution.triggered_by_Id === caller.userId
  const isHere =
    execution !== undefined &&
    (isOwn || (isOfTenant(deps, caller, execution.tenant_Id) && (await mayChange(deps, caller.access, id))))
  if (execution === undefined || !(caller.admin || isHere)) throw new AppError(404, 'Workflow execution not found')
  return execution
}

/** Ends an execution before its next node; 400 for one that is over. */
export async function cancel(deps: WorkflowWrites, asker: WorkflowCaller, id: string, executionId: string) {
  const execution = await ownExecution(deps, asker, id, executionId)
  const isCancelled = await commit(deps, asker.actor, async (tx) => ({
    result: await cancelExecution(tx, execution.id),
  }))
  if (!isCancelled) throw errors.badBody(`Workflow execution is ${execution.status} already`)
  return { id: execution.id, status: 'cancelled', workflow_Id: id }
}

/**
 * Goes on with an execution that failed or was cancelled: another one with all that was kept, of the same version, or of the current
 * one where that comes to the same node. Only once, since what the second one did is kept with that one alone.
 */
export async function retry(
  deps: WorkflowWrites,
  asker: WorkflowCaller,
  { id, execution }: { readonly id: string; readonly execution: string },
  by: 'failed' | 'current' = 'failed',
) {
  const { caller, actor } = asker
  const failed = await ownExecution(deps, asker, id, execution)
  const workflow = await knownWorkflow(deps, asker, id)
  if (failed.status !== 'failed' && failed.status !== 'cancelled')
    throw errors.badBody(`Workflow execution is ${failed.status}: only what failed can be tried again`)
  if (workflow.status !== 'active') throw errors.badBody('Workflow is not active')
  if (!mayTrigger(workflow, { admin: caller.admin, roleId: caller.role.id })) throw notAllowed()
  const own = executionFor(workflow, asker, { trigger: 'manual', data: {} })
  const version = by === 'current' ? own.version : failed.version
  const carried = version === failed.version ? null : await carriedTo(deps, own, failed.id)
  return commit(deps, actor, async (tx) => {
    await requireFirstRetry(tx, failed.id, id)
    await insertExecutions(tx, [{ ...own, version, retry_of_Id: failed.id }])
    await tx.any(rawQuery(carrySql, [own.id, failed.id, carried]))
    return { result: { id: own.id, status: 'queued', workflow_Id: id } }
  })
}

/**
 * The places of the results that go to another version.
 * @throws {AppError} 409 where that version does not come to the node where the execution ended by the nodes that have run
 */
async function carriedTo(deps: WorkflowWrites, own: NewExecution, failedId: string): Promise<readonly number[]> {
  const definition = await definitionFor(deps, own)
  if (definition === undefined) throw workflowNotFound()
  const { trigger, trigger_data } = await deps.reserved.one<Pick<NewExecution, 'trigger' | 'trigger_data'>>(
    rawQuery('select trigger, trigger_data from "svc_WorkflowExecution" where id = $1', [failedId]),
  )
  const ran = await keptNodes(deps.reserved, failedId)
  const carrying = carryingTo(graphFor(definition), {
    ran,
    trigger: trigger_data,
    variables: isObject(definition.variables) ? definition.variables : {},
    execution: { id: own.id, workflowId: own.workflow_Id, trigger },
  })
  const breathe = breather()
  let turn = carrying.next()
  for (; turn.done !== true; turn = carrying.next()) await breathe()
  if ('carried' in turn.value) return turn.value.carried
  const { refusal, nodes } = turn.value
  throw new AppError(409, refusal, { code: 'WORKFLOW_DIFFERS', details: { nodes } })
}

/** Requests for one execution come one after the other. */
async function requireFirstRetry(tx: Tx, failedId: string, workflowId: string): Promise<void> {
  await tx.any(rawQuery('select 1 from "svc_WorkflowExecution" where id = $1 for update', [failedId]))
  const retry = await tx.maybeOne<{ id: string }>(
    rawQuery(
      'select id from "svc_WorkflowExecution" where "workflow_Id" = $2 and "retry_of_Id" = $1 order by "createdAt" limit 1',
      [failedId, workflowId],
    ),
  )
  if (retry === undefined) return
  throw new AppError(409, `Execution ${retry.id} has gone on with this one: if that fails, try that again`, {
    code: 'RETRIED_ALREADY',
    details: { retry: retry.id },
  })
}

/**
 * The user who triggered the first execution stays the trigger, within the scope of a program that asks now. A node that was begun
 * begins again; so does the failed node that ended the execution, which is known when the kept results have led to it
 * (workflows.ts): a failure that was caught is a result as any other. $3: the places of the results that are carried; null for all.
 */
const carrySql = `
  with old as (
    update "svc_WorkflowExecution" e set trigger_data = o.trigger_data, trigger = o.trigger, "triggered_by_Id" = o."triggered_by_Id",
      "caller_Id" = o."caller_Id", "tenant_Id" = o."tenant_Id", caller_scope = (
        select one from unnest(array[o.caller_scope, e.caller_scope]) one where one is not null
        order by array_position(array['none', 'read', 'write', 'admin'], one) limit 1)
    from "svc_WorkflowExecution" o where o.id = $2 and e.id = $1 returning o.id)
  insert into "svc_WorkflowExecutionLog" ("execution_Id", "nodeId", "nodeType", "nodeLabel", status, "inputData", "outputData", "errorMessage", "durationMs", seq, step)
  select $1, l."nodeId", l."nodeType", l."nodeLabel", l.status, l."inputData", l."outputData", l."errorMessage", l."durationMs", l.seq, l.step
  from "svc_WorkflowExecutionLog" l, old where l."execution_Id" = old.id and l.seq is not null and l.status in ('success', 'failed')
    and ($3::int[] is null or l.seq = any($3))`
