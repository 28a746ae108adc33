import { enableCompileCache, flushCompileCache } from 'node:module'
import { join } from 'node:path'

/*
 * Where a runner starts. A task may end it at any time and the next one must not wait long, so what has been compiled
 * once is kept: it halves the processor time of a start. Where the directory cannot be written, nothing is kept.
 */
enableCompileCache(join(import.meta.dirname, '../../../node_modules/.cache/daybook'))
await import('./runner-process.ts')
// Now, because a runner is ended by SIGKILL.
flushCompileCache()
