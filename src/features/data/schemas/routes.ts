import type { FastifyRequest } from 'fastify'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { errors } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import { type App, acceptJsonUploads, actorOf, uploadedJson } from '../../../http/http.ts'
import { isFresh, listTag } from '../items/items.ts'
import { createMigration, migrationScript } from '../migrations/migrations.ts'
import { type SchemaChanged, warningsOf } from './change.ts'
import {
  addIndexRoute,
  addRelationshipRoute,
  changeRelationshipRoute,
  changeRoute,
  createRoute,
  exportRoute,
  importFileRoute,
  importRoute,
  listRoute,
  migrateIndexesRoute,
  previewRoute,
  readRoute,
  removeFieldRoute,
  removeIndexRoute,
  removeRelationshipRoute,
  removeRoute,
  typesRoute,
} from './declarations.ts'
import {
  addIndex,
  type ChangeOptions,
  createRelationship,
  createSchema,
  deleteField,
  deleteRelationship,
  deleteSchema,
  listSchemas,
  migrateIndexes,
  oneSchema,
  removeIndex,
  updateRelationship,
  updateSchema,
} from './schemas.ts'
import { exportSchemas, importSchemas, previewImport, readImport } from './transfer.ts'
import { typescriptOf } from './typescript.ts'

/** Reading definitions: anybody with SCHEMAS_PUBLIC, otherwise with read permission on svc_SchemaDefinition. */
export function schemaRoutes(app: App, deps: Reads & Configuration & CurrentCatalog): void {
  app.addHook('preValidation', async ({ caller }) => {
    const allowed =
      deps.config.access.schemasPublic ||
      caller.admin ||
      caller.access.grant('svc_SchemaDefinition', 'read') !== undefined
    if (!allowed) throw errors.actionDenied('read', 'svc_SchemaDefinition')
  })
  app.get('/schemas', listRoute, async ({ caller, query }) => listSchemas(deps, caller.admin, query))
  app.get('/schemas/:collection', readRoute, async ({ caller, params }) => ({
    data: oneSchema(deps, caller.admin, params.collection),
  }))
}

/** Emits: schema.changed, once per collection touched; nothing with `?dryRun=true`. */
export function schemaAdminRoutes(app: App, deps: SchemaWrites): void {
  app.post('/schemas', createRoute, async (request, reply) => {
    const done = await createSchema(deps, actorOf(request), request.body, optionsOf(request.query))
    return reply
      .code(done.preview === undefined ? 201 : 200)
      .send(answer(deps, 'Schema created successfully', done, request.query))
  })
  app.patch('/schemas/:collection', changeRoute, async (request) => {
    const { schema, collectionName: named } = request.body
    const change = { collectionName: request.params.collection, schema, named }
    const done = await updateSchema(deps, actorOf(request), change, optionsOf(request.query))
    return answer(deps, 'Schema updated successfully', done, request.query)
  })
  app.delete('/schemas/:collection', removeRoute, async (request) => {
    const done = await deleteSchema(deps, actorOf(request), request.params.collection, optionsOf(request.query))
    return answer(deps, 'Schema deleted successfully', done, request.query)
  })
  app.delete('/schemas/:collection/fields/:field', removeFieldRoute, async (request) => {
    const { collection: collectionName, field } = request.params
    const done = await deleteField(deps, actorOf(request), { collectionName, field }, optionsOf(request.query))
    return answer(deps, 'Field deleted successfully', done, request.query)
  })
  indexRoutes(app, deps)
  relationshipRoutes(app, deps)
  transferRoutes(app, deps)
}

function indexRoutes(app: App, deps: SchemaWrites): void {
  app.post('/schemas/:collection/indexes', addIndexRoute, async (request, reply) => {
    const index = { collectionName: request.params.collection, body: request.body }
    const done = await addIndex(deps, actorOf(request), index, optionsOf(request.query))
    return reply
      .code(done.preview === undefined ? 201 : 200)
      .send(answer(deps, 'Index added successfully', done, request.query))
  })
  app.delete('/schemas/:collection/indexes/:name', removeIndexRoute, async (request) => {
    const { collection: collectionName, name } = request.params
    const done = await removeIndex(deps, actorOf(request), { collectionName, name }, optionsOf(request.query))
    return answer(deps, 'Index removed successfully', done, request.query)
  })
  app.post('/schemas/indexes/migrate', migrateIndexesRoute, async (request) => migrateIndexes(deps, actorOf(request)))
}

