import { type Reader, sql, type Tx } from '../../../db/sql.ts'

/** What operators do to tasks. Each locks the row first; the log's triggers say what became of it. */

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
