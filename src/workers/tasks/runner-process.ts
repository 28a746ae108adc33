import { openLogger } from '../../adapters/logger.ts'
import { type Config, ConfigError, loadEnv, parseConfig } from '../../config/config.ts'
import { isDatabaseGone } from '../../db/errors.ts'
import type { Tx } from '../../db/sql.ts'
import type { Actor, Cause } from '../../events/types.ts'
import { contextFor, type TasksService, tasksServiceMethods } from '../../extensions/context.ts'
import { type Extensions, loadExtensions, schedulesOf } from '../../extensions/extensions.ts'
import type { TaskToDo } from '../../extensions/types.ts'
import { insideScope, inTransaction } from '../../features/data/items/items.ts'
import {
  type AttemptOutcome,
  type ClaimedTask,
  causeOfTask,
  completeHeld,
  creatorLeftMessage,
  hasCreatorLeft,
  holdClaim,
  messageOf,
  progressOf,
  resultJson,
  tasksActor,
} from '../../features/work/tasks/tasks.ts'
import { watchOver } from '../../language/watchdog.ts'
import { openRuntime, type Runtime } from '../../process/runtime.ts'
import { growWithWork } from '../../process/start-up.ts'
import { systemAccess } from '../../query/access.ts'
import { aliveMs, type FromRunner, type Order, type ToRunner } from './protocol.ts'

/*
 * A process that runs the handlers of extensions for the task worker, which starts it, gives it one task at a time and
 * ends it. It does nothing of its own accord but to end when the worker has.
 */

const connections = 4

/** One handler at a time needs few connections. */
function forRunner(config: Config): Config {
  const { database, realtime } = config
  return {
    ...config,
    database: { ...database, poolMax: Math.min(database.poolMax, connections) },
    realtime: { ...realtime, enabled: false },
  }
}

async function main(): Promise<void> {
  const config = parseConfig(loadEnv(process.cwd(), process.env), { requireDatabase: true })
  watchOver(config.tasks.memoryLimitMb)
  const log = openLogger({ level: config.log.level, name: 'task runner', warnStack: config.log.warnStack })
  const runtime = await openRuntime({ config: forRunner(config), log, name: 'task runner', worker: false })
  const calls = openCalls(say)
  const extensions = await loadExtensions(runtime, calls.service)
  const schedules = await schedulesOf(extensions)

  const obey = async (order: Order): Promise<void> => {
    const outcome =
      order.kind === 'task'
        ? await attempt(runtime, extensions, calls.service, order.task, (share, message) =>
            say({ kind: 'progress', run: order.run, share, message }),
          )
        : await schedules
            .find(({ id }) => id === order.id)!
            .run()
            .then(
              () => ({ state: 'settled' }) as const,
              (error: unknown) => ({ state: 'failed', message: messageOf(error) }) as const,
            )
    say({ kind: 'done', run: order.run, outcome })
  }
  process.on('message', (message: ToRunner) => {
    if (message.kind === 'answer') calls.answered(message)
    else void obey(message)
  })
  setInterval(() => say({ kind: 'alive' }), aliveMs)
  growWithWork()
  say({
    kind: 'ready',
    handlers: extensions.tasks.map(({ definition: { type, timeoutSeconds } }) => ({ type, timeoutSeconds })),
    schedules: schedules.map(({ id, cron }) => ({ id, cron })),
  })
}

/** The worker may just have ended, and then no process listens any more. */
function say(message: FromRunner): void {
  if (process.connected) process.send!(message)
}

/** The worker's TasksService, as handlers in a runner see it: every call is a message and its answer another. */
function openCalls(say: (message: FromRunner) => void) {
  const waiting = new Map<number, PromiseWithResolvers<unknown>>()
  let last = 0
  const ask = (method: string, args: readonly unknown[]) => {
    last += 1
    const answered = Promise.withResolvers<unknown>()
    waiting.set(last, answered)
    say({ kind: 'call', call: last, method, args })
    return answered.promise
  }
  const methods = tasksServiceMethods.map((method) => [method, (...args: unknown[]) => ask(method, args)])
  return {
    service: Object.freeze(Object.fromEntries(methods)) as TasksService,
    answered({ call, result, error }: Extract<ToRunner, { kind: 'answer' }>) {
      const { resolve, reject } = waiting.get(call)!
      waiting.delete(call)
      if (error === undefined) resolve(result)
      else reject(new Error(error))
    },
  }
}

/**
 * Runs the handler of a task. Everything it writes through its context first makes sure that the attempt still owns the
 * task: a handler that goes on after its task was given to another attempt writes nothing. Never rejects.
 */
async function attempt(
  runtime: Runtime,
  { tasks }: Extensions,
  tasksService: TasksService,
  task: ClaimedTask,
  onProgress: (share: number, message: string | null) => void,
): Promise<AttemptOutcome> {
  let cause: Cause | undefined
  try {
    const { definition, name } = tasks.find((loaded) => loaded.definition.type === task.type)!
    cause = await causeOfTask(runtime.db, task)
    const context = contextFor(runtime, name, { tasksService, guard: (tx) => mayWrite(runtime, tx, task), cause })
    const { token: _token, creatorLeft: _left, ...shown } = task
    let isFinished = false
    const toDo: TaskToDo = {
      ...shown,
      progress: (share, message) => {
        const progress = progressOf(share, message)
        onProgress(progress.share, progress.message)
      },
      finish: async (work) => {
        await finish(runtime, task, { ...tasksActor, logRequestId: runtime.newId(), cause }, work)
        isFinished = true
      },
    }
    const result = await definition.handler(toDo, context)
    return isFinished ? { state: 'settled' } : { state: 'completed', result: resultJson(result), cause }
  } catch (error) {
    // No failure of the handler: what it has written in `finish` is there once or not at all, and the claim tells which.
    if (isDatabaseGone(error)) return { state: 'given back' }
    return { state: 'failed', message: messageOf(error), cause }
  }
}

/**
 * Keeps the claim until the transaction ends. The tenant is asked again, because a handler may run for long.
 *
 * @throws {Error} when the attempt has lost its task, or the tenant the user who created it
 */
async function mayWrite({ config, log }: Runtime, tx: Tx, task: ClaimedTask, exclusively = false): Promise<void> {
  if (!(await holdClaim(tx, task, exclusively))) throw new Error('the task was given to another attempt')
  if (!config.tenancy.enabled || !(await hasCreatorLeft(tx, task))) return
  log.warn({ taskId: task.id, tenantId: task.tenant_Id }, 'a task may write no more: its tenant has lost its creator')
  throw new Error(creatorLeftMessage)
}

/** The effects, the completion and the result in one transaction, with the row locked from its beginning. */
async function finish(runtime: Runtime, task: ClaimedTask, actor: Actor, work: () => unknown): Promise<void> {
  await inTransaction(runtime, { actor, access: systemAccess }, async ({ tx, scope }) => {
    await mayWrite(runtime, tx, task, true)
    const result = await insideScope(runtime, scope, async () => work())
    await completeHeld(tx, task, resultJson(result))
  })
}

// A signal for all processes of a terminal is the worker's to answer: it lets the handlers finish.
process.on('SIGTERM', () => undefined).on('SIGINT', () => undefined)
process.on('disconnect', () => process.exit(0))
try {
  await main()
} catch (error) {
  process.stderr.write(`${error instanceof ConfigError ? error.message : (error as Error).stack}\n`)
  process.exit(1)
}
