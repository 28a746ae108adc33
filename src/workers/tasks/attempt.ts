import type { Tx } from '../../db/sql.ts'
import { contextFor } from '../../extensions/context.ts'
import type { Extensions } from '../../extensions/extensions.ts'
import type { TasksService } from '../../extensions/tasks-service.ts'
import type { TaskToDo } from '../../extensions/types.ts'
import { insideScope, inTransaction } from '../../features/items/hooking.ts'
import type { Outcome } from '../../features/tasks/outcomes.ts'
import { completeHeld, hasCreatorLeft, holdClaim } from '../../features/tasks/queries.ts'
import {
  type ClaimedTask,
  creatorLeftMessage,
  messageOf,
  progressOf,
  resultJson,
  tasksActor,
} from '../../features/tasks/tasks.ts'
import { systemAccess } from '../../query/access.ts'
import type { Runtime } from '../../runtime.ts'

/**
 * Runs the handler of a task. Everything it writes through its context first makes sure that the attempt still owns the
 * task: a handler that goes on after its task was given to another attempt writes nothing. Never rejects.
 */
export async function attempt(
  rt: Runtime,
  { tasks }: Extensions,
  tasksService: TasksService,
  task: ClaimedTask,
  onProgress: (share: number, message: string | null) => void,
): Promise<Outcome> {
  try {
    const { definition, name } = tasks.find((loaded) => loaded.definition.type === task.type)!
    const context = contextFor(rt, name, { tasksService, guard: (tx) => mayWrite(rt, tx, task) })
    const { token: _token, creatorLeft: _left, ...shown } = task
    let isFinished = false
    const toDo: TaskToDo = {
      ...shown,
      progress: (share, message) => {
        const progress = progressOf(share, message)
        onProgress(progress.share, progress.message)
      },
      finish: async (work) => {
        await finish(rt, task, work)
        isFinished = true
      },
    }
    const result = await definition.handler(toDo, context)
    return isFinished ? { state: 'settled' } : { state: 'completed', result: resultJson(result) }
  } catch (error) {
    return { state: 'failed', message: messageOf(error) }
  }
}

/**
 * Keeps the claim until the transaction ends. The tenant is asked again, because a handler may run for long.
 *
 * @throws {Error} when the attempt has lost its task, or the tenant the user who created it
 */
async function mayWrite(rt: Runtime, tx: Tx, task: ClaimedTask, exclusively = false): Promise<void> {
  if (!(await holdClaim(tx, task, exclusively))) throw new Error('the task was given to another attempt')
  if (!rt.config.tenancy.enabled || !(await hasCreatorLeft(tx, task))) return
  rt.log.warn(
    { taskId: task.id, tenantId: task.tenant_Id },
    'a task may write no more: its tenant has lost its creator',
  )
  throw new Error(creatorLeftMessage)
}

/** The effects, the completion and the result in one transaction, with the row locked from its beginning. */
async function finish(rt: Runtime, task: ClaimedTask, work: () => unknown): Promise<void> {
  await inTransaction(rt, { actor: tasksActor, access: systemAccess }, async ({ tx, scope }) => {
    await mayWrite(rt, tx, task, true)
    const result = await insideScope(rt, scope, async () => work())
    await completeHeld(tx, task, resultJson(result))
  })
}
