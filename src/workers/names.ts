import { isShared } from '../cache/result-cache.ts'
import type { Config } from '../config/config.ts'

/** The worker processes by name. Apart from their code, so that a launcher need not load it. */
export const workerNames = ['mail', 'tasks', 'log-cleanup', 'cache-invalidation', 'webhooks', 'workflows'] as const
export type WorkerName = (typeof workerNames)[number]

/** Those that this configuration has work for; the others would only wait, each with a process of its own. */
export function workersWithWork(config: Config): readonly WorkerName[] {
  const idle = {
    tasks: !config.tasks.enabled,
    workflows: !config.workflows.enabled,
    'cache-invalidation': !isShared(config),
  }
  return workerNames.filter((name) => !(name in idle && idle[name as keyof typeof idle]))
}
