import { parseArgs } from 'node:util'
import { startSmall } from '../process/start-up.ts'
import { workerNames } from '../workers/names.ts'
import { type CommandModule, UsageError } from './command.ts'
import { joinInstallation } from './installation.ts'

/* The processes of an installation. Each loads its program after it has joined the installation. */

export const web: CommandModule = {
  usage: `Usage: daybook web
  One web process: HTTP and sockets, at HOST and PORT. SIGTERM lets it answer what it has begun. Any number may run.
`,
  run: async (args) => {
    parseArgs({ args: [...args], options: {} })
    await joinInstallation()
    await import('../api/main.ts')
    return Number(process.exitCode ?? 0)
  },
}

const workerUsage = `Usage: daybook worker <name>
  One worker process; any number of each may run. SIGTERM lets it finish what it has begun.
  mail                 sends mail
  tasks                runs tasks and schedules, with TASK_SERVICE_ENABLED=true
  log-cleanup          makes partitions of the log ahead of time, deletes old and expired rows, seals the log
  cache-invalidation   deletes stale answers from a shared cache
  webhooks             delivers changes to webhooks
  workflows            runs workflows
`

export const worker: CommandModule = {
  usage: workerUsage,
  run: async (args) => {
    const { positionals } = parseArgs({ args: [...args], options: {}, allowPositionals: true })
    const [name = '', ...more] = positionals
    if (!workerNames.some((known) => known === name) || more.length > 0) throw new UsageError(workerUsage)
    await joinInstallation()
    startSmall()
    const { workerProcess } = await import('../workers/worker.ts')
    await workerProcess(name)
    return Number(process.exitCode ?? 0)
  },
}
