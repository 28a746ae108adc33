import type { FastifyReply } from 'fastify'
import { sql } from '../../db/sql.ts'
import { AppError } from '../../errors.ts'
import { type App, actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { readList, readOne } from '../items/reads.ts'
import { createItem, deleteItems, updateItem, type Writer } from '../items/writes.ts'
import { checkPermission } from './check.ts'

type OfPermission = { Params: { id: string } }
const collection = 'svc_Permission'

/** Reading permissions follows the ordinary read permission on svc_Permission (spec/permissions.md §4). */
export function permissionRoutes(app: App, rt: Runtime): void {
  app.get('/permissions', async (request, reply) => {
    const answer = await readList(rt, request.caller.access, collection, request.query as Record<string, unknown>)
    return json(reply, answer)
  })
  app.get<OfPermission>('/permissions/:id', async (request, reply) =>
    json(
      reply,
      await readOne(rt, request.caller.access, collection, request.params.id, request.query as Record<string, unknown>),
    ),
  )
}

/** Changes answer the raw permission, not wrapped; they hold everywhere within a second, here at once. */
export function permissionAdminRoutes(app: App, rt: Runtime): void {
  app.post('/permissions', async (request, reply) => {
    const id = await createItem(rt, writer(request), collection, checkPermission(rt, request.body))
    await rt.access.reload()
    return reply.code(201).send(await storedPermission(rt, JSON.parse(id)))
  })
  app.patch<OfPermission>('/permissions/:id', async (request) => {
    const before = await storedPermission(rt, request.params.id)
    checkPermission(rt, { ...before, ...(request.body as object) })
    await updateItem(rt, writer(request), collection, request.params.id, request.body)
    await rt.access.reload()
    return storedPermission(rt, request.params.id)
  })
  app.delete<OfPermission>('/permissions/:id', async (request, reply) => {
    await deleteItems(rt, writer(request), collection, [request.params.id])
    await rt.access.reload()
    return reply.code(204).send()
  })
  app.post('/permissions/reload', async () => {
    await rt.access.reload()
    return { message: 'Permission cache reloaded successfully' }
  })
}

function writer(request: Parameters<typeof actorOf>[0]): Writer {
  return { actor: actorOf(request), access: request.caller.access }
}

async function storedPermission(rt: Runtime, id: string): Promise<object> {
  const row = await rt.db.maybeOne<{ permission: object }>(
    sql.unsafe`select to_jsonb(p) as permission from "svc_Permission" p where id::text = ${id}`,
  )
  if (row === undefined) throw new AppError(404, 'Permission not found')
  return row.permission
}

function json(reply: FastifyReply, body: unknown): FastifyReply {
  return reply.type('application/json; charset=utf-8').send(body)
}
