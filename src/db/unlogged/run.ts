import type { UnloggedWrites } from '../sql.ts'
import { writePoolOf } from '../write-pool.ts'

/**
 * The second door for writes: statements for state that is no event and no concern of the log. Every
 * one of them is in this directory, each a conditional statement of its own, so two processes may run it at once.
 */
export async function run<Row>(deps: UnloggedWrites, text: string, values: readonly unknown[]): Promise<Row[]> {
  return writePoolOf(deps).hot.run(text, values, 'prepared') as Promise<Row[]>
}
