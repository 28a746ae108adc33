import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'

/** Systems hand out those above to whoever connects somewhere, so that one of them may be taken a moment later. */
const [lowest, highest] = [20_000, 32_767]
const triesAtMost = 100

/**
 * A port of `host` that nobody uses, for a server that is to have it a little later and to be found there again. Rejects
 * with the error of `listen` for an address that can't be had.
 */
export async function freePort(host = '127.0.0.1'): Promise<number> {
  for (let tries = 1; ; tries += 1) {
    const port = randomInt(lowest, highest + 1)
    try {
      await probePort(port, host)
      return port
    } catch (error) {
      if (tries === triesAtMost || (error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
    }
  }
}

/** Rejects with the error of `listen` when the port can't be had. */
export async function probePort(port: number, host: string): Promise<void> {
  const probe = createServer()
  const listening = once(probe, 'listening')
  probe.listen(port, host)
  await listening
  probe.close()
  await once(probe, 'close')
}
