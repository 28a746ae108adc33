import type { CurrentAccess } from '../../../access/store.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { Reads } from '../../../db/pools.ts'
import type { Writes } from '../../../events/commit.ts'
import type { App } from '../../../http/http.ts'
import { routesOf } from '../../../http/route.ts'
import {
  Anything,
  Filled,
  Id,
  IdParams,
  Moment,
  Nothing,
  NullableId,
  NullableText,
  Text,
} from '../../../http/shapes.ts'
import { createView, deleteView, listViews, updateView } from './views.ts'

/** Saved views of whoever is signed in. Row changes are their only events. */
export function viewRoutes(app: App, deps: Reads & Writes & CurrentAccess): void {
  app.get('/views', listRoute, async (request) => ({ data: await listViews(deps, request, request.query) }))
  app.post('/views', createRoute, async (request, reply) =>
    reply.code(201).send({ data: await createView(deps, request, request.body) }),
  )
  app.patch('/views/:id', changeRoute, async (request) => ({
    data: await updateView(deps, request, request.params.id, request.body),
  }))
  app.delete('/views/:id', removeRoute, async (request, reply) => {
    await deleteView(deps, request, request.params.id)
    return reply.code(204).send()
  })
}

const declared = routesOf('Settings')

const members = {
  name: Filled('Overdue', { maxLength: 200, refusal: 'name must be 1 to 200 characters' }),
  page: Filled('data', { maxLength: 50, refusal: 'page is required' }),
  collection: Type.Optional(NullableText('invoice', { maxLength: 63 })),
  query: Type.Record(Type.String(), Type.Unknown(), {
    description: 'The settings of the page, in its own form.',
    examples: [{ filter: { status: 'open' }, sort: '-dueAt' }],
    refusal: 'query must be an object',
  }),
  role_Id: Type.Optional(
    NullableId({ description: 'Administrators: the role that it is shared with.', refusal: 'role_Id must be an id' }),
  ),
}
const Saved = Type.Object({
  id: Id(),
  name: Text('Overdue'),
  page: Text('data'),
  collection: NullableText('invoice'),
  query: Anything({ filter: { status: 'open' } }),
  role_Id: NullableId(),
  isOwn: Type.Boolean(),
  createdAt: Moment(),
  updatedAt: Moment(),
})

const listRoute = declared({
  summary: 'List your saved views, and those shared with your role',
  scope: 'read',
  query: Type.Object({
    page: Type.Optional(Text('data', { description: 'Of one page.' })),
    collection: Type.Optional(Text('invoice', { description: 'Of one collection.' })),
  }),
  response: { 200: Type.Object({ data: Type.Array(Saved) }) },
})
const createRoute = declared({
  summary: 'Save a view',
  scope: 'write',
  body: Type.Object(members, { refusal: 'Request body must be an object' }),
  response: { 201: Type.Object({ data: Saved }) },
  sendsText: true,
})
const changeRoute = declared({
  summary: 'Change a saved view',
  scope: 'write',
  params: IdParams,
  body: Type.Partial(Type.Object(members)),
  response: { 200: Type.Object({ data: Saved }) },
})
const removeRoute = declared({
  summary: 'Delete a saved view',
  scope: 'write',
  params: IdParams,
  response: { 204: Nothing },
  sendsText: true,
})
