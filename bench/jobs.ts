import pino from 'pino'
import { parseConfig } from '../src/config/config.ts'
import { rawQuery } from '../src/db/sql.ts'
import { commit } from '../src/events/commit.ts'
import { enqueue } from '../src/events/jobs.ts'
import { systemActor } from '../src/events/types.ts'
import { openRuntime, type Runtime } from '../src/process/runtime.ts'
import { runQueue } from '../src/workers/loop.ts'
import type { Prepared } from './daybook.ts'
import type { Figure } from './figures.ts'
import { quantile } from './rounds.ts'

type JobSizes = {
  readonly jobs: number
  /** Jobs of one transaction. */
  readonly perCommit: number
  /** Transactions at the same time. */
  readonly producers: number
  /** Jobs that run at the same time. */
  readonly concurrency: number
  /** Jobs whose start is timed. */
  readonly timed: number
}

const whole: JobSizes = { jobs: 30_000, perCommit: 100, producers: 2, concurrency: 500, timed: 500 }
const quick: JobSizes = { ...whole, jobs: 5_000, timed: 100 }
const queue = 'mail'

/**
 * W13: jobs from `commit` through the loop of the workers to `completed`, and how soon one starts, on a database whose
 * queue `mail` no other worker serves.
 *
 * @throws {Error} when a job was run twice, or is not completed at the end
 */
export async function measureJobs({ env }: Prepared, isQuick: boolean): Promise<readonly Figure[]> {
  const sizes = isQuick ? quick : whole
  const log = pino({ level: 'warn' }, pino.destination(2))
  const runtime = await openRuntime({ config: parseConfig(env), log, name: 'bench jobs', worker: true })
  try {
    await measureThroughput(runtime, { ...sizes, jobs: Math.ceil(sizes.jobs / 10) })
    const perSecond = await measureThroughput(runtime, sizes)
    const drained = await measureDrain(runtime, sizes)
    const starts = await measureStarts(runtime, sizes.timed)
    return [
      figure('jobs, enqueue to completed', 'jobs/s', perSecond),
      figure('jobs that all wait before the loop begins', 'jobs/s', drained),
      figure('jobs, enqueue to start, p50', 'ms', quantile(starts, 0.5)),
      figure('jobs, enqueue to start, p99', 'ms', quantile(starts, 0.99)),
    ]
  } finally {
    await runtime.close()
  }
}

const figure = (title: string, unit: string, daybook: number): Figure => ({ id: 'W13', title, unit, daybook })

/** Jobs per second from the first commit to the last outcome in the database, while others are still enqueued. */
async function measureThroughput(runtime: Runtime, sizes: JobSizes): Promise<number> {
  const run = serve(runtime, sizes)
  const began = performance.now()
  await produce(runtime, sizes)
  return run.finish(began)
}

async function measureDrain(runtime: Runtime, sizes: JobSizes): Promise<number> {
  await produce(runtime, sizes)
  const began = performance.now()
  return serve(runtime, sizes).finish(began)
}

/** Milliseconds from the call of `commit` to the handler, one job at a time; ascending. */
async function measureStarts(runtime: Runtime, times: number): Promise<Float64Array> {
  const waits: number[] = []
  let started = Promise.withResolvers<number>()
  const run = runQueue(runtime, { queue, concurrency: 5, handler: async () => started.resolve(performance.now()) })
  for (let n = 0; n < times; n += 1) {
    started = Promise.withResolvers()
    const began = performance.now()
    await enqueueJobs(runtime, 1)
    waits.push((await started.promise) - began)
  }
  await run.stop(10_000)
  await forget(runtime)
  return Float64Array.from(waits).sort()
}

/** The loop with a handler that only counts. */
function serve(runtime: Runtime, { jobs, concurrency }: JobSizes) {
  const done = new Set<string>()
  const all = Promise.withResolvers<void>()
  const handler = async (_deps: unknown, { emailLogId }: { emailLogId: string }) => {
    if (done.has(emailLogId)) all.reject(new Error(`the job ${emailLogId} was run twice`))
    done.add(emailLogId)
    if (done.size === jobs) all.resolve()
  }
  const run = runQueue(runtime, { queue, concurrency, handler })
  return {
    /** Waits for the last outcome; gives jobs per second since `began`. */
    async finish(began: number): Promise<number> {
      await all.promise
      await run.stop(10_000)
      const seconds = (performance.now() - began) / 1000
      const states = await statesOf(runtime)
      if (states.get('completed') !== jobs || states.size > 1)
        throw new Error(`not completed: ${[...states].join('; ')}`)
      await forget(runtime)
      return jobs / seconds
    },
  }
}

async function produce(runtime: Runtime, { jobs, perCommit, producers }: JobSizes): Promise<void> {
  let left = jobs
  const producer = async () => {
    while (left > 0) {
      const count = Math.min(perCommit, left)
      left -= count
      await enqueueJobs(runtime, count)
    }
  }
  await Promise.all(Array.from({ length: producers }, producer))
}

/** As every change does it: in one transaction, with the NOTIFY that wakes the workers. */
async function enqueueJobs(runtime: Runtime, count: number): Promise<void> {
  const jobs = Array.from({ length: count }, () => ({ queue, data: { emailLogId: runtime.newId() } }) as const)
  await commit(runtime, systemActor, async (tx) => ({ result: await enqueue(runtime, tx, jobs) }))
}

async function statesOf(runtime: Runtime): Promise<Map<string, number>> {
  const rows = await runtime.db.any<{ state: string; count: number }>(
    rawQuery('select state::text, count(*)::int as count from pgboss.job where name = $1 group by 1', [queue]),
  )
  return new Map(rows.map(({ state, count }) => [state, count]))
}

async function forget(runtime: Runtime): Promise<void> {
  await (await runtime.boss()).deleteAllJobs(queue)
}
