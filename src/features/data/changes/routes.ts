import { Type } from '../../../adapters/typebox.ts'
import { type App, sendJson } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Count, GeneralError, Names, OneOf, Row, Text } from '../../../http/shapes.ts'
import { Key, queryOf } from '../items/items.ts'
import type { ChangesReads } from './changes.ts'
import { readChanges } from './changes.ts'

/** Pull synchronisation: open to callers who may read a collection, like the items themselves. */
export function changesRoutes(app: App, deps: ChangesReads): void {
  app.get('/changes', changesRoute, async (request, reply) => {
    const changes = await readChanges(deps, request.caller.access, queryOf(request))
    return sendJson(reply, changes)
  })
}

const changesRoute = route({
  summary: 'Read what has changed',
  scope: 'read',
  description: 'Of the items that you may read, in order, nothing missing and nothing twice.',
  tag: 'Changes',
  query: Type.Object({
    since: Type.Optional(
      Text('eyJ4IjoxfQ', { description: 'The cursor of the answer before; without it the cursor of now.' }),
    ),
    collections: Type.Optional(Names(['products', 'orders'], { description: 'All that you may read unless given.' })),
    fields: Type.Optional(Names(['products.name'], { description: 'All fields unless given.' })),
    limit: Type.Optional(Count(500, { minimum: 1, maximum: 1000, description: 'How many events are looked at.' })),
  }),
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({
          collection: Text('products'),
          action: OneOf(['create', 'update', 'delete', 'remove'], {
            description: '`remove`: it is yours to see no more.',
          }),
          id: Key,
          data: Type.Optional(Row),
          timestamp: Text('2026-03-14T09:26:53.589Z'),
          position: Text('4711'),
        }),
      ),
      cursor: Text('eyJ4IjoxfQ'),
      hasMore: Type.Boolean(),
      resync: Type.Array(Text('products'), { description: 'Collections that must be read anew.' }),
    }),
    404: GeneralError,
  },
  readElsewhere: 'all',
  sendsText: true,
})
