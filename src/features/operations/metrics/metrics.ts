import { createHash, timingSafeEqual } from 'node:crypto'
import type { Logs } from '../../../adapters/logger.ts'
import { type Metrics, openMetrics, type Sample } from '../../../adapters/metrics.ts'
import { hashing } from '../../../adapters/passwords.ts'
import type { AdmissionLanes, LaneStats } from '../../../admission/lane.ts'
import type { ResultCache } from '../../../cache/data-cache.ts'
import { logTable } from '../../../catalog/log-triggers.ts'
import type { Config, Configuration } from '../../../config/config.ts'
import type { Listening } from '../../../db/listener.ts'
import type { PoolStates, Reads, ReservedReads } from '../../../db/pools.ts'
import type { ReplicaReads, ReplicaStats, Replicas } from '../../../db/replicas/replicas.ts'
import { onceASecond } from '../../../db/rounds.ts'
import { rawQuery, sql } from '../../../db/sql.ts'
import { consumerStatesSql } from '../../../events/consumer.ts'
import { bossSchema, deadLetterQueues, queues } from '../../../events/jobs.ts'

/** Whether a request carries METRICS_TOKEN as its bearer token. Takes as long for a near miss as for any other. */
export function holdsMetricsToken({ observability }: Config, authorization: string | undefined): boolean {
  const { metricsToken } = observability
  const [, given] = /^bearer +(\S+) *$/i.exec(authorization ?? '') ?? []
  if (metricsToken === undefined || given === undefined) return false
  return timingSafeEqual(digest(given), digest(metricsToken))
}

const digest = (text: string): Buffer => createHash('sha256').update(text).digest()

/** All gauges of a web process; the workers have {@link registerProcessGauges} alone. */
export function registerGauges(
  deps: AdmissionLanes & Configuration & DatabaseReads & Listening & Meters & PoolStates & ReplicaReads & ResultCache,
): void {
  registerProcessGauges(deps)
  registerAdmissionGauges(deps)
  registerDatabaseGauges(deps)
  registerBackupAge(deps)
  registerCacheGauges(deps)
  registerReplicaGauges(deps)
}

/** Gauges of what each process knows of itself. */
export function registerProcessGauges(deps: Listening & Meters & PoolStates): void {
  const { metrics } = deps.instruments
  const pools = (name: string, help: string, value: (pool: ReturnType<PoolStates['pools']>[number]) => number) =>
    metrics.gauge({ name, help, labelNames: ['pool'] }, () =>
      deps.pools().map((pool): Sample => ({ labels: { pool: pool.name }, value: value(pool) })),
    )
  pools('daybook_pool_connections_max', 'Most connections of a pool.', ({ max }) => max)
  pools('daybook_pool_connections', 'Open connections of a pool.', ({ open }) => open)
  pools('daybook_pool_idle_connections', 'Connections of a pool that nobody uses.', ({ idle }) => idle)
  pools('daybook_pool_waiting', 'Waiting requests for a connection of a pool.', ({ waiting }) => waiting)
  metrics.gauge(
    { name: 'daybook_notifications_live', help: '1 while the connection that listens for NOTIFY answers.' },
    () => [{ value: deps.listener.isLive() ? 1 : 0 }],
  )
}

/** How the read replicas stand with this process, by their place in DATABASE_READ_REPLICA_URLS; nothing without any. */
function registerReplicaGauges({ replicas, instruments: { metrics } }: ReplicaReads & Meters): void {
  if (replicas === undefined) return
  const each = (value: (stats: ReplicaStats) => number | undefined) => () => readingsOf(replicas, value)
  const labelNames = ['replica']
  metrics.gauge(
    { name: 'daybook_replica_serving', help: '1 while reads may go to the replica.', labelNames },
    each(({ serving }) => (serving ? 1 : 0)),
  )
  metrics.gauge(
    { name: 'daybook_replica_lag_seconds', help: 'Age of what the replica shows.', labelNames },
    each(({ behindMs }) => behindMs && behindMs / 1000),
  )
  metrics.gauge(
    { name: 'daybook_replica_lag_bytes', help: 'Bytes of WAL that the replica has not replayed.', labelNames },
    each(({ behindBytes }) => behindBytes),
  )
  metrics.counter(
    { name: 'daybook_replica_reads_total', help: 'Reads that the replica was asked for.', labelNames },
    each(({ reads }) => reads),
  )
  metrics.counter(
    { name: 'daybook_replica_faults_total', help: 'Of these, those that it failed.', labelNames },
    each(({ faults }) => faults),
  )
  metrics.counter(
    {
      name: 'daybook_replica_missed_reads_total',
      help: 'Reads that the primary was asked for because no replica could answer them, by reason.',
      labelNames: ['reason'],
    },
    () => {
      const { noneServing, ownWrites } = replicas.stats().primary
      return [
        { labels: { reason: 'none serving' }, value: noneServing },
        { labels: { reason: 'own writes' }, value: ownWrites },
      ]
    },
  )
}

