import { openLogger } from '../../adapters/logger.ts'
import { type Config, ConfigError, loadEnv, parseConfig } from '../../config.ts'
import { loadExtensions } from '../../extensions/extensions.ts'
import { schedulesOf } from '../../extensions/schedules.ts'
import { messageOf } from '../../features/tasks/tasks.ts'
import { openRuntime } from '../../runtime.ts'
import { attempt } from './attempt.ts'
import { aliveMs, type FromRunner, type Order, type ToRunner } from './protocol.ts'
import { openCalls } from './remote-tasks-service.ts'
import { watchOver } from './watchdog.ts'

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
  const rt = await openRuntime({ config: forRunner(config), log, name: 'task runner', worker: false })
  const calls = openCalls(say)
  const extensions = await loadExtensions(rt, calls.service)
  const schedules = await schedulesOf(extensions)

  const obey = async (order: Order): Promise<void> => {
    const outcome =
      order.kind === 'task'
        ? await attempt(rt, extensions, calls.service, order.task, (share, message) =>
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
  say({
    kind: 'ready',
    handlers: extensions.tasks.map(({ definition: { type, timeoutSeconds } }) => ({ type, timeoutSeconds })),
    schedules: schedules.map(({ id, cron }) => ({ id, cron })),
  })
}

/** Nobody listens any more when the worker has just ended. */
function say(message: FromRunner): void {
  if (process.connected) process.send!(message)
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
