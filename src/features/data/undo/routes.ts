import { Type } from '../../../adapters/typebox.ts'
import { type App, sendJson } from '../../../http/http.ts'
import { routesOf } from '../../../http/route.ts'
import {
  Anything,
  badQuery,
  Count,
  closed,
  Moment,
  NullableId,
  NullableText,
  OneOf,
  Text,
} from '../../../http/shapes.ts'
import { CollectionParams, queryOf, requesterOf } from '../items/items.ts'
import type { UndoReads, UndoWrites } from './queries.ts'
import { listRequests, readFacets, readMoments, readRequest } from './requests.ts'
import { listDeleted } from './trash.ts'
import { undo } from './undo.ts'

/** Requests and their effects, and undo (docs/undo.md). */
export function undoRoutes(app: App, deps: UndoWrites): void {
  app.get('/log/requests', requestsRoute, (request) => listRequests(deps, request.caller.access, request.query))
  app.get('/log/facets', facetsRoute, async ({ caller, query }) => ({
    data: await readFacets(deps, caller.access, query),
  }))
  app.get('/log/moments', momentsRoute, async ({ caller, query }) => ({
    data: await readMoments(deps, caller.access, query),
  }))
  app.get('/log/requests/:id', requestRoute, (request) => readRequest(deps, request.caller.access, request.params.id))
  app.post('/log/undo', undoRoute, async (request) => ({ data: await undo(deps, requesterOf(request), request.body) }))
}

/** Deleted items that can be restored; open to callers who might have read them. */
export function trashRoutes(app: App, deps: UndoReads): void {
  app.get('/items/:collection/deleted', deletedRoute, async (request, reply) => {
    const list = await listDeleted(deps, request.caller.access, request.params.collection, queryOf(request))
    return sendJson(reply, list)
  })
}

const declared = routesOf('History')

const Row = { collection: Text('invoice'), id: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44') }

const UndoBody = Type.Object(
  {
    requestId: Type.Optional(
      Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: "The log's id of a request." }),
    ),
    position: Type.Optional(
      Type.Union([Type.Integer({ minimum: 0 }), Type.String()], {
        description: 'Of an event, or the id of one: its transaction is undone.',
        examples: ['4711'],
        refusal: 'position must be that of an event',
      }),
    ),
    actor: Type.Optional(
      Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'A user; needs `from` and `to`.' }),
    ),
    from: Type.Optional(Moment({ refusal: 'from must be a time such as 2026-03-14T09:26:53Z' })),
    to: Type.Optional(Moment({ refusal: 'to must be a time such as 2026-03-14T09:26:53Z' })),
    collections: Type.Optional(
      Type.Array(Text('invoice'), { maxItems: 1000, description: 'With `actor`: only changes of these.' }),
    ),
    include: Type.Optional(
      OneOf(['caused'], {
        description: 'Also what the request led to: by hooks, tasks and what these led to.',
        refusal: 'include can only be "caused"',
      }),
    ),
    dryRun: Type.Optional(Type.Boolean({ description: 'Writes nothing and answers what would be done.' })),
    limit: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 1000,
        description:
          'How many rows, conflicts and effects are listed; the answer then says in `more` how many are not.',
        examples: [100],
        refusal: 'limit must be a number from 1 to 1000',
      }),
    ),
    plan: Type.Optional(
      Text('J3k…', { description: 'Of a dry run: 409 `PLAN_CHANGED` where it would now be another one.' }),
    ),
    force: Type.Optional(
      Type.Array(
        Type.Object({
          ...Row,
          id: Type.Union([Type.String(), Type.Number()], { examples: ['0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'] }),
        }),
        {
          maxItems: 100_000,
          description: 'Rows to be undone although others have changed them since.',
          refusal: 'force must be a list of {collection, id}',
        },
      ),
    ),
  },
  closed,
)

const Reasons = Type.Array(
  Type.Object({
    reason: OneOf(['changed', 'deleted', 'lost', 'erased', 'referenced', 'reference gone', 'taken']),
    fields: Type.Optional(Type.Array(Text('price'))),
    by: Type.Optional(Type.Array(Type.Object({ collection: Text('line'), rows: Count(2) }))),
    required: Type.Optional(Type.Boolean()),
  }),
)