/** Figures that are not known of a replica are left out. */
function readingsOf(replicas: Replicas, value: (stats: ReplicaStats) => number | undefined): Sample[] {
  return replicas.stats().replicas.flatMap((stats) => {
    const known = value(stats)
    return known === undefined ? [] : [{ labels: { replica: stats.replica }, value: known }]
  })
}

/** How often the data cache of this process had the answer, and what it holds. */
function registerCacheGauges(deps: Meters & ResultCache): void {
  const { metrics } = deps.instruments
  const outcomes = ['hits', 'misses', 'refused', 'uncacheable', 'stale', 'errors'] as const
  metrics.counter(
    {
      name: 'daybook_cache_lookups_total',
      help: 'Questions to the data cache, by what became of them.',
      labelNames: ['outcome'],
    },
    () => {
      const stats = deps.dataCache.stats()
      return outcomes.map((outcome) => ({ labels: { outcome }, value: stats[outcome] }))
    },
  )
  metrics.gauge({ name: 'daybook_cache_entries', help: 'Answers that the data cache holds in memory.' }, () => [
    { value: deps.dataCache.stats().entries },
  ])
  metrics.gauge({ name: 'daybook_cache_bytes', help: 'Size of these answers.' }, () => [
    { value: deps.dataCache.stats().bytes },
  ])
}

/** Work that holds a place, waits for one or was refused, by lane and weight (docs/overload.md). */
function registerAdmissionGauges({ instruments, admission, quickReads }: AdmissionLanes & Meters): void {
  const { metrics } = instruments
  const lanes = { reads: admission, quick_reads: quickReads, passwords: hashing }
  const labelNames = ['lane', 'weight']
  const read = (part: keyof LaneStats) => () =>
    Object.entries(lanes).flatMap(([lane, { stats }]) =>
      Object.entries(stats()[part]).map(([weight, value]): Sample => ({ labels: { lane, weight }, value })),
    )
  metrics.gauge({ name: 'daybook_admission_running', help: 'Work that holds a place.', labelNames }, read('running'))
  metrics.gauge(
    { name: 'daybook_admission_waiting', help: 'Work that waits for a place.', labelNames },
    read('waiting'),
  )
  metrics.counter(
    { name: 'daybook_admission_admitted_total', help: 'Work that has got a place.', labelNames },
    read('admitted'),
  )
  metrics.counter(
    { name: 'daybook_admission_refused_total', help: 'Work that was refused with OVERLOADED.', labelNames },
    read('refused'),
  )
}

/** A longer scrape is useless: Prometheus waits ten seconds. */
const timeoutMs = 2000

type DatabaseReads = Reads & ReservedReads & Logs

/**
 * Gauges of what the database knows: asked at the scrape, in one statement, on the pool of the reads. Whether it answers at
 * all is asked on the reserved connections, because a full pool is no dead database.
 */
function registerDatabaseGauges(deps: DatabaseReads & Meters): void {
  const { metrics } = deps.instruments
  const figures = askAtScrape(
    (signal) => readFigures(deps, signal),
    timeoutMs,
    (error) => deps.log.warn({ err: error }, 'the figures of the database could not be read'),
  )
  const alive = askAtScrape(
    () => deps.reserved.one(aliveQuery),
    timeoutMs,
    (error) => deps.log.warn({ err: error }, 'the database did not answer a scrape'),
  )
  const gauge: Gauge = (name, help, labelNames, read) =>
    metrics.gauge({ name, help, labelNames }, async () => {
      const found = await figures()
      return found === undefined ? [] : read(found)
    })

  metrics.gauge({ name: 'daybook_database_up', help: '1 when the database answers.' }, async () => [
    { value: (await alive()) === undefined ? 0 : 1 },
  ])
  metrics.gauge(
    { name: 'daybook_database_figures_up', help: '1 when the figures of queues, tasks, mails and log could be read.' },
    async () => [{ value: (await figures()) === undefined ? 0 : 1 }],
  )
  registerWork(gauge)
  registerConsumers(gauge)
  gauge(
    'daybook_backup_last_success_timestamp_seconds',
    'When the newest backup of the schedule ended; nothing where there is none.',
    [],
    ({ lastBackup }) => (lastBackup === null ? [] : [{ value: lastBackup }]),
  )
  gauge('daybook_log_partitions', 'Partitions of svc_AuditLog.', [], ({ log }) => [{ value: log.partitions }])
  gauge('daybook_log_size_bytes', 'Size of svc_AuditLog with its indexes.', [], ({ log }) => [{ value: log.bytes }])
}

