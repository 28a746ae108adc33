#!/usr/bin/env node
import { enableCompileCache } from 'node:module'
import { ConfigError } from '../config/config.ts'
import { AppError } from '../errors.ts'
import { compiledDirectory } from '../process/start-up.ts'
import { type Command, UsageError } from './command.ts'

/** THE list: every command of `npx daybook`, with the line that help prints. */
const commands: Readonly<Record<string, { readonly about: string; readonly load: () => Promise<{ run: Command }> }>> = {
  consumers: {
    about: 'list, reset, skip and retry: who follows the log, where they are, and what they have set aside',
    load: () => import('./consumers.ts'),
  },
  doctor: {
    about: 'checks configuration, database, Redis, SMTP and storage, and says how to mend what is wrong; --json',
    load: () => import('./doctor.ts'),
  },
  erase: {
    about: 'the images of one item in the log, for ever',
    load: () => import('./erase.ts'),
  },
  'export-user': {
    about: 'everything the log holds about a user, one JSON object a line',
    load: () => import('./export-user.ts'),
  },
  files: {
    about: 'verify: compares files with their content; migrate: moves them to another service or to folders',
    load: () => import('./files.ts'),
  },
  log: {
    about: 'tail, export, head and verify: the log of every change',
    load: () => import('./log.ts'),
  },
  migrate: {
    about: 'status, run, rollback, create and lint: the migrations of this installation',
    load: () => import('./migrate.ts'),
  },
  types: {
    about: 'the collections as TypeScript, for the client: of this installation, a server or a file of definitions',
    load: () => import('./types.ts'),
  },
}

async function main([name = 'help', ...args]: readonly string[]): Promise<number> {
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (command !== undefined) return (await command.load()).run(args)
  process.stderr.write(help())
  return ['help', '--help', '-h'].includes(name) ? 0 : 2
}

function help(): string {
  const lines = Object.entries(commands).map(([name, { about }]) => `  daybook ${name.padEnd(12)} ${about}`)
  return ['Usage:', ...lines, ''].join('\n')
}

// Before a command is loaded, which is most of what it takes.
enableCompileCache(compiledDirectory)
try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  // An argument that node:util does not know is the caller's slip as well.
  const isUsage = error instanceof UsageError || String((error as { code?: string }).code).startsWith('ERR_PARSE_ARGS')
  const isKnown = isUsage || error instanceof AppError || error instanceof ConfigError
  const details = error instanceof AppError && typeof error.details === 'string' ? ` (${error.details})` : ''
  process.stderr.write(`${isKnown ? (error as Error).message + details : (error as Error).stack}\n`)
  process.exitCode = isUsage ? 2 : 1
}
