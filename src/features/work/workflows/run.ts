import { setImmediate as nextTurn } from 'node:timers/promises'
import { retryTransient } from '../../../adapters/retry.ts'
import { clientError, isPassing } from '../../../db/errors.ts'
import { rawQuery } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { type Actor, systemActor } from '../../../events/actor.ts'
import { isObject } from '../../../query/guards.ts'
import { inTransaction, type Requester, type Run } from '../../data/items/items.ts'
import { insertNotification } from '../../messaging/notifications/notifications.ts'
import { type Authority, authorityOf, platform } from './authority.ts'
import type { WorkflowWrites } from './capabilities.ts'
import { databaseEffects, type NodeRun } from './effects.ts'
import { type Graph, graphOf, readFlow } from './flow.ts'
import { isScript, longestDelayMs, mapped, NodeError } from './nodes.ts'
import { callHttp, keyOf, Retryable, runExtensionNode, runScriptNode } from './outside.ts'
import {
  type ClaimedExecution,
  ClaimLost,
  type Definition,
  definitionOf,
  endOfExecution,
  insertExecutions,
  type KeptNode,
  keptNodes,
  type LogRow,
  logRowOf,
  record,
  requireKeepable,
  type Standing,
  triggerable,
} from './queries.ts'
import { causeOfNext, mayTrigger, refusedChain } from './starting.ts'
import { begin, type Command, goOn, type NodeResult, type State, step } from './step.ts'
import { optionsOf } from './trigger.ts'

/**
 * Runs an execution that this process has claimed, until it is over or waits. What a node gives is kept before its successor
 * begins: by the transaction of what the node does, where that is the database, and else by the next one. An execution whose
 * process died is brought back by giving `step` what was kept.
 */

type Command_<Kind> = Extract<Command, { kind: Kind }>

type Execution = {
  readonly rt: WorkflowWrites
  readonly claim: ClaimedExecution
  readonly definition: Definition
  readonly graph: Graph
  readonly authority: Authority
  readonly actor: Actor
  /** Nodes of which something is kept, by their place. */
  readonly kept: ReadonlyMap<number, KeptNode>
  readonly signal: AbortSignal
}

/** Where an execution stands, and what of it is not kept yet. */
type Progress = { readonly state: State; readonly commands: readonly Command[]; readonly unkept: readonly LogRow[] }

/**
 * Throws {@link ClaimLost} where somebody else has it by now, and what passes (a lost connection): then it stays claimed
 * until its lease is over, because nobody knows what was kept. `signal`: the process stops, nothing more is begun.
 */
export async function runExecution(
  rt: WorkflowWrites,
  claim: ClaimedExecution,
  signal: AbortSignal,
): Promise<'over' | 'waiting' | 'stopped'> {
  const opened = await open(rt, claim, signal)
  if ('refusal' in opened) {
    await endUnopened(rt, claim, opened.refusal)
    return 'over'
  }
  const { graph, definition } = opened
  const variables = isObject(definition.variables) ? definition.variables : {}
  const execution = { id: claim.id, workflowId: claim.workflow_Id, trigger: claim.trigger }
  const [state, commands] = begin(graph, { trigger: claim.trigger_data, variables, execution })
  let progress: Progress = withNotes(opened, { state, commands, unkept: [] })
  for (;;) {
    const last = progress.commands.at(-1)!
    if (last.kind === 'complete' || last.kind === 'fail') {
      await keep(opened, progress.unkept, standingOf(progress))
      return 'over'
    }
    if (signal.aborted) {
      await keep(opened, progress.unkept, { is: 'running' })
      return 'stopped'
    }
    if (last.kind === 'pause') {
      await nextTurn()
      progress = withNotes(opened, { ...next(goOn(graph, progress.state)), unkept: progress.unkept })
      continue
    }
    const after = await runNode(opened, progress, last as Command_<'run'>)
    if (after === 'over' || after === 'waiting') return after
    progress = after
  }
}

const next = ([state, commands]: [State, readonly Command[]]) => ({ state, commands })