/** Only where backups are wanted, so that an alert compares nothing elsewhere. */
function registerBackupAge({ config: { backup }, instruments: { metrics } }: Configuration & Meters): void {
  metrics.gauge(
    {
      name: 'daybook_backup_max_age_seconds',
      help: 'BACKUP_MAX_AGE_HOURS where BACKUP_SCHEDULE is set; nothing where it is not.',
    },
    () => (backup.schedule === undefined ? [] : [{ value: backup.maxAgeHours * 3600 }]),
  )
}

type Gauge = (name: string, help: string, labelNames: readonly string[], read: (found: Figures) => Sample[]) => void

function registerWork(gauge: Gauge): void {
  gauge(
    'daybook_queue_jobs',
    'Jobs by queue and state; active ones as of the last minute.',
    ['queue', 'state'],
    (found) =>
      found.queues.flatMap(({ queue, waiting, active, dead }) =>
        byLabel('state', { waiting, active, dead }, { queue }),
      ),
  )
  gauge('daybook_queue_oldest_job_seconds', 'How long the oldest due job has been waiting.', ['queue'], (found) =>
    found.queues.map(({ queue, overdue }) => ({ labels: { queue }, value: overdue })),
  )
  gauge('daybook_tasks', 'Tasks by state.', ['state'], ({ tasks: { waiting, running, failed } }) =>
    byLabel('state', { waiting, running, failed }),
  )
  gauge('daybook_tasks_running', 'Tasks that run anywhere.', [], ({ tasks }) => [{ value: tasks.running }])
  gauge('daybook_tasks_oldest_due_seconds', 'How long the oldest due task has been waiting.', [], ({ tasks }) => [
    { value: tasks.overdue },
  ])
  gauge(
    'daybook_workflow_executions',
    'Executions of workflows by state: due, claimed by a process, or waiting for a time or for another one.',
    ['state'],
    ({ executions: { due, claimed, waiting } }) => byLabel('state', { due, claimed, waiting }),
  )
  gauge(
    'daybook_workflow_oldest_due_seconds',
    'How long the oldest due execution of a workflow has been waiting.',
    [],
    ({ executions }) => [{ value: executions.overdue }],
  )
  gauge('daybook_mails', 'Mails of svc_EmailLog that are not sent, by state.', ['state'], ({ mails }) =>
    byLabel('state', mails),
  )
}

function registerConsumers(gauge: Gauge): void {
  gauge(
    'daybook_consumer_lag_seconds',
    'How long the oldest event has been waiting that a consumer of the log has not passed.',
    ['consumer'],
    ({ consumers }) => consumers.map(({ name, lagSeconds }) => ({ labels: { consumer: name }, value: lagSeconds })),
  )
  gauge(
    'daybook_consumer_running',
    '1 unless a consumer of the log has halted or was stopped.',
    ['consumer'],
    ({ consumers }) =>
      consumers.map(({ name, state }) => ({
        labels: { consumer: name },
        value: state === 'halted' || state === 'stopped' ? 0 : 1,
      })),
  )
  gauge(
    'daybook_consumer_events_set_aside',
    'Events that a consumer could not handle.',
    ['consumer'],
    ({ consumers }) => consumers.map(({ name, setAside }) => ({ labels: { consumer: name }, value: setAside })),
  )
}

async function readFigures({ db }: Reads, signal: AbortSignal): Promise<Figures> {
  const { text, values } = figuresQuery()
  const [figures] = await db.run<Figures>(text, values, 'prepared', signal)
  return figures!
}

function byLabel(
  name: string,
  counts: Readonly<Record<string, number>>,
  labels: Readonly<Record<string, string>> = {},
) {
  return Object.entries(counts).map(([key, value]) => ({ labels: { ...labels, [name]: key }, value }))
}

/**
 * Reads at most once a second however many scrapes there are, and keeps none waiting longer than `timeoutMs`: undefined
 * when the answer was not there by then, or there was none.
 */
export function askAtScrape<T>(
  read: (signal: AbortSignal) => Promise<T>,
  timeoutMs: number,
  onError: (error: unknown) => void,
): () => Promise<T | undefined> {
  const ask = onceASecond(async () => {
    try {
      return await read(AbortSignal.timeout(timeoutMs))
    } catch (error) {
      onError(error)
      return undefined
    }
  })
  return () => withTimeout(ask(), timeoutMs)
}

