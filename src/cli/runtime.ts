import { openLogger } from '../adapters/logger.ts'
import { loadEnv } from '../config/config.ts'
import { parseInstallation } from '../config/installation.ts'
import { openRuntime, type Runtime } from '../process/runtime.ts'

/** Runs a command on the installation's database; its log goes to standard error. */
export async function withRuntime(work: (rt: Runtime) => Promise<void>): Promise<number> {
  const config = parseInstallation(loadEnv(process.cwd(), process.env), { secretKey: true })
  const log = openLogger({ level: config.log.level, name: 'daybook', stderr: true })
  const rt = await openRuntime({ config, log, name: 'cli', worker: false })
  try {
    await work(rt)
    return 0
  } finally {
    await rt.close()
  }
}
