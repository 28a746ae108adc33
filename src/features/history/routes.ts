import { type App, actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { queryOf, writerOf } from '../items/routes.ts'
import { eraseItem, exportUser, readHistory, readNow } from './history.ts'
import { restoreItem } from './restore.ts'

type OfItem = { Params: { collection: string; id: string } }

/** What happened to an item, and its way back (docs/history.md). */
export function historyRoutes(app: App, rt: Runtime): void {
  app.get('/history/now', () => readNow(rt))
  app.get<OfItem>('/items/:collection/:id/history', async (request, reply) => {
    const { collection, id } = request.params
    const history = await readHistory(rt, request.caller.access, collection, id, queryOf(request))
    return reply.type('application/json; charset=utf-8').send(history)
  })
  app.post<OfItem>('/items/:collection/:id/restore', { bodyLimit: 16_384 }, async (request, reply) => {
    const { collection, id } = request.params
    const restored = await restoreItem(rt, writerOf(request), collection, id, request.body)
    return reply.type('application/json; charset=utf-8').send(`{"data":{"id":${restored}}}`)
  })
}

export function historyAdminRoutes(app: App, rt: Runtime): void {
  app.delete<OfItem>('/items/:collection/:id/history', async (request) => {
    const { collection, id } = request.params
    return { data: { events: await eraseItem(rt, actorOf(request), collection, id) } }
  })
  app.get<{ Params: { id: string } }>('/history/users/:id/export', async (request, reply) => {
    const lines = await exportUser(rt, request.params.id)
    return reply
      .type('application/x-ndjson; charset=utf-8')
      .header('content-disposition', 'attachment; filename="history.ndjson"')
      .send(lines)
  })
}
