import type { QueueName } from '../events/jobs.ts'
import type { Runtime } from '../runtime.ts'

type Beating = { readonly id: string; readonly retryCount: number; readonly heartbeatSeconds: number | null }

/**
 * Says of running jobs that they run, where their queue asks for it: a job whose process has died is given to another
 * one after `heartbeatSeconds`, long before its time limit. Signs name the attempt, so a zombie's count for nothing.
 */
export function openHeartbeat(rt: Runtime, queue: QueueName, everyMs: number) {
  const beating = new Set<Beating>()
  const beat = async () => {
    if (beating.size === 0) return
    try {
      await rt.boss.touch(
        queue,
        [...beating].map(({ id, retryCount }) => ({ id, retryCount })),
      )
    } catch (error) {
      rt.log.warn({ err: error, queue }, 'running jobs could give no sign of life')
    }
  }
  const timer = setInterval(beat, everyMs)
  timer.unref()
  return {
    begin(job: Beating) {
      if (job.heartbeatSeconds !== null) beating.add(job)
    },
    end: (job: Beating) => void beating.delete(job),
    stop: () => clearInterval(timer),
  }
}
