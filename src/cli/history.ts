import { pipeline } from 'node:stream/promises'
import { openLogger } from '../adapters/logger.ts'
import type { Config } from '../config.ts'
import { systemActor } from '../events/types.ts'
import { eraseItem, exportUser } from '../features/history/history.ts'
import { openRuntime, type Runtime } from '../runtime.ts'
import type { Command } from './command.ts'

/** See docs/history.md. The actor is the platform itself: whoever may run this could change the database anyway. */
export const eraseCommand: Command = {
  doc: 'Erase the images of one item from the log, for ever',
  options: ['collection', 'id'],
  run: (config, { collection, id }) =>
    withRuntime(config, async (rt) => {
      const events = await eraseItem(rt, systemActor, collection!, id!)
      process.stdout.write(`${events} events erased\n`)
    }),
}

export const exportUserCommand: Command = {
  doc: 'Everything the log holds about a user, one JSON object a line',
  options: ['id'],
  run: (config, { id }) =>
    withRuntime(config, async (rt) => pipeline(await exportUser(rt, id!), process.stdout, { end: false })),
}

async function withRuntime(config: Config, work: (rt: Runtime) => Promise<void>): Promise<void> {
  const rt = await openRuntime({
    config,
    log: openLogger({ level: config.log.level, name: 'daybook', stderr: true }),
    name: 'cli',
    worker: false,
  })
  try {
    await work(rt)
  } finally {
    await rt.close()
  }
}
