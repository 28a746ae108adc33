import { canonicalEmail } from '../../../adapters/email-address.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, rawQuery, type Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import {
  bossSchema,
  cancelJob,
  deadLetterQueues,
  hurryJob,
  type Job,
  misfitOf,
  type QueueName,
  queues,
  removeJob,
} from '../../../events/jobs.ts'
import type { Actor, DomainEvent } from '../../../events/types.ts'
import { closed, readAs, Text } from '../../../http/shapes.ts'
import { isUuid } from '../../../language/text.ts'
import { cancelMail, mailStatus, requeueMail } from '../../messaging/mail/mail.ts'
import { cancelTask, countTasks, hurryTask, lockTask, redriveTask, type TaskState } from '../../work/tasks/tasks.ts'
import {
  allQueues,
  deadJobs,
  type JobRow,
  type JobState,
  jobById,
  lockedJob,
  type QueueFilter,
  type StoredJob,
  taskJobById,
} from './queries.ts'

/** 404 `Job not found`. */
export async function jobOr404({ db }: Reads, id: string): Promise<JobRow> {
  const taskId = taskIdOf(id)
  const job = taskId !== undefined ? await taskJobById(db, taskId) : isUuid(id) ? await jobById(db, id) : undefined
  if (job === undefined) throw jobNotFound()
  return job
}

/** Has a job that waits, for its turn or for another attempt, done at once. 409 for one that does not wait. */
export async function hurry(deps: Writes, actor: Actor, id: string): Promise<void> {
  const taskId = taskIdOf(id)
  if (taskId !== undefined) return changeTask(deps, actor, taskId, taskDeeds.hurry)
  await change(deps, actor, id, ['created', 'retry'], async (tx, { queue }) => {
    await hurryJob(deps, tx, queue, id)
    return { type: 'job.hurried', data: { jobId: id, queue } }
  })
}

/** Ends a job that is not finished; what it is about is recorded as failed. */
export async function cancel(deps: Writes, actor: Actor, id: string): Promise<void> {
  const taskId = taskIdOf(id)
  if (taskId !== undefined) return changeTask(deps, actor, taskId, taskDeeds.cancel)
  await change(deps, actor, id, ['created', 'retry', 'active'], async (tx, { queue, data }) => {
    await cancelJob(deps, tx, queue, id)
    await subjectOf(queue).cancel(tx, data)
    return { type: 'job.cancelled', data: { jobId: id, queue } }
  })
}

/**
 * Has a job that is over done again, with all its attempts: a new job takes its place, in one transaction. `body` can
 * correct what it is about: `{ to }` of a mail. 409 for a job that is not over, or whose work is done.
 */
export async function redrive(deps: Writes, actor: Actor, id: string, body: unknown): Promise<void> {
  const taskId = taskIdOf(id)
  if (taskId !== undefined) {
    readAs(NoCorrection, body)
    return changeTask(deps, actor, taskId, taskDeeds.redrive)
  }
  await change(
    deps,
    actor,
    id,
    ['dead', 'failed', 'cancelled', 'completed'],
    async (tx, { queue, data, storedIn, group }) => {
      await subjectOf(queue).redrive(tx, data, body)
      await removeJob(deps, tx, storedIn, id)
      return {
        type: 'job.redriven',
        data: { jobId: id, job: { queue, data, ...(group !== null && { group }) } as Job },
      }
    },
  )
}

type KnownJob = Omit<StoredJob, 'queue'> & { readonly queue: QueueName }

/** The lock lets one of several requests through; the next one finds the job as that has left it. */
async function change(
  deps: Writes,
  actor: Actor,
  id: string,
  states: readonly JobState[],
  work: (tx: Tx, job: KnownJob) => Promise<DomainEvent>,
): Promise<void> {
  if (!isUuid(id)) throw jobNotFound()
  await commit(deps, actor, async (tx) => {
    const job = await lockedJob(tx, id)
    if (job === undefined) throw jobNotFound()
    if (!states.includes(job.state)) throw errors.conflict(`The job is ${job.state}`)
    const { queue, ...rest } = job
    if (!isKnown(queue)) throw errors.conflict(`No worker of this version serves the queue ${queue}`)
    return { result: null, events: [await work(tx, { queue, ...rest })] }
  })
}

const isKnown = (queue: string): queue is QueueName => Object.hasOwn(queues, queue)

const jobNotFound = () => new AppError(404, 'Job not found')

/** The row that a job is about, which has a state of its own and follows what happens to the job. */
type JobSubject = {
  /** Makes the row ready for another job, changed by the request's body; throws where there is nothing to do again. */
  redrive(tx: Tx, data: Readonly<Record<string, unknown>>, body: unknown): Promise<void>
  cancel(tx: Tx, data: Readonly<Record<string, unknown>>): Promise<void>
}

/** The members of a mail that a body may correct. */
export const MailCorrection = Type.Object(
  {
    to: Type.Optional(
      Type.Refine(
        Text('ada@example.com', { description: 'Of a mail: the right address.', refusal: 'Invalid email address' }),
        (to) => canonicalEmail(to) !== undefined,
      ),
    ),
  },
  closed,
)
/** Of anything else. */
const NoCorrection = Type.Object({}, closed)

