import { parseArgs } from 'node:util'
import { resumeEffects } from '../features/operations/backup/backup.ts'
import type { Command } from './command.ts'
import { withRuntime } from './runtime.ts'

export const usage = `Usage: daybook resume
  Ends the hold of daybook restore --hold: from now on mails are sent, webhooks are called, and schedules, workflows and tasks
  run, waiting ones too.
`

export const run: Command = async (args) => {
  parseArgs({ args: [...args], options: {} })
  return withRuntime(async (runtime) => {
    const wasHeld = await resumeEffects(runtime)
    process.stdout.write(wasHeld ? 'resumed\n' : 'nothing was held\n')
  })
}
