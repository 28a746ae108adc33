import { parseArgs } from 'node:util'
import { type SetupResult, setupProcess } from '../setup.ts'
import type { Command } from './command.ts'
import { onInstallation } from './installation.ts'

export const usage = `Usage: daybook setup [--json]
  The release step: brings the database to this version, before its processes start. It may run any number of times and in
  parallel, beside the processes of the version before. The first one makes the administrator and shows the password, once.
  --json   the administrator as JSON
`

export const run: Command = (args) => {
  const { json } = parseArgs({ args: [...args], options: { json: { type: 'boolean' } } }).values
  const tell = (result: SetupResult) => process.stdout.write(json ? `${JSON.stringify(result)}\n` : linesOf(result))
  return onInstallation((env) => setupProcess(() => env, tell), { create: true })
}

function linesOf({ admin }: SetupResult): string {
  if (admin === undefined) return ''
  const password = admin.password === null ? 'as in ADMIN_PASSWORD' : `${admin.password}   (shown only this once)`
  return `Administrator  ${admin.email}\nPassword       ${password}\n`
}
