import { openLogger } from '../adapters/logger.ts'
import { loadEnv, parseConfig } from '../config.ts'
import { openRuntime, type Runtime } from '../runtime.ts'

/** Runs a command on the configured database; its log goes to standard error. */
export async function withRuntime(work: (rt: Runtime) => Promise<void>): Promise<number> {
  const config = parseConfig(loadEnv(process.cwd(), process.env), { requireDatabase: true })
  const log = openLogger({ level: config.log.level, name: 'daybook', stderr: true })
  const rt = await openRuntime({ config, log, name: 'cli', worker: false })
  try {
    await work(rt)
    return 0
  } finally {
    await rt.close()
  }
}
