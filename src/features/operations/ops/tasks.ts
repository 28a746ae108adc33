import type { Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import { commit } from '../../../events/commit.ts'
import type { Actor, DomainEvent } from '../../../events/types.ts'
import { cancelTask, hurryTask, lockTask, redriveTask, type TaskState } from '../../work/tasks/tasks.ts'

/** Tasks among the jobs: they are rows of their own and no jobs of a queue, but operators ask the same of them. */

const largestId = 2_147_483_647

/** The number of a task; undefined for the id of a job. */
export function taskIdOf(id: string): number | undefined {
  return /^\d{1,10}$/.test(id) && Number(id) <= largestId ? Number(id) : undefined
}

type Deed = {
  /** Of which states. */
  readonly states: readonly TaskState[]
  readonly act: (tx: Tx, id: number) => Promise<void>
  readonly event: Extract<DomainEvent['type'], `task.${string}`>
}

export const taskDeeds = {
  hurry: { states: ['created', 'retry'], act: hurryTask, event: 'task.hurried' },
  cancel: { states: ['created', 'retry', 'active'], act: cancelTask, event: 'task.cancelled' },
  redrive: { states: ['failed', 'completed'], act: redriveTask, event: 'task.redriven' },
} satisfies Record<string, Deed>

/** 404 for an unknown task, 409 for one in another state. */
export async function changeTask(
  rt: Writes,
  actor: Actor,
  taskId: number,
  { states, act, event }: Deed,
): Promise<void> {
  await commit(rt, actor, async (tx) => {
    const state = await lockTask(tx, taskId)
    if (state === undefined) throw new AppError(404, 'Job not found')
    if (!states.includes(state)) throw errors.conflict(`The task is ${state}`)
    await act(tx, taskId)
    return { result: null, events: [{ type: event, data: { taskId } }] }
  })
}
