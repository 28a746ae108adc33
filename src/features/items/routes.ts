import type { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { errors } from '../../errors.ts'
import { type App, actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { readList, readOne } from './reads.ts'
import { createItem, createItems, deleteItems, updateItem, updateItems, type Writer } from './writes.ts'

type OfCollection = { Params: { collection: string } }
type OfItem = { Params: { collection: string; id: string } }

/** `/items/{collection}` (spec/items.md §1). Row events are appended by the database; these routes emit no others. */
export function itemRoutes(app: App, rt: Runtime): void {
  app.get<OfCollection>('/items/:collection', async (request, reply) => {
    const answer = await readList(rt, request.caller.access, request.params.collection, queryOf(request))
    return json(reply, answer)
  })
  app.get<OfItem>('/items/:collection/:id', async (request, reply) =>
    json(
      reply,
      await readOne(rt, request.caller.access, request.params.collection, request.params.id, queryOf(request)),
    ),
  )
  app.post<OfCollection>('/items/:collection', async (request, reply) => {
    const id = await createItem(rt, writerOf(request), request.params.collection, request.body)
    return json(reply.code(201), `{"data":{"id":${id}}}`)
  })
  app.patch<OfItem>('/items/:collection/:id', async (request, reply) => {
    const id = await updateItem(rt, writerOf(request), request.params.collection, request.params.id, request.body)
    return json(reply, `{"data":{"id":${id}}}`)
  })
  app.delete<OfItem>('/items/:collection/:id', async (request, reply) => {
    const [id] = await deleteItems(rt, writerOf(request), request.params.collection, [request.params.id])
    return json(reply, `{"data":{"id":${id}}}`)
  })
  app.post<OfCollection>('/items/:collection/bulk', async (request, reply) => {
    const ids = await createItems(
      rt,
      writerOf(request),
      request.params.collection,
      listOf(request.body, 'Request body must be an array'),
    )
    return json(reply.code(201), `{"data":[${ids}]}`)
  })
  app.patch<OfCollection>('/items/:collection/bulk', async (request, reply) => {
    const ids = await updateItems(
      rt,
      writerOf(request),
      request.params.collection,
      listOf(request.body, 'Request body must be an array'),
    )
    return json(reply, `{"data":[${ids}]}`)
  })
  app.delete<OfCollection>('/items/:collection/bulk', async (request, reply) => {
    await deleteItems(
      rt,
      writerOf(request),
      request.params.collection,
      listOf(request.body, 'Request body must be an array of IDs'),
    )
    return reply.code(204).send()
  })
}

function writerOf(request: FastifyRequest): Writer {
  return { actor: actorOf(request), access: request.caller.access }
}

function queryOf(request: FastifyRequest): Record<string, unknown> {
  return request.query as Record<string, unknown>
}

/** The text is JSON already; serialising it again would cost more than the query. */
function json(reply: FastifyReply, body: string | Readable): FastifyReply {
  return reply.type('application/json; charset=utf-8').send(body)
}

function listOf(body: unknown, message: string): readonly unknown[] {
  if (!Array.isArray(body)) throw errors.badBody(message)
  return body
}
