import { Worker } from 'node:worker_threads'

/*
 * A thread beside what a child process does for its parent. It sees what that can hide by never yielding: that the parent
 * is gone, and that memory runs out which the heap's own limit does not count, such as buffers.
 */

const lookMs = 100

/** The signal that ends a process which takes too much memory, where its parent is to tell that from other ends. */
export const tooLargeSignal = 'SIGUSR2'

/** Ends this process at once when its parent has, or, by the signal, when it takes more memory than that. */
export function watchOver(memoryLimitMb: number, signal: NodeJS.Signals = 'SIGKILL'): void {
  const watched: Watched = { parent: process.ppid, memoryLimit: memoryLimitMb * 1_048_576, signal, lookMs }
  new Worker(`(${look})(${JSON.stringify(watched)})`, { eval: true, execArgv: [] }).unref()
}

type Watched = {
  readonly parent: number
  readonly memoryLimit: number
  readonly signal: NodeJS.Signals
  readonly lookMs: number
}

/**
 * The thread runs this as text, so it may name nothing of this file. As a file of a checkout it would load the compiler of types in
 * the thread once more, which took longer, and more memory, than the thread itself.
 */
function look({ parent, memoryLimit, signal, lookMs }: Watched): void {
  setInterval(() => {
    const isOrphan = process.ppid !== parent
    const isTooLarge = process.memoryUsage.rss() > memoryLimit
    if (isOrphan || isTooLarge) process.kill(process.pid, isOrphan ? 'SIGKILL' : signal)
  }, lookMs)
}