/** Adds the notes of the last step to what is to be kept, but for those that are. */
function withNotes({ kept }: Execution, { state, commands, unkept }: Progress, durationMs?: number): Progress {
  const isKept = (seq: number) => ['success', 'failed'].includes(kept.get(seq)?.status ?? '')
  const rows = commands.flatMap((command, i) =>
    command.kind === 'note' && !isKept(command.seq) ? [logRowOf(command, i === 0 ? (durationMs ?? null) : null)] : [],
  )
  return { state, commands, unkept: [...unkept, ...rows] }
}

async function open(
  rt: WorkflowWrites,
  claim: ClaimedExecution,
  signal: AbortSignal,
): Promise<Execution | { refusal: string }> {
  const definition = await definitionFor(rt, claim)
  if (definition === undefined) return { refusal: 'The version of the workflow that it began with is gone' }
  const { timeoutSeconds } = optionsOf(definition.options)
  if (timeoutSeconds > 0 && claim.ageSeconds > timeoutSeconds)
    return { refusal: `It took longer than ${timeoutSeconds} s` }
  try {
    const { authority_Id, tenant_Id: workflowTenant } = definition
    const { caller_Id, tenant_Id } = claim
    const authority = await authorityOf(rt, { authority_Id, workflowTenant, caller_Id, tenant_Id })
    const graph = graphFor(definition)
    const rows = claim.isNew && claim.retry_of_Id === null ? [] : await keptNodes(rt.reserved, claim.id)
    const actor: Actor = {
      ...systemActor,
      userId: claim.triggered_by_Id ?? undefined,
      tenantId: claim.tenant_Id ?? undefined,
      userAgent: `daybook workflow ${claim.workflow_Id}`,
      logRequestId: rt.newId(),
      cause: causeFor(claim, authority),
    }
    return { rt, claim, definition, graph, authority, actor, kept: new Map(rows.map((row) => [row.seq, row])), signal }
  } catch (error) {
    if (error instanceof NodeError || error instanceof TypeError) return { refusal: error.message }
    throw error
  }
}

/** Who is triggered by its changes acts as who made them, which is who had the rights. */
function causeFor({ cause, triggered_by_Id }: ClaimedExecution, { userId }: Authority): Actor['cause'] {
  if (cause === null) return undefined
  return userId === triggered_by_Id ? cause : { ...cause, as: userId }
}

const definitions = new WeakMap<object, Map<string, Promise<Definition | undefined>>>()
const definitionsKept = 500

/** A version never changes. */
function definitionFor(
  rt: WorkflowWrites,
  { workflow_Id, version }: ClaimedExecution,
): Promise<Definition | undefined> {
  const known = definitions.get(rt) ?? new Map<string, Promise<Definition | undefined>>()
  definitions.set(rt, known)
  const key = `${version} ${workflow_Id}`
  const found = known.get(key)
  if (found !== undefined) return found
  if (known.size >= definitionsKept) known.clear()
  const read = definitionOf(rt.reserved, workflow_Id, version)
  known.set(key, read)
  read.then(
    (definition) => definition ?? known.delete(key),
    () => known.delete(key),
  )
  return read
}

const graphs = new WeakMap<object, Graph>()

export function graphFor(definition: Pick<Definition, 'flow_data'>): Graph {
  const known = graphs.get(definition)
  if (known !== undefined) return known
  const graph = graphOf(readFlow(definition.flow_data, []))
  graphs.set(definition, graph)
  return graph
}

/** Runs one node, or takes what is kept of it. What does not fit its graph stops the execution rather than to go astray. */
async function runNode(
  execution: Execution,
  progress: Progress,
  command: Command_<'run'>,
): Promise<Progress | 'over' | 'waiting'> {
  const { node } = command
  const kept = execution.kept.get(command.seq)
  if (kept !== undefined && kept.step !== command.step)
    throw new Error(`execution ${execution.claim.id}: ${kept.step} was kept where ${command.step} is`)
  if (kept?.status === 'success') return give(execution, progress, { output: kept.outputData })
  if (kept?.status === 'failed') return give(execution, progress, { error: kept.errorMessage ?? 'failed' })
  const startedAt = performance.now()
  try {
    const effect = Object.hasOwn(databaseEffects, node.type) ? databaseEffects[node.type]! : undefined
    if (effect !== undefined) return await inDatabase(execution, progress, command, effect)
    if (node.type === 'delay') return await wait(execution, progress, command, kept)
    if (node.type === 'workflow') return await callWorkflow(execution, progress, command, kept)
    return await outside(execution, progress, command, kept)
  } catch (error) {
    const message = failureIn(execution, error)
    return give(execution, progress, { error: message }, performance.now() - startedAt)
  }
}