const Report = Type.Object({
  plan: Text('J3k…', { description: 'To be sent with the undo itself, so that nothing else is undone.' }),
  counts: Type.Array(
    Type.Object({
      collection: Text('invoice'),
      create: Count(2),
      update: Count(0),
      delete: Count(1),
      conflicts: Count(0),
    }),
  ),
  rows: Type.Array(
    Type.Object({
      ...Row,
      action: OneOf(['create', 'update', 'delete', 'none']),
      fields: Type.Optional(Type.Array(Text('price'))),
    }),
    { description: 'The first 1,000 that the caller may read.' },
  ),
  conflicts: Type.Array(Type.Object({ ...Row, reasons: Reasons }), { description: 'The first 1,000.' }),
  notUndone: Type.Array(
    Anything({ event: 'mail.queued', id: '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', at: '2026-03-14T09:26:53.589Z' }),
    {
      description: 'The effects that stay: rows that are never undone, and facts such as mails that were sent.',
    },
  ),
  more: Type.Optional(
    Type.Object(
      { rows: Count(11_900), conflicts: Count(0), notUndone: Count(0) },
      { description: 'With `limit`: how many entries the lists leave out.' },
    ),
  ),
})

const undoRoute = declared({
  summary: 'Undo a request',
  scope: 'write',
  description:
    'Writes the reverse of all that a request, a transaction or a user did, in one transaction and with the permissions of the caller. `dryRun` answers the same and writes nothing.',
  body: UndoBody,
  response: { 200: Type.Object({ data: Report }) },
})

/** Without what comes from fields of svc_AuditLog that the caller may not read. */
const Listed = {
  requestId: Type.Optional(NullableId({ description: "The log's own id; null for a transaction of no request." })),
  position: Text('4711', { description: 'Of its first event.' }),
  clientRequestId: Type.Optional(
    NullableText('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: "The answer's `x-request-id`." }),
  ),
  at: Type.Optional(Text('2026-03-14T09:26:53.589Z')),
  until: Type.Optional(Text('2026-03-14T09:26:53.612Z')),
  userId: Type.Optional(NullableId()),
  tenant_Id: Type.Optional(NullableId()),
  ipaddress: Type.Optional(NullableText('203.0.113.7')),
  agent: Type.Optional(Anything({ name: 'claude-desktop', tool: 'items.update' })),
  cause: Type.Optional(Anything({ request: '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', depth: 1, by: 'hook' })),
  events: Count(3),
  counts: Type.Optional(
    Type.Array(
      Type.Object({
        collection: Type.Optional(Text('invoice')),
        action: Type.Optional(Text('create')),
        events: Count(3),
      }),
    ),
  ),
}

const requestsRoute = declared({
  summary: 'List requests of the log',
  scope: 'read',
  description:
    'The newest first, of all events that the permission to read `svc_AuditLog` shows, without what comes from fields that it does not. A filter finds a request by any of its events; 403 for one by such a field, and without `createdAt`.',
  query: Type.Object({
    actor: Type.Optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'The id of a user.' })),
    from: Type.Optional(Text('2026-03-14T09:00:00Z')),
    to: Type.Optional(Text('2026-03-14T10:00:00Z')),
    collection: Type.Optional(Text('invoice')),
    action: Type.Optional(Text('delete')),
    tenant: Type.Optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44')),
    requestId: Type.Optional(
      Text('import-7', { description: "The answer's `x-request-id`, also one that a client chose." }),
    ),
    agent: Type.Optional(Text('claude-desktop')),
    cause: Type.Optional(
      Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'A request that this one led to.' }),
    ),
    limit: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 100,
        description: 'At most 100.',
        examples: [25],
        refusal: badQuery('limit: must be an integer from 1 to 100'),
      }),
    ),
    cursor: Type.Optional(Text('eyJhdCI6…', { description: 'The `nextCursor` of the page before.' })),
  }),
  response: {
    200: Type.Object({ data: Type.Array(Type.Object(Listed)), nextCursor: NullableText('eyJhdCI6…') }),
  },
})

const Values = Type.Optional(
  Type.Array(Type.Object({ value: NullableText('invoice'), events: Count(3) }), {
    description: 'The 50 most frequent.',
  }),
)

