import type { FastifyRequest } from 'fastify'
import { errors } from '../../errors.ts'
import { type App, actorOf } from '../../http.ts'
import { acceptJsonUploads, uploadedJson } from '../../json-upload.ts'
import type { Runtime } from '../../runtime.ts'
import { addIndex, migrateIndexes, removeIndex } from './indexes.ts'
import { listSchemas, oneSchema, type SchemaListQuery } from './list.ts'
import { createRelationship, deleteRelationship, updateRelationship } from './relationships.ts'
import { createSchema, deleteSchema, updateSchema } from './schemas.ts'
import { exportSchemas, importSchemas, previewImport, readImport } from './transfer.ts'

type OfCollection = { Params: { collection: string } }
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

/** Emits: schema.changed, once per collection touched. */
export function schemaAdminRoutes(app: App, rt: Runtime): void {
  app.post('/schemas', async (request, reply) => {
    await createSchema(rt, actorOf(request), request.body)
    return reply.code(201).send({ message: 'Schema created successfully' })
  })
  app.patch<OfCollection>('/schemas/:collection', async (request) => {
    await updateSchema(rt, actorOf(request), request.params.collection, request.body)
    return { message: 'Schema updated successfully' }
  })
  app.delete<OfCollection>('/schemas/:collection', async (request) => {
    await deleteSchema(rt, actorOf(request), request.params.collection)
    return { message: 'Schema deleted successfully' }
  })
  indexRoutes(app, rt)
  relationshipRoutes(app, rt)
  transferRoutes(app, rt)
}

function indexRoutes(app: App, rt: Runtime): void {
  app.post<OfCollection>('/schemas/:collection/indexes', async (request, reply) => {
    await addIndex(rt, actorOf(request), request.params.collection, request.body)
    return reply.code(201).send({ message: 'Index added successfully' })
  })
  app.delete<OfIndex>('/schemas/:collection/indexes/:name', async (request) => {
    await removeIndex(rt, actorOf(request), request.params.collection, request.params.name)
    return { message: 'Index removed successfully' }
  })
  app.post('/schemas/indexes/migrate', async (request) => migrateIndexes(rt, actorOf(request)))
}

function relationshipRoutes(app: App, rt: Runtime): void {
  app.post<OfCollection>('/schemas/:collection/relationships', async (request, reply) => {
    await createRelationship(rt, actorOf(request), request.params.collection, request.body)
    return reply.code(201).send({ message: 'Relationship created successfully' })
  })
  app.patch<OfRelationship>('/schemas/:collection/relationships/:field', async (request) => {
    const { collection: source, field } = request.params
    await updateRelationship(rt, actorOf(request), { source, field, body: request.body })
    return { message: 'Relationship updated successfully' }
  })
  app.delete<OfRelationship>('/schemas/:collection/relationships/:field', async (request) => {
    await deleteRelationship(rt, actorOf(request), request.params.collection, request.params.field)
    return { message: 'Relationship deleted successfully' }
  })
}

/** `/schemas/export` and `/schemas/import` are how the client library spells them. */
function transferRoutes(app: App, rt: Runtime): void {
  acceptJsonUploads(app, rt.config)
  for (const path of ['/schemas-export', '/schemas/export'])
    app.get(path, async (_request, reply) =>
      reply.header('content-disposition', 'attachment; filename="schemas.json"').send(await exportSchemas(rt)),
    )
  app.post('/schemas-preview-import', async (request) => previewImport(rt, readImport(await uploaded(request))))
  app.post('/schemas-import', async (request) =>
    importSchemas(rt, actorOf(request), readImport(await uploaded(request))),
  )
  app.post('/schemas/import', async (request) => importSchemas(rt, actorOf(request), readImport(request.body)))
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
