import type { Configuration } from '../../../config/config.ts'
import type { ReservedReads } from '../../../db/pools.ts'
import { type Reader, rawQuery, type Tx } from '../../../db/sql.ts'
import { type Actor, type Cause, systemActor } from '../../../events/actor.ts'
import { commitRow, type Writes } from '../../../events/commit.ts'
import { actorCte } from '../../../events/log.ts'
import type { Access } from '../../../query/access.ts'
import { compileCondition } from '../../../query/compile.ts'
import { resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import { createParams } from '../../../query/sql.ts'
import { type ItemReads, listItems, type Requester, wholeText } from '../../data/items/items.ts'
import type { AccessScope } from './authority.ts'
import type { WorkflowDefinition, WorkflowWrites } from './capabilities.ts'
import { jsonSize } from './expressions.ts'
import { type Graph, graphOf, readFlow } from './flow.ts'
import { NodeError } from './nodes.ts'
import type { State, StepNote } from './step.ts'

/**
 * The statements about executions. A claim is `claim_token`: every result needs it, so a process that was given up on, or
 * whose execution was cancelled, keeps nothing any more. `due_at` is when it may be claimed, unless a process has it; one
 * that waits for another is due as soon as that has ended. It is null when it is over.
 */

/** The actor of what belongs to no execution. */
export const workflowsActor: Actor = { ...systemActor, userAgent: 'daybook workflows' }

export type TriggerKind = 'manual' | 'webhook' | 'schedule' | 'hook' | 'workflow' | 'test'

/** The trigger and the authority of a new execution. */
type ExecutionStart = {
  readonly id: string
  readonly workflow_Id: string
  readonly version: number
  readonly trigger: TriggerKind
  readonly trigger_data: unknown
  readonly tenant_Id: string | null
  readonly triggered_by_Id: string | null
  readonly caller_Id: string | null
  /** The scope of the program that asked in the caller's name; null without a program. */
  readonly caller_scope?: AccessScope | null
  readonly cause: Cause | null
}

export type NewExecution = ExecutionStart & {
  readonly dueInMs?: number
  readonly parent_Id?: string | null
  readonly retry_of_Id?: string | null
  /** Of one that is refused: it never runs. */
  readonly refusal?: string
  readonly token?: string
}

/** Queues executions and wakes the workers. A `token` claims one at once: it runs in this process. */
export async function insertExecutions(tx: Tx, executions: readonly NewExecution[]): Promise<void> {
  if (executions.length === 0) return
  await tx.any(rawQuery(insertSql, [storable(executions)]))
}

const insertSql = `
  with given as (
    select * from jsonb_to_recordset($1::jsonb) g (id uuid, "workflow_Id" text, version int, trigger text, trigger_data jsonb,
      "tenant_Id" uuid, "triggered_by_Id" uuid, "caller_Id" uuid, caller_scope text, cause jsonb, "dueInMs" int, "parent_Id" uuid,
      "retry_of_Id" uuid, refusal text, token uuid)),
  made as (
    insert into "svc_WorkflowExecution" (id, "workflow_Id", version, status, trigger, trigger_data, "tenant_Id",
      "triggered_by_Id", "caller_Id", caller_scope, cause, due_at, "parent_Id", "retry_of_Id", "errorMessage", "completedAt",
      claim_token, heartbeat_at, "startedAt")
    select id, "workflow_Id", version, case when refusal is not null then 'failed' when token is not null then 'running' else 'queued' end,
      trigger, coalesce(trigger_data, '{}'), "tenant_Id", "triggered_by_Id", "caller_Id", caller_scope, cause,
      case when refusal is null then now() + coalesce("dueInMs", 0) * interval '1 ms' end, "parent_Id", "retry_of_Id",
      refusal, case when refusal is not null then now() end, token,
      case when token is not null then now() end, case when token is not null then now() end
    from given returning id)
  select count(*)::int as count, pg_notify('svc_executions', '')::text from made`

/** Keeps a signed message with its execution; false where it has begun one already. Waits for a transaction that does so. */
export async function keepMessage(tx: Tx, { id, workflow_Id }: NewExecution, message: string): Promise<boolean> {
  const kept = await tx.any(
    rawQuery(
      `insert into "svc_WorkflowMessage" ("execution_Id", "workflow_Id", message) values ($1, $2, $3)
       on conflict ("workflow_Id", message) do nothing returning message`,
      [id, workflow_Id, message],
    ),
  )
  return kept.length > 0
}

export type BegunExecution = { readonly id: string; readonly status: string; readonly version: number }

/** The execution that a signed message has begun, for as long as it is kept. */
export function executionByMessage(
  db: Reader,
  workflowId: string,
  message: string,
): Promise<BegunExecution | undefined> {
  return db.maybeOne<BegunExecution>(
    rawQuery(
      `select e.id, e.status, e.version from "svc_WorkflowMessage" m join "svc_WorkflowExecution" e on e.id = m."execution_Id"
       where m."workflow_Id" = $1 and m.message = $2`,
      [workflowId, message],
    ),
  )
}

export type ClaimedExecution = ExecutionStart & {
  readonly token: string
  readonly parent_Id: string | null
  readonly retry_of_Id: string | null
  /** Claimed for the first time: nothing is kept of it yet. */
  readonly isNew: boolean
  readonly ageSeconds: number
  /** Its workflow is in the trash: by SQL, or it was deleted while this one was queued. */
  readonly isOfDeleted: boolean
}

const claimedColumns = `e.id, e.claim_token as token, e."workflow_Id", e.version, e.trigger, e.trigger_data, e."tenant_Id",
  e."triggered_by_Id", e."caller_Id", e.caller_scope, e.cause, e."parent_Id", e."retry_of_Id",
  extract(epoch from now() - e."startedAt")::float8 as "ageSeconds",
  exists (select from "svc_Workflow" w where w.id = e."workflow_Id" and w."deletedAt" is not null) as "isOfDeleted"`

/** Due executions, by the index of unclaimed ones: the statement reads nothing else, however many wait. */
export const dueSql = (limit: string): string => `select id, status from "svc_WorkflowExecution"
  where status in ('queued', 'running') and claim_token is null and due_at <= now()
  order by due_at limit ${limit} for update skip locked`

/** Claims up to `limit` due executions, those that have been due the longest. Of any number of processes no two get the same. */
export async function claimDueExecutions(deps: Writes, limit: number): Promise<readonly ClaimedExecution[]> {
  return commitRow<ClaimedExecution>(deps, workflowsActor, {
    text: `${actorCte(1)}, due as materialized (${dueSql('$2')})
    update "svc_WorkflowExecution" e set status = 'running', claim_token = gen_random_uuid(), heartbeat_at = now(),
      "startedAt" = coalesce(e."startedAt", now()),
      "updatedAt" = case when due.status = 'queued' then now() else e."updatedAt" end
    from ctx, due where e.id = due.id returning ${claimedColumns}, due.status = 'queued' as "isNew"`,
    values: [limit],
  })
}

/** Milliseconds until the next execution is due; undefined where none waits. */
export async function nextExecutionMs({ reserved }: { reserved: Reader }): Promise<number | undefined> {
  const row = await reserved.maybeOne<{ ms: number }>(
    rawQuery(`select (extract(epoch from due_at - now()) * 1000)::float8 as ms from "svc_WorkflowExecution"
      where status in ('queued', 'running') and claim_token is null and due_at is not null order by due_at limit 1`),
  )
  return row && Math.max(0, row.ms)
}

/** Puts an execution back as it was before it was claimed. */
export function giveBack(deps: Writes, { id, token }: ExecutionClaim): Promise<unknown[]> {
  return commitRow(deps, workflowsActor, {
    text: `${actorCte(1)} update "svc_WorkflowExecution" e set claim_token = null, due_at = now() from ctx
      where e.id = $2 and e.claim_token = $3 and e.status = 'running' returning e.id`,
    values: [id, token],
  })
}

/** An execution whose processes died this often without getting anywhere is given up. */
const attemptsAtMost = 5
/** A process that has not said for so long that it lives has died. */
const leaseSeconds = 20

/** Lets others go on with executions of processes that have died; gives up those that bring every process down. */
export function recoverExecutions(deps: Writes): Promise<{ id: string; status: string }[]> {
  return commitRow(deps, workflowsActor, {
    text: `${actorCte(1)}, left_behind as materialized (
      select id, attempts from "svc_WorkflowExecution"
      where status = 'running' and claim_token is not null and heartbeat_at < now() - make_interval(secs => $2)
      limit 1000 for update skip locked),
    ended as (
      update "svc_WorkflowExecution" e set claim_token = null, attempts = e.attempts + 1,
        due_at = case when l.attempts + 1 < $3 then now() end,
        status = case when l.attempts + 1 < $3 then e.status else 'failed' end,
        "errorMessage" = case when l.attempts + 1 < $3 then e."errorMessage" else 'The process that ran it died ' || $3 || ' times' end,
        "completedAt" = case when l.attempts + 1 < $3 then null else now() end,
        "updatedAt" = case when l.attempts + 1 < $3 then e."updatedAt" else now() end
      from ctx, left_behind l where e.id = l.id returning e.id, e.status, e."parent_Id"),
    woken as (
      update "svc_WorkflowExecution" p set due_at = now() from ended
      where ended.status = 'failed' and p.id = ended."parent_Id" and p.status = 'running' and p.claim_token is null returning p.id)
    select ended.id, ended.status from ended`,
    values: [leaseSeconds, attemptsAtMost],
  })
}

type Counted = { readonly until: number; readonly count: Promise<number>; isKnown: boolean }

const fullFor = new WeakMap<object, Map<string, Counted>>()
/** Asked no more often: it bounds what one workflow can pile up, and no more than that. */
const countedMs = 1000

/**
 * Why no further execution of a workflow is begun now; undefined where there is room. In a transaction `db` is its own: it waits
 * for no other connection, nor for another one that waits.
 */
export async function queueRefusal(
  deps: ReservedReads & Configuration,
  workflowId: string,
  db: Reader = deps.reserved,
): Promise<string | undefined> {
  const { queueLimit } = deps.config.workflows
  const known = fullFor.get(deps) ?? new Map<string, Counted>()
  fullFor.set(deps, known)
  let counted = known.get(workflowId)
  const isOfUse =
    counted !== undefined && counted.until >= performance.now() && (counted.isKnown || db === deps.reserved)
  if (counted === undefined || !isOfUse) {
    if (known.size > 1000) known.clear()
    const asked = db.one<{ n: number }>(
      rawQuery(
        `select count(*)::int as n from (
           select from "svc_WorkflowExecution" where "workflow_Id" = $1 and status = 'queued' limit $2) waiting`,
        [workflowId, queueLimit],
      ),
    )
    const own: Counted = { until: performance.now() + countedMs, count: asked.then(({ n }) => n), isKnown: false }
    own.count.then(
      () => {
        own.isKnown = true
      },
      () => known.delete(workflowId),
    )
    known.set(workflowId, own)
    counted = own
  }
  if ((await counted.count) < queueLimit) return undefined
  return `${queueLimit} executions of ${workflowId} wait already (WORKFLOW_QUEUE_LIMIT)`
}

/** How an execution that another one waits for stands. */
export async function endOfExecution(db: Reader, id: string) {
  return db.maybeOne<{ status: string; result_data: unknown; errorMessage: string | null }>(
    rawQuery(`select status, result_data, "errorMessage" from "svc_WorkflowExecution" where id = $1`, [id]),
  )
}

/** A workflow as its callers see it. */
export type Triggerable = {
  readonly id: string
  readonly name: string
  readonly status: string
  readonly version: number
  readonly trigger_type: string
  readonly trigger_hook_collection: string | null
  readonly trigger_hook_action: string | null
  readonly allowed_roles: unknown
  readonly options: unknown
  readonly authority_Id: string | null
  readonly tenant_Id: string | null
  readonly createdAt: Date
}

export const triggerableColumns = `w."createdAt", w.id, w.name, w.status, w.version, w.trigger_type, w.trigger_hook_collection,
  w.trigger_hook_action, w.allowed_roles, w.options, w."authority_Id", w."tenant_Id"`

export async function triggerable(db: Reader, id: string): Promise<Triggerable | undefined> {
  return db.maybeOne<Triggerable>(
    rawQuery(`select ${triggerableColumns} from "svc_Workflow" w where w.id = $1 and w."deletedAt" is null`, [id]),
  )
}

/** The tenant of a workflow, also of one in the trash: its executions can still be looked at. */
export async function tenantOfWorkflow(
  db: Reader,
  id: string,
): Promise<{ readonly tenant_Id: string | null } | undefined> {
  return db.maybeOne(rawQuery('select "tenant_Id" from "svc_Workflow" where id = $1', [id]))
}

/**
 * Ends an execution before its next node, with those that it waits for, and wakes the one that waits for it; false when it is
 * over already.
 */
export async function cancelExecution(tx: Tx, id: string): Promise<boolean> {
  return (await tx.any(rawQuery(cancelSql('id = $1::uuid'), [id]))).length > 0
}

/** The same for all executions of workflows that are not over. */
export async function cancelExecutionsOf(tx: Tx, workflowIds: readonly string[]): Promise<void> {
  await tx.any(
    rawQuery(cancelSql(`"workflow_Id" = any($1::text[]) and status in ('queued', 'running')`), [workflowIds]),
  )
}

/** An execution is never updated twice: of two that end, the one that waits for the other is not woken. */
const cancelSql = (which: string) => `
  with recursive all_of_it as (
    select id from "svc_WorkflowExecution" where ${which}
    union select e.id from "svc_WorkflowExecution" e join all_of_it a on e."parent_Id" = a.id),
  ended as (
    update "svc_WorkflowExecution" e set status = 'cancelled', claim_token = null, due_at = null, "completedAt" = now(),
      "durationMs" = (extract(epoch from now() - e."startedAt") * 1000)::int, "updatedAt" = now()
    from all_of_it a where e.id = a.id and e.status in ('queued', 'running')
    returning e.id, e."parent_Id", e.watched),
  woken as (
    update "svc_WorkflowExecution" p set due_at = clock_timestamp() from ended
    where p.id = ended."parent_Id" and p.id not in (select id from all_of_it) and p.status = 'running' and p.claim_token is null
    returning p.id)
  select ended.id, case when ended.watched then pg_notify('svc_execution', ended.id::text)::text end as told,
    (select count(pg_notify('svc_executions', '')::text) from woken) as woken
  from ended`

/** Whether the caller could change this workflow: by a permission, its conditions and the tenant. */
export async function mayChange(deps: WorkflowWrites, access: Access, id: string): Promise<boolean> {
  if (!access.admin && access.grant('svc_Workflow', 'update') === undefined) return false
  const rule = resolveCondition(deps.catalog.current(), access, 'svc_Workflow', 'update', resolveEnv(deps))
  if (rule === undefined) return true
  const params = createParams()
  const where = `t.id = ${params.bind(id, 'text')} and ${compileCondition(rule, 't', params)}`
  const found = await deps.reserved.maybeOne(
    rawQuery(`select 1 as one from "svc_Workflow" t where ${where}`, params.values),
  )
  return found !== undefined
}

/** Of the executions that the caller may read. */
export async function statisticsOf(deps: ItemReads, reader: Requester, workflowId: string) {
  const list = await listItems(deps, reader, 'svc_WorkflowExecution', {
    filter: { workflow_Id: { eq: workflowId } },
    groupBy: ['status'],
    aggregate: {
      n: { function: 'count', field: '*' },
      ms: { function: 'sum', field: 'durationMs' },
      timed: { function: 'count', field: 'durationMs' },
      last: { function: 'max', field: 'createdAt' },
    },
    limit: -1,
  })
  const { data } = JSON.parse(await wholeText(list)) as { data: readonly OfStatus[] }
  const of = (status: string) => data.find((row) => row.status === status)?.n ?? 0
  const byStatus = {
    queued: of('queued'),
    running: of('running'),
    completed: of('completed'),
    failed: of('failed'),
    cancelled: of('cancelled'),
  }
  const sum = (member: 'n' | 'ms' | 'timed') => data.reduce((total, row) => total + (row[member] ?? 0), 0)
  const [timed, ms] = [sum('timed'), sum('ms')]
  const lastExecution =
    data
      .map(({ last }) => last)
      .sort()
      .at(-1) ?? null
  return {
    ...{ total: sum('n'), byStatus, lastExecution },
    ...{ avgDuration: timed === 0 ? null : ms / timed, totalDuration: timed === 0 ? null : ms },
  }
}

type OfStatus = {
  readonly status: string
  readonly n: number
  readonly ms: number | null
  readonly timed: number
  readonly last: string
}

/** Deletes executions that have been over for longer than they are kept, some at a time, and versions that nothing runs by; how many. */
export async function deleteOldExecutions(deps: Writes, days: number, atMost: number): Promise<number> {
  const rows = await commitRow(deps, workflowsActor, {
    text: `${actorCte(1)}, old as materialized (
      select id from "svc_WorkflowExecution"
      where status in ('completed', 'failed', 'cancelled') and "completedAt" < now() - make_interval(days => $2)
      limit $3 for update skip locked)
    delete from "svc_WorkflowExecution" e using ctx, old where e.id = old.id returning e.id`,
    values: [days, atMost],
  })
  return rows.length
}

/** The versions of workflows, which executions run by. */

async function definitionOf(db: Reader, workflowId: string, version: number): Promise<WorkflowDefinition | undefined> {
  const row = await db.maybeOne<{ definition: WorkflowDefinition }>(
    rawQuery(`select definition from "svc_WorkflowVersion" where "workflow_Id" = $1 and version = $2`, [
      workflowId,
      version,
    ]),
  )
  return row?.definition
}

const definitionsKept = 500

/** A version never changes: it is read, and made a graph, once. */
export function definitionFor(
  { reserved, workflows: { definitions } }: WorkflowWrites,
  { workflow_Id, version }: Pick<ClaimedExecution, 'workflow_Id' | 'version'>,
): Promise<WorkflowDefinition | undefined> {
  const key = `${version} ${workflow_Id}`
  const found = definitions.get(key)
  if (found !== undefined) return found
  if (definitions.size >= definitionsKept) definitions.clear()
  const read = definitionOf(reserved, workflow_Id, version)
  definitions.set(key, read)
  read.then(
    (definition) => definition ?? definitions.delete(key),
    () => definitions.delete(key),
  )
  return read
}

const graphs = new WeakMap<object, Graph>()

export function graphFor(definition: Pick<WorkflowDefinition, 'flow_data'>): Graph {
  const known = graphs.get(definition)
  if (known !== undefined) return known
  const graph = graphOf(readFlow(definition.flow_data, []))
  graphs.set(definition, graph)
  return graph
}

/** The stored state of executions: the results of their nodes, from which they are brought back, and their status. */

/** JSON text that the database can hold. */
function storable(value: unknown): string {
  const text = JSON.stringify(value ?? null)
  return text.includes('\\u0000') || !text.isWellFormed() ? JSON.stringify(withoutNul(value)) : text
}

function withoutNul(value: unknown): unknown {
  if (typeof value === 'string') return value.replaceAll('\0', '').toWellFormed()
  if (Array.isArray(value)) return value.map(withoutNul)
  if (value === null || typeof value !== 'object') return value
  const plain = 'toJSON' in value && typeof value.toJSON === 'function' ? value.toJSON() : value
  if (plain === null || typeof plain !== 'object') return withoutNul(plain)
  return Object.fromEntries(Object.entries(plain).map(([key, one]) => [withoutNul(key), withoutNul(one)]))
}

/** A node of which something is kept. */
export type KeptNode = {
  readonly seq: number
  readonly step: string
  readonly nodeId: string
  readonly nodeType: string
  readonly status: 'pending' | 'running' | 'success' | 'failed'
  readonly outputData: unknown
  readonly errorMessage: string | null
}

export async function keptNodes(db: Reader, executionId: string): Promise<readonly KeptNode[]> {
  return db.any<KeptNode>(
    rawQuery(
      `select seq, step, "nodeId", "nodeType", status, "outputData", "errorMessage" from "svc_WorkflowExecutionLog"
       where "execution_Id" = $1 and seq is not null order by seq`,
      [executionId],
    ),
  )
}

/** One row of an execution's log. */
export type LogRow = {
  readonly seq: number
  readonly step: string
  readonly nodeId: string
  readonly nodeType: string
  readonly nodeLabel: string
  readonly status: KeptNode['status']
  readonly inputData: unknown
  readonly outputData: unknown
  readonly errorMessage: string | null
  readonly durationMs: number | null
}

/** Inputs are for people to read; they can be reckoned again. */
const largestInput = 65_536
/** Of what is larger not even the beginning is shown. */
const largestShown = 8_388_608
/** Outputs are what the execution goes on with. */
const largestOutput = 1_048_576

export function logRowOf(
  { seq, step, node, input, output, error }: StepNote,
  durationMs: number | null = null,
): LogRow {
  const about = { seq, step, nodeId: node.id, nodeType: node.type, nodeLabel: node.label, durationMs }
  const inputData = capped(input, largestInput)
  if (error !== undefined)
    return { ...about, status: 'failed', inputData, outputData: null, errorMessage: error.slice(0, 10_000) }
  // Of one that is larger only the execution itself has all: it can be reckoned again.
  const outputData = capped(output ?? null, largestOutput)
  return { ...about, status: 'success', inputData, outputData, errorMessage: null }
}

function capped(value: unknown, largest: number): unknown {
  if (jsonSize(value, largest) <= largest) return value
  const beginning = jsonSize(value, largestShown) <= largestShown ? JSON.stringify(value).slice(0, 1000) : ''
  return { truncated: true, beginning }
}

/** @throws {NodeError} for what is too large to be kept */
export function requireKeepable(output: unknown): void {
  if (jsonSize(output, largestOutput) > largestOutput)
    throw new NodeError(`The output is larger than ${largestOutput} characters: ask for less`)
}

/** How an execution stands after what is recorded. */
export type Standing =
  | { readonly is: 'running' }
  /** Somebody goes on with it then, or as soon as the one that it waits for has ended. */
  | { readonly is: 'waiting'; readonly inMs: number }
  | {
      readonly is: 'over'
      readonly status: 'completed' | 'failed'
      readonly error: string | null
      readonly state: State
    }

type ExecutionClaim = { readonly id: string; readonly token: string }

/** Somebody else has the execution, or it was cancelled: nothing of this may be. */
export class ClaimLost extends Error {
  override readonly name = 'ClaimLost'
}

/** The stored part of an execution: rows of nodes, and its status after them. */
export type Recorded = { readonly claim: ExecutionClaim; readonly rows: readonly LogRow[]; readonly standing: Standing }

/** Keeps what nodes gave and how the execution stands, last in the transaction of what they did. */
export async function record(tx: Tx, recorded: Recorded): Promise<void> {
  if ((await recordAll(tx, [recorded])).length > 0) throw new ClaimLost()
}

/** As {@link record}, of several executions; gives those whose claim is lost, for which nothing of the transaction may be. */
export async function recordAll(tx: Tx, recorded: readonly Recorded[]): Promise<readonly Recorded[]> {
  if (recorded.length === 0) return []
  const given = recorded.map(({ claim: { id, token }, rows, standing }) => ({
    ...{ id, token, rows, is: standing.is, inMs: standing.is === 'waiting' ? standing.inMs : null },
    ...(standing.is === 'over' && endOf(standing)),
  }))
  const { held } = await tx.one<{ held: readonly string[] }>(rawQuery(recordSql, [storable(given)]))
  const ids = new Set(held)
  return recorded.filter(({ claim }) => !ids.has(claim.id))
}

function endOf({ status, error, state }: Extract<Standing, { is: 'over' }>) {
  const { outputs, variables, error: caught } = state
  return {
    ...{ status, error: error?.slice(0, 10_000) ?? null },
    ...{ result: capped(outputs, largestOutput), context: { variables, error: caught } },
  }
}

const recordSql = `
  with given as materialized (
    select * from jsonb_to_recordset($1::jsonb) g (id uuid, token uuid, "is" text, "inMs" float8, status text, error text,
      result jsonb, context jsonb, rows jsonb)),
  held as (
    update "svc_WorkflowExecution" e set heartbeat_at = now(), attempts = 0,
      claim_token = case when g."is" = 'running' then e.claim_token end,
      due_at = case when g."is" = 'waiting' then clock_timestamp() + g."inMs" * interval '1 ms' end,
      status = coalesce(g.status, e.status),
      "errorMessage" = coalesce(g.error, e."errorMessage"),
      result_data = coalesce(g.result, e.result_data),
      context_data = coalesce(g.context, e.context_data),
      "completedAt" = case when g."is" = 'over' then clock_timestamp() end,
      "durationMs" = case when g."is" = 'over' then (extract(epoch from clock_timestamp() - e."startedAt") * 1000)::int end,
      "updatedAt" = case when g."is" = 'over' then now() else e."updatedAt" end
    from given g where e.id = g.id and e.claim_token = g.token and e.status = 'running'
    returning e.id, e.watched, e."parent_Id", g."is"),
  logged as (
    insert into "svc_WorkflowExecutionLog" as l ("execution_Id", seq, step, "nodeId", "nodeType", "nodeLabel", status,
      "inputData", "outputData", "errorMessage", "durationMs")
    select held.id, r.seq, r.step, r."nodeId", r."nodeType", r."nodeLabel", r.status, r."inputData", r."outputData",
      r."errorMessage", r."durationMs"
    from held join given g on g.id = held.id, jsonb_to_recordset(g.rows) r (seq int, step text, "nodeId" text,
      "nodeType" text, "nodeLabel" text, status text, "inputData" jsonb, "outputData" jsonb, "errorMessage" text, "durationMs" int)
    on conflict ("execution_Id", seq) do update set status = excluded.status, "outputData" = excluded."outputData",
      "errorMessage" = excluded."errorMessage", "durationMs" = excluded."durationMs", "updatedAt" = now()),
  woken as (
    update "svc_WorkflowExecution" p set due_at = clock_timestamp() from held
    where held."is" = 'over' and p.id = held."parent_Id" and p.status = 'running' and p.claim_token is null returning p.id)
  select coalesce(array_agg(held.id::text), '{}') as held,
    count(case when held.watched then pg_notify('svc_execution', held.id::text)::text end) as told,
    (select count(pg_notify('svc_executions', '')::text) from woken) as woken
  from held`