function relationshipRoutes(app: App, deps: SchemaWrites): void {
  app.post('/schemas/:collection/relationships', addRelationshipRoute, async (request, reply) => {
    const relationship = { source: request.params.collection, body: request.body }
    const done = await createRelationship(deps, actorOf(request), relationship, optionsOf(request.query))
    return reply
      .code(done.preview === undefined ? 201 : 200)
      .send(answer(deps, 'Relationship created successfully', done, request.query))
  })
  app.patch('/schemas/:collection/relationships/:field', changeRelationshipRoute, async (request) => {
    const { collection: source, field } = request.params
    const change = { source, field, body: request.body }
    const done = await updateRelationship(deps, actorOf(request), change, optionsOf(request.query))
    return answer(deps, 'Relationship updated successfully', done, request.query)
  })
  app.delete('/schemas/:collection/relationships/:field', removeRelationshipRoute, async (request) => {
    const { collection: source, field } = request.params
    const done = await deleteRelationship(deps, actorOf(request), { source, field }, optionsOf(request.query))
    return answer(deps, 'Relationship deleted successfully', done, request.query)
  })
}

/**
 * The changes, dropped parts and altered values, made or planned; with `migration` the file that makes them, in a dry run only its
 * text.
 */
function answer(
  { clock, config }: Configuration & Clock,
  message: string,
  done: SchemaChanged,
  { migration, dryRun = false }: { readonly migration?: string; readonly dryRun?: boolean },
) {
  const { changes, dropped, altered, preview } = done
  const warnings = warningsOf(done)
  if (preview === undefined) return { message, dropped, altered, ...warnings }
  const { sql, findings, ...definitions } = preview
  const planned = { dryRun: true as const, changes, dropped, altered, ...warnings, sql, findings }
  if (migration === undefined) return { message: 'Nothing was changed', ...planned }
  if (changes.length === 0) throw errors.badBody('There is nothing to be changed')
  const script = { name: migration, type: 'schema', definitions } as const
  if (dryRun) {
    const { file, text } = migrationScript(script, clock())
    return { message: 'Nothing was changed', ...planned, migration: file, script: text }
  }
  const file = createMigration(config, script, clock())
  return { message: 'Nothing was changed; the migration was written', ...planned, migration: file }
}

function optionsOf({
  drop = false,
  alter = false,
  dryRun = false,
  migration,
}: {
  readonly drop?: boolean
  readonly alter?: boolean
  readonly dryRun?: boolean
  readonly migration?: string
}): ChangeOptions {
  return { drop, alter, dryRun: dryRun || migration !== undefined }
}

/** `/schemas/export` and `/schemas/import` are how the client library spells them. */
function transferRoutes(app: App, deps: SchemaWrites): void {
  acceptJsonUploads(app, deps.config)
  for (const path of ['/schemas-export', '/schemas/export'])
    app.get(path, exportRoute, async (_request, reply) =>
      reply.header('content-disposition', 'attachment; filename="schemas.json"').send(await exportSchemas(deps)),
    )
  app.get('/schemas-types', typesRoute, async ({ headers }, reply) => {
    const text = typescriptOf(await deps.catalog.reloadIfStale())
    const tag = listTag(text)
    reply.header('etag', tag).header('cache-control', 'private, no-cache')
    if (isFresh(headers['if-none-match'], tag)) return reply.code(304).send()
    return reply.type('text/plain; charset=utf-8').send(text)
  })
  app.post('/schemas-preview-import', previewRoute, async (request) => {
    const options = optionsOf(request.query)
    return previewImport(deps.catalog.current(), readImport(await uploaded(request)), options)
  })
  app.post('/schemas-import', importFileRoute, async (request) => {
    const options = optionsOf(request.query)
    return importSchemas(deps, actorOf(request), readImport(await uploaded(request)), options)
  })
  app.post('/schemas/import', importRoute, async (request) =>
    importSchemas(deps, actorOf(request), readImport(request.body), optionsOf(request.query)),
  )
}

function uploaded(request: FastifyRequest): Promise<unknown> {
  return uploadedJson(request, 'schema', 'No schema file uploaded')
}

/** The capabilities that changes of this folder need. */
type SchemaWrites = Reads & Writes & Clock & CurrentCatalog
