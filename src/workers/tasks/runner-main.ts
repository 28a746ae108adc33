import { readdirSync } from 'node:fs'
import { enableCompileCache, flushCompileCache } from 'node:module'
import { constants, getPriority, setPriority } from 'node:os'
import { compiledDirectory } from '../../process/start-up.ts'
import { yieldingFlag } from './protocol.ts'

/** On Linux about a tenth of the time that a busy process without them gets. */
const stepsBehind = 10

/*
 * Where a runner starts. A task may end it at any time and the next one must not wait long, so what has been compiled
 * once is kept: it halves the processor time of a start. Where the directory cannot be written, nothing is kept.
 */
if (process.argv.includes(yieldingFlag)) yieldProcessors()
enableCompileCache(compiledDirectory)
await import('./runner-process.ts')
// Now, because a runner is ended by SIGKILL.
flushCompileCache()

/** Before anything else, because the start takes more processor time than most tasks. There is no way back. */
function yieldProcessors(): void {
  // On Linux a priority is one thread's own, and inherited by those that it starts: V8 has started some already.
  const threads = process.platform === 'linux' ? readdirSync('/proc/self/task').map(Number) : [process.pid]
  for (const thread of threads)
    setPriority(thread, Math.min(getPriority(thread) + stepsBehind, constants.priority.PRIORITY_LOW))
}
