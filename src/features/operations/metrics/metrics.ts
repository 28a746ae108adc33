import { createHash, timingSafeEqual } from 'node:crypto'
import type { Sample } from '../../../adapters/metrics.ts'
import { hashing } from '../../../adapters/passwords.ts'
import type { AdmissionLanes, LaneStats } from '../../../admission/lane.ts'
import type { ResultCache } from '../../../cache/data-cache.ts'
import type { Config } from '../../../config/config.ts'
import type { Listening } from '../../../db/listener.ts'
import type { PoolStates } from '../../../db/pools.ts'
import type { ReplicaReads, ReplicaStats, Replicas } from '../../../db/replicas/replicas.ts'
import { type DatabaseReads, type Meters, registerDatabaseGauges } from './database.ts'

export type { Meters } from './database.ts'

/** Whether a request carries METRICS_TOKEN as its bearer token. Takes as long for a near miss as for any other. */
export function holdsMetricsToken({ observability }: Config, authorization: string | undefined): boolean {
  const { metricsToken } = observability
  const [, given] = /^bearer +(\S+) *$/i.exec(authorization ?? '') ?? []
  if (metricsToken === undefined || given === undefined) return false
  return timingSafeEqual(digest(given), digest(metricsToken))
}

const digest = (text: string): Buffer => createHash('sha256').update(text).digest()

/** Gauges of what each process knows of itself. */
/** All gauges of a web process; the workers have {@link registerProcessGauges} alone. */
export function registerGauges(
  deps: AdmissionLanes & DatabaseReads & Listening & Meters & PoolStates & ReplicaReads & ResultCache,
): void {
  registerProcessGauges(deps)
  registerAdmissionGauges(deps)
  registerDatabaseGauges(deps)
  registerCacheGauges(deps)
  registerReplicaGauges(deps)
}

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
