import { parseArgs } from 'node:util'
import type { Command } from './command.ts'
import { joinInstallation } from './installation.ts'

export const usage = `Usage: daybook web
  One web process: HTTP and sockets, at HOST and PORT. SIGTERM lets it answer what it has begun. Any number may run.
`

export const run: Command = async (args) => {
  parseArgs({ args: [...args], options: {} })
  await joinInstallation()
  await import('../api/main.ts')
  return Number(process.exitCode ?? 0)
}