function withTimeout<T>(answer: Promise<T>, ms: number): Promise<T | undefined> {
  const { promise, resolve } = Promise.withResolvers<undefined>()
  const timer = setTimeout(() => resolve(undefined), ms)
  return Promise.race([answer, promise]).finally(() => clearTimeout(timer))
}

/** Figures that every process would answer alike, so the web processes alone do. Counts are rows; ages are seconds. */
type Figures = {
  readonly queues: readonly QueueFigures[]
  readonly tasks: {
    readonly waiting: number
    readonly running: number
    readonly failed: number
    readonly overdue: number
  }
  readonly executions: Readonly<Record<'due' | 'claimed' | 'waiting' | 'overdue', number>>
  readonly mails: Readonly<Record<'queued' | 'sending' | 'failed', number>>
  readonly consumers: readonly ConsumerFigures[]
  readonly log: { readonly partitions: number; readonly bytes: number }
  readonly lastBackup: number | null
}

type ConsumerFigures = {
  readonly name: string
  readonly state: string
  readonly lagSeconds: number
  readonly setAside: number
}

type QueueFigures = {
  readonly queue: string
  /** Due, or due later. */
  readonly waiting: number
  /** Given up: they wait for an operator. */
  readonly dead: number
  /** As pg-boss has counted them last, within a minute. */
  readonly active: number
  /** Of the job that has been due the longest. */
  readonly overdue: number
}

/**
 * All figures in one statement. It looks at unfinished jobs only, by their index: a week of finished ones is not read,
 * nor is the log, but for the first events that consumers have yet to read.
 */
export function figuresQuery() {
  return rawQuery(
    `with unfinished as (
       select case when name = any ($1) then coalesce(source_name, name) else name end as queue,
         name = any ($1) as dead, start_after
       from ${bossSchema}.job where state < 'active' and not blocked),
     counted as (
       select queue, count(*) filter (where not dead)::int as waiting, count(*) filter (where dead)::int as dead,
         extract(epoch from now() - min(start_after) filter (where not dead and start_after < now()))::float8 as overdue
       from unfinished group by queue),
     listed as (
       select q.name as queue, coalesce(c.waiting, 0) as waiting, coalesce(c.dead, 0) as dead,
         q.active_count as active, coalesce(c.overdue, 0) as overdue
       from ${bossSchema}.queue q left join counted c on c.queue = q.name where q.name = any ($2)),
     task as (
       select count(*) filter (where task_status = 'Not started')::int as waiting,
         count(*) filter (where task_status = 'Running')::int as running,
         count(*) filter (where task_status = 'Error')::int as failed,
         coalesce(extract(epoch from now() - min(greatest(scheduled_time, retry_at))
           filter (where task_status = 'Not started' and greatest(scheduled_time, retry_at) < now())), 0)::float8 as overdue
       from "svc_Tasks" where task_status in ('Not started', 'Running', 'Error') and status is distinct from 'archived'),
     execution as (
       select count(*) filter (where claim_token is null and due_at <= now())::int as due,
         count(*) filter (where claim_token is not null)::int as claimed,
         count(*) filter (where claim_token is null and (due_at is null or due_at > now()))::int as waiting,
         coalesce(extract(epoch from now() - min(due_at) filter (where claim_token is null and due_at <= now())), 0)::float8 as overdue
       from "svc_WorkflowExecution" where status in ('queued', 'running')),
     mail as (
       select count(*) filter (where status = 'queued')::int as queued,
         count(*) filter (where status = 'sending')::int as sending,
         count(*) filter (where status = 'failed')::int as failed
       from "svc_EmailLog" where status in ('queued', 'sending', 'failed')),
     log as (
       select count(*)::int as partitions, coalesce(sum(pg_total_relation_size(relid)), 0)::float8 as bytes
       from pg_partition_tree($3::regclass) where isleaf)
     select (select coalesce(jsonb_agg(to_jsonb(listed)), '[]') from listed) as queues,
       (select to_jsonb(task) from task) as tasks, (select to_jsonb(mail) from mail) as mails,
       (select to_jsonb(execution) from execution) as executions,
       (select to_jsonb(log) from log) as log,
       (select extract(epoch from max("endedAt"))::float8 from svc_log.backup where bytes is not null) as "lastBackup",
       (select coalesce(jsonb_agg(to_jsonb(c)), '[]') from (${consumerStatesSql}) c) as consumers`,
    [deadLetterQueues, Object.keys(queues), `"${logTable}"`],
  )
}

const aliveQuery = sql`select 1 as one`

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
