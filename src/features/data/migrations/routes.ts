import type { FastifyRequest } from 'fastify'
import type { SettingsInForce } from '../../../access/principal.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { ProcessVariables } from '../../../config/read.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { readFromNowOn } from '../../../db/replicas/read-anywhere.ts'
import type { ReplicaReads } from '../../../db/replicas/replicas.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { createMigration } from './create.ts'
import { previewSql } from './preview.ts'
import { checkOf, findMigration, type MigrationRecord, pendingOf, readMigrations, statusOf } from './records.ts'
import { markAllCompleted, markCompleted, previewRun, rollbackBatch, rollbackOne, runMigrations } from './run.ts'
import { type MigrationRunner, withRunner } from './runner.ts'
import {
  checkRoute,
  createRoute,
  listRoute,
  markAllRoute,
  markRoute,
  pendingRoute,
  readRoute,
  rollbackBatchRoute,
  rollbackRoute,
  runRoute,
  statusRoute,
} from './schema.ts'

/** Administrators only. Emits: migration.run, migration.rolled_back, migration.marked_completed, one per migration. */
export function migrationRoutes(app: App, deps: MigrationReads): void {
  readRoutes(app, deps)
  app.post('/migrations/run', runRoute, async (request) => {
    const { dryRun = false, sql = false, version, toVersion } = request.body
    const selection = { version, toVersion }
    if (!dryRun) return { data: await asRunner(deps, request, (runner) => runMigrations(runner, selection)) }
    if (sql) return { data: await previewSql(deps, selection) }
    return { data: previewRun(await readMigrations(deps.db, deps.config), selection) }
  })
  app.post('/migrations/create', createRoute, async (request, reply) => {
    const filepath = createMigration(deps.config, request.body, deps.clock())
    return reply.code(201).send({ data: { filepath, message: 'Migration created successfully' } })
  })
  rollbackRoutes(app, deps)
  markRoutes(app, deps)
}

function readRoutes(app: App, deps: Reads & Configuration): void {
  const all = () => readMigrations(deps.db, deps.config)
  app.get('/migrations/status', statusRoute, async () => ({ data: statusOf(await all()) }))
  app.get('/migrations', listRoute, async (request) => {
    const { status, type, limit } = request.query
    const isWanted = (record: MigrationRecord) =>
      (status ?? record.status) === record.status && (type ?? record.type) === record.type
    const records = (await all()).map(({ record }) => record).filter(isWanted)
    return { data: limit === -1 ? records : records.slice(0, limit) }
  })
  app.get('/migrations/pending', pendingRoute, async () => ({
    data: pendingOf(await all()).map(({ record }) => record),
  }))
  app.get('/migrations/check', checkRoute, async () => ({ data: checkOf(await all()) }))
  app.get('/migrations/:version', readRoute, async (request) => ({
    data: findMigration(await all(), request.params.version).record,
  }))
}

function rollbackRoutes(app: App, deps: MigrationReads): void {
  app.post('/migrations/rollback/:version', rollbackRoute, async (request) => {
    const { version } = request.params
    return { data: await asRunner(deps, request, (runner) => rollbackOne(runner, version, request.body.reason)) }
  })
  app.post('/migrations/rollback-batch', rollbackBatchRoute, async (request) => ({
    data: await asRunner(deps, request, (runner) => rollbackBatch(runner, request.body.reason)),
  }))
}

function markRoutes(app: App, deps: MigrationReads): void {
  app.post('/migrations/mark-completed/:version', markRoute, async (request) => {
    const { version } = request.params
    const { metadata = {} } = request.body
    return { data: await asRunner(deps, request, (runner) => markCompleted(runner, version, metadata)) }
  })
  app.post('/migrations/mark-all-completed', markAllRoute, async (request) => ({
    data: await asRunner(deps, request, (runner) => markAllCompleted(runner, request.body.toVersion)),
  }))
}

/**
 * One request at a time runs in the whole installation, the others get 409. This process knows the changes before it
 * answers; other processes hear of them by the tables' own NOTIFY.
 */
async function asRunner<T>(
  deps: MigrationReads,
  request: FastifyRequest,
  work: (runner: MigrationRunner) => Promise<T>,
): Promise<T> {
  try {
    return await withRunner(deps, { requester: actorOf(request), busy: 'refuse' }, work)
  } finally {
    await Promise.all([deps.catalog.reload(), deps.access.reload(), deps.settings.reload()])
    await readFromNowOn(deps, request.caller)
  }
}

/** The capabilities that reads of this folder need. */
type MigrationReads = Reads &
  ReplicaReads &
  Clock &
  Configuration &
  CurrentAccess &
  CurrentCatalog &
  SettingsInForce &
  Logs &
  ProcessVariables
