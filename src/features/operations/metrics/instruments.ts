import { type Metrics, openMetrics } from '../../../adapters/metrics.ts'

/** Durations that are measured while the work happens; all other metrics are read at the scrape. Seconds everywhere. */
type Instruments = {
  readonly metrics: Metrics
  /** `route` is the pattern, never what was asked for: a label with values of clients would grow without bound. */
  request(method: string, route: string | undefined, status: number, seconds: number): void
  job(queue: string, outcome: 'completed' | 'failed' | 'given up', seconds: number): void
  task(outcome: string, seconds: number): void
  workflow(outcome: 'over' | 'waiting' | 'stopped' | 'lost', seconds: number): void
}

/** The figures of this process. */
export type Meters = { readonly instruments: Instruments }

export function openInstruments(): Instruments {
  const metrics = openMetrics()
  const request = metrics.histogram(
    {
      name: 'http_request_duration_seconds',
      help: 'Time from the arrival of a request to the last byte of its answer, by route pattern.',
      labelNames: ['method', 'route', 'status'],
    },
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
  )
  const job = metrics.histogram(
    {
      name: 'daybook_job_duration_seconds',
      help: 'Time of one attempt at a job, by queue and outcome.',
      labelNames: ['queue', 'outcome'],
    },
    [0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 1800],
  )
  const task = metrics.histogram(
    {
      name: 'daybook_task_duration_seconds',
      help: 'Time of one attempt at a task, by outcome.',
      labelNames: ['outcome'],
    },
    [0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400],
  )
  const workflow = metrics.histogram(
    {
      name: 'daybook_workflow_duration_seconds',
      help: 'Time for which a process worked on an execution of a workflow, until it was over or waited, by outcome.',
      labelNames: ['outcome'],
    },
    [0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300],
  )
  return {
    metrics,
    request: (method, route = 'unmatched', status, seconds) => request({ method, route, status }, seconds),
    job: (queue, outcome, seconds) => job({ queue, outcome }, seconds),
    task: (outcome, seconds) => task({ outcome }, seconds),
    workflow: (outcome, seconds) => workflow({ outcome }, seconds),
  }
}
