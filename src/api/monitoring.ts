import type { FastifyRequest } from 'fastify'
import { collectionsWithRowRules } from '../access/access.ts'
import type { CurrentAccess } from '../access/store.ts'
import { type Failures, openFailures } from '../adapters/failures.ts'
import type { Metrics, Sample } from '../adapters/metrics.ts'
import { Type } from '../adapters/typebox.ts'
import type { Configuration } from '../config/config.ts'
import type { ProcessVariables } from '../config/variable.ts'
import type { ReplicaReads } from '../db/replicas/replicas.ts'
import { onceASecond } from '../db/rounds.ts'
import { sql } from '../db/sql.ts'
import type { Finding } from '../doctor/finding.ts'
import type { Feed } from '../events/feed.ts'
import { pendingSystemMigrations } from '../features/data/migrations/migrations.ts'
import type { Sockets } from '../features/messaging/rooms/rooms.ts'
import { holdsMetricsToken, registerGauges } from '../features/operations/metrics/metrics.ts'
import type { App } from '../http/http.ts'
import { route } from '../http/route.ts'
import { OneOf, Text } from '../http/shapes.ts'
import { checkPart, type PartCheck, readyDeadline } from '../process/readiness.ts'
import { accessCheck } from './access.ts'
import type { WebReads, WebWrites } from './capabilities.ts'
import type { Limits } from './limits.ts'
import type { Realtime } from './realtime.ts'

/** `ok` is null where it is not known. */
type HealthCheck = { readonly ok: boolean | null; readonly [more: string]: unknown }

/**
 * `GET /health`: the process lives. `GET /ready`: it can work, part by part, 200 or 503; asked at most once a second,
 * so that hammering it costs the database nothing.
 */
export function healthRoutes(app: App, deps: WebReads, feed: Feed | undefined): void {
  let isDraining = false
  app.addHook('preClose', async () => {
    isDraining = true
  })
  app.get('/health', healthRoute, async () => ({ status: 'ok' }))
  const failuresOf = (part: string) => openFailures(deps, 'a readiness check failed', { part })
  const failures = { database: failuresOf('database'), migrations: failuresOf('migrations') }
  const checks = onceASecond(() => readiness(deps, feed, failures))
  app.get('/ready', readyRoute, async (_request, reply) => {
    if (isDraining) return reply.code(503).send({ status: 'draining' })
    const parts = await checks()
    const ready = Object.values(parts).every((part) => part.ok)
    return reply.code(ready ? 200 : 503).send({ status: ready ? 'ready' : 'not ready', ...parts })
  })
}

const watched = { config: { unlimited: true } }

const healthRoute = route(
  {
    summary: 'Check that the process lives',
    scope: 'none',
    tag: 'Operations',
    response: { 200: Type.Object({ status: Text('ok') }) },
  },
  watched,
)

const Part = Type.Optional(Type.Object({ ok: Type.Boolean() }, { additionalProperties: true }))
const MaybeUnknown = Type.Optional(
  Type.Object(
    { ok: Type.Union([Type.Boolean(), Type.Null()], { description: 'null where the database could not be asked' }) },
    { additionalProperties: true },
  ),
)
const Readiness = Type.Object({
  status: Text('ready', { description: 'ready, not ready or draining' }),
  database: Part,
  migrations: MaybeUnknown,
  notifications: Part,
  realtime: Part,
  replicas: Part,
})

const readyRoute = route(
  {
    summary: 'Check that the process can work',
    scope: 'none',
    tag: 'Operations',
    response: { 200: Readiness, 503: Readiness },
    sendsText: true,
  },
  watched,
)

async function readiness(
  deps: WebReads,
  feed: Feed | undefined,
  failures: Readonly<Record<'database' | 'migrations', Failures>>,
): Promise<Record<string, HealthCheck>> {
  const deadline = readyDeadline()
  const database = await checkPart(failures.database, deadline, async () => {
    await deps.reserved.one(sql`select 1 as one`)
    return { pooler: deps.line.facts().isPooled, preparedStatements: deps.line.isNamed() }
  })
  const asked = database.ok
    ? await checkPart(failures.migrations, deadline, async () => ({
        pending: await pendingSystemMigrations(deps.reserved),
      }))
    : database
  return {
    database,
    migrations: migrationsCheck(asked),
    notifications: { ok: true, live: deps.listener.isLive() },
    realtime: realtimeCheck(deps, feed),
    replicas: replicasCheck(deps),
  }
}

