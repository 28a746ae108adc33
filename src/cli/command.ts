import { parseArgs } from 'node:util'

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

/** The values of options that a command needs, all of them and no others. Throws {@link UsageError}. */
export function readOptions<Name extends string>(
  usage: string,
  args: readonly string[],
  names: readonly Name[],
): Readonly<Record<Name, string>> {
  const options = Object.fromEntries(names.map((name) => [name, { type: 'string' as const }]))
  const values = parseArgs({ args: [...args], options }).values as Partial<Record<Name, string>>
  if (names.every((name) => values[name])) return values as Record<Name, string>
  throw new UsageError(usage)
}