function give(execution: Execution, { state, unkept }: Progress, result: NodeResult, durationMs?: number): Progress {
  const [after, commands] = step(execution.graph, state, result)
  return withNotes(
    execution,
    { state: after, commands, unkept },
    durationMs === undefined ? undefined : Math.round(durationMs),
  )
}

/** What an error says of the node that it comes from; throws what is no failure of the node. */
function failureIn({ rt, claim }: Execution, error: unknown): string {
  if (error instanceof ClaimLost || isPassing(error)) throw error
  if (error instanceof NodeError) return error.message
  const known = clientError(error)
  if (known !== undefined) return messageOf(known)
  rt.log.error({ err: error, execution: claim.id }, 'a node of a workflow failed for a reason of ours')
  return 'Internal error'
}

const messageOf = ({ message, details }: AppError): string =>
  typeof details === 'string' ? `${message}: ${details}` : message

type DatabaseEffect = (typeof databaseEffects)[string]

const repetitions = { attempts: 5, backoff: { firstMs: 50, longestMs: 1000 } } as const

/** What the node does, its output, and how the execution stands after it: one transaction. */
async function inDatabase(
  execution: Execution,
  progress: Progress,
  command: Command_<'run'>,
  effect: DatabaseEffect,
): Promise<Progress | 'over'> {
  const { rt, claim, graph } = execution
  const work = () => {
    const startedAt = performance.now()
    return inTransaction(rt, platformWriter(execution), async ({ tx, scope }) => {
      const output = await effect(nodeRunOf(execution, command), { tx, scope })
      requireKeepable(output)
      const [state, commands] = step(graph, progress.state, { output })
      const after = withNotes(
        execution,
        { state, commands, unkept: progress.unkept },
        Math.round(performance.now() - startedAt),
      )
      const standing = standingOf(after)
      await record(tx, claim, after.unkept, standing)
      if (standing.is === 'over') await tellEnd(execution, { tx, scope }, standing)
      return { after, isOver: standing.is === 'over' }
    })
  }
  // Somebody else may have locked what it needs, or the connection was lost before anything was written.
  const mayRetry = (error: unknown) =>
    error instanceof AppError && error.status === 503 && error.code !== 'OUTCOME_UNKNOWN'
  const { after, isOver } = await retryTransient(work, { ...repetitions, mayRetry })
  return isOver ? 'over' : { ...after, unkept: [] }
}

function nodeRunOf(
  { rt, claim, authority, actor }: Execution,
  { node, input, scope, step: place }: Command_<'run'>,
): NodeRun {
  return {
    rt,
    node,
    input,
    scope,
    authority,
    actor,
    workflowId: claim.workflow_Id,
    idempotencyKey: keyOf(claim.id, place),
  }
}

/** Its transactions name who triggered it; rights are those of each node. */
const platformWriter = ({ actor }: Pick<Execution, 'actor'>): Requester => ({ actor, access: platform })

function standingOf({ state, commands }: Pick<Progress, 'state' | 'commands'>): Standing {
  const last = commands.at(-1)!
  if (last.kind === 'complete') return { is: 'over', status: 'completed', error: null, state }
  if (last.kind === 'fail') return { is: 'over', status: 'failed', error: textOfFailure(last.error), state }
  return { is: 'running' }
}

const textOfFailure = ({ message, nodeId }: { message: string; nodeId: string }) => `${nodeId}: ${message}`

/** A commit of its own for what was done elsewhere. */
function keep(
  execution: Execution,
  rows: readonly LogRow[],
  standing: Standing,
  more?: (run: Pick<Run, 'tx' | 'scope'>) => Promise<void>,
): Promise<void> {
  return inTransaction(execution.rt, platformWriter(execution), async ({ tx, scope }) => {
    await more?.({ tx, scope })
    await record(tx, execution.claim, rows, standing)
    if (standing.is === 'over') await tellEnd(execution, { tx, scope }, standing)
  })
}

