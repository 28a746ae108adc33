import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import type { PgBoss } from 'pg-boss'
import type { Logger } from 'pino'
import { type Failures, openFailures } from '../adapters/failures.ts'
import { openLogger } from '../adapters/logger.ts'
import { ConfigError, type Configuration, loadEnv, parseConfig } from '../config/config.ts'
import { onceReached } from '../db/poolers/poolers.ts'
import { onceASecond } from '../db/rounds.ts'
import { sql } from '../db/sql.ts'
import { areEffectsHeld } from '../db/unlogged/holds.ts'
import { holdsMetricsToken, registerProcessGauges } from '../features/operations/metrics/metrics.ts'
import { createServer } from '../language/node-http.ts'
import { watchFaults } from '../process/faults.ts'
import { checkPart, readyDeadline } from '../process/readiness.ts'
import { openRuntime, type Runtime } from '../process/runtime.ts'
import { exitWithParent, growWithWork } from '../process/start-up.ts'
import type { OpenedService } from './capabilities.ts'
import { runQueue } from './loop.ts'
import { type WorkerName, workerNames } from './names.ts'
import { type QueueWorker, type Service, workers } from './workers.ts'

const unknownWorker = 2
const interrupted = 130
const jsonHeaders = { 'content-type': 'application/json; charset=utf-8', 'cache-control': 'no-store' }
/** The time for final messages and for closing, after the work has ended or had its time. */
const farewellMs = 10_000

/**
 * A worker process: `npx daybook worker <name>`. SIGTERM and SIGINT let running jobs finish for TASK_SHUTDOWN_WAIT_TIME and exit 0;
 * a second signal exits at once. A failure is told and ends the process with 1, so that whoever supervises it starts it again.
 */
export async function workerProcess(name: string): Promise<void> {
  if (isWorkerName(name)) return runWorker(name)
  process.stderr.write(`There is no worker ${JSON.stringify(name)}; there are: ${workerNames.join(', ')}\n`)
  process.exitCode = unknownWorker
}

function isWorkerName(text: string): text is WorkerName {
  return Object.hasOwn(workers, text)
}

async function runWorker(worker: WorkerName): Promise<void> {
  exitWithParent()
  let log = openLogger({ level: 'info', name: worker })
  try {
    const config = parseConfig(loadEnv(process.cwd(), process.env), { requireDatabase: true })
    log = openLogger({ level: config.log.level, name: worker, warnStack: config.log.warnStack })
    // The web process may run elsewhere, with other variables.
    for (const warning of config.warnings) log.warn(warning)
    // What it was doing is done again.
    watchFaults(log, () => process.exit(1))
    const stop = stopSignal()
    let begun = false
    // While nothing has begun, and what is not there may be waited for (a database, an extension), there is no reason to stay.
    void stop.then(() => begun || process.exit(0))
    void stop.then(() => endAfter(config.tasks.shutdownWaitSeconds * 1000 + farewellMs, log))
    const begin = () => {
      begun = true
    }
    const runtime = await openRuntime({ config, log, name: worker, worker: true })
    try {
      await serveMeasured({ stop, begin }, runtime, worker)
    } catch (error) {
      // First, because what is closed next may wait for what has failed.
      tellFailure(log, error)
      process.exitCode = 1
      void endAfter(farewellMs, log)
    }
    await runtime.close()
    // Requests to services that are silent have had their time, and whatever a failure has left open must not keep the process alive.
    process.exit()
  } catch (error) {
    tellFailure(log, error)
    process.exit(1)
  }
}

function tellFailure(log: Logger, error: unknown): void {
  if (error instanceof ConfigError) process.stderr.write(`${error.message}\n`)
  else log.fatal({ err: error }, `the worker failed: ${(error as Error).message}`)
}

async function endAfter(ms: number, log: Logger): Promise<void> {
  await delay(ms, undefined, { ref: false })
  log.error(`not everything has ended within ${ms} ms`)
  process.exit(1)
}

/** `begin` is called before the first work is done, `stop` resolves when no more is wanted. */
type Life = { readonly begin: () => void; readonly stop: Promise<void> }

async function serveMeasured(life: Life, runtime: Runtime, worker: WorkerName): Promise<void> {
  const services: OpenedService[] = []
  const metrics = await showMetrics(runtime, worker, services)
  try {
    await untilResumed(runtime, worker)
    await serveFor(life, runtime, workers[worker], services)
  } finally {
    await metrics?.close()
  }
}

/** Of what reaches others, or begins by itself. */
const heldBack: readonly WorkerName[] = ['mail', 'tasks', 'webhooks', 'workflows']
const heldLookMs = 1000

/** A copy of an installation was restored with `--hold`: it sends nothing to the outside until `daybook resume`. */
async function untilResumed(runtime: Runtime, worker: WorkerName): Promise<void> {
  const { reserved, log } = runtime
  const areHeld = () => onceReached(runtime, () => areEffectsHeld(reserved))
  if (!heldBack.includes(worker) || !(await areHeld())) return
  log.warn('this installation was restored with --hold: nothing is done until `daybook resume`')
  while (await areHeld()) await delay(heldLookMs)
  log.info('resumed')
}

