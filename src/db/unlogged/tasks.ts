import type { UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/* Tasks: signs of life and progress of running attempts, and who runs which schedule. Outcomes are events, these are not. */

type Attempt = { readonly id: number; readonly token: string }

/**
 * Notes that these attempts are alive and gives the ids of those that still own their task. A row that is locked is being
 * written by its own attempt and need not be touched.
 */
export async function touchTasks(deps: UnloggedWrites, attempts: readonly Attempt[]): Promise<ReadonlySet<number>> {
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
  { id, token }: Attempt,
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

/** Takes a lock, or one's own for longer; false while somebody else holds it. */
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

/** False when somebody else holds it by now. */
export async function dropLock(deps: UnloggedWrites, name: string, holder: string): Promise<boolean> {
  const rows = await run(deps, `delete from "svc_TaskLock" where name = $1 and holder = $2 returning name`, [
    name,
    holder,
  ])
  return rows.length > 0
}
