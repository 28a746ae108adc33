/* The public face of this folder. */

import { setImmediate as nextTurn } from 'node:timers/promises'
import { clientError, isPassing } from '../../../db/errors.ts'
import type { Reader } from '../../../db/sql.ts'
import { inFull } from '../../../errors.ts'
import { type Actor, systemActor } from '../../../events/actor.ts'
import { commit } from '../../../events/commit.ts'
import { isObject } from '../../../query/guards.ts'
import { inTransaction } from '../../data/items/items.ts'
import { type Authority, authorityOf, platform } from './authority.ts'
import type { WorkflowDefinition, WorkflowWrites } from './capabilities.ts'
import {
  callHttp,
  databaseEffects,
  type NodeRun,
  nodeRunOf,
  Retryable,
  runExtensionNode,
  runScriptNode,
} from './effects.ts'
import { endUnopened, tellEnd } from './failures.ts'
import type { Graph } from './flow.ts'
import type { CommitTurn, GroupCommit } from './group-commit.ts'
import { isScript, longestDelayMs, mapped, NodeError, withoutPlace } from './nodes.ts'
import {
  type ClaimedExecution,
  ClaimLost,
  cancelExecution,
  definitionFor,
  endOfExecution,
  graphFor,
  insertExecutions,
  type KeptNode,
  keptNodes,
  type LogRow,
  logRowOf,
  type NewExecution,
  queueRefusal,
  requireKeepable,
  type Standing,
  workflowsActor,
} from './queries.ts'
import { calledWorkflow, causeOfNext, refusedChain } from './starting.ts'
import { begin, goOn, type NodeResult, type State, type StepCommand, step } from './step.ts'
import { optionsOf } from './validate.ts'

export { type ExtensionNode, sealedForWorkflows, type Workflows, type WorkflowWrites } from './capabilities.ts'
export { openGroupCommit } from './group-commit.ts'
export {
  type ClaimedExecution,
  ClaimLost,
  claimDueExecutions,
  deleteOldExecutions,
  giveBack,
  insertExecutions,
  nextExecutionMs,
  recoverExecutions,
} from './queries.ts'
export { openTriggers } from './triggers.ts'

/**
 * Runs an execution that this process has claimed, until it is over or waits. A node's output is stored before its
 * successor begins: by the node's own transaction if it is a database node, else by the next one. An execution whose
 * process died is brought back by giving `step` the stored results.
 */

type Command_<Kind> = Extract<StepCommand, { kind: Kind }>

type Execution = {
  readonly deps: WorkflowWrites
  readonly commitInGroup: GroupCommit
  readonly claim: ClaimedExecution
  readonly definition: WorkflowDefinition
  readonly graph: Graph
  readonly authority: Authority
  readonly actor: Actor
  /** Nodes of which something is kept, by their place. */
  readonly kept: Map<number, KeptNode>
  readonly signal: AbortSignal
}

/** Where an execution stands, and what of it is not kept yet. */
type StepProgress = {
  readonly state: State
  readonly commands: readonly StepCommand[]
  readonly unkept: readonly LogRow[]
}

/**
 * Throws {@link ClaimLost} where another worker has it by now, and what passes (a lost connection): then it stays claimed
 * until its lease is over, because it is not known what was kept. `signal`: the process stops, nothing more is begun.
 */
