import type { FastifyRequest } from 'fastify'
import type { Metrics, Reading } from '../adapters/metrics.ts'
import type { Feed } from '../events/feed.ts'
import { holdsMetricsToken, registerGauges } from '../features/operations/metrics/metrics.ts'
import type { App } from '../http/http.ts'
import { route } from '../http/route.ts'
import { Text } from '../http/shapes.ts'
import { accessCheck } from './access.ts'
import type { WebWrites } from './capabilities.ts'
import type { Limits } from './limits.ts'
import type { Realtime } from './realtime.ts'

/**
 * `GET /metrics`, in the text format of Prometheus: for administrators and for the holder of METRICS_TOKEN, who is
 * neither counted by RATE_LIMIT nor looked up in the database, so that it is told of a database that is away.
 */
export function metricsRoutes(
  app: App,
  rt: WebWrites,
  { realtime, limits }: { realtime: Realtime | undefined; limits: Limits },
): void {
  const { metrics } = rt.instruments
  registerGauges(rt)
  registerImageGauges(rt)
  if (realtime !== undefined) registerRealtimeGauges(metrics, realtime)
  const holdsToken = ({ headers }: FastifyRequest) => holdsMetricsToken(rt.config, headers.authorization)
  const checkAdministrator = accessCheck(rt, 'admin', limits)
  app.get(
    '/metrics',
    route(
      {
        summary: 'Read the metrics of the process',
        description: 'In the text format of Prometheus; for administrators and the holder of METRICS_TOKEN.',
        tag: 'Operations',
        scope: 'none',
        response: { 200: Text('process_cpu_seconds_total 1.25', { contentMediaType: 'text/plain' }) },
        sendsText: true,
      },
      {
        config: { unlimited: holdsToken },
        onRequest: (request, reply, done) => (holdsToken(request) ? done() : checkAdministrator(request, reply, done)),
      },
    ),
    async (_request, reply) => {
      const { contentType, text } = await metrics.scrape()
      return reply.type(contentType).header('cache-control', 'no-store').send(text)
    },
  )
}

function registerImageGauges({ instruments: { metrics }, images }: WebWrites): void {
  const one = (name: string, help: string, read: () => number) =>
    metrics.gauge({ name, help }, (): Reading[] => [{ value: read() }])
  one('daybook_images_waiting', 'Images that wait to be processed.', () => images.load().waiting)
  one('daybook_image_processes', 'Processes that process images.', () => images.load().processes)
}

function registerRealtimeGauges(metrics: Metrics, { feed, counts }: Realtime): void {
  const one = (name: string, help: string, read: () => number) =>
    metrics.gauge({ name, help }, (): Reading[] => [{ value: read() }])
  one('daybook_socket_connections', 'Open socket connections.', () => counts().connections)
  one('daybook_socket_subscriptions', 'Subscriptions to collections.', () => counts().subscriptions)
  one('daybook_socket_reports', 'Live reports.', () => counts().reports)
  one(
    'daybook_feed_lag_seconds',
    'For how much longer than planned the log has not been read to its end; 0 while nobody subscribes.',
    () => feed.status().lagMs / 1000,
  )
  metrics.gauge(
    {
      name: 'daybook_feed_source',
      help: '1 for the source of the feed: wal, poll or starting.',
      labelNames: ['source'],
    },
    () => feedSources(feed),
  )
}

function feedSources(feed: Feed): Reading[] {
  const { source } = feed.status()
  return ['wal', 'poll', 'starting'].map((name) => ({ labels: { source: name }, value: name === source ? 1 : 0 }))
}
