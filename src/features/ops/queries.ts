import { type Reader, sql, type Tx } from '../../db/sql.ts'
import { bossSchema, deadLetterQueues, type QueueName } from '../../events/jobs.ts'

/** `dead`: every attempt failed, and it waits for an operator. `retry`: it waits for another attempt. */
export const jobStates = ['created', 'retry', 'active', 'completed', 'cancelled', 'failed', 'dead'] as const
export type JobState = (typeof jobStates)[number]

/** A job as operators see it; times are ISO 8601. */
export type JobRow = {
  readonly id: string
  readonly queue: QueueName
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

export type JobFilter = {
  readonly queue: QueueName | undefined
  readonly state: JobState | undefined
  readonly limit: number
  /** From 1. */
  readonly page: number
}

const table = sql.identifier([bossSchema, 'job'])
const isDead = sql.fragment`(j.name = any(${sql.array(deadLetterQueues, 'text')}) and j.state < 'completed')`
const queue = sql.fragment`coalesce(j.source_name, j.name)`
const state = sql.fragment`case when ${isDead} then 'dead' else j.state::text end`
const columns = sql.fragment`
  j.id, ${queue} as queue, ${state} as state, coalesce(j.data, '{}') as data,
  coalesce(j.source_retry_count, j.retry_count) as retries, j.retry_limit as "retryLimit",
  ${iso('j.created_on')} as "createdAt", ${iso('j.start_after')} as "startAfter", ${iso('j.started_on')} as "startedAt",
  ${iso('j.completed_on')} as "completedAt",
  coalesce(j.source_output, j.output) #>> '{message}' as reason,
  (select jsonb_build_object('position', l.position::text, 'type', l.type, 'action', l.action, 'createdAt', l."createdAt",
     'requestId', l."requestId", 'userId', l."userId")
   from "svc_AuditLog" l
   where l.entity = 'svc_EmailLog' and l."entityId" = j.data->>'emailLogId' and l.action = 'queued'
   order by l.position limit 1) as cause`

/** The newest first, and how many there are. */
export async function jobsPage(
  db: Reader,
  filter: JobFilter,
): Promise<{ readonly data: readonly JobRow[]; readonly totalCount: number }> {
  const wanted = sql.fragment`from ${table} j
    where (${filter.queue ?? null}::text is null or ${queue} = ${filter.queue ?? null})
      and (${filter.state ?? null}::text is null or ${state} = ${filter.state ?? null})`
  const { totalCount } = await db.one<{ totalCount: number }>(
    sql.unsafe`select count(*)::int as "totalCount" ${wanted}`,
  )
  const data = await db.any<JobRow>(sql.unsafe`
    select ${columns} ${wanted} order by j.created_on desc, j.id
    limit ${filter.limit} offset ${(filter.page - 1) * filter.limit}`)
  return { data, totalCount }
}

export async function jobById(db: Reader, id: string): Promise<JobRow | undefined> {
  return db.maybeOne<JobRow>(sql.unsafe`select ${columns} from ${table} j where j.id = ${id}::uuid`)
}

/** For who changes it: until the transaction ends nobody else does. `storedIn` is the queue or the dead letters. */
export async function lockedJob(tx: Tx, id: string): Promise<(JobRow & { readonly storedIn: string }) | undefined> {
  return tx.maybeOne<JobRow & { readonly storedIn: string }>(
    sql.unsafe`select ${columns}, j.name as "storedIn" from ${table} j where j.id = ${id}::uuid for update of j`,
  )
}

function iso(column: string) {
  const [alias = '', name = ''] = column.split('.')
  return sql.fragment`to_char(${sql.identifier([alias, name])} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`
}
