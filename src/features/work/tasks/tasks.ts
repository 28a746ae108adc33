import { retryTransient } from '../../../adapters/retry.ts'
import { sqlState } from '../../../db/errors.ts'
import { type Reader, rawQuery, sql, type Tx } from '../../../db/sql.ts'
import { commitRow, type Writes } from '../../../events/commit.ts'
import { actorCte } from '../../../events/log.ts'
import { type Actor, type Cause, causedActor, systemActor } from '../../../events/types.ts'
import { wordsOf } from '../../../language/thrown.ts'

/*
 * A row of svc_Tasks goes `Not started` → `Running` → `Completed` | `Error`. Its runner holds the token of the attempt.
 * Recording anything needs that token, so an attempt that was given up on (its process stood still, the time was over, the row
 * was set back) changes nothing any more.
 */

/* Changes by operators: each locks the row first; the log's triggers record what became of it. */

export type TaskState = 'created' | 'retry' | 'active' | 'completed' | 'failed'

/** The state of a task in the words of jobs: it waits, waits for another attempt, runs, or is over. */
export const taskStateSql = sql`case t.task_status when 'Running' then 'active' when 'Completed' then 'completed'
  when 'Error' then 'failed' else case when t.retry_count > 0 then 'retry' else 'created' end end`

/** Undefined when there is no such task. No other process claims or ends it before the transaction ends. */
export async function lockTask(tx: Tx, id: number): Promise<TaskState | undefined> {
  const row = await tx.maybeOne<{ state: TaskState }>(
    sql`select ${taskStateSql} as state from "svc_Tasks" t where t.id = ${id} for update`,
  )
  return row?.state
}

/** Makes a waiting task due now. */
export async function hurryTask(tx: Tx, id: number): Promise<void> {
  await tx.any(sql`
    update "svc_Tasks" set scheduled_time = least(scheduled_time, now()), retry_at = null, "updatedAt" = now() where id = ${id}`)
}

/** Makes a task that is over due now, with all its attempts. */
export async function redriveTask(tx: Tx, id: number): Promise<void> {
  await tx.any(sql`
    update "svc_Tasks"
    set task_status = 'Not started', scheduled_time = least(scheduled_time, now()), retry_count = 0, retry_at = null,
        error_data = null, result_data = null, "updatedAt" = now()
    where id = ${id}`)
}

/** Ends a task. An attempt that runs loses its claim: it may go on, but writes nothing any more. */
export async function cancelTask(tx: Tx, id: number): Promise<void> {
  await tx.any(sql`
    update "svc_Tasks"
    set task_status = 'Error', error_data = jsonb_build_object('message', 'cancelled by an administrator'),
        started_at = null, heartbeat_at = null, attempt_token = null, retry_at = null, "updatedAt" = now()
    where id = ${id}`)
}

/** Tasks that wait, run and have failed, and since when the oldest is due. */
export async function countTasks(db: Reader) {
  return db.one<{ waiting: number; active: number; dead: number; overdueSeconds: number }>(sql`
    select count(*) filter (where task_status = 'Not started')::int as waiting,
      count(*) filter (where task_status = 'Running')::int as active,
      count(*) filter (where task_status = 'Error')::int as dead,
      coalesce(extract(epoch from now() - min(greatest(scheduled_time, retry_at))
        filter (where task_status = 'Not started' and greatest(scheduled_time, retry_at) < now())), 0)::int as "overdueSeconds"
    from "svc_Tasks" where status is distinct from 'archived'`)
}

/** How an attempt ended. */
export type AttemptOutcome =
  | { readonly state: 'completed'; readonly result: string | null; readonly cause?: Cause | undefined }
  /** Recorded by the handler itself, in the transaction of its effects. */
  | { readonly state: 'settled' }
  | { readonly state: 'failed'; readonly message: string; readonly cause?: Cause | undefined }
  /** It came to no end of its own: its process died, or was ended. */
  | { readonly state: 'broken'; readonly message: string }
  /** This worker stops. */
  | { readonly state: 'given back' }

/** Claims up to `limit` due tasks, the earliest first. Of any number of processes at the same time no two get the same. */
export async function claimDue(deps: Writes, wanted: ClaimFilter, limit: number): Promise<readonly ClaimedTask[]> {
  const tasks = await commitRow<ClaimedTask>(deps, tasksActor, claimDueTasks(wanted, limit))
  return tasks.sort((a, b) => a.scheduled_time.localeCompare(b.scheduled_time) || a.id - b.id)
}

/** Claims one task; undefined when it does not wait (any more). */
export async function claimById(deps: Writes, id: number): Promise<ClaimedTask | undefined> {
  const [task] = await commitRow<ClaimedTask>(deps, tasksActor, claimTaskById(id))
  return task
}

/**
 * Records how an attempt ended; false when it has lost its task, to which nothing happens then. Insists while the
 * database is away, until it is aborted: work that is not recorded would be done again.
 */
