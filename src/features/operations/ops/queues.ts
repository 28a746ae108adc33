import type { Reads } from '../../../db/pools.ts'
import { rawQuery } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import { bossSchema, deadLetterQueues, queues } from '../../../events/jobs.ts'
import type { Actor } from '../../../events/types.ts'
import { countTasks } from '../../work/tasks/tasks.ts'
import { redrive } from './ops.ts'
import { allQueues, deadJobs, type QueueFilter } from './queries.ts'

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
export async function queueRows(rt: Reads): Promise<readonly QueueRow[]> {
  const found = await rt.db.any<QueueRow>(
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
  return [...known, ...unknown, { queue: 'tasks', ...(await countTasks(rt.db)) }]
}

const atMost = 500

type Redriven = {
  readonly redriven: number
  /** Those that are still given up, and why. */
  readonly refused: readonly { readonly id: string; readonly reason: string }[]
  /** There were more than one request takes. */
  readonly more: boolean
}

/** Has what was given up in a queue done again, the oldest first, each in a transaction of its own. 404 for no queue. */
export async function redriveQueue(rt: Reads & Writes, actor: Actor, queue: string): Promise<Redriven> {
  const known = allQueues.find((name) => name === queue)
  if (known === undefined) throw new AppError(404, 'Queue not found')
  const ids = await deadJobs(rt.db, known satisfies QueueFilter, atMost + 1)
  const refused: { id: string; reason: string }[] = []
  for (const id of ids.slice(0, atMost)) {
    try {
      await redrive(rt, actor, id, undefined)
    } catch (error) {
      // What cannot be done again must not keep the others waiting; somebody else may have been first.
      if (!(error instanceof AppError) || error.status >= 500) throw error
      refused.push({ id, reason: error.message })
    }
  }
  return { redriven: Math.min(ids.length, atMost) - refused.length, refused, more: ids.length > atMost }
}
