import type { Config } from '../config.ts'

/** One command of `daybook`. Every option is required and has a value; errors end the process with their message. */
export type Command = {
  /** One line. */
  readonly doc: string
  readonly options: readonly string[]
  run(config: Config, options: Readonly<Record<string, string>>): Promise<void>
}
