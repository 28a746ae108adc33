import type { FastifyRequest } from 'fastify'
import type { SettingsInForce } from '../../../access/principal.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import type { Logs } from '../../../adapters/logger.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { ProcessVariables } from '../../../config/variable.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { type ReplicaReads, readFromNowOn } from '../../../db/replicas/replicas.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { type Declaration, route } from '../../../http/route.ts'
import { Count, closed, NullableId, NullableText, OneOf, Text } from '../../../http/shapes.ts'
import { createMigration } from './create.ts'
import {
  markAllCompleted,
  markCompleted,
  previewRun,
  previewSql,
  rollbackBatch,
  rollbackOne,
  runMigrations,
} from './migrations.ts'
import {
  checkOf,
  findMigration,
  type MigrationRecord,
  migrationTypes,
  pendingOf,
  readMigrations,
  statusOf,
} from './records.ts'
import { type MigrationRunner, withRunner } from './runner.ts'

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

const states = ['pending', 'running', 'completed', 'failed', 'rolled_back', 'skipped'] as const

const Version = Type.String({ minLength: 1, maxLength: 100, examples: ['20241224103000_add_column'] })
const VersionParams = Type.Object({ version: Text('20241224103000_add_column') })

const RunBody = Type.Object(
  {
    version: Type.Optional(Version),
    toVersion: Type.Optional(Version),
    dryRun: Type.Optional(Type.Boolean({ description: 'Says what would be run.' })),
    sql: Type.Optional(Type.Boolean({ description: 'With dryRun: the SQL of each, and what it would stop.' })),
  },
  closed,
)

const CreateBody = Type.Object({
  name: Type.String({ maxLength: 1000, examples: ['add_country_code'] }),
  type: Type.Optional(OneOf(migrationTypes)),
  description: Type.Optional(Type.String({ maxLength: 2000, examples: ['Countries get their ISO code.'] })),
})

const RollbackBody = Type.Object(
  { reason: Type.Optional(Type.String({ maxLength: 2000, examples: ['The column is not wanted after all.'] })) },
  closed,
)

const MarkBody = Type.Object(
  { metadata: Type.Optional(Type.Record(Type.String(), Type.Unknown(), { examples: [{ by: 'hand' }] })) },
  closed,
)

const MarkAllBody = Type.Object({ toVersion: Type.Optional(Version) }, closed)

const ListQuery = Type.Object({
  status: Type.Optional(OneOf(states)),
  type: Type.Optional(OneOf(migrationTypes)),
  limit: Type.Optional(Type.Integer({ minimum: -1, not: { const: 0 }, description: '-1 for all.', examples: [20] })),
})

/** A time that is a `Date` until it is written. */
const Time = Type.Unsafe<Date | null>({
  type: ['string', 'null'],
  format: 'date-time',
  examples: ['2026-03-14T09:26:53.589Z'],
})

const record = {
  id: NullableId({ description: 'Null until it has been run or marked.' }),
  version: Text('20241224103000_add_column'),
  name: Text('add_column'),
  description: NullableText('Notes get a rank.'),
  type: OneOf(migrationTypes),
  status: OneOf(states),
  batch: Type.Unsafe<number | null>({ type: ['integer', 'null'], examples: [3] }),
  executedAt: Time,
  executionTimeMs: Type.Unsafe<number | null>({ type: ['integer', 'null'], examples: [12] }),
  errorMessage: NullableText('column "rank" exists already'),
  errorStack: NullableText('Error: column "rank" exists already'),
  metadata: Type.Record(Type.String(), Type.Unknown(), { examples: [{}] }),
  checksum: NullableText('9e107d9d372bb6826bd81d3542a419d6', { description: 'Of its file when it was run.' }),
  canRollback: Type.Boolean(),
  rolledBackAt: Time,
  createdAt: Time,
  updatedAt: Time,
  drifted: Type.Boolean({ description: 'Its file is not the one that was run.' }),
}
const RecordShape = Type.Object(record)

