import { errors } from '../../errors.ts'
import { type App, actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { createSchema, deleteSchema, listSchemas, oneSchema, type SchemaListQuery, updateSchema } from './schemas.ts'

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
  app.get<{ Params: { collection: string } }>('/schemas/:collection', async ({ caller, params }) => ({
    data: oneSchema(rt, caller.admin, params.collection),
  }))
}

/** Emits: schema.changed. */
export function schemaAdminRoutes(app: App, rt: Runtime): void {
  app.post('/schemas', async (request, reply) => {
    await createSchema(rt, actorOf(request), request.body)
    return reply.code(201).send({ message: 'Schema created successfully' })
  })
  app.patch<{ Params: { collection: string } }>('/schemas/:collection', async (request) => {
    await updateSchema(rt, actorOf(request), request.params.collection, request.body)
    return { message: 'Schema updated successfully' }
  })
  app.delete<{ Params: { collection: string } }>('/schemas/:collection', async (request) => {
    await deleteSchema(rt, actorOf(request), request.params.collection)
    return { message: 'Schema deleted successfully' }
  })
}

/** Repeated keys of the query string make no sense here. */
function single(query: Record<string, unknown>): SchemaListQuery {
  for (const value of Object.values(query))
    if (typeof value !== 'string') throw errors.badQuery('a parameter is repeated')
  return query as SchemaListQuery
}
