import type { Reads } from '../../../db/pools.ts'
import type { Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import { commit } from '../../../events/commit.ts'
import { cancelJob, hurryJob, type Job, type QueueName, queues, removeJob } from '../../../events/jobs.ts'
import type { Actor, DomainEvent } from '../../../events/types.ts'
import { isUuid } from '../../../language/uuid.ts'
import { type JobRow, type JobState, jobById, lockedJob, type StoredJob, taskJobById } from './queries.ts'
import { membersOf, subjectOf } from './subjects.ts'
import { changeTask, taskDeeds, taskIdOf } from './tasks.ts'

/** 404 `Job not found`. */
export async function jobOr404(rt: Reads, id: string): Promise<JobRow> {
  const taskId = taskIdOf(id)
  const job =
    taskId !== undefined ? await taskJobById(rt.db, taskId) : isUuid(id) ? await jobById(rt.db, id) : undefined
  if (job === undefined) throw jobNotFound()
  return job
}

/** Has a job that waits, for its turn or for another attempt, done at once. 409 for one that does not wait. */
export async function hurry(rt: Writes, actor: Actor, id: string): Promise<void> {
  const taskId = taskIdOf(id)
  if (taskId !== undefined) return changeTask(rt, actor, taskId, taskDeeds.hurry)
  await change(rt, actor, id, ['created', 'retry'], async (tx, { queue }) => {
    await hurryJob(rt.boss, tx, queue, id)
    return { type: 'job.hurried', data: { jobId: id, queue } }
  })
}

/** Ends a job that is not finished; what it is about is recorded as failed. */
export async function cancel(rt: Writes, actor: Actor, id: string): Promise<void> {
  const taskId = taskIdOf(id)
  if (taskId !== undefined) return changeTask(rt, actor, taskId, taskDeeds.cancel)
  await change(rt, actor, id, ['created', 'retry', 'active'], async (tx, { queue, data }) => {
    await cancelJob(rt.boss, tx, queue, id)
    await subjectOf(queue).cancel(tx, data)
    return { type: 'job.cancelled', data: { jobId: id, queue } }
  })
}

/**
 * Has a job that is over done again, with all its attempts: a new job takes its place, in one transaction. `body` can
 * correct what it is about: `{ to }` of a mail. 409 for a job that is not over, or whose work is done.
 */
export async function redrive(rt: Writes, actor: Actor, id: string, body: unknown): Promise<void> {
  const taskId = taskIdOf(id)
  if (taskId !== undefined) return redriveTask(rt, actor, taskId, body)
  await change(
    rt,
    actor,
    id,
    ['dead', 'failed', 'cancelled', 'completed'],
    async (tx, { queue, data, storedIn, group }) => {
      await subjectOf(queue).redrive(tx, data, body)
      await removeJob(rt.boss, tx, storedIn, id)
      return {
        type: 'job.redriven',
        data: { jobId: id, job: { queue, data, ...(group !== null && { group }) } as Job },
      }
    },
  )
}

async function redriveTask(rt: Writes, actor: Actor, taskId: number, body: unknown): Promise<void> {
  membersOf(body, [])
  await changeTask(rt, actor, taskId, taskDeeds.redrive)
}

type Stored = Omit<StoredJob, 'queue'> & { readonly queue: QueueName }

/** The lock lets one of several requests through; the next one finds the job as that has left it. */
async function change(
  rt: Writes,
  actor: Actor,
  id: string,
  states: readonly JobState[],
  work: (tx: Tx, job: Stored) => Promise<DomainEvent>,
): Promise<void> {
  if (!isUuid(id)) throw jobNotFound()
  await commit(rt, actor, async (tx) => {
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