const facetsRoute = declared({
  summary: 'Count the events of the log by their values and over time',
  scope: 'read',
  description:
    'Of all events that the permission to read `svc_AuditLog` shows. Each facet counts what the filters of the others leave. At most 200,000 events are looked at, the newest. 403 for a filter by a field that the permission does not show, and without `createdAt`.',
  query: Type.Object({
    from: Type.Optional(Text('2026-03-14T09:00:00Z', { description: 'A day before `to` unless given.' })),
    to: Type.Optional(Text('2026-03-14T10:00:00Z', { description: 'Now unless given.' })),
    collection: Type.Optional(Text('invoice')),
    action: Type.Optional(Text('delete')),
    actor: Type.Optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'The id of a user.' })),
    tenant: Type.Optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44')),
    agent: Type.Optional(Text('claude-desktop')),
    buckets: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 500,
        description: 'Bars of the histogram; 60 unless given.',
        examples: [60],
        refusal: badQuery('buckets: must be an integer from 1 to 500'),
      }),
    ),
  }),
  response: {
    200: Type.Object({
      data: Type.Object({
        from: Text('2026-03-14T09:00:00.000Z'),
        to: Text('2026-03-14T10:00:00.000Z'),
        bucketMs: Count(60_000),
        events: Count(3),
        histogram: Type.Array(Type.Object({ at: Text('2026-03-14T09:26:00.000Z'), events: Count(3) })),
        facets: Type.Object({ collection: Values, action: Values, actor: Values, tenant: Values, agent: Values }),
        complete: Type.Boolean({ description: 'False where there are more events than are looked at.' }),
        since: Text('2026-03-14T09:00:00.000Z', { description: 'Events from then on were looked at.' }),
      }),
    }),
  },
})

const ofMoment = (description: string) => NullableText('2026-03-14T09:26:53.589793Z', { description })

const momentsRoute = declared({
  summary: 'Find the moments at which items changed',
  scope: 'read',
  description:
    'For `asOf`: the last change up to a time, and the changes before and after it, as far as the permission to read `svc_AuditLog` shows them. A change is all that one transaction did to the collections.',
  query: Type.Object({
    collections: Text('invoice,line', { description: 'Names by commas.' }),
    item: Type.Optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'Only changes of this item.' })),
    at: Type.Optional(Text('2026-03-14T09:30:00Z', { description: 'Now unless given.' })),
  }),
  response: {
    200: Type.Object({
      data: Type.Object({
        at: ofMoment('Of the last change up to the time; null where there is none.'),
        before: ofMoment(
          'Of the last change before the time: that of `at` unless the time is its own, to the millisecond.',
        ),
        after: ofMoment('Of the next change after the time.'),
      }),
    }),
  },
})

const Events = Type.Array(
  Type.Object({
    id: Text('00000000-1267-8000-8000-000000000000'),
    position: Text('4711'),
    type: Type.Optional(Text('data')),
    collection: Type.Optional(Text('invoice')),
    item: Type.Optional(NullableText('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44')),
    action: Type.Optional(Text('update')),
    createdAt: Type.Optional(Text('2026-03-14T09:26:53.589Z')),
    changes: Type.Optional(Anything({ before: { price: 1200 }, after: { price: 1100 } })),
  }),
  { description: 'The first 1,000.' },
)

const requestRoute = declared({
  summary: 'Read a request of the log',
  scope: 'read',
  description:
    'With its events, what it led to, what led to it, and the requests that have undone it: each as far as the permission to read `svc_AuditLog` shows the fields that it comes from.',
  params: Type.Object({
    id: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', {
      description: "The log's id of a request, or the position or id of an event, for its transaction.",
    }),
  }),
  response: {
    200: Type.Object({
      data: Type.Object({
        ...Listed,
        eventList: Events,
        caused: Type.Optional(
          Type.Array(Type.Object({ ...Listed, eventList: Events, caused: Type.Optional(Type.Array(Anything({}))) }), {
            description: 'The requests that it led to, each with its own consequences.',
          }),
        ),
        chain: Type.Optional(
          Type.Array(Type.Object(Listed), { description: 'The causes of the request, the first one first.' }),
        ),
        undoneBy: Type.Optional(Type.Array(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'))),
      }),
    }),
  },
})

const deletedRoute = declared({
  summary: 'List deleted items',
  scope: 'read',
  description: 'The trash: items that were deleted and that the log can bring back, the last deleted first.',
  params: CollectionParams,
  query: Type.Object({
    limit: Type.Optional(Count(25, { minimum: 1, maximum: 100 })),
    cursor: Type.Optional(
      Text('00000000-1267-8000-8000-000000000000', { description: 'The `nextCursor` of the page before.' }),
    ),
  }),
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({
          id: Anything('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'),
          event: Text('00000000-1267-8000-8000-000000000000', { description: 'Of the deletion.' }),
          deletedAt: Text('2026-03-14T09:26:53.589Z'),
          deletedBy: NullableId(),
          requestId: NullableId({ description: "The log's id of the request that deleted it." }),
          item: Anything({ id: '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', name: 'Analytical engine' }),
        }),
      ),
      nextCursor: NullableText('00000000-1267-8000-8000-000000000000'),
    }),
  },
  readElsewhere: 'all',
  sendsText: true,
})
