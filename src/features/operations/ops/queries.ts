import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { bossSchema, deadLetterQueues, type QueueName, queues } from '../../../events/jobs.ts'
import { taskStateSql } from '../../work/tasks/tasks.ts'

/** `dead`: every attempt failed, and it waits for an operator. `retry`: it waits for another attempt. */
export const jobStates = ['created', 'retry', 'active', 'completed', 'cancelled', 'failed', 'dead'] as const
export type JobState = (typeof jobStates)[number]

/** A job as operators see it; times are ISO 8601. */
export type JobRow = {
  readonly id: string
  readonly queue: QueueFilter
  readonly state: JobState
  readonly data: Readonly<Record<string, unknown>>
  /** Attempts after the first. */
  readonly retries: number
  readonly retryLimit: number
  readonly createdAt: string
  /** Not before this. */
  readonly startAfter: string
  readonly startedAt: string | null
  readonly completedAt: string | null
  /** Why the last attempt failed. */
  readonly reason: string | null
  /** The event of svc_AuditLog that the job came from: who asked for it, in which request. */
  readonly cause: {
    readonly position: string
    readonly type: string
    readonly action: string
    readonly createdAt: string
    readonly requestId: string | null
    readonly userId: string | null
  } | null
}

/** `tasks` are the rows of svc_Tasks, which no queue holds. */
export type QueueFilter = QueueName | 'tasks'
export const allQueues = [...(Object.keys(queues) as QueueName[]), 'tasks'] as const

export type JobFilter = {
  readonly queue: QueueFilter | undefined
  readonly state: JobState | undefined
  /** Created from then on, and before then. */
  readonly since: string | undefined
  readonly until: string | undefined
  /** Something that its data holds: the id of a mail, the type of a task. */
  readonly about: string | undefined
  readonly limit: number
  /** From 1. */
  readonly page: number
}

const table = sql.identifier([bossSchema, 'job'])
const isDead = sql`(j.name = any(${sql.array(deadLetterQueues, 'text')}) and j.state < 'completed')`
const queue = sql`coalesce(j.source_name, j.name)`
const state = sql`case when ${isDead} then 'dead' else j.state::text end`
const jobColumns = sql`
  j.id::text as id, ${queue} as queue, ${state} as state, coalesce(j.data, '{}') as data,
  coalesce(j.source_retry_count, j.retry_count) as retries, j.retry_limit as "retryLimit", j.created_on as created,
  ${iso('j.start_after')} as "startAfter", ${iso('j.started_on')} as "startedAt",
  ${iso('j.completed_on')} as "completedAt", coalesce(j.source_output, j.output) #>> '{message}' as reason`
const taskColumns = sql`
  t.id::text as id, 'tasks' as queue, ${taskStateSql} as state, jsonb_build_object('taskId', t.id, 'type', t.type) as data,
  t.retry_count as retries, t.max_retries as "retryLimit", t."createdAt" as created,
  to_char(greatest(t.scheduled_time, t.retry_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "startAfter",
  ${iso('t.started_at')} as "startedAt",
  case when t.task_status in ('Completed', 'Error') then ${iso('t.updatedAt')} end as "completedAt",
  t.error_data #>> '{message}' as reason`
const both = sql`
  (select ${jobColumns} from ${table} j union all select ${taskColumns} from "svc_Tasks" t) both_kinds`
const shown = sql`
  id, queue, state, data, retries, "retryLimit", ${iso('shown.created')} as "createdAt", "startAfter", "startedAt",
  "completedAt", reason,
  (select jsonb_build_object('position', l.position::text, 'type', l.type, 'action', l.action, 'createdAt', l."createdAt",
     'requestId', l."requestId", 'userId', l."userId")
   from "svc_AuditLog" l
   where l.entity = case shown.queue when 'tasks' then 'svc_Tasks' else 'svc_EmailLog' end
     and l."entityId" = case shown.queue when 'tasks' then shown.id else shown.data->>'emailLogId' end
     and l.action = case shown.queue when 'tasks' then 'create' else 'queued' end
   order by l.position limit 1) as cause`

/** The newest first, and how many there are. */
export async function jobsPage(
  db: Reader,
  filter: JobFilter,
): Promise<{ readonly data: readonly JobRow[]; readonly totalCount: number }> {
  const wanted = sql`from ${both}
    where (${filter.queue ?? null}::text is null or queue = ${filter.queue ?? null})
      and (${filter.state ?? null}::text is null or state = ${filter.state ?? null})
      and (${filter.since ?? null}::timestamptz is null or created >= ${filter.since ?? null}::timestamptz)
      and (${filter.until ?? null}::timestamptz is null or created < ${filter.until ?? null}::timestamptz)
      and (${filter.about ?? null}::text is null
        or exists (select from jsonb_each_text(data) member where member.value = ${filter.about ?? null}))`
  const { totalCount } = await db.one<{ totalCount: number }>(sql`select count(*)::int as "totalCount" ${wanted}`)
  const data = await db.any<JobRow>(sql`
    select ${shown} from (select * ${wanted} order by created desc, id
      limit ${filter.limit} offset ${(filter.page - 1) * filter.limit}) shown
    order by shown.created desc, shown.id`)
  return { data, totalCount }
}

export async function jobById(db: Reader, id: string): Promise<JobRow | undefined> {
  return db.maybeOne<JobRow>(
    sql`select ${shown} from (select ${jobColumns} from ${table} j where j.id = ${id}::uuid) shown`,
  )
}

export async function taskJobById(db: Reader, taskId: number): Promise<JobRow | undefined> {
  return db.maybeOne<JobRow>(
    sql`select ${shown} from (select ${taskColumns} from "svc_Tasks" t where t.id = ${taskId}) shown`,
  )
}

/** The ids of those that were given up, the oldest first; failed ones of tasks. */
export async function deadJobs(db: Reader, wanted: QueueFilter, atMost: number): Promise<readonly string[]> {
  const rows = await db.any<{ id: string }>(sql`
    select id from ${both}
    where queue = ${wanted} and state = ${wanted === 'tasks' ? 'failed' : 'dead'} order by created, id limit ${atMost}`)
  return rows.map(({ id }) => id)
}

export type StoredJob = Pick<JobRow, 'queue' | 'state' | 'data'> & {
  readonly storedIn: string
  readonly group: string | null
}

/** For a change: no other transaction changes it before this one ends. `storedIn` is the queue or the dead letters. */
export async function lockedJob(tx: Tx, id: string): Promise<StoredJob | undefined> {
  return tx.maybeOne<StoredJob>(sql`
    select ${queue} as queue, ${state} as state, coalesce(j.data, '{}') as data, j.name as "storedIn", j.group_id as "group"
    from ${table} j where j.id = ${id}::uuid for update of j`)
}

function iso(column: string) {
  const [alias = '', name = ''] = column.split('.')
  return sql`to_char(${sql.identifier([alias, name])} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`
}