async function serveFor(
  { begin, stop }: Life,
  runtime: Runtime,
  parts: readonly (QueueWorker | Service)[],
  services: OpenedService[],
): Promise<void> {
  const queues = parts.filter((part) => 'queue' in part)
  const stopping = new AbortController()
  void stop.then(() => stopping.abort())
  const step = <T>(work: () => Promise<T>) => onceReached({ ...runtime, signal: stopping.signal }, work)
  try {
    for (const part of parts)
      if ('service' in part) {
        services.push(await step(() => part.open(runtime)))
        begin()
      }
    begin()
    const boss = await step(runtime.boss)
    for (const queue of queues) await step(() => schedule(boss, runtime, queue))
  } catch (error) {
    await Promise.all(services.map((service) => service.stop(0)))
    // It was waiting for the database when it was told to stop.
    if (stopping.signal.aborted) return
    throw error
  }
  const runs = queues.map(({ queue, concurrency, schedule, scheduleOf, open }) => {
    const { close, ...opened } = open(runtime)
    const pollMs = schedule === undefined && scheduleOf === undefined ? undefined : scheduledPollMs
    return { ...runQueue(runtime, { queue, concurrency, ...(pollMs && { pollMs }), ...opened }), close }
  })
  growWithWork()
  runtime.log.info('ready')
  await stop
  runtime.log.info('stopping')
  await Promise.all([...runs, ...services].map((run) => run.stop(runtime.config.tasks.shutdownWaitSeconds * 1000)))
  for (const run of runs) run.close()
}

/** What comes by the minute at most may come some seconds late. */
const scheduledPollMs = 5000

/** Any number of processes may do it: a schedule is a row. One that was missed while no worker ran is made up for. */
async function schedule(boss: PgBoss, { config }: Configuration, worker: QueueWorker): Promise<void> {
  const { queue, scheduleOf, secondsAfterStart } = worker
  const cron = scheduleOf === undefined ? worker.schedule : scheduleOf(config)
  if (scheduleOf !== undefined && cron === undefined) await boss.unschedule(queue)
  if (cron !== undefined) await boss.schedule(queue, cron, {}, { tz: 'UTC', missed: 'once' })
  if (secondsAfterStart !== undefined) await boss.sendAfter(queue, {}, null, secondsAfterStart)
}

/** Resolves at the first signal. */
function stopSignal(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  let asked = false
  const onSignal = () => {
    if (asked) process.exit(interrupted)
    asked = true
    resolve()
  }
  process.on('SIGTERM', onSignal)
  process.on('SIGINT', onSignal)
  return promise
}

/**
 * `GET /health` and `GET /ready` of a worker process for anybody, and `GET /metrics` for the holder of METRICS_TOKEN: at METRICS_PORT for
 * the first worker of the list, one port further for each after it, so that all of them can run on one machine.
 * Undefined when it is not set. The web processes report the database's figures.
 */
async function showMetrics(
  runtime: Runtime,
  worker: WorkerName,
  services: readonly OpenedService[],
): Promise<{ close(): Promise<void> } | undefined> {
  const { metricsPort } = runtime.config.observability
  if (metricsPort === undefined) return undefined
  registerProcessGauges(runtime)
  const failures = openFailures(runtime, 'a readiness check failed')
  const parts = onceASecond(() => readiness(runtime, services, failures))
  const server = createServer({ requestTimeout: 5000, headersTimeout: 5000 }, (request, response) => {
    answer(runtime, parts, request, response).catch((error: unknown) => {
      runtime.log.error({ err: error }, 'the metrics could not be shown')
      response.destroy()
    })
  })
  const port = metricsPort === 0 ? 0 : metricsPort + workerNames.indexOf(worker)
  server.listen(port, runtime.config.server.host)
  await once(server, 'listening').catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError(`METRICS_PORT: ${runtime.config.server.host}:${port} cannot be listened at: ${error.message}`)
  })
  runtime.log.info({ port: (server.address() as AddressInfo).port }, 'metrics are shown')
  return {
    close: async () => {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

type ReadinessParts = Readonly<Record<string, { readonly ok: boolean }>>

/** The readiness of the process, part by part. */
async function readiness(
  { reserved }: Runtime,
  services: readonly OpenedService[],
  failures: Failures,
): Promise<ReadinessParts> {
  const parts: ReadinessParts[] = []
  const database = await checkPart(failures, readyDeadline(), async () => {
    await reserved.one(sql`select 1 as one`)
    parts.push(...(await Promise.all(services.map((service) => service.readiness?.() ?? {}))))
    return {}
  })
  return Object.assign({ database }, ...parts)
}

async function answer(
  { config, instruments }: Runtime,
  parts: () => Promise<ReadinessParts>,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const refuse = (status: number, message: string) =>
    response.writeHead(status, jsonHeaders).end(JSON.stringify({ error: { message } }))
  const path = request.url?.split('?', 1)[0]
  if (path !== '/metrics' && path !== '/ready' && path !== '/health') return void refuse(404, 'Not found')
  if (request.method !== 'GET') return void refuse(405, 'Only GET is answered here')
  // A process whose event loop turns is alive, whatever has become of its database.
  if (path === '/health') return void response.writeHead(200, jsonHeaders).end('{"status":"ok"}')
  if (path === '/ready') {
    const found = await parts()
    const isReady = Object.values(found).every(({ ok }) => ok)
    const body = JSON.stringify({ status: isReady ? 'ready' : 'not ready', ...found })
    return void response.writeHead(isReady ? 200 : 503, jsonHeaders).end(body)
  }
  if (!holdsMetricsToken(config, request.headers.authorization)) return void refuse(401, 'Authentication required')
  const { contentType, text } = await instruments.metrics.scrape()
  response.writeHead(200, { 'content-type': contentType, 'cache-control': 'no-store' }).end(text)
}
