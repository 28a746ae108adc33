import { Type } from '../../../adapters/typebox.ts'
import { type App, actorOf, sendJson } from '../../../http/http.ts'
import { routesOf } from '../../../http/route.ts'
import { Anything, Count, IdParams, NullableId, NullableText, Text } from '../../../http/shapes.ts'
import { ItemParams, queryOf, requesterOf, WrittenShape } from '../items/items.ts'
import { eraseItem, exportUser, type HistoryWrites, readHistory, readNow } from './history.ts'
import { RestoreBody, restoreItem } from './restore.ts'

/** The history of items, and restore (docs/history.md). */
export function historyRoutes(app: App, deps: HistoryWrites): void {
  app.get('/history/now', nowRoute, () => readNow(deps))
  app.get('/items/:collection/:id/history', listRoute, async (request, reply) => {
    const { collection, id } = request.params
    const history = await readHistory(deps, request.caller.access, collection, id, queryOf(request))
    return sendJson(reply, history)
  })
  app.post('/items/:collection/:id/restore', restoreRoute, async (request, reply) => {
    const { collection, id } = request.params
    const restored = await restoreItem(deps, requesterOf(request), collection, id, request.body)
    return sendJson(reply, `{"data":{"id":${restored}}}`)
  })
}

export function historyAdminRoutes(app: App, deps: HistoryWrites): void {
  app.delete('/items/:collection/:id/history', eraseRoute, async (request) => {
    const { collection, id } = request.params
    return { data: { events: await eraseItem(deps, actorOf(request), collection, id) } }
  })
  app.get('/history/users/:id/export', exportUserRoute, async (request, reply) => {
    const lines = await exportUser(deps, request.params.id)
    return reply
      .type('application/x-ndjson; charset=utf-8')
      .header('content-disposition', 'attachment; filename="history.ndjson"')
      .send(lines)
  })
}

const declared = routesOf('History')

const nowRoute = declared({
  summary: 'Read a cursor of this moment',
  scope: 'read',
  response: {
    200: Type.Object({
      data: Type.Object({
        cursor: Text('eyJ4IjoxfQ'),
        time: Text('2026-03-14T09:26:53.589Z'),
        oldest: NullableText('2026-01-01T00:00:00.000Z', { description: 'The oldest moment that can be read.' }),
      }),
    }),
  },
})
const listRoute = declared({
  summary: 'Read what happened to an item',
  scope: 'read',
  description: 'The newest event first.',
  params: ItemParams,
  query: Type.Object({
    limit: Type.Optional(Count(25, { minimum: 1, maximum: 100 })),
    cursor: Type.Optional(Text('4711', { description: 'The `nextCursor` of the page before.' })),
  }),
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({
          id: Text('4711'),
          action: Text('update'),
          createdAt: Text('2026-03-14T09:26:53.589Z'),
          userId: NullableId(),
          requestId: NullableId({ description: 'The id for `POST /log/undo`.' }),
          agent: Anything({ name: 'claude-desktop', tool: 'items.update' }),
          cause: Anything({ request: '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', depth: 1, by: 'hook' }),
          erased: Type.Boolean(),
          changes: Anything({ price: { before: 1200, after: 1100 } }),
        }),
      ),
      nextCursor: NullableText('4711'),
    }),
  },
  readElsewhere: 'all',
  sendsText: true,
})
const restoreRoute = declared(
  {
    summary: 'Bring an item back to an earlier version',
    scope: 'write',
    params: ItemParams,
    body: RestoreBody,
    response: { 200: WrittenShape },
    // The permission to see the item is checked first.
    readElsewhere: 'all',
    sendsText: true,
  },
  { bodyLimit: 16_384 },
)
const eraseRoute = declared({
  summary: 'Erase the history of an item',
  scope: 'admin',
  description: 'The images of its events go; who did what and when stays, and so does the item.',
  params: ItemParams,
  response: { 200: Type.Object({ data: Type.Object({ events: Count(12) }) }) },
})
const exportUserRoute = declared({
  summary: 'Download everything that the log holds about a user',
  scope: 'admin',
  params: IdParams,
  response: { 200: Text('{"position":"4711"}', { contentMediaType: 'application/x-ndjson' }) },
  sendsText: true,
})
