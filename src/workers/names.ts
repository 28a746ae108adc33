/** The worker processes by name. Apart from their code, so that who only starts them need not load it. */
export const workerNames = ['mail', 'tasks', 'log-cleanup', 'cache-invalidation'] as const
export type WorkerName = (typeof workerNames)[number]