/** A node that was begun, as the log shows it. */
function begunRow(
  { seq, step: place, node, input }: Command_<'run'>,
  status: 'pending' | 'running',
  outputData: unknown = null,
): LogRow {
  return { ...logRowOf({ kind: 'note', seq, step: place, node, input }), status, outputData }
}

/** Outside of the database: begun only while the execution is ours, and kept with what comes after it. */
async function outside(
  execution: Execution,
  progress: Progress,
  command: Command_<'run'>,
  kept: KeptNode | undefined,
): Promise<Progress | 'waiting'> {
  const { signal } = execution
  const { node, input } = command
  await keep(execution, [...progress.unkept, begunRow(command, 'running', kept?.outputData ?? null)], { is: 'running' })
  const done: Progress = { ...progress, unkept: [] }
  const run = nodeRunOf(execution, command)
  const startedAt = performance.now()
  try {
    const output = isScript(node.type, node.data)
      ? await runScriptNode(run)
      : node.type === 'http'
        ? await callHttp(run)
        : await runExtensionNode(run, signal)
    requireKeepable(output)
    return give(execution, done, { output }, performance.now() - startedAt)
  } catch (error) {
    const attempt = attemptOf(kept) + 1
    if (error instanceof Retryable && attempt <= Number(input.retries ?? 0)) {
      const inMs = Math.min(Number(input.retryDelay ?? 1000) * 2 ** (attempt - 1), longestDelayMs)
      const row = { ...begunRow(command, 'pending', { attempt, error: error.message }) }
      await keep(execution, [row], { is: 'waiting', inMs })
      return 'waiting'
    }
    if (error instanceof Retryable && error.output !== undefined)
      return give(execution, done, { output: error.output }, performance.now() - startedAt)
    return give(execution, done, { error: failureIn(execution, error) }, performance.now() - startedAt)
  }
}

const attemptOf = (kept: KeptNode | undefined): number =>
  isObject(kept?.outputData) && typeof kept.outputData.attempt === 'number' ? kept.outputData.attempt : 0

/** A delay is a row that is due later. */
async function wait(
  execution: Execution,
  progress: Progress,
  command: Command_<'run'>,
  kept: KeptNode | undefined,
): Promise<Progress | 'waiting'> {
  if (kept?.status === 'pending') return give(execution, progress, { output: kept.outputData })
  const ms = Number(command.input.delay)
  if (!(ms >= 0 && ms <= longestDelayMs)) throw new NodeError(`delay must be a number from 0 to ${longestDelayMs}`)
  const output = { delayed: ms }
  if (ms === 0) return give(execution, progress, { output })
  await keep(execution, [...progress.unkept, begunRow(command, 'pending', output)], { is: 'waiting', inMs: ms })
  return 'waiting'
}

const defaultWaitMs = 300_000

/** Another workflow: begun in the transaction that keeps it, and waited for by a row. */
async function callWorkflow(
  execution: Execution,
  progress: Progress,
  command: Command_<'run'>,
  kept: KeptNode | undefined,
): Promise<Progress | 'waiting'> {
  const { rt, claim, authority } = execution
  const { input, scope } = command
  if (kept?.status === 'pending')
    return give(
      execution,
      progress,
      await resultOfCall(rt, String((kept.outputData as { executionId: string }).executionId)),
    )
  const called = await triggerable(rt.reserved, String(input.workflowId))
  if (called === undefined || called.status !== 'active')
    throw new NodeError(`Workflow ${input.workflowId} is not there, or not active`)
  if (
    !mayTrigger(called, {
      admin: authority.access.admin,
      roleId: authority.userId === null ? undefined : authority.access.roleId,
    })
  )
    throw new NodeError('You do not have permission to execute this workflow')
  const cause = causeOfNext(execution.actor, called.id)
  const refusal = refusedChain(cause)
  if (refusal !== undefined) throw new NodeError(refusal)
  const isAwaited = input.waitForCompletion !== false
  const id = rt.newId()
  const child = {
    ...{ id, workflow_Id: called.id, version: called.version, trigger: 'workflow' as const, cause },
    trigger_data: dataForCall(input, scope),
    tenant_Id: authority.tenantId ?? claim.tenant_Id,
    triggered_by_Id: claim.triggered_by_Id,
    caller_Id: authority.userId,
    parent_Id: isAwaited ? claim.id : null,
  }
  if (!isAwaited) {
    const output = { success: true, executionId: id, status: 'queued', result: null }
    const after = give(execution, progress, { output })
    await keep(execution, after.unkept, { is: 'running' }, ({ tx }) => insertExecutions(tx, [child]))
    return { ...after, unkept: [] }
  }
  const rows = [...progress.unkept, begunRow(command, 'pending', { executionId: id })]
  const inMs = Number(input.timeout ?? defaultWaitMs)
  await keep(execution, rows, { is: 'waiting', inMs }, ({ tx }) => insertExecutions(tx, [child]))
  return 'waiting'
}

