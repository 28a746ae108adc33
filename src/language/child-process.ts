import { readdirSync } from 'node:fs'
import { constants, getPriority, setPriority } from 'node:os'
import { extname, join } from 'node:path'

/** On Linux about a tenth of the time that a busy process without them gets. */
const stepsBehind = 10

/**
 * Lets this process take the processors only where others leave them. Before anything else, because the start of a process
 * takes time, too. There is no way back.
 */
export function yieldProcessors(): void {
  // On Linux a priority is one thread's own, and inherited by those that it starts: V8 has started some already.
  const threads = process.platform === 'linux' ? readdirSync('/proc/self/task').map(Number) : [process.pid]
  for (const thread of threads)
    setPriority(thread, Math.min(getPriority(thread) + stepsBehind, constants.priority.PRIORITY_LOW))
}

const extension = extname(import.meta.filename)

/**
 * The file of a module that a process or a thread starts with, by its name without an extension: `.ts` in a checkout,
 * `.js` in the package, where the compiler rewrites nothing but imports.
 */
export function moduleFile(directory: string, name: string): string {
  return join(directory, `${name}${extension}`)
}
