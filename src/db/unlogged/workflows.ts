import type { UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

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
