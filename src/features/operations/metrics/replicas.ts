import type { Reading } from '../../../adapters/metrics.ts'
import type { ReplicaReads, ReplicaStats, Replicas } from '../../../db/replicas.ts'
import type { Meters } from './instruments.ts'

/** How the read replicas stand with this process, by their place in DATABASE_READ_REPLICA_URLS; nothing without any. */
export function registerReplicaGauges({ replicas, instruments: { metrics } }: ReplicaReads & Meters): void {
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

/** What is not known of a replica is left out. */
function readingsOf(replicas: Replicas, value: (stats: ReplicaStats) => number | undefined): Reading[] {
  return replicas.stats().replicas.flatMap((stats) => {
    const known = value(stats)
    return known === undefined ? [] : [{ labels: { replica: stats.replica }, value: known }]
  })
}