/** `passData: false` gives only what the mapping names. */
function dataForCall(
  { passData, dataMapping }: Readonly<Record<string, unknown>>,
  scope: Readonly<Record<string, unknown>>,
): unknown {
  const own = isObject(dataMapping) ? mapped(dataMapping, scope) : {}
  return passData === false || (passData == null && Object.keys(own).length > 0)
    ? own
    : { ...(isObject(scope.trigger) ? scope.trigger : {}), ...own }
}

async function resultOfCall(rt: WorkflowWrites, executionId: string): Promise<NodeResult> {
  const ended = await endOfExecution(rt.reserved, executionId)
  if (ended === undefined) return { error: 'The execution of the workflow is gone' }
  const { status, result_data: result, errorMessage } = ended
  if (status === 'completed') return { output: { success: true, executionId, status, result } }
  if (status === 'queued' || status === 'running')
    return { error: `The workflow did not end in time (execution ${executionId})` }
  return { error: errorMessage === null ? `The workflow was ${status}` : `The workflow failed at ${errorMessage}` }
}

/** An execution that could not begin, or go on. */
async function endUnopened(rt: WorkflowWrites, claim: ClaimedExecution, message: string): Promise<void> {
  const state = { outputs: {}, variables: {}, error: null } as unknown as State
  const actor = { ...systemActor, userAgent: `daybook workflow ${claim.workflow_Id}`, cause: claim.cause ?? undefined }
  await inTransaction(rt, { actor, access: platform }, async ({ tx, scope }) => {
    const standing: Standing = { is: 'over', status: 'failed', error: message, state }
    await record(tx, claim, [], standing)
    await tellEnd({ rt, claim }, { tx, scope }, standing)
  })
}

/** Of the failures of a workflow that follow each other somebody is told once in a while. */
const quietMinutes = 5

/** Whom the workflow names is told of a failure; administrators where it names nobody and nobody can act for it. */
async function tellEnd(
  { rt, claim, definition }: Pick<Execution, 'rt' | 'claim'> & { readonly definition?: Definition },
  { tx }: Pick<Run, 'tx' | 'scope'>,
  { status, error }: Extract<Standing, { is: 'over' }>,
): Promise<void> {
  if (status !== 'failed') return
  const options = definition?.options ?? (await definitionFor(rt, claim))?.options
  const { notify } = optionsOf(options)
  const isUnopened = definition === undefined
  if (notify.length === 0 && !isUnopened) return
  const told = await tx.any(
    rawQuery(
      `insert into "svc_WorkflowUse" as u ("workflow_Id", "notifiedAt") values ($1, now())
       on conflict ("workflow_Id") do update set "notifiedAt" = now()
         where u."notifiedAt" is null or u."notifiedAt" < now() - make_interval(mins => $2) returning 1 as one`,
      [claim.workflow_Id, quietMinutes],
    ),
  )
  if (told.length === 0) return
  const users = await tx.any<{ id: string; name: string }>(
    rawQuery(
      `select u.id, w.name from "svc_User" u join "svc_Workflow" w on w.id = $1 where u.status = 'active' and (u.id::text = any($2::text[])
         or ($3 and exists (select from "svc_UserRole" ur join "svc_Role" r on r.id = ur."role_Id"
                            where ur."user_Id" = u.id and r.name = 'administrator')))`,
      [claim.workflow_Id, notify, isUnopened],
    ),
  )
  for (const { id, name } of users)
    await insertNotification(tx, {
      ...{ userId: id, tenantId: claim.tenant_Id, type: 'workflow', title: `The workflow ${name} failed` },
      message: (error ?? 'It failed').slice(0, 1000),
      data: { workflowId: claim.workflow_Id, executionId: claim.id },
    })
}
