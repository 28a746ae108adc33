import { setTimeout as delay } from 'node:timers/promises'
import { collectionsWithRowRules } from '../access/access.ts'
import type { CurrentAccess } from '../access/store.ts'
import type { Logs } from '../adapters/logger.ts'
import { Type } from '../adapters/typebox.ts'
import type { Configuration } from '../config/config.ts'
import type { ReplicaReads } from '../db/replicas/replicas.ts'
import { onceASecond } from '../db/rounds.ts'
import { sql } from '../db/sql.ts'
import type { Feed } from '../events/feed.ts'
import { pendingSystemMigrations } from '../features/data/migrations/migrations.ts'
import type { Sockets } from '../features/messaging/rooms/rooms.ts'
import type { App } from '../http/http.ts'
import { route } from '../http/route.ts'
import { Text } from '../http/shapes.ts'
import type { WebReads } from './capabilities.ts'

type Check = { ok: boolean; [more: string]: unknown }

/**
 * `GET /health`: the process lives. `GET /ready`: it can work, part by part, 200 or 503; asked at most once a second,
 * so that hammering it costs the database nothing.
 */
export function healthRoutes(app: App, rt: WebReads, feed: Feed | undefined): void {
  let isDraining = false
  app.addHook('preClose', async () => {
    isDraining = true
  })
  app.get('/health', healthRoute, async () => ({ status: 'ok' }))
  const checks = onceASecond(() => readiness(rt, feed))
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
const Readiness = Type.Object({
  status: Text('ready', { description: 'ready, not ready or draining' }),
  database: Part,
  migrations: Part,
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

async function readiness(rt: WebReads, feed: Feed | undefined): Promise<Record<string, Check>> {
  const database = check(rt, async () => {
    await rt.reserved.one(sql.unsafe`select 1 as one`)
    return { pooler: rt.line.facts().isPooled, preparedStatements: rt.line.isNamed() }
  })
  const migrations = check(rt, async () => {
    const pending = await pendingSystemMigrations(rt.reserved)
    return { ok: pending.length === 0, pending }
  })
  return {
    database: await database,
    migrations: await migrations,
    notifications: { ok: true, live: rt.listener.isLive() },
    realtime: realtimeCheck(rt, feed),
    replicas: replicasCheck(rt),
  }
}

/**
 * Realtime without the WAL works by polling, and without their Redis rooms are refused: worth knowing, but not a reason to
 * take no traffic. Changes that are told late are: another process may tell them in time.
 */
function realtimeCheck(
  { config, access, sockets }: Configuration & CurrentAccess & Sockets,
  feed: Feed | undefined,
): Check {
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
function replicasCheck({ replicas }: ReplicaReads): Check {
  if (replicas === undefined) return { ok: true, enabled: false }
  const standings = replicas.stats().replicas.map(({ reads: _reads, faults: _faults, ...standing }) => standing)
  return { ok: true, enabled: true, serving: standings.filter(({ serving }) => serving).length, replicas: standings }
}

/** A probe gives up after a few seconds, and would not learn what is wrong. */
const patienceMs = 5000

async function check(rt: Logs, look: () => Promise<object>): Promise<Check> {
  const slow = delay(patienceMs, { ok: false, reason: `no answer within ${patienceMs} ms` }, { ref: false })
  try {
    return { ok: true, ...(await Promise.race([look(), slow])) }
  } catch (error) {
    rt.log.warn({ err: error }, 'a readiness check failed')
    return { ok: false }
  }
}
