#!/usr/bin/env node
import { parseArgs } from 'node:util'
import { loadEnv, parseConfig } from '../config.ts'
import type { Command } from './command.ts'
import { eraseCommand, exportUserCommand } from './history.ts'

/** THE list: every command, by its name. */
const commands: Readonly<Record<string, Command>> = {
  erase: eraseCommand,
  'export-user': exportUserCommand,
}

/** `daybook <command> --option value …`: exit code 0, 1 when the command failed, 2 when it was not understood. */
async function main([name = '', ...args]: readonly string[]): Promise<number> {
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  const options = command && readOptions(command, args)
  if (command === undefined || options === undefined) {
    process.stderr.write(usage())
    return 2
  }
  await command.run(parseConfig(loadEnv(process.cwd(), process.env), { requireDatabase: true }), options)
  return 0
}

/** Undefined unless every option is there and no other. */
function readOptions({ options }: Command, args: readonly string[]): Record<string, string> | undefined {
  const known = Object.fromEntries(options.map((option) => [option, { type: 'string' as const }]))
  try {
    const { values } = parseArgs({ args: [...args], options: known })
    return options.every((option) => values[option]) ? (values as Record<string, string>) : undefined
  } catch (error) {
    if (error instanceof TypeError) return undefined
    throw error
  }
}

function usage(): string {
  const lines = Object.entries(commands).map(([name, { options, doc }]) => {
    const call = [name, ...options.map((option) => `--${option} …`)].join(' ')
    return `  ${call.padEnd(36)}${doc}\n`
  })
  return `Usage: daybook <command>\n\n${lines.join('')}`
}

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  const { message, code } = error as Error & { code?: string }
  process.stderr.write(`${message || code}\n`)
  process.exitCode = 1
}
