import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { parseConfig } from '../src/config.ts'
import { startEmbedded } from '../src/db/embedded.ts'
import { rawQuery } from '../src/db/sql.ts'
import { commit } from '../src/events/commit.ts'
import { enqueue } from '../src/events/jobs.ts'
import { systemActor } from '../src/events/types.ts'
import { openRuntime, type Runtime } from '../src/runtime.ts'
import { runSetup } from '../src/setup.ts'
import { runQueue } from '../src/workers/loop.ts'

/*
 * W13: jobs from `commit` through the loop of the workers to `completed`, and how soon one starts. `node bench/jobs.ts`
 * runs it alone, on an embedded PostgreSQL or on the empty database that BENCH_DATABASE_URL names.
 */

export type JobFigures = {
  readonly jobs: number
  /** From the first commit to the last outcome in the database, while others are still enqueued. */
  readonly jobsPerSecond: number
  /** The same for jobs that all wait before the loop begins. */
  readonly drainedPerSecond: number
  /** Milliseconds from the call of `commit` to the handler, one job at a time. */
  readonly startP50: number
  readonly startP99: number
}

export type JobSizes = {
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

const defaults: JobSizes = { jobs: 30_000, perCommit: 100, producers: 2, concurrency: 500, timed: 500 }
const queue = 'mail'

/**
 * Measures on a database that `runSetup` has prepared, whose queue `mail` nobody else serves.
 *
 * @throws {Error} when a job was run twice, or is not completed at the end
 */
export async function measureJobs(databaseUrl: string, sizes: Partial<JobSizes> = {}): Promise<JobFigures> {
  const all = { ...defaults, ...sizes }
  const config = configOf(databaseUrl)
  const rt = await openRuntime({ config, log: quiet(), name: 'bench jobs', worker: true })
  try {
    await measureThroughput(rt, { ...all, jobs: Math.ceil(all.jobs / 10) })
    const jobsPerSecond = await measureThroughput(rt, all)
    const drainedPerSecond = await measureDrain(rt, all)
    const starts = await measureStarts(rt, all.timed)
    return { jobs: all.jobs, jobsPerSecond, drainedPerSecond, startP50: at(starts, 0.5), startP99: at(starts, 0.99) }
  } finally {
    await rt.close()
  }
}

async function measureThroughput(rt: Runtime, sizes: JobSizes): Promise<number> {
  const run = serve(rt, sizes)
  const began = performance.now()
  await produce(rt, sizes)
  return run.finish(began)
}

async function measureDrain(rt: Runtime, sizes: JobSizes): Promise<number> {
  await produce(rt, sizes)
  const began = performance.now()
  return serve(rt, sizes).finish(began)
}

async function measureStarts(rt: Runtime, times: number): Promise<number[]> {
  const waits: number[] = []
  let started = Promise.withResolvers<number>()
  const run = runQueue(rt, { queue, concurrency: 5, handler: async () => started.resolve(performance.now()) })
  for (let n = 0; n < times; n += 1) {
    started = Promise.withResolvers()
    const began = performance.now()
    await enqueueJobs(rt, 1)
    waits.push((await started.promise) - began)
  }
  await run.stop(10_000)
  await forget(rt)
  return waits.sort((a, b) => a - b)
}

/** The loop with a handler that only counts. */
function serve(rt: Runtime, { jobs, concurrency }: JobSizes) {
  const done = new Set<string>()
  const all = Promise.withResolvers<void>()
  const handler = async (_rt: Runtime, { emailLogId }: { emailLogId: string }) => {
    if (done.has(emailLogId)) all.reject(new Error(`the job ${emailLogId} was run twice`))
    done.add(emailLogId)
    if (done.size === jobs) all.resolve()
  }
  const run = runQueue(rt, { queue, concurrency, handler })
  return {
    /** Waits for the last outcome; gives jobs per second since `began`. */
    async finish(began: number): Promise<number> {
      await all.promise
      await run.stop(10_000)
      const seconds = (performance.now() - began) / 1000
      const states = await statesOf(rt)
      if (states.get('completed') !== jobs || states.size > 1)
        throw new Error(`not completed: ${[...states].join('; ')}`)
      await forget(rt)
      return jobs / seconds
    },
  }
}

async function produce(rt: Runtime, { jobs, perCommit, producers }: JobSizes): Promise<void> {
  let left = jobs
  const producer = async () => {
    while (left > 0) {
      const count = Math.min(perCommit, left)
      left -= count
      await enqueueJobs(rt, count)
    }
  }
  await Promise.all(Array.from({ length: producers }, producer))
}

/** As every change does it: in one transaction, with the NOTIFY that wakes the workers. */
async function enqueueJobs(rt: Runtime, count: number): Promise<void> {
  const jobs = Array.from({ length: count }, () => ({ queue, data: { emailLogId: rt.newId() } }) as const)
  await commit(rt, systemActor, async (tx) => ({ result: await enqueue(rt.boss, tx, jobs) }))
}

async function statesOf(rt: Runtime): Promise<Map<string, number>> {
  const rows = await rt.db.any<{ state: string; count: number }>(
    rawQuery('select state::text, count(*)::int as count from pgboss.job where name = $1 group by 1', [queue]),
  )
  return new Map(rows.map(({ state, count }) => [state, count]))
}

async function forget(rt: Runtime): Promise<void> {
  await rt.boss.deleteAllJobs(queue)
}

function at(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}

function configOf(databaseUrl: string) {
  const env = { NODE_ENV: 'production', DATABASE_URL: databaseUrl, SECRET_KEY: 'of no worth: the bench serves nobody' }
  return parseConfig(env, { requireDatabase: true })
}

function quiet() {
  return pino({ level: 'warn' }, pino.destination(2))
}

/** An embedded server for the time of a run. */
async function withDatabase<Result>(work: (url: string) => Promise<Result>): Promise<Result> {
  const given = process.env.BENCH_DATABASE_URL
  if (given !== undefined) return work(given)
  const dataDir = await mkdtemp(join(tmpdir(), 'daybook-bench-jobs-'))
  // Open to the server's own OS user, or its data would be kept elsewhere.
  await chmod(dataDir, 0o755)
  const server = await startEmbedded({ dataDir, log: quiet() })
  try {
    return await work(server.url)
  } finally {
    await server.stop('immediate')
    await rm(dataDir, { recursive: true })
  }
}

if (import.meta.main) {
  const figures = await withDatabase(async (url) => {
    await runSetup(configOf(url), quiet())
    return measureJobs(url)
  })
  process.stdout.write(`${JSON.stringify(figures, undefined, 2)}\n`)
}
