import { type Reader, rawQuery, sql, type Tx } from '../../../db/sql.ts'
import { actorCte } from '../../../events/log.ts'
import { type Actor, type Cause, systemActor } from '../../../events/types.ts'

/**
 * The statements about svc_Tasks. `commitRow` runs those that are a value: their first parameter is the actor. A claim is
 * `attempt_token`; `started_at` is when the attempt began, `heartbeat_at` the last sign of life of its worker.
 */

type Statement = { readonly text: string; readonly values: readonly unknown[]; readonly name: string }

const claimable = `t.task_status = 'Not started' and t.status is distinct from 'archived'
  and (t.retry_at is null or t.retry_at <= now())`

const creatorLeft = `t."tenant_Id" is not null and t."userCreated_Id" is not null and not exists (
    select from "svc_UserRole" r
    where r."user_Id" = t."userCreated_Id" and (r."tenant_Id" is null or r."tenant_Id" = t."tenant_Id"))`

const claimed = `t.id, t.type, t.attempt_token as token, t.task_data as data, t."tenant_Id", t."userCreated_Id",
  t.attachment_id, to_json(t.scheduled_time at time zone 'UTC')#>>'{}' || 'Z' as scheduled_time, t.retry_count,
  t.max_retries,
  'task-' || t.id || '-' || (extract(epoch from t."createdAt") * 1000)::bigint as "idempotencyKey",
  ${creatorLeft} as "creatorLeft"`

const claim = `update "svc_Tasks" t
  set task_status = 'Running', started_at = now(), heartbeat_at = now(), attempt_token = gen_random_uuid(),
      retry_at = null, progress = null, progress_message = null, "updatedAt" = now()`

/** The tasks that a worker may claim now. */
export type ClaimFilter = {
  readonly types: readonly string[]
  /** Isolated because they are likely to break the process that they run in: tasks of these types, and retries. */
  readonly isolatedTypes: readonly string[]
  /** At most so many of the tasks may be isolated ones. */
  readonly isolatedAtMost: number
}

const isolated = (types: string) => `(t.retry_count > 0 or t.type = any(${types}::text[]))`

/** Claims up to `limit` due tasks, those that have been due the longest. Of rows that others claim none. */
export function claimDueTasks({ types, isolatedTypes, isolatedAtMost }: ClaimFilter, limit: number): Statement {
  return {
    name: 'claim_due_tasks',
    text: `${actorCte(1)}, earliest as materialized (
    select t.id, t.scheduled_time, ${isolated('$4')} as isolated from "svc_Tasks" t
    where ${claimable} and t.scheduled_time <= now() and t.type = any($2::text[])
      and ($5::int > 0 or not ${isolated('$4')})
    order by t.scheduled_time, t.id limit $3 for update skip locked),
  counted as (
    select id, isolated, count(*) filter (where isolated) over (order by scheduled_time, id) as so_far from earliest),
  due as (select id from counted where not isolated or so_far <= $5)
  ${claim} from ctx, due where t.id = due.id returning ${claimed}`,
    values: [types, limit, isolatedTypes, isolatedAtMost],
  }
}

/** Claims one task, due or not; no row when it is not to be had. */
export function claimTaskById(id: number): Statement {
  return {
    name: 'claim_task',
    text: `${actorCte(1)} ${claim} from ctx where t.id = $2 and ${claimable} returning ${claimed}`,
    values: [id],
  }
}

const released = 'started_at = null, heartbeat_at = null, attempt_token = null, "updatedAt" = now()'
const held = `t.id = $2 and t.attempt_token = $3 and t.task_status = 'Running'`

/** Ends an attempt in success; no row when it has lost its claim. `result` is JSON text. */
export function completeClaimed({ id, token }: AttemptClaim, result: string | null): Statement {
  return {
    name: 'complete_task',
    text: `${actorCte(1)} update "svc_Tasks" t
  set task_status = 'Completed', result_data = $4::jsonb, error_data = null, progress = 1, ${released}
  from ctx where ${held} returning t.id`,
    values: [id, token, result],
  }
}

/** Ends an attempt whose handler has failed. */
export function failClaimed({ id, token }: AttemptClaim, message: string): Statement {
  return {
    name: 'fail_task',
    text: `${actorCte(1)} update "svc_Tasks" t
  set task_status = 'Error', error_data = jsonb_build_object('message', $4::text), ${released}
  from ctx where ${held} returning t.id`,
    values: [id, token, message],
  }
}

