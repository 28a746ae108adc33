import { pipeline } from 'node:stream/promises'
import { systemActor } from '../events/types.ts'
import { type CommandModule, readOptions } from './command.ts'
import { withRuntime } from './installation.ts'

const eraseUsage = `Usage: daybook erase --collection NAME --id ID
  Erases the recorded values of one item from the log, permanently. The item itself is not touched.
`

/** Erases the recorded values of one item from the log (docs/history.md). The actor is the platform: the caller has the database. */
export const erase: CommandModule = {
  usage: eraseUsage,
  run: (args) => {
    const { collection, id } = readOptions('daybook erase', args, ['collection', 'id'])
    return withRuntime(async (runtime) => {
      const { eraseItem } = await import('../features/data/history/history.ts')
      const events = await eraseItem(runtime, systemActor, collection, id)
      process.stdout.write(`${events} events erased\n`)
    })
  },
}

const exportUserUsage = `Usage: daybook export-user --id ID
  Writes everything that the log holds about a user to standard output, one JSON object a line.
`

/** Everything that the log holds about a user, one JSON object a line (docs/history.md). */
export const userExport: CommandModule = {
  usage: exportUserUsage,
  run: (args) => {
    const { id } = readOptions('daybook export-user', args, ['id'])
    return withRuntime(async (runtime) => {
      const { exportUser } = await import('../features/data/history/history.ts')
      await pipeline(await exportUser(runtime, id), process.stdout, { end: false })
    })
  },
}
