import { parseArgs } from 'node:util'
import { exitWithParent } from '../process/start-up.ts'
import type { SetupResult } from '../setup/setup.ts'
import { workerNames } from '../workers/names.ts'
import { type CommandModule, misuse, unknownCommand } from './command.ts'
import { joinInstallation, onInstallation } from './installation.ts'

/* The processes of an installation, one by one and all at once. A command loads the program of its process when it runs. */

/** The whole platform by one command (docs/install.md). */
export const start: CommandModule = {
  usage: `Usage: daybook start
  Runs PostgreSQL (unless DATABASE_URL names a server), setup, the web process and the workers that have work, and prints the address.
  It keeps its data in DAYBOOK_DATA_DIR (./.daybook). Ctrl-C stops everything.
`,
  run: async (args) => {
    parseArgs({ args: [...args], options: {} })
    exitWithParent()
    const { launch } = await import('../launcher/launch.ts')
    process.exit(await launch(process.cwd(), process.env))
  },
}

export const setup: CommandModule = {
  usage: `Usage: daybook setup [--json]
  The release step: brings the database to this version, before its processes start. It may run any number of times and in
  parallel, beside the processes of the version before. The first one makes the administrator and shows the password, once.
  --json   the administrator as JSON
`,
  run: async (args) => {
    const { json } = parseArgs({ args: [...args], options: { json: { type: 'boolean' } } }).values
    const tell = (result: SetupResult) => process.stdout.write(json ? `${JSON.stringify(result)}\n` : linesOf(result))
    const { setupProcess } = await import('../setup/setup.ts')
    return onInstallation((env) => setupProcess(() => env, tell), { create: true })
  },
}

function linesOf({ admin }: SetupResult): string {
  if (admin === undefined) return ''
  const password = admin.password === null ? 'as in ADMIN_PASSWORD' : `${admin.password}   (shown only this once)`
  return `Administrator  ${admin.email}\nPassword       ${password}\n`
}

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
    if (!workerNames.some((known) => known === name)) throw unknownCommand('daybook worker', name, workerNames)
    if (more.length > 0) throw misuse('daybook worker', 'takes one name')
    await joinInstallation()
    const { workerProcess } = await import('../workers/worker.ts')
    await workerProcess(name)
    return Number(process.exitCode ?? 0)
  },
}