/** Gives a task back that this worker cannot go on with: no attempt was spent. */
export function giveBackClaimed({ id, token }: AttemptClaim): Statement {
  return {
    name: 'give_back_task',
    text: `${actorCte(1)} update "svc_Tasks" t set task_status = 'Not started', ${released}
  from ctx where ${held} returning t.id`,
    values: [id, token],
  }
}

// From 2 s, doubled with every retry, to half an hour.
const setBack = (message: string) => `
  set task_status = case when t.retry_count < t.max_retries then 'Not started' else 'Error' end,
      retry_count = least(t.retry_count + 1, greatest(t.retry_count, t.max_retries)),
      retry_at = case when t.retry_count < t.max_retries
        then now() + make_interval(secs => least(2 * power(2, least(t.retry_count, 10)), 1800)) end,
      error_data = jsonb_build_object('message', ${message}, 'stalled_at', now()), ${released}`

/** Ends an attempt that came to no end by itself: the task is tried again while it has retries, else it fails. */
export function setBackClaimed({ id, token }: AttemptClaim, message: string): Statement {
  return {
    name: 'set_back_task',
    text: `${actorCte(1)} update "svc_Tasks" t ${setBack('$4::text')}
  from ctx where ${held} returning t.id`,
    values: [id, token, message],
  }
}

/**
 * Takes running tasks back that gave no sign of life for that long. A row that is locked is being written by the very
 * attempt (`holdClaim`): that is one.
 */
export function recoverStalledTasks(stallSeconds: number): Statement {
  return {
    name: 'recover_tasks',
    text: `${actorCte(1)}, stalled as materialized (
    select id from "svc_Tasks"
    where task_status = 'Running'
      and coalesce(heartbeat_at, started_at, '-infinity') < now() - make_interval(secs => $2)
    for update skip locked)
  update "svc_Tasks" t ${setBack(`'Task stalled: no sign of life for ' || $2::int || ' s'`)}
  from ctx, stalled where t.id = stalled.id returning t.id, t.task_status as status`,
    values: [stallSeconds],
  }
}

/**
 * Whether the attempt still owns its task; then it keeps it until the transaction ends. `exclusively` for who is to
 * change the row itself.
 */
export async function holdClaim(tx: Tx, { id, token }: AttemptClaim, exclusively = false): Promise<boolean> {
  const lock = exclusively ? sql.fragment`for update` : sql.fragment`for share`
  const row = await tx.maybeOne(sql.unsafe`
    select id from "svc_Tasks"
    where id = ${id} and attempt_token = ${token} and task_status = 'Running' ${lock}`)
  return row !== undefined
}

/** Whether the task is a tenant's and its creator does not belong to that (any more). */
export async function hasCreatorLeft(db: Reader, { id }: Pick<AttemptClaim, 'id'>): Promise<boolean> {
  const row = await db.maybeOne<{ left: boolean }>(
    rawQuery(`select ${creatorLeft} as left from "svc_Tasks" t where t.id = $1`, [id]),
  )
  return row?.left === true
}

/** `completeClaimed` as part of a transaction that has set its actor. */
export async function completeHeld(tx: Tx, { id, token }: AttemptClaim, result: string | null): Promise<void> {
  await tx.one(sql.unsafe`
    update "svc_Tasks" t
    set task_status = 'Completed', result_data = ${result}::jsonb, error_data = null, progress = 1,
        started_at = null, heartbeat_at = null, attempt_token = null, "updatedAt" = now()
    where t.id = ${id} and t.attempt_token = ${token} returning t.id`)
}

/** Milliseconds until the next task is due that may be claimed; 0 when one is, undefined when none waits. */
export async function nextDueMs(
  db: Reader,
  { types, isolatedTypes, isolatedAtMost }: ClaimFilter,
): Promise<number | undefined> {
  const row = await db.maybeOne<{ ms: number }>(
    rawQuery(
      `select (extract(epoch from greatest(t.scheduled_time, coalesce(t.retry_at, t.scheduled_time)) - now()) * 1000)::float8 as ms
       from "svc_Tasks" t
       where t.task_status = 'Not started' and t.status is distinct from 'archived' and t.type = any($1::text[])
         and t.scheduled_time <= now() + make_interval(hours => $2) and ($4::int > 0 or not ${isolated('$3')})
       order by 1 limit 1`,
      [types, windowHours, isolatedTypes, isolatedAtMost],
    ),
  )
  return row && Math.max(0, row.ms)
}

