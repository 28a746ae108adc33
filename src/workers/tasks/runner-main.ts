import { flushCompileCache } from 'node:module'
import { yieldProcessors } from '../../language/child-process.ts'
import { startSmall } from '../../process/start-up.ts'
import { yieldingFlag } from './protocol.ts'

/*
 * Where a runner starts. A task may end it at any time and the next one must not wait long, so what has been compiled
 * once is kept: it halves the processor time of a start. Where the directory cannot be written, nothing is kept.
 */
if (process.argv.includes(yieldingFlag)) yieldProcessors()
startSmall()
await import('./runner-process.ts')
// Now, because a runner is ended by SIGKILL.
flushCompileCache()
