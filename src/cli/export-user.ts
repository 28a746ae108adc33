import { pipeline } from 'node:stream/promises'
import { exportUser } from '../features/data/history/history.ts'
import { type Command, readOptions } from './command.ts'
import { withRuntime } from './runtime.ts'

export const usage = `Usage: daybook export-user --id ID
  Writes everything that the log holds about a user to standard output, one JSON object a line.
`

/** Everything that the log holds about a user, one JSON object a line (docs/history.md). */
export const run: Command = (args) => {
  const { id } = readOptions(usage, args, ['id'])
  return withRuntime(async (runtime) => pipeline(await exportUser(runtime, id), process.stdout, { end: false }))
}