/**
 * Realtime without the WAL works by polling, and without their Redis rooms are refused: worth knowing, but not a reason to
 * take no traffic. Changes that are told late are: another process may tell them in time.
 */
function realtimeCheck(
  { config, access, sockets }: Configuration & CurrentAccess & Sockets,
  feed: Feed | undefined,
): HealthCheck {
  if (feed === undefined) return { ok: true, enabled: false }
  const { source, lagMs, reason } = feed.status()
  const rooms = sockets.live()?.state()
  const isLate = lagMs > config.realtime.maxLagMs
  const late = isLate ? `changes have not been read for ${lagMs} ms` : undefined
  const unscoped = config.realtime.rowLevelScoping ? [] : collectionsWithRowRules(access.current())
  return {
    ok: !isLate,
    enabled: true,
    source,
    lagMs,
    rooms,
    ...((late ?? reason) !== undefined && { reason: late ?? reason }),
    ...(unscoped.length > 0 && {
      warning: 'REALTIME_ROW_LEVEL_SCOPING is false, row rules do not apply to realtime',
      unscoped,
    }),
  }
}

/** Without its replicas the installation is slower: the primary answers for them. */
function replicasCheck({ replicas }: ReplicaReads): HealthCheck {
  if (replicas === undefined) return { ok: true, enabled: false }
  const standings = replicas.stats().replicas.map(({ reads: _reads, faults: _faults, ...standing }) => standing)
  return { ok: true, enabled: true, serving: standings.filter(({ serving }) => serving).length, replicas: standings }
}

/** They are not bad because the database does not answer. */
function migrationsCheck({ ok, reason, pending }: PartCheck): HealthCheck {
  return ok ? { ok: (pending as readonly string[]).length === 0, pending } : { ok: null, reason }
}

/**
 * `GET /metrics`, in the text format of Prometheus: for administrators and for the holder of METRICS_TOKEN, who is
 * neither counted by RATE_LIMIT nor looked up in the database, so that it is told of a database that is away.
 */
export function metricsRoutes(
  app: App,
  deps: WebWrites,
  { realtime, limits }: { realtime: Realtime | undefined; limits: Limits },
): void {
  const { metrics } = deps.instruments
  registerGauges(deps)
  registerImageGauges(deps)
  if (realtime !== undefined) registerRealtimeGauges(metrics, realtime)
  const holdsToken = ({ headers }: FastifyRequest) => holdsMetricsToken(deps.config, headers.authorization)
  const checkAdministrator = accessCheck(deps, 'admin', limits)
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
    metrics.gauge({ name, help }, (): Sample[] => [{ value: read() }])
  one('daybook_images_waiting', 'Images that wait to be processed.', () => images.load().waiting)
  one('daybook_image_processes', 'Processes that process images.', () => images.load().processes)
}

function registerRealtimeGauges(metrics: Metrics, { feed, counts }: Realtime): void {
  const one = (name: string, help: string, read: () => number) =>
    metrics.gauge({ name, help }, (): Sample[] => [{ value: read() }])
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

function feedSources(feed: Feed): Sample[] {
  const { source } = feed.status()
  return ['wal', 'poll', 'starting'].map((name) => ({ labels: { source: name }, value: name === source ? 1 : 0 }))
}

/** `GET /ops/doctor`: what `npx daybook doctor` finds, by the variables that this process has. */
export function doctorRoute(app: App, deps: ProcessVariables): void {
  // It opens connections of its own, so requests that come meanwhile share the result.
  let running: Promise<readonly Finding[]> | undefined
  app.get('/ops/doctor', examineRoute, async () => {
    running ??= examineOnce(deps).finally(() => {
      running = undefined
    })
    return { data: await running }
  })
}

async function examineOnce({ env }: ProcessVariables): Promise<readonly Finding[]> {
  const { examine } = await import('../doctor/doctor.ts')
  return examine(env)
}

const examineRoute = route({
  summary: 'Look for what the installation lacks',
  description:
    'Configuration, database, workers, Redis, mail and storage, as `npx daybook doctor`. Changes nothing; may take some seconds.',
  tag: 'Operations',
  scope: 'admin',
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({
          check: Text('workers', { description: 'The same in every run.' }),
          status: OneOf(['ok', 'warning', 'problem']),
          says: Text('not running: webhooks'),
          remedy: Type.Optional(Text('npx daybook worker webhooks')),
        }),
      ),
    }),
  },
})
