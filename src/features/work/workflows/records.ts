import { type Reader, rawQuery, type Tx } from '../../../db/sql.ts'
import { jsonSize } from './expressions.ts'
import { NodeError } from './nodes.ts'
import type { State, StepNote } from './step.ts'

/** The stored state of executions: the results of their nodes, from which they are brought back, and their status. */

/** JSON text that the database can hold. */
export function storable(value: unknown): string {
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
  readonly status: 'pending' | 'running' | 'success' | 'failed'
  readonly outputData: unknown
  readonly errorMessage: string | null
}

export async function keptNodes(db: Reader, executionId: string): Promise<readonly KeptNode[]> {
  return db.any<KeptNode>(
    rawQuery(
      `select seq, step, status, "outputData", "errorMessage" from "svc_WorkflowExecutionLog"
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
  /** Somebody goes on with it then; null: when another one has ended. */
  | { readonly is: 'waiting'; readonly inMs: number | null }
  | {
      readonly is: 'over'
      readonly status: 'completed' | 'failed'
      readonly error: string | null
      readonly state: State
    }

export type ExecutionClaim = { readonly id: string; readonly token: string }

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
