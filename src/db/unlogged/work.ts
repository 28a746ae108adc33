import type { UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/* Tasks: signs of life and progress of running attempts, and who runs which schedule. Outcomes are events, these are not. */

type TaskAttempt = { readonly id: number; readonly token: string }

/**
 * Notes that these attempts are alive and gives the ids of those that still own their task. A row that is locked is being
 * written by its own attempt and need not be touched.
 */
export async function touchTasks(deps: UnloggedWrites, attempts: readonly TaskAttempt[]): Promise<ReadonlySet<number>> {
  const rows = await run<{ id: number }>(
    deps,
    `with claim as (select * from unnest($1::int[], $2::uuid[]) c (id, token)),
     owned as (
       select t.id from "svc_Tasks" t join claim c on c.id = t.id and c.token = t.attempt_token
       where t.task_status = 'Running'),
     free as (
       select t.id from "svc_Tasks" t join claim c on c.id = t.id and c.token = t.attempt_token
       where t.task_status = 'Running' for update of t skip locked),
     touched as (update "svc_Tasks" t set heartbeat_at = now() from free where t.id = free.id)
     select id from owned`,
    [attempts.map(({ id }) => id), attempts.map(({ token }) => token)],
  )
  return new Set(rows.map(({ id }) => id))
}

/**
 * Stores how far an attempt is and tells the web processes. False when it could not be stored now: the attempt has lost
 * its task, or is just writing.
 */
export async function storeProgress(
  deps: UnloggedWrites,
  { id, token }: TaskAttempt,
  { share, message }: { readonly share: number; readonly message: string | null },
): Promise<boolean> {
  const rows = await run(
    deps,
    `with free as (
       select id from "svc_Tasks" where id = $1 and attempt_token = $2 for update skip locked),
     stored as (
       update "svc_Tasks" t set progress = $3, progress_message = $4 from free where t.id = free.id returning t.id)
     select pg_notify('svc_progress', id::text) from stored`,
    [id, token, share, message],
  )
  return rows.length > 0
}

/** Tells the web processes that a task which has reported progress has come to its end. */
export async function tellTaskEnded(deps: UnloggedWrites, id: number): Promise<void> {
  await run(deps, `select pg_notify('svc_progress', $1::text)`, [String(id)])
}

export type ScheduleSlot = { readonly id: string; readonly now: Date; readonly nextAt: Date }

/** Makes a schedule known. Its next moment stays as it is unless the expression is new. */
export async function registerSchedule(deps: UnloggedWrites, id: string, cron: string, nextAt: Date): Promise<void> {
  await run(
    deps,
    `insert into "svc_TaskSchedule" as s (id, cron, "nextAt") values ($1, $2, $3)
     on conflict (id) do update set cron = excluded.cron, "nextAt" = excluded."nextAt" where s.cron <> excluded.cron`,
    [id, cron, nextAt],
  )
}

/** When these schedules are due, and what time the database has. */
export async function scheduleSlots(deps: UnloggedWrites, ids: readonly string[]): Promise<readonly ScheduleSlot[]> {
  return run<ScheduleSlot>(
    deps,
    `select id, "nextAt", now() as now from "svc_TaskSchedule" where id = any($1::text[])`,
    [ids],
  )
}

/** Moves a due schedule on; of any number of processes one is told true. */
export async function takeSlot(deps: UnloggedWrites, { id, nextAt }: ScheduleSlot, next: Date): Promise<boolean> {
  const rows = await run(
    deps,
    `update "svc_TaskSchedule" set "nextAt" = $3
     where id = $1 and "nextAt" = $2::timestamptz and "nextAt" <= now() returning id`,
    [id, nextAt, next],
  )
  return rows.length > 0
}

/** Takes a lock, or one's own for longer; false while another process holds it. */
export async function takeLock(deps: UnloggedWrites, name: string, holder: string, seconds: number): Promise<boolean> {
  const rows = await run(
    deps,
    `insert into "svc_TaskLock" as l (name, holder, "expiresAt") values ($1, $2, now() + make_interval(secs => $3))
     on conflict (name) do update set holder = excluded.holder, "expiresAt" = excluded."expiresAt"
       where l.holder = excluded.holder or l."expiresAt" <= now()
     returning name`,
    [name, holder, seconds],
  )
  return rows.length > 0
}

/** False when another process holds it by now. */
export async function dropLock(deps: UnloggedWrites, name: string, holder: string): Promise<boolean> {
  const rows = await run(deps, `delete from "svc_TaskLock" where name = $1 and holder = $2 returning name`, [
    name,
    holder,
  ])
  return rows.length > 0
}

/* Executions of workflows: signs of life of the processes that run them, and who watches. */

/** Notes that the process that runs these is alive. A row that is locked is being written by it. */
export async function touchExecutions(
  deps: UnloggedWrites,
  claims: readonly { readonly id: string; readonly token: string }[],
): Promise<void> {
  await run(
    deps,
    `with free as (
       select e.id from "svc_WorkflowExecution" e
       join unnest($1::uuid[], $2::uuid[]) c (id, token) on c.id = e.id and c.token = e.claim_token
       where e.status = 'running' for update of e skip locked)
     update "svc_WorkflowExecution" e set heartbeat_at = now() from free where e.id = free.id`,
    [claims.map(({ id }) => id), claims.map(({ token }) => token)],
  )
}

/** Has those who run an execution say how it goes on, and one that has not begun begin now. */
export async function watchExecution(deps: UnloggedWrites, id: string): Promise<void> {
  await run(
    deps,
    `with watched as (
       update "svc_WorkflowExecution" set watched = true, due_at = case when status = 'queued' then now() else due_at end
       where id = $1 and status in ('queued', 'running') returning status)
     select pg_notify('svc_executions', '') from watched where status = 'queued'`,
    [id],
  )
}

/** Moves a due schedule on, in the transaction that starts what it is for; of any number of processes one is told true. */
export const takeTickSql = `update "svc_WorkflowSchedule" set "nextAt" = coalesce($3::timestamptz, 'infinity')
  where "workflow_Id" = $1 and date_trunc('milliseconds', "nextAt") = $2::timestamptz and "nextAt" <= now() returning 1 as one`

/** Makes the schedules of these workflows known, and forgets all others; the next moment of one stays unless it was changed. */
export async function keepSchedules(
  deps: UnloggedWrites,
  schedules: readonly {
    readonly id: string
    readonly cron: string
    readonly timezone: string
    readonly nextAt: string
  }[],
): Promise<readonly { readonly id: string; readonly nextAt: Date; readonly now: Date }[]> {
  return run(
    deps,
    `with given as (
       select * from jsonb_to_recordset($1::jsonb) g (id text, cron text, timezone text, "nextAt" timestamptz)),
     gone as (delete from "svc_WorkflowSchedule" s where not exists (select from given g where g.id = s."workflow_Id")),
     known as (
       insert into "svc_WorkflowSchedule" as s ("workflow_Id", cron, timezone, "nextAt") select id, cron, timezone, "nextAt" from given
       on conflict ("workflow_Id") do update set cron = excluded.cron, timezone = excluded.timezone,
         "nextAt" = case when (s.cron, s.timezone) = (excluded.cron, excluded.timezone) then s."nextAt" else excluded."nextAt" end
       returning s."workflow_Id" as id, s."nextAt")
     select known.id, known."nextAt", now() as now from known`,
    [JSON.stringify(schedules)],
  )
}

/** Forgets versions that are not the present one and that no execution runs by any more; how many. */
export async function deleteUnusedVersions(deps: UnloggedWrites, days: number, atMost: number): Promise<number> {
  const rows = await run(
    deps,
    `delete from "svc_WorkflowVersion" where ctid = any (array(
       select v.ctid from "svc_WorkflowVersion" v join "svc_Workflow" w on w.id = v."workflow_Id" and w.version <> v.version
       where v."createdAt" < now() - make_interval(days => $1) and not exists (
         select from "svc_WorkflowExecution" e where e."workflow_Id" = v."workflow_Id" and e.version = v.version)
       limit $2)) returning 1`,
    [days, atMost],
  )
  return rows.length
}
