import { parseArgs } from 'node:util'
import { UsageError } from './command.ts'

/** The values of options that a command needs, all of them and no others. Throws {@link UsageError}. */
export function readOptions<Name extends string>(
  command: string,
  args: readonly string[],
  names: readonly Name[],
): Readonly<Record<Name, string>> {
  const options = Object.fromEntries(names.map((name) => [name, { type: 'string' as const }]))
  const values = parseArgs({ args: [...args], options }).values as Partial<Record<Name, string>>
  if (names.every((name) => values[name])) return values as Record<Name, string>
  throw new UsageError(`Usage: ${[command, ...names.map((name) => `--${name} …`)].join(' ')}`)
}