/** Every waiting task of the coming hours as it is shown to extensions, the earliest first. */
export async function comingTasks(db: Reader): Promise<readonly Record<string, unknown>[]> {
  const rows = await db.any<{ task: Record<string, unknown> }>(
    rawQuery(
      `select to_jsonb(t) - 'attempt_token' as task from "svc_Tasks" t
       where t.task_status = 'Not started' and t.status is distinct from 'archived'
         and t.scheduled_time <= now() + make_interval(hours => $1)
       order by t.scheduled_time, t.id`,
      [windowHours],
    ),
  )
  return rows.map(({ task }) => task)
}

/** The request that created the task, as the cause of what it does; undefined where none did or the log is gone. */
export async function causeOfTask(db: Reader, { id }: Pick<AttemptClaim, 'id'>): Promise<Cause | undefined> {
  const created = await db.maybeOne<{ request: string; depth: number }>(sql.unsafe`
    select "logRequestId"::text as request, coalesce((cause->>'depth')::int, 0) as depth from "svc_AuditLog"
    where type = 'data' and entity = 'svc_Tasks' and "entityId" = ${String(id)} and action = 'create' and "logRequestId" is not null
    order by position desc limit 1`)
  return created === undefined ? undefined : { request: created.request, depth: created.depth + 1, by: 'task' }
}

/**
 * A row of svc_Tasks goes `Not started` → `Running` → `Completed` | `Error`. Its runner holds the
 * token of the attempt. Recording anything needs that token, so an attempt that was given up on (its process stood still, the
 * time was over, somebody set the row back) changes nothing any more.
 */

/** The actor that the log names. */
export const tasksActor: Actor = { ...systemActor, userAgent: 'daybook tasks' }

/** One attempt of a task, with all that its handler is told. */
export type ClaimedTask = {
  readonly id: number
  readonly type: string
  readonly token: string
  readonly data: unknown
  readonly tenant_Id: string | null
  readonly userCreated_Id: string | null
  readonly attachment_id: string | null
  /** ISO 8601. */
  readonly scheduled_time: string
  /** 0 for the first attempt. */
  readonly retry_count: number
  readonly max_retries: number
  /** Stable over all attempts, for whoever is told something outside of the database. */
  readonly idempotencyKey: string
  /** The tenant has lost the user who created the task. */
  readonly creatorLeft: boolean
}

/** The proof that an attempt may still write. */
export type AttemptClaim = Pick<ClaimedTask, 'id' | 'token'>

/** Why a task of a tenant ends in Error when its creator does not belong to the tenant any more. */
export const creatorLeftMessage = 'The user who created the task is not in its tenant any more'

/** Tasks further ahead than this are not listed. */
export const windowHours = 4

const longestMessage = 2000

/** The content of `error_data`; a thrown value may be anything, and may even throw when it is read. */
export function messageOf(thrown: unknown): string {
  try {
    const message = thrown instanceof Error ? thrown.message || thrown.name : String(thrown)
    return storable(message)
  } catch {
    return 'something was thrown that cannot be shown'
  }
}

/** Text that a JSON column can hold. */
function storable(text: string): string {
  return text.replaceAll('\0', '').slice(0, longestMessage).toWellFormed()
}

const longestResult = 1_000_000

/**
 * The JSON text of what a handler returned; null for nothing.
 *
 * @throws {TypeError} when it cannot be stored: a cycle, a BigInt, more than a million characters
 */
export function resultJson(result: unknown): string | null {
  const json = JSON.stringify(result)
  if (json === undefined) return null
  if (json.length > longestResult) throw new TypeError(`the result is longer than ${longestResult} characters`)
  return json
}

/** A report of a handler; the share that is done is kept between 0 and 1. */
export type TaskProgress = { readonly share: number; readonly message: string | null }

/** @throws {TypeError} when `share` is no number */
export function progressOf(share: unknown, message: unknown): TaskProgress {
  if (typeof share !== 'number' || Number.isNaN(share)) throw new TypeError('progress is a number from 0 to 1')
  const text = message === undefined || message === null ? null : storable(String(message)).slice(0, 255)
  return { share: Math.min(1, Math.max(0, share)), message: text }
}