export async function record(
  deps: Writes,
  claim: AttemptClaim,
  outcome: AttemptOutcome,
  signal?: AbortSignal,
): Promise<boolean> {
  if (outcome.state === 'settled') return true
  const isUnstorable = (error: unknown) => outcome.state === 'completed' && sqlState(error)?.startsWith('22')
  try {
    const actor = causedActor(tasksActor, 'cause' in outcome ? outcome.cause : undefined)
    const settle = () => commitRow(deps, actor, statementOf(claim, outcome))
    const settled = await retryTransient(settle, {
      backoff: { firstMs: 100, longestMs: 5000 },
      mayRetry: (error) => !isUnstorable(error) && signal?.aborted !== true,
      onRetry: (error) =>
        deps.log.warn({ err: error, taskId: claim.id }, 'the outcome of a task could not be recorded yet'),
    })
    return settled.length > 0
  } catch (error) {
    // A result that JSON can hold and PostgreSQL cannot, such as a NUL in a text.
    if (!isUnstorable(error)) throw error
    return record(deps, claim, { state: 'failed', message: 'the result cannot be stored as JSON' }, signal)
  }
}

/** Takes tasks back whose workers are gone. Any number of processes may do it at any time. */
export async function recoverTasks(deps: Writes): Promise<void> {
  const { stallTimeoutSeconds } = deps.config.tasks
  const recovered = await commitRow<{ id: number; status: string }>(
    deps,
    tasksActor,
    recoverStalledTasks(stallTimeoutSeconds),
  )
  for (const { id, status } of recovered) deps.log.warn({ taskId: id, status }, 'a stalled task was taken back')
}

function statementOf(claim: AttemptClaim, outcome: Exclude<AttemptOutcome, { state: 'settled' }>) {
  switch (outcome.state) {
    case 'completed':
      return completeClaimed(claim, outcome.result)
    case 'failed':
      return failClaimed(claim, outcome.message)
    case 'broken':
      return setBackClaimed(claim, outcome.message)
    case 'given back':
      return giveBackClaimed(claim)
  }
}

/*
 * The statements about svc_Tasks. `commitRow` runs those that are a value: their first parameter is the actor. A claim is
 * `attempt_token`; `started_at` is when the attempt began, `heartbeat_at` the last sign of life of its worker.
 */

type TaskStatement = { readonly text: string; readonly values: readonly unknown[] }

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
function claimDueTasks({ types, isolatedTypes, isolatedAtMost }: ClaimFilter, limit: number): TaskStatement {
  return {
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
function claimTaskById(id: number): TaskStatement {
  return {
    text: `${actorCte(1)} ${claim} from ctx where t.id = $2 and ${claimable} returning ${claimed}`,
    values: [id],
  }
}

const released = 'started_at = null, heartbeat_at = null, attempt_token = null, "updatedAt" = now()'
const held = `t.id = $2 and t.attempt_token = $3 and t.task_status = 'Running'`

/** Ends an attempt in success; no row when it has lost its claim. `result` is JSON text. */
function completeClaimed({ id, token }: AttemptClaim, result: string | null): TaskStatement {
  return {
    text: `${actorCte(1)} update "svc_Tasks" t
  set task_status = 'Completed', result_data = $4::jsonb, error_data = null, progress = 1, ${released}
  from ctx where ${held} returning t.id`,
    values: [id, token, result],
  }
}

/** Ends an attempt whose handler has failed. */
function failClaimed({ id, token }: AttemptClaim, message: string): TaskStatement {
  return {
    text: `${actorCte(1)} update "svc_Tasks" t
  set task_status = 'Error', error_data = jsonb_build_object('message', $4::text), ${released}
  from ctx where ${held} returning t.id`,
    values: [id, token, message],
  }
}

/** Gives a task back that this worker cannot go on with: no attempt was spent. */
function giveBackClaimed({ id, token }: AttemptClaim): TaskStatement {
  return {
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
function setBackClaimed({ id, token }: AttemptClaim, message: string): TaskStatement {
  return {
    text: `${actorCte(1)} update "svc_Tasks" t ${setBack('$4::text')}
  from ctx where ${held} returning t.id`,
    values: [id, token, message],
  }
}

/**
 * Takes running tasks back that gave no sign of life for that long. A row that is locked is being written by the very
 * attempt (`holdClaim`): that is one.
 */
function recoverStalledTasks(stallSeconds: number): TaskStatement {
  return {
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
  const lock = exclusively ? sql`for update` : sql`for share`
  const row = await tx.maybeOne(sql`
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
  await tx.one(sql`
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
  const created = await db.maybeOne<{ request: string; depth: number }>(sql`
    select "logRequestId"::text as request, coalesce((cause->>'depth')::int, 0) as depth from "svc_AuditLog"
    where type = 'data' and entity = 'svc_Tasks' and "entityId" = ${String(id)} and action = 'create' and "logRequestId" is not null
    order by position desc limit 1`)
  return created === undefined ? undefined : { request: created.request, depth: created.depth + 1, by: 'task' }
}

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
  /** The same in all attempts, for systems outside of the database. */
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

/** The content of `error_data`. */
export const messageOf = (thrown: unknown): string => storable(wordsOf(thrown))

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
