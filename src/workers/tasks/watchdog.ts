import { isMainThread, Worker, workerData } from 'node:worker_threads'

/*
 * A thread beside the handlers of a runner. It sees what they can hide by never yielding: that the worker is gone, and
 * that memory runs out which the heap's own limit does not count, such as buffers.
 */

const lookMs = 100

/** Ends this process at once when its parent has, or when it takes more memory than that. */
export function watchOver(memoryLimitMb: number): void {
  new Worker(new URL(import.meta.url), {
    workerData: { parent: process.ppid, memoryLimit: memoryLimitMb * 1_048_576 },
    execArgv: [],
  }).unref()
}

if (!isMainThread && workerData?.parent !== undefined) {
  const { parent, memoryLimit } = workerData as { parent: number; memoryLimit: number }
  setInterval(() => {
    const isOrphan = process.ppid !== parent
    const isTooLarge = process.memoryUsage.rss() > memoryLimit
    if (isOrphan || isTooLarge) process.kill(process.pid, 'SIGKILL')
  }, lookMs)
}
