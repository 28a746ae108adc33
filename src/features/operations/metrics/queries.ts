import { logTable } from '../../../catalog/log-triggers.ts'
import { rawQuery, sql } from '../../../db/sql.ts'
import { bossSchema, deadLetterQueues, queues } from '../../../events/jobs.ts'

/** What every process would say alike, so the web processes alone say it. Counts are rows; ages are seconds. */
export type Figures = {
  readonly queues: readonly QueueFigures[]
  readonly tasks: {
    readonly waiting: number
    readonly running: number
    readonly failed: number
    readonly overdue: number
  }
  readonly mails: Readonly<Record<'queued' | 'sending' | 'failed', number>>
  readonly log: { readonly partitions: number; readonly bytes: number }
}

type QueueFigures = {
  readonly queue: string
  /** Due, or due later. */
  readonly waiting: number
  /** Given up: they wait for an operator. */
  readonly dead: number
  /** As pg-boss has counted them last, within a minute. */
  readonly active: number
  /** Of the job that has been due the longest. */
  readonly overdue: number
}

/**
 * All figures in one statement. It looks at unfinished jobs only, by their index: a week of finished ones is not read,
 * nor is the log.
 */
export function figuresQuery() {
  return rawQuery(
    `with unfinished as (
       select case when name = any ($1) then coalesce(source_name, name) else name end as queue,
         name = any ($1) as dead, start_after
       from ${bossSchema}.job where state < 'active' and not blocked),
     counted as (
       select queue, count(*) filter (where not dead)::int as waiting, count(*) filter (where dead)::int as dead,
         extract(epoch from now() - min(start_after) filter (where not dead and start_after < now()))::float8 as overdue
       from unfinished group by queue),
     listed as (
       select q.name as queue, coalesce(c.waiting, 0) as waiting, coalesce(c.dead, 0) as dead,
         q.active_count as active, coalesce(c.overdue, 0) as overdue
       from ${bossSchema}.queue q left join counted c on c.queue = q.name where q.name = any ($2)),
     task as (
       select count(*) filter (where task_status = 'Not started')::int as waiting,
         count(*) filter (where task_status = 'Running')::int as running,
         count(*) filter (where task_status = 'Error')::int as failed,
         coalesce(extract(epoch from now() - min(greatest(scheduled_time, retry_at))
           filter (where task_status = 'Not started' and greatest(scheduled_time, retry_at) < now())), 0)::float8 as overdue
       from "svc_Tasks" where task_status in ('Not started', 'Running', 'Error') and status is distinct from 'archived'),
     mail as (
       select count(*) filter (where status = 'queued')::int as queued,
         count(*) filter (where status = 'sending')::int as sending,
         count(*) filter (where status = 'failed')::int as failed
       from "svc_EmailLog" where status in ('queued', 'sending', 'failed')),
     log as (
       select count(*)::int as partitions, coalesce(sum(pg_total_relation_size(relid)), 0)::float8 as bytes
       from pg_partition_tree($3::regclass) where isleaf)
     select (select coalesce(jsonb_agg(to_jsonb(listed)), '[]') from listed) as queues,
       (select to_jsonb(task) from task) as tasks, (select to_jsonb(mail) from mail) as mails,
       (select to_jsonb(log) from log) as log`,
    [deadLetterQueues, Object.keys(queues), `"${logTable}"`],
  )
}

export const aliveQuery = sql.unsafe`select 1 as one`
