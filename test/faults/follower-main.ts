import { openLogger } from '../../src/adapters/logger.ts'
import { loadEnv, parseConfig } from '../../src/config/config.ts'
import { rawQuery } from '../../src/db/sql.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { openConsumers } from '../../src/workers/consumers.ts'

/*
 * A process that hosts a consumer of the log, for fault runs: it writes down the position of every event of `thing`, in a
 * table that would take one twice. One page in a hundred fails, and is handled again event by event.
 */

const config = parseConfig(loadEnv(process.cwd(), process.env), { requireDatabase: true })
const log = openLogger({ level: 'info', name: 'follower', warnStack: true })
const runtime = await openRuntime({ config, log, name: 'follower', worker: true })
const consumers = await openConsumers(runtime, [
  {
    name: 'seen',
    wants: () => ({ collections: ['thing'] }),
    onFailure: 'set-aside',
    handle: async (tx, { events }) => {
      const positions = events.map(({ position }) => position)
      await tx.any(rawQuery('insert into seen (position) select * from unnest($1::bigint[])', [positions]))
      if (events.length > 1 && Math.random() < 0.01) throw new Error('not today')
      return undefined
    },
  },
])
process.once('SIGTERM', async () => {
  await consumers.stop(5000)
  await runtime.close()
})
log.info('ready')
