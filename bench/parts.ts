import { existsSync } from 'node:fs'
import type { Figure } from './figures.ts'

/** W13, where the part that measures it is there. */
export async function measureQueue(databaseUrl: string, quick: boolean): Promise<readonly Figure[]> {
  const file = new URL('./jobs.ts', import.meta.url)
  if (!existsSync(file)) return []
  const { measureJobs } = await import(file.href)
  const took = await measureJobs(databaseUrl, quick ? { jobs: 5_000, timed: 100 } : {})
  const figure = (title: string, unit: string, daybook: number): Figure => ({ id: 'W13', title, unit, daybook })
  return [
    figure('jobs, enqueue to completed', 'jobs/s', took.jobsPerSecond),
    figure('jobs, enqueue to start, p50', 'ms', took.startP50),
    figure('jobs, enqueue to start, p99', 'ms', took.startP99),
  ]
}
