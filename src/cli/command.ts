/**
 * Runs with the arguments after its name. Writes its result to standard output, everything else to standard error.
 * Resolves to the exit code; 1 is for failures and 2 for wrong usage in every command.
 */
export type Command = (args: readonly string[]) => Promise<number>

/** An argument that makes no sense; the message says what would. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}