const mail: JobSubject = {
  async redrive(tx, data, body) {
    const { to } = readAs(MailCorrection, body)
    if (misfitOf('mail', data) !== undefined) throw errors.conflict('The job names no mail')
    const id = String(data.emailLogId)
    if (await requeueMail(tx, id, to && canonicalEmail(to))) return
    throw errors.conflict(
      `The mail is ${(await mailStatus(tx, id)) ?? 'deleted'}; only one that has failed is sent again`,
    )
  },
  async cancel(tx, data) {
    if (misfitOf('mail', data) === undefined) await cancelMail(tx, String(data.emailLogId))
  },
}

const withoutRow: JobSubject = {
  redrive: async (_tx, _data, body) => void readAs(NoCorrection, body),
  cancel: async () => undefined,
}

const subjects: Partial<Readonly<Record<QueueName, JobSubject>>> = { mail }

function subjectOf(queue: QueueName): JobSubject {
  return subjects[queue] ?? withoutRow
}

/** Tasks among the jobs: they are rows of their own and no jobs of a queue, but operators ask the same of them. */

const largestId = 2_147_483_647

/** The number of a task; undefined for the id of a job. */
function taskIdOf(id: string): number | undefined {
  return /^\d{1,10}$/.test(id) && Number(id) <= largestId ? Number(id) : undefined
}

type TaskChange = {
  /** Of which states. */
  readonly states: readonly TaskState[]
  readonly act: (tx: Tx, id: number) => Promise<void>
  readonly event: Extract<DomainEvent['type'], `task.${string}`>
}

const taskDeeds = {
  hurry: { states: ['created', 'retry'], act: hurryTask, event: 'task.hurried' },
  cancel: { states: ['created', 'retry', 'active'], act: cancelTask, event: 'task.cancelled' },
  redrive: { states: ['failed', 'completed'], act: redriveTask, event: 'task.redriven' },
} satisfies Record<string, TaskChange>

/** 404 for an unknown task, 409 for one in another state. */
async function changeTask(
  deps: Writes,
  actor: Actor,
  taskId: number,
  { states, act, event }: TaskChange,
): Promise<void> {
  await commit(deps, actor, async (tx) => {
    const state = await lockTask(tx, taskId)
    if (state === undefined) throw new AppError(404, 'Job not found')
    if (!states.includes(state)) throw errors.conflict(`The task is ${state}`)
    await act(tx, taskId)
    return { result: null, events: [{ type: event, data: { taskId } }] }
  })
}

type QueueRow = {
  readonly queue: string
  /** For their turn, or for another attempt. */
  readonly waiting: number
  readonly active: number
  /** Given up: they wait for an operator. */
  readonly dead: number
  /** Of the one that has been due the longest. */
  readonly overdueSeconds: number
}

/** Every queue, also the empty ones, and the tasks. */
export async function queueRows({ db }: Reads): Promise<readonly QueueRow[]> {
  const found = await db.any<QueueRow>(
    rawQuery(
      `select coalesce(source_name, name) as queue,
         count(*) filter (where state < 'active' and name <> all ($1))::int as waiting,
         count(*) filter (where state = 'active')::int as active,
         count(*) filter (where state < 'completed' and name = any ($1))::int as dead,
         coalesce(extract(epoch from now() - min(start_after)
           filter (where state < 'active' and name <> all ($1) and start_after < now())), 0)::int as "overdueSeconds"
       from ${bossSchema}.job group by 1`,
      [deadLetterQueues],
    ),
  )
  const empty = { waiting: 0, active: 0, dead: 0, overdueSeconds: 0 }
  const known = Object.keys(queues).map((queue) => found.find((row) => row.queue === queue) ?? { queue, ...empty })
  const unknown = found.filter(({ queue }) => !Object.hasOwn(queues, queue))
  return [...known, ...unknown, { queue: 'tasks', ...(await countTasks(db)) }]
}

const atMost = 500

type RedriveReport = {
  readonly redriven: number
  /** Those that are still given up, and why. */
  readonly refused: readonly { readonly id: string; readonly reason: string }[]
  /** There were more than one request takes. */
  readonly more: boolean
}

/** Has what was given up in a queue done again, the oldest first, each in a transaction of its own. 404 for no queue. */
export async function redriveQueue(deps: Reads & Writes, actor: Actor, queue: string): Promise<RedriveReport> {
  const known = allQueues.find((name) => name === queue)
  if (known === undefined) throw new AppError(404, 'Queue not found')
  const ids = await deadJobs(deps.db, known satisfies QueueFilter, atMost + 1)
  const refused: { id: string; reason: string }[] = []
  for (const id of ids.slice(0, atMost)) {
    try {
      await redrive(deps, actor, id, undefined)
    } catch (error) {
      // A job that cannot be redriven must not keep the others waiting; another caller may have been first.
      if (!(error instanceof AppError) || error.status >= 500) throw error
      refused.push({ id, reason: error.message })
    }
  }
  return { redriven: Math.min(ids.length, atMost) - refused.length, refused, more: ids.length > atMost }
}

