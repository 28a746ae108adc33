import pino from 'pino'
import { startEmbedded } from '../../src/db/embedded/embedded.ts'

/** A process that holds an embedded server, for tests that kill it: `node run-embedded.ts <data directory>`. */
const log = pino()
try {
  const { url, pid } = await startEmbedded({ dataDir: process.argv[2]!, log, durable: false })
  log.info({ url, serverPid: pid }, 'up')
} catch (error) {
  log.error((error as Error).message)
  process.exit(1)
}
