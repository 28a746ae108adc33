import { ConfigError } from '../config/config.ts'
import { EmbeddedError } from '../db/embedded/host.ts'
import { AppError } from '../errors.ts'
import { version } from '../index.ts'
import { UsageError, unknownCommand } from './command.ts'
import { commands } from './commands.ts'

async function main([name = 'help', ...args]: readonly string[]): Promise<number> {
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  const asksForHelp = [name, ...args].some((word) => word === '--help' || word === '-h')
  if (command !== undefined) {
    const { run, usage } = await command.load()
    if (!asksForHelp) return run(args)
    process.stdout.write(usage)
    return 0
  }
  if (name === '--version') {
    process.stdout.write(`${version}\n`)
    return 0
  }
  if (!['help', '--help', '-h'].includes(name)) throw unknownCommand('daybook', name, Object.keys(commands))
  process.stdout.write(help())
  return 0
}

function help(): string {
  const lines = Object.entries(commands).map(([name, { about }]) => `  daybook ${name.padEnd(14)} ${about}`)
  return ['Usage:', ...lines, '', '`daybook <command> --help` says more.', ''].join('\n')
}

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  // An argument that node:util does not know is the caller's slip as well.
  const isUsage = error instanceof UsageError || String((error as { code?: string }).code).startsWith('ERR_PARSE_ARGS')
  // A file that is not there, or may not be read: Node names it.
  const isOfFile = 'syscall' in Object(error) && 'path' in Object(error)
  const isKnown = isUsage || isOfFile || [AppError, ConfigError, EmbeddedError].some((kind) => error instanceof kind)
  const details = error instanceof AppError && typeof error.details === 'string' ? ` (${error.details})` : ''
  process.stderr.write(`${isKnown ? (error as Error).message + details : (error as Error).stack}\n`)
  process.exitCode = isUsage ? 2 : 1
}