/** The effects of a request outside of its rows: jobs, with their mails and deliveries of webhooks. */
type RequestEffects = {
  /** The request, and those that it led to, of which the first 200 are looked at. */
  readonly requests: readonly string[]
  readonly mails: readonly Readonly<Record<string, unknown>>[]
  readonly jobs: readonly Readonly<Record<string, unknown>>[]
  readonly deliveries: readonly Readonly<Record<string, unknown>>[]
}

const mostRequests = 200
/** Of each kind. */
const mostRows = 200

/** `GET /log/requests/{id}/effects`. 404 for a request without events. */
export async function effectsOf(db: Reader, id: string): Promise<RequestEffects> {
  const known = isUuid(id) ? await requestsFrom(db, id.toLowerCase()) : undefined
  if (known === undefined) throw new AppError(404, 'The log has no such request')
  const { requests, since, until } = known
  const [found] = await db.any<Omit<RequestEffects, 'requests'>>(rawQuery(effectsSql, [requests, since, until]))
  return { requests, ...found! }
}

type Known = { readonly requests: readonly string[]; readonly since: string; readonly until: string }

/** Found by the time in the id of each, as the log writes all of a request soon after it. */
async function requestsFrom(db: Reader, id: string): Promise<Known | undefined> {
  const [found] = await db.any<Known & { readonly events: number }>(
    rawQuery(
      `with recursive caused(id) as (
         select $1::text
         union
         select l."logRequestId"::text from caused c join "svc_AuditLog" l on l.cause is not null and l.cause->>'request' = c.id
         where l."logRequestId" is not null),
       few as (select id from caused limit ${mostRequests}),
       times as (select id, to_timestamp(('x' || lpad(left(replace(id, '-', ''), 12), 16, '0'))::bit(64)::bigint / 1000.0) as at from few)
       select (select json_agg(id) from few) as requests,
         (select min(at) - interval '2 minutes' from times)::text as since,
         (select max(at) + interval '15 minutes' from times)::text as until,
         (select count(*)::int from (select from "svc_AuditLog" l, times t where t.id = $1 and l."logRequestId" = $1::uuid
            and l."createdAt" between t.at - interval '2 minutes' and t.at + interval '15 minutes' limit 1) any_event) as events`,
      [id],
    ),
  )
  return found === undefined || found.events === 0 ? undefined : found
}

const iso = (time: string) => `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

const effectsSql = `
  with events as materialized (
    select l.position, l.type, l.action, l."entityId", l."logRequestId" from "svc_AuditLog" l
    where l."logRequestId" = any($1::uuid[]) and l."createdAt" between $2::timestamptz and $3::timestamptz),
  mails as (
    select m.*, e."logRequestId" as request from events e join "svc_EmailLog" m on m.id::text = e."entityId"
    where e.type = 'mail' and e.action = 'queued' order by m."createdAt" limit ${mostRows}),
  jobs as (
    select j.id, coalesce(j.source_name, j.name) as queue, j.state::text as state, j.created_on, j.completed_on, j.retry_count,
      j.output #>> '{message}' as reason, j.data->>'emailLogId' as mail, j.data->'cause'->>'request' as request
    from ${bossSchema}.job j
    where j.created_on between $2::timestamptz and $3::timestamptz
      and (j.data->'cause'->>'request' = any($1::text[]) or j.data->>'emailLogId' in (select id::text from mails))
    order by j.created_on limit ${mostRows}),
  deliveries as (
    select d.*, e."logRequestId" as by, w.url from events e
    join "svc_WebhookDelivery" d on d.position = e.position and d."createdAt" >= $2::timestamptz
    join "svc_Webhook" w on w.id = d."webhook_Id"
    where d.action not in ('resync', 'test') order by d."createdAt" limit ${mostRows})
  select
    coalesce((select json_agg(json_build_object('id', id, 'request', request, 'template', "templateName", 'email', email,
      'subject', subject, 'status', status, 'createdAt', ${iso('"createdAt"')}, 'sentAt', ${iso('"sentAt"')},
      'error', "errorMessage")) from mails), '[]') as mails,
    coalesce((select json_agg(json_build_object('id', id, 'request', request, 'queue', queue, 'state', state, 'mail', mail,
      'retries', retry_count, 'createdAt', ${iso('created_on')}, 'completedAt', ${iso('completed_on')}, 'reason', reason))
      from jobs), '[]') as jobs,
    coalesce((select json_agg(json_build_object('id', id, 'request', by, 'webhook', "webhook_Id", 'url', url,
      'collection', collection, 'item', "itemId", 'action', action, 'status', status, 'attempts', attempts,
      'responseStatus', "responseStatus", 'createdAt', ${iso('"createdAt"')}, 'error', error)) from deliveries), '[]') as deliveries`