export async function runExecution(
  deps: WorkflowWrites,
  commitInGroup: GroupCommit,
  claim: ClaimedExecution,
  signal: AbortSignal,
): Promise<'over' | 'waiting' | 'stopped'> {
  if (claim.isOfDeleted) {
    await commit(deps, workflowsActor, async (tx) => ({ result: await cancelExecution(tx, claim.id) }))
    return 'over'
  }
  const opened = await open(deps, commitInGroup, claim, signal)
  if ('refusal' in opened) {
    await endUnopened(deps, commitInGroup, claim, opened.refusal)
    return 'over'
  }
  const { graph, definition } = opened
  const variables = isObject(definition.variables) ? definition.variables : {}
  const execution = { id: claim.id, workflowId: claim.workflow_Id, trigger: claim.trigger }
  const [state, commands] = begin(graph, { trigger: claim.trigger_data, variables, execution })
  let progress: StepProgress = withNotes(opened, { state, commands, unkept: [] })
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

const next = ([state, commands]: [State, readonly StepCommand[]]) => ({ state, commands })

/** Adds the notes of the last step to what is to be kept, but for those that are. */
function withNotes({ kept }: Execution, { state, commands, unkept }: StepProgress, durationMs?: number): StepProgress {
  const isKept = (seq: number) => ['success', 'failed'].includes(kept.get(seq)?.status ?? '')
  const rows = commands.flatMap((command, i) =>
    command.kind === 'note' && !isKept(command.seq) ? [logRowOf(command, i === 0 ? (durationMs ?? null) : null)] : [],
  )
  return { state, commands, unkept: [...unkept, ...rows] }
}

async function open(
  deps: WorkflowWrites,
  commitInGroup: GroupCommit,
  claim: ClaimedExecution,
  signal: AbortSignal,
): Promise<Execution | { refusal: string }> {
  const definition = await definitionFor(deps, claim)
  if (definition === undefined) return { refusal: 'The version of the workflow that it began with is gone' }
  const { timeoutSeconds } = optionsOf(definition.options)
  if (timeoutSeconds > 0 && claim.ageSeconds > timeoutSeconds)
    return { refusal: `It took longer than ${timeoutSeconds} s` }
  try {
    const { authority_Id, tenant_Id: workflowTenant } = definition
    const { caller_Id, caller_scope, tenant_Id } = claim
    const authority = await authorityOf(deps, { authority_Id, workflowTenant, caller_Id, caller_scope, tenant_Id })
    const graph = graphFor(definition)
    const rows = claim.isNew && claim.retry_of_Id === null ? [] : await keptNodes(deps.reserved, claim.id)
    const actor: Actor = {
      ...systemActor,
      userId: claim.triggered_by_Id ?? undefined,
      tenantId: claim.tenant_Id ?? undefined,
      userAgent: `daybook workflow ${claim.workflow_Id}`,
      ...(authority.access.scope !== undefined && { agent: { name: 'workflow', scope: authority.access.scope } }),
      logRequestId: deps.newId(),
      cause: causeFor(claim, authority),
    }
    const kept = new Map(rows.map((row) => [row.seq, row]))
    return { deps, commitInGroup, claim, definition, graph, authority, actor, kept, signal }
  } catch (error) {
    if (error instanceof NodeError || error instanceof TypeError) return { refusal: error.message }
    throw error
  }
}

/** Workflows triggered by its changes act as the maker of the changes, the user who had the rights. */
function causeFor({ cause, triggered_by_Id }: ClaimedExecution, { userId }: Authority): Actor['cause'] {
  if (cause === null) return undefined
  return userId === triggered_by_Id ? cause : { ...cause, as: userId }
}

/** Runs one node, or takes its stored result. A result that does not fit the graph stops the execution. */
async function runNode(
  execution: Execution,
  progress: StepProgress,
  command: Command_<'run'>,
): Promise<StepProgress | 'over' | 'waiting'> {
  const { node } = command
  let kept = execution.kept.get(command.seq)
  if (kept !== undefined && kept.step !== command.step)
    throw new Error(`execution ${execution.claim.id}: ${kept.step} was kept where ${command.step} is`)
  if (kept?.status === 'success') return give(execution, progress, { output: kept.outputData })
  if (kept?.status === 'failed') {
    const after = give(execution, progress, { error: kept.errorMessage ?? 'failed' })
    if (!isEndedBy(after, command)) return after
    // It ended the execution that this one is the retry of.
    execution.kept.delete(command.seq)
    kept = undefined
  }
  const startedAt = performance.now()
  try {
    if (isOfDatabase(command)) return await inDatabase(execution, progress, command)
    if (node.type === 'delay') return await wait(execution, progress, command, kept)
    if (node.type === 'workflow') return await callWorkflow(execution, progress, command, kept)
    return await outside(execution, progress, command, kept)
  } catch (error) {
    const message = failureIn(execution, error)
    return give(execution, progress, { error: message }, performance.now() - startedAt)
  }
}

/** Whether the failure of a node ended the execution: nothing around the node caught it. */
function isEndedBy({ commands }: StepProgress, { node }: Command_<'run'>): boolean {
  const [, second] = commands
  return second?.kind === 'fail' && second.error.nodeId === node.id
}

function give(
  execution: Execution,
  { state, unkept }: StepProgress,
  result: NodeResult,
  durationMs?: number,
): StepProgress {
  const [after, commands] = step(execution.graph, state, result)
  return withNotes(
    execution,
    { state: after, commands, unkept },
    durationMs === undefined ? undefined : Math.round(durationMs),
  )
}

/** The error of a node, in words; rethrows an error that is no failure of the node. */
function failureIn({ deps, claim }: Execution, error: unknown): string {
  if (error instanceof ClaimLost || isPassing(error)) throw error
  if (error instanceof NodeError) return error.message
  const known = clientError(error)
  if (known !== undefined) return inFull(known)
  deps.log.error({ err: error, execution: claim.id }, 'a node of a workflow failed by a fault of the server')
  return 'Internal error'
}

/**
 * The node's effect, its output, and the status of the execution after it: one transaction. Nodes of the database that
 * follow are part of it, as long as there is time: their effects are all kept, or none.
 */
async function inDatabase(
  execution: Execution,
  progress: StepProgress,
  command: Command_<'run'>,
): Promise<StepProgress | 'over'> {
  const { claim, actor, commitInGroup } = execution
  const kind = `${claim.workflow_Id} ${claim.version} ${command.node.id}`
  const { after, isOver } = await commitInGroup({
    ...{ actor, kind },
    work: async (turn) => {
      const after = await effectsFrom(execution, progress, command, turn)
      const standing = standingOf(after)
      if (standing.is === 'over') await tellEnd(execution, turn, standing)
      return { record: { claim, rows: after.unkept, standing }, result: { after, isOver: standing.is === 'over' } }
    },
  })
  return isOver ? 'over' : { ...after, unkept: [] }
}

async function effectsFrom(
  execution: Execution,
  progress: StepProgress,
  first: Command_<'run'>,
  turn: CommitTurn,
): Promise<StepProgress> {
  let now = progress
  for (let command = first; ; ) {
    const startedAt = performance.now()
    const result = await effectOf(execution, command, turn)
    now = give(execution, now, result, performance.now() - startedAt)
    const next = now.commands.at(-1)!
    const goesOn = next.kind === 'run' && isOfDatabase(next) && !execution.kept.has(next.seq)
    if (!goesOn || !turn.hasTime() || execution.signal.aborted) return now
    command = next
  }
}

/** A member of a shared transaction can fail in it only before it has sent anything; else the transaction is broken. */
async function effectOf(execution: Execution, command: Command_<'run'>, turn: CommitTurn): Promise<NodeResult> {
  const before = turn.sent()
  try {
    const output =
      command.node.type === 'workflow'
        ? await startWorkflow(execution, command, turn)
        : await databaseEffects[command.node.type]!(runOf(execution, command), turn)
    requireKeepable(output)
    return { output }
  } catch (error) {
    if (!turn.isShared || turn.sent() > before) throw error
    return { error: failureIn(execution, error) }
  }
}

const isOfDatabase = (command: Command_<'run'>) =>
  command.node.type === 'workflow' ? !isAwaited(command) : Object.hasOwn(databaseEffects, command.node.type)

const runOf = ({ claim, ...execution }: Execution, command: Command_<'run'>): NodeRun =>
  nodeRunOf({ ...execution, workflowId: claim.workflow_Id }, command, claim.id)

function standingOf({ state, commands }: Pick<StepProgress, 'state' | 'commands'>): Standing {
  const last = commands.at(-1)!
  if (last.kind === 'complete') return { is: 'over', status: 'completed', error: null, state }
  if (last.kind === 'fail')
    return { is: 'over', status: 'failed', error: `${last.error.nodeId}: ${last.said ?? last.error.message}`, state }
  return { is: 'running' }
}

/** For what was done elsewhere. */
function keep(
  { claim, actor, commitInGroup, ...execution }: Execution,
  rows: readonly LogRow[],
  standing: Standing,
  more?: (turn: CommitTurn) => Promise<void>,
): Promise<void> {
  return commitInGroup({
    ...{ actor, kind: `${claim.workflow_Id} ${claim.version}` },
    work: async (turn) => {
      await more?.(turn)
      if (standing.is === 'over') await tellEnd({ ...execution, claim, actor }, turn, standing)
      return { record: { claim, rows, standing }, result: undefined }
    },
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
  progress: StepProgress,
  command: Command_<'run'>,
  kept: KeptNode | undefined,
): Promise<StepProgress | 'waiting'> {
  const { signal } = execution
  const { node, input } = command
  await keep(execution, [...progress.unkept, begunRow(command, 'running', kept?.outputData ?? null)], { is: 'running' })
  const done: StepProgress = { ...progress, unkept: [] }
  const run = runOf(execution, command)
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
    const passes = error instanceof Retryable
    if (passes && attempt <= Number(input.retries ?? 0)) {
      const inMs = Math.min(Number(input.retryDelay ?? 1000) * 2 ** (attempt - 1), longestDelayMs)
      const row = { ...begunRow(command, 'pending', { attempt, error: error.message }) }
      await keep(execution, [row], { is: 'waiting', inMs })
      return 'waiting'
    }
    const tried = passes && attempt > 1 ? ` (after ${attempt} attempts)` : ''
    return give(execution, done, { error: `${failureIn(execution, error)}${tried}` }, performance.now() - startedAt)
  }
}

const attemptOf = (kept: KeptNode | undefined): number =>
  isObject(kept?.outputData) && typeof kept.outputData.attempt === 'number' ? kept.outputData.attempt : 0

/** A delay is a row that is due later. */
async function wait(
  execution: Execution,
  progress: StepProgress,
  command: Command_<'run'>,
  kept: KeptNode | undefined,
): Promise<StepProgress | 'waiting'> {
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
  progress: StepProgress,
  command: Command_<'run'>,
  kept: KeptNode | undefined,
): Promise<StepProgress | 'waiting'> {
  const { deps, claim } = execution
  if (kept?.status === 'pending') return give(execution, progress, await resultOfCall(execution, keptCallOf(kept)))
  const child = { ...(await calledBy(execution, command, deps.reserved)), parent_Id: claim.id }
  const rows = [...progress.unkept, begunRow(command, 'pending', { executionId: child.id })]
  const inMs = Number(command.input.timeout ?? defaultWaitMs)
  await keep(execution, rows, { is: 'waiting', inMs }, (turn) => begun(execution, child, turn))
  return 'waiting'
}

/** One that is not waited for is a row, and nothing more. */
async function startWorkflow(execution: Execution, command: Command_<'run'>, turn: CommitTurn): Promise<unknown> {
  const child = await calledBy(execution, command, turn.tx)
  await begun(execution, child, turn)
  return { success: true, executionId: child.id, status: 'queued', result: null }
}

const begun = ({ deps, actor }: Execution, child: NewExecution, { scope }: CommitTurn): Promise<void> =>
  inTransaction(deps, { actor, access: platform, scope }, ({ tx }) => insertExecutions(tx, [child]))

const isAwaited = ({ node, input }: Command_<'run'>) => node.type === 'workflow' && input.waitForCompletion !== false

/** @throws {NodeError} where it may not be begun */
async function calledBy(
  { deps, claim, authority, actor }: Execution,
  { input, scope }: Command_<'run'>,
  db: Reader,
): Promise<NewExecution> {
  const { admin, tenantId } = authority.access
  const roleId = authority.userId === null ? undefined : authority.access.roleId
  const called = await calledWorkflow(deps, String(input.workflowId), { admin, tenantId, roleId }, db)
  const cause = causeOfNext(actor, called.id)
  const refusal = refusedChain(cause) ?? (await queueRefusal(deps, called.id, db))
  if (refusal !== undefined) throw new NodeError(refusal)
  return {
    ...{ id: deps.newId(), workflow_Id: called.id, version: called.version, trigger: 'workflow', cause },
    trigger_data: dataForCall(input, scope),
    tenant_Id: called.tenant_Id ?? authority.tenantId ?? claim.tenant_Id,
    triggered_by_Id: claim.triggered_by_Id,
    caller_Id: authority.userId,
    caller_scope: authority.access.scope ?? null,
  }
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

const keptCallOf = ({ outputData }: KeptNode) => String((outputData as { executionId: string }).executionId)

/** A workflow that has not ended in time is cancelled: nobody waits for it, and a retry begins it anew. */
async function resultOfCall({ deps, actor }: Execution, executionId: string): Promise<NodeResult> {
  const ended = await endOfExecution(deps.reserved, executionId)
  if (ended === undefined) return { error: 'The execution of the workflow is gone' }
  const isCancelled =
    !isOver(ended.status) &&
    (await commit(deps, actor, async (tx) => ({ result: await cancelExecution(tx, executionId) })))
  if (isCancelled) return { error: `The workflow did not end in time (execution ${executionId}): it was cancelled` }
  // It may have ended just now.
  const last = isOver(ended.status) ? ended : await endOfExecution(deps.reserved, executionId)
  if (last === undefined) return { error: 'The execution of the workflow is gone' }
  const { status, result_data: result, errorMessage } = last
  if (status === 'completed') return { output: { success: true, executionId, status, result } }
  return {
    error:
      errorMessage === null ? `The workflow was ${status}` : `The workflow failed at ${withoutPlace(errorMessage)}`,
  }
}

const isOver = (status: string) => status !== 'queued' && status !== 'running'
