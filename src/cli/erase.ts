import { systemActor } from '../events/types.ts'
import { eraseItem } from '../features/data/history/history.ts'
import { type Command, readOptions } from './command.ts'
import { withRuntime } from './runtime.ts'

export const usage = `Usage: daybook erase --collection NAME --id ID
  Erases the images of one item from the log, for ever. The item itself is not touched.
`

/** Erases the images of one item from the log (docs/history.md). The actor is the platform: who runs this has the database. */
export const run: Command = (args) => {
  const { collection, id } = readOptions(usage, args, ['collection', 'id'])
  return withRuntime(async (runtime) => {
    const events = await eraseItem(runtime, systemActor, collection, id)
    process.stdout.write(`${events} events erased\n`)
  })
}
