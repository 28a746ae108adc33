import { openLogger } from '../adapters/logger.ts'
import { parseInstallation } from '../config/config.ts'
import { openRuntime, type Runtime } from '../process/runtime.ts'
import { onInstallation } from './installation.ts'

type CommandOptions = {
  /** Instead of that of requests. */
  readonly transactionTimeoutMs?: number
}

/** Runs a command on the installation's database; its log goes to standard error. */
export function withRuntime(
  work: (runtime: Runtime) => Promise<void>,
  { transactionTimeoutMs }: CommandOptions = {},
): Promise<number> {
  return onInstallation(async (env) => {
    const given = parseInstallation(env, { secretKey: true })
    const config =
      transactionTimeoutMs === undefined ? given : { ...given, database: { ...given.database, transactionTimeoutMs } }
    const log = openLogger({ level: config.log.level, name: 'daybook', stderr: true })
    const runtime = await openRuntime({ config, log, name: 'cli', worker: false })
    try {
      await work(runtime)
      return 0
    } finally {
      await runtime.close()
    }
  })
}
