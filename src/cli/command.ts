import { parseArgs } from 'node:util'
import { nearName } from '../language/text.ts'

/**
 * Runs with the arguments after its name. Writes its result to standard output, everything else to standard error.
 * Resolves to the exit code; 1 is for failures and 2 for wrong usage in every command.
 */
export type Command = (args: readonly string[]) => Promise<number>

/** A command: the exports of a file of this folder, or one of several in it. */
export type CommandModule = {
  readonly run: Command
  /** The text of `--help`. */
  readonly usage: string
}

/** An argument that makes no sense; the message says what would. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** Of a word that names no command, or of none, below `parent` (`daybook`, `daybook migrate`). */
export function unknownCommand(parent: string, given: string | undefined, known: readonly string[]): UsageError {
  const help = `${parent} --help says more`
  if (!given) return new UsageError(`${parent} needs one of ${known.join(', ')}. ${help}`)
  const near = nearName(given, known)
  const hint = near === undefined ? '' : `: did you mean ${near}?`
  return new UsageError(`unknown command ${parent} ${given}${hint || '.'} ${help}`)
}

/** Of what a command lacks or has too much of: `needs --to`. */
export const misuse = (command: string, problem: string): UsageError =>
  new UsageError(`${command} ${problem}. ${command.split(' ').slice(0, 2).join(' ')} --help says more`)

/** The values of options that a command needs, all of them and no others. Throws {@link UsageError}. */
export function readOptions<Name extends string>(
  command: string,
  args: readonly string[],
  names: readonly Name[],
): Readonly<Record<Name, string>> {
  const options = Object.fromEntries(names.map((name) => [name, { type: 'string' as const }]))
  const values = parseArgs({ args: [...args], options }).values as Partial<Record<Name, string>>
  if (names.every((name) => values[name])) return values as Record<Name, string>
  const missing = names.filter((name) => !values[name]).map((name) => `--${name}`)
  throw misuse(command, `needs ${missing.join(' and ')}`)
}
