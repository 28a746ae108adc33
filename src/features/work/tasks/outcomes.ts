import { retryTransient } from '../../../adapters/retry.ts'
import { sqlState } from '../../../db/errors.ts'
import type { Writes } from '../../../events/commit.ts'
import { commitRow } from '../../../events/commit.ts'
import {
  claimDueTasks,
  claimTaskById,
  completeClaimed,
  failClaimed,
  giveBackClaimed,
  recoverStalledTasks,
  setBackClaimed,
  type Wanted,
} from './queries.ts'
import { type AttemptClaim, type ClaimedTask, tasksActor } from './task.ts'

/** How an attempt ended. */
export type Outcome =
  | { readonly state: 'completed'; readonly result: string | null }
  /** Recorded by the handler itself, in the transaction of its effects. */
  | { readonly state: 'settled' }
  | { readonly state: 'failed'; readonly message: string }
  /** It came to no end of its own: its process died, or was ended. */
  | { readonly state: 'broken'; readonly message: string }
  /** This worker stops. */
  | { readonly state: 'given back' }

/** Claims up to `limit` due tasks, the earliest first. Of any number of processes at the same time no two get the same. */
export async function claimDue(rt: Writes, wanted: Wanted, limit: number): Promise<readonly ClaimedTask[]> {
  const tasks = await commitRow<ClaimedTask>(rt, tasksActor, claimDueTasks(wanted, limit))
  return tasks.sort((a, b) => a.scheduled_time.localeCompare(b.scheduled_time) || a.id - b.id)
}

/** Claims one task; undefined when it does not wait (any more). */
export async function claimById(rt: Writes, id: number): Promise<ClaimedTask | undefined> {
  const [task] = await commitRow<ClaimedTask>(rt, tasksActor, claimTaskById(id))
  return task
}

/**
 * Records how an attempt ended; false when it has lost its task, to which nothing happens then. Insists while the
 * database is away, as long as nobody aborts: what is not recorded would be done again.
 */
export async function record(
  rt: Writes,
  claim: AttemptClaim,
  outcome: Outcome,
  signal?: AbortSignal,
): Promise<boolean> {
  if (outcome.state === 'settled') return true
  const isUnstorable = (error: unknown) => outcome.state === 'completed' && sqlState(error)?.startsWith('22')
  try {
    const settle = () => commitRow(rt, tasksActor, statementOf(claim, outcome))
    const settled = await retryTransient(settle, {
      backoff: { firstMs: 100, longestMs: 5000 },
      mayRetry: (error) => !isUnstorable(error) && signal?.aborted !== true,
      onRetry: (error) =>
        rt.log.warn({ err: error, taskId: claim.id }, 'the outcome of a task could not be recorded yet'),
    })
    return settled.length > 0
  } catch (error) {
    // A result that JSON can hold and PostgreSQL cannot, such as a NUL in a text.
    if (!isUnstorable(error)) throw error
    return record(rt, claim, { state: 'failed', message: 'the result cannot be stored as JSON' }, signal)
  }
}

/** Takes tasks back whose workers are gone. Any number of processes may do it at any time. */
export async function recoverTasks(rt: Writes): Promise<void> {
  const { stallTimeoutSeconds } = rt.config.tasks
  const recovered = await commitRow<{ id: number; status: string }>(
    rt,
    tasksActor,
    recoverStalledTasks(stallTimeoutSeconds),
  )
  for (const { id, status } of recovered) rt.log.warn({ taskId: id, status }, 'a stalled task was taken back')
}

function statementOf(claim: AttemptClaim, outcome: Exclude<Outcome, { state: 'settled' }>) {
  switch (outcome.state) {
    case 'completed':
      return completeClaimed(claim, outcome.result)
    case 'failed':
      return failClaimed(claim, outcome.message)
    case 'broken':
      return setBackClaimed(claim, outcome.message)
    case 'given back':
      return giveBackClaimed(claim)
  }
}
