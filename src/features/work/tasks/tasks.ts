import { retryTransient } from '../../../adapters/retry.ts'
import { sqlState } from '../../../db/errors.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { commitRow, type Writes } from '../../../events/commit.ts'
import { type Cause, causedActor } from '../../../events/types.ts'
import {
  type AttemptClaim,
  type ClaimedTask,
  type ClaimFilter,
  claimDueTasks,
  claimTaskById,
  completeClaimed,
  failClaimed,
  giveBackClaimed,
  recoverStalledTasks,
  setBackClaimed,
  tasksActor,
} from './queries.ts'

export {
  type AttemptClaim,
  type ClaimedTask,
  type ClaimFilter,
  causeOfTask,
  comingTasks,
  completeHeld,
  creatorLeftMessage,
  hasCreatorLeft,
  holdClaim,
  messageOf,
  nextDueMs,
  progressOf,
  resultJson,
  type TaskProgress,
  tasksActor,
  windowHours,
} from './queries.ts'

/*
 * Changes by operators: each locks the row first; the log's triggers record what became of it.
 */

export type TaskState = 'created' | 'retry' | 'active' | 'completed' | 'failed'

/** The state of a task in the words of jobs: it waits, waits for another attempt, runs, or is over. */
export const taskStateSql = sql.fragment`case t.task_status when 'Running' then 'active' when 'Completed' then 'completed'
  when 'Error' then 'failed' else case when t.retry_count > 0 then 'retry' else 'created' end end`

/** Undefined when there is no such task. Until the transaction ends nobody claims or ends it. */
export async function lockTask(tx: Tx, id: number): Promise<TaskState | undefined> {
  const row = await tx.maybeOne<{ state: TaskState }>(
    sql.unsafe`select ${taskStateSql} as state from "svc_Tasks" t where t.id = ${id} for update`,
  )
  return row?.state
}

/** Makes a waiting task due now. */
export async function hurryTask(tx: Tx, id: number): Promise<void> {
  await tx.any(sql.unsafe`
    update "svc_Tasks" set scheduled_time = least(scheduled_time, now()), retry_at = null, "updatedAt" = now() where id = ${id}`)
}

/** Makes a task that is over due now, with all its attempts. */
export async function redriveTask(tx: Tx, id: number): Promise<void> {
  await tx.any(sql.unsafe`
    update "svc_Tasks"
    set task_status = 'Not started', scheduled_time = least(scheduled_time, now()), retry_count = 0, retry_at = null,
        error_data = null, result_data = null, "updatedAt" = now()
    where id = ${id}`)
}

/** Ends a task. An attempt that runs loses its claim: it may go on, but writes nothing any more. */
export async function cancelTask(tx: Tx, id: number): Promise<void> {
  await tx.any(sql.unsafe`
    update "svc_Tasks"
    set task_status = 'Error', error_data = jsonb_build_object('message', 'cancelled by an administrator'),
        started_at = null, heartbeat_at = null, attempt_token = null, retry_at = null, "updatedAt" = now()
    where id = ${id}`)
}

/** Tasks that wait, run and have failed, and since when the oldest is due. */
export async function countTasks(db: Reader) {
  return db.one<{ waiting: number; active: number; dead: number; overdueSeconds: number }>(sql.unsafe`
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
 * database is away, as long as nobody aborts: what is not recorded would be done again.
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
