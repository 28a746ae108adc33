import type { FastifyRequest } from 'fastify'
import { errors } from '../../errors.ts'
import { type App, actorOf } from '../../http.ts'
import { acceptJsonUploads, uploadedJson } from '../../json-upload.ts'
import type { Runtime } from '../../runtime.ts'
import type { SchemaChanged } from './change.ts'
import { addIndex, migrateIndexes, removeIndex } from './indexes.ts'
import { listSchemas, oneSchema, type SchemaListQuery } from './list.ts'
import { createRelationship, deleteRelationship, updateRelationship } from './relationships.ts'
import { type ChangeOptions, createSchema, deleteField, deleteSchema, objectOf, updateSchema } from './schemas.ts'
import { exportSchemas, importSchemas, previewImport, readImport } from './transfer.ts'

type OfCollection = { Params: { collection: string } }
type OfField = { Params: { collection: string; field: string } }
type OfIndex = { Params: { collection: string; name: string } }
type OfRelationship = { Params: { collection: string; field: string } }

/** Reading definitions: anybody with SCHEMAS_PUBLIC, otherwise with read permission on svc_SchemaDefinition. */
export function schemaRoutes(app: App, rt: Runtime): void {
  app.addHook('preHandler', async ({ caller }) => {
    const allowed =
      rt.config.access.schemasPublic ||
      caller.admin ||
      caller.access.grant('svc_SchemaDefinition', 'read') !== undefined
    if (!allowed) throw errors.actionDenied('read', 'svc_SchemaDefinition')
  })
  app.get('/schemas', async (request) =>
    listSchemas(rt, request.caller.admin, single(request.query as Record<string, unknown>)),
  )
  app.get<OfCollection>('/schemas/:collection', async ({ caller, params }) => ({
    data: oneSchema(rt, caller.admin, params.collection),
  }))
}

/** Emits: schema.changed, once per collection touched; nothing with `?dryRun=true`. */
export function schemaAdminRoutes(app: App, rt: Runtime): void {
  app.post('/schemas', async (request, reply) => {
    const done = await createSchema(rt, actorOf(request), request.body, optionsOf(request))
    return reply.code(done.preview === undefined ? 201 : 200).send(answer('Schema created successfully', done))
  })
  app.patch<OfCollection>('/schemas/:collection', async (request) => {
    const { schema } = objectOf(request.body)
    const change = { collectionName: request.params.collection, schema }
    const done = await updateSchema(rt, actorOf(request), change, optionsOf(request))
    return answer('Schema updated successfully', done)
  })
  app.delete<OfCollection>('/schemas/:collection', async (request) => {
    const done = await deleteSchema(rt, actorOf(request), request.params.collection, optionsOf(request))
    return answer('Schema deleted successfully', done)
  })
  app.delete<OfField>('/schemas/:collection/fields/:field', async (request) => {
    const { collection: collectionName, field } = request.params
    const done = await deleteField(rt, actorOf(request), { collectionName, field }, optionsOf(request))
    return answer('Field deleted successfully', done)
  })
  indexRoutes(app, rt)
  relationshipRoutes(app, rt)
  transferRoutes(app, rt)
}

function indexRoutes(app: App, rt: Runtime): void {
  app.post<OfCollection>('/schemas/:collection/indexes', async (request, reply) => {
    const index = { collectionName: request.params.collection, body: request.body }
    const done = await addIndex(rt, actorOf(request), index, optionsOf(request))
    return reply.code(done.preview === undefined ? 201 : 200).send(answer('Index added successfully', done))
  })
  app.delete<OfIndex>('/schemas/:collection/indexes/:name', async (request) => {
    const { collection: collectionName, name } = request.params
    const done = await removeIndex(rt, actorOf(request), { collectionName, name }, optionsOf(request))
    return answer('Index removed successfully', done)
  })
  app.post('/schemas/indexes/migrate', async (request) => migrateIndexes(rt, actorOf(request)))
}

function relationshipRoutes(app: App, rt: Runtime): void {
  app.post<OfCollection>('/schemas/:collection/relationships', async (request, reply) => {
    const relationship = { source: request.params.collection, body: request.body }
    const done = await createRelationship(rt, actorOf(request), relationship, optionsOf(request))
    return reply.code(done.preview === undefined ? 201 : 200).send(answer('Relationship created successfully', done))
  })
  app.patch<OfRelationship>('/schemas/:collection/relationships/:field', async (request) => {
    const { collection: source, field } = request.params
    const change = { source, field, body: request.body }
    const done = await updateRelationship(rt, actorOf(request), change, optionsOf(request))
    return answer('Relationship updated successfully', done)
  })
  app.delete<OfRelationship>('/schemas/:collection/relationships/:field', async (request) => {
    const { collection: source, field } = request.params
    const done = await deleteRelationship(rt, actorOf(request), { source, field }, optionsOf(request))
    return answer('Relationship deleted successfully', done)
  })
}

/** What was done and dropped, or what would be. */
function answer(message: string, { changes, dropped, preview }: SchemaChanged) {
  if (preview === undefined) return { message, dropped }
  return { message: 'Nothing was changed', dryRun: true, changes, dropped, ...preview }
}

/** `?drop=true` and `?dryRun=true`; any other word for one of them must not pass as false. */
function optionsOf({ query }: FastifyRequest): ChangeOptions {
  const given = query as Record<string, unknown>
  const isOn = (name: string) => {
    const value = given[name]
    if (value === undefined || value === 'false') return false
    if (value === 'true') return true
    throw errors.badQuery(`${name} is true or false`)
  }
  return { drop: isOn('drop'), dryRun: isOn('dryRun') }
}

/** `/schemas/export` and `/schemas/import` are how the client library spells them. */
function transferRoutes(app: App, rt: Runtime): void {
  acceptJsonUploads(app, rt.config)
  for (const path of ['/schemas-export', '/schemas/export'])
    app.get(path, async (_request, reply) =>
      reply.header('content-disposition', 'attachment; filename="schemas.json"').send(await exportSchemas(rt)),
    )
  app.post('/schemas-preview-import', async (request) => {
    const options = optionsOf(request)
    return previewImport(rt, readImport(await uploaded(request)), options)
  })
  app.post('/schemas-import', async (request) => {
    const options = optionsOf(request)
    return importSchemas(rt, actorOf(request), readImport(await uploaded(request)), options)
  })
  app.post('/schemas/import', async (request) =>
    importSchemas(rt, actorOf(request), readImport(request.body), optionsOf(request)),
  )
}

function uploaded(request: FastifyRequest): Promise<unknown> {
  return uploadedJson(request, 'schema', 'No schema file uploaded')
}

/** Repeated keys of the query string make no sense here. */
function single(query: Record<string, unknown>): SchemaListQuery {
  for (const value of Object.values(query))
    if (typeof value !== 'string') throw errors.badQuery('a parameter is repeated')
  return query as SchemaListQuery
}
