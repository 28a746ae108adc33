import { parseArgs } from 'node:util'
import { launch } from '../launcher/launch.ts'
import { exitWithParent } from '../process/start-up.ts'
import type { Command } from './command.ts'

export const usage = `Usage: daybook start
  Runs PostgreSQL (unless DATABASE_URL names a server), setup, the web process and the workers that have work, and prints the address.
  It keeps its data in DAYBOOK_DATA_DIR (./.daybook). Ctrl-C stops everything.
`

/** The whole platform by one command (docs/install.md). */
export const run: Command = async (args) => {
  parseArgs({ args: [...args], options: {} })
  exitWithParent()
  process.exit(await launch(process.cwd(), process.env))
}
