import type { Logs } from '../../../adapters/logger.ts'
import type { Reading } from '../../../adapters/metrics.ts'
import type { Reads, ReservedReads } from '../../../db/pools.ts'
import { askAtScrape } from './ask-at-scrape.ts'
import type { Meters } from './instruments.ts'
import { aliveQuery, type Figures, figuresQuery } from './queries.ts'

/** A scrape that takes longer than this helps nobody; Prometheus waits ten seconds. */
const patienceMs = 2000

/**
 * What the database knows: asked at the scrape, in one statement, on the pool of the reads. Whether it answers at all is
 * asked on the reserved connections, because a full pool is no dead database.
 */
export function registerDatabaseGauges(rt: Reads & ReservedReads & Logs & Meters): void {
  const { metrics } = rt.instruments
  const figures = askAtScrape(
    (signal) => readFigures(rt, signal),
    patienceMs,
    (error) => rt.log.warn({ err: error }, 'the figures of the database could not be read'),
  )
  const alive = askAtScrape(
    () => rt.reserved.one(aliveQuery),
    patienceMs,
    (error) => rt.log.warn({ err: error }, 'the database did not answer a scrape'),
  )
  const gauge = (name: string, help: string, labelNames: readonly string[], read: (found: Figures) => Reading[]) =>
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
  gauge('daybook_mails', 'Mails of svc_EmailLog that are not sent, by state.', ['state'], ({ mails }) =>
    byLabel('state', mails),
  )
  gauge('daybook_log_partitions', 'Partitions of svc_AuditLog.', [], ({ log }) => [{ value: log.partitions }])
  gauge('daybook_log_size_bytes', 'Size of svc_AuditLog with its indexes.', [], ({ log }) => [{ value: log.bytes }])
}

async function readFigures(rt: Reads, signal: AbortSignal): Promise<Figures> {
  const { sql, values } = figuresQuery()
  const [figures] = await rt.db.run<Figures>(sql, values, 'prepared', signal)
  return figures!
}

function byLabel(
  name: string,
  counts: Readonly<Record<string, number>>,
  labels: Readonly<Record<string, string>> = {},
) {
  return Object.entries(counts).map(([key, value]) => ({ labels: { ...labels, [name]: key }, value }))
}