const PreviewShape = Type.Object({
  ...record,
  sql: Type.Optional(Type.Array(Text('alter table "note" add column "rank" integer'))),
  sqlProblem: Type.Optional(NullableText('relation "note" does not exist')),
  findings: Type.Optional(
    Type.Array(
      Type.Object({
        rule: Text('index-not-concurrent'),
        object: Text('note'),
        lock: Text('SHARE'),
        why: Text('Writes wait until the whole table is indexed.'),
        safeWay: Text('CREATE INDEX CONCURRENTLY, in a script that runs without a transaction.'),
        statement: Count(1),
        sql: Text('create index on note (rank)'),
      }),
    ),
  ),
})

const runOf = <Shape extends typeof RecordShape | typeof PreviewShape>(shape: Shape) =>
  Type.Object({
    results: Type.Array(shape),
    summary: Type.Object({ total: Count(1), completed: Count(1), failed: Count(0) }),
  })
const RunShape = runOf(RecordShape)

const declared = <const D extends Omit<Declaration, 'tag' | 'scope'>>(declaration: D) =>
  route({ tag: 'Migrations', scope: 'admin', ...declaration })

const statusRoute = declared({
  summary: 'Read the state of the migrations',
  response: {
    200: Type.Object({
      data: Type.Object({
        currentVersion: Text('20241224103000_add_column'),
        lastBatch: Count(3),
        appliedCount: Count(12),
        pendingCount: Count(0),
        totalMigrations: Count(12),
        isUpToDate: Type.Boolean(),
        lastMigration: Type.Union([
          Type.Object({ version: record.version, name: record.name, status: record.status, executedAt: Time }),
          Type.Null(),
        ]),
        isSequelizeUpgrade: Type.Boolean(),
        drifted: Type.Array(Text('20241224103000_add_column'), {
          description: 'Versions whose file was changed after it had been run.',
        }),
      }),
    }),
  },
})
const listRoute = declared({
  summary: 'List the migrations',
  query: ListQuery,
  response: { 200: Type.Object({ data: Type.Array(RecordShape) }) },
})
const pendingRoute = declared({
  summary: 'List the migrations that are to be run',
  response: { 200: Type.Object({ data: Type.Array(RecordShape) }) },
})
const checkRoute = declared({
  summary: 'Check whether migrations are to be run',
  response: {
    200: Type.Object({
      data: Type.Object({
        needed: Type.Boolean(),
        hasPending: Type.Boolean(),
        lastVersion: NullableText('20241224103000_add_column'),
        currentVersion: Text('20241224103000_add_column'),
        pendingCount: Count(0),
      }),
    }),
  },
})
const readRoute = declared({
  summary: 'Read a migration',
  params: VersionParams,
  response: { 200: Type.Object({ data: RecordShape }) },
})
const runRoute = declared({
  summary: 'Run migrations',
  description: 'All that are pending, unless one is named. The first that fails ends the run.',
  body: RunBody,
  response: { 200: Type.Object({ data: runOf(PreviewShape) }) },
})
const createRoute = declared({
  summary: 'Make the file of a new migration',
  body: CreateBody,
  response: {
    201: Type.Object({
      data: Type.Object({
        filepath: Text('migrations/20241224103000_add_country_code.ts'),
        message: Text('Migration created successfully'),
      }),
    }),
  },
})
const rollbackRoute = declared({
  summary: 'Roll a migration back',
  params: VersionParams,
  body: RollbackBody,
  response: { 200: Type.Object({ data: RecordShape }) },
})
const rollbackBatchRoute = declared({
  summary: 'Roll the last batch back',
  body: RollbackBody,
  response: { 200: Type.Object({ data: RunShape }) },
})
const markRoute = declared({
  summary: 'Mark a migration as done without running it',
  params: VersionParams,
  body: MarkBody,
  response: { 200: Type.Object({ data: RecordShape }) },
})
const markAllRoute = declared({
  summary: 'Mark pending migrations as done without running them',
  body: MarkAllBody,
  response: { 200: Type.Object({ data: RunShape }) },
})
