import type { FastifyRequest } from 'fastify'
import type { Static, TSchema } from 'typebox'
import { Type } from '../../../adapters/typebox.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { type Declaration, route } from '../../../http/route.ts'
import {
  Count,
  closed,
  Filled,
  Id,
  Moment,
  Nothing,
  NullableId,
  NullableMoment,
  NullableText,
  OneOf,
  Text,
} from '../../../http/shapes.ts'
import {
  actionsOfWebhooks,
  changeWebhook,
  createWebhook,
  listDeliveries,
  listWebhooks,
  readDelivery,
  readWebhook,
  redeliverOne,
  removeWebhook,
  replayWebhook,
  rotateSecret,
  testWebhook,
  type WebhookWrites,
} from './webhooks.ts'

/** `/webhooks`: for administrators, and for roles with grants on svc_Webhook, who have their own. */
export function webhookRoutes(app: App, deps: WebhookWrites): void {
  app.post('/webhooks', createRoute, async (request, reply) =>
    reply.code(201).send({ data: await createWebhook(deps, askerOf(request), request.body) }),
  )
  app.get('/webhooks', listRoute, async ({ caller }) => ({ data: [...(await listWebhooks(deps, caller))] }))
  app.get('/webhooks/:id', readRoute, async ({ caller, params }) => ({
    data: await readWebhook(deps, caller, params.id),
  }))
  app.patch('/webhooks/:id', changeRoute, async (request) => ({
    data: await changeWebhook(deps, askerOf(request), request.params.id, request.body),
  }))
  app.delete('/webhooks/:id', deleteRoute, async (request, reply) => {
    await removeWebhook(deps, askerOf(request), request.params.id)
    return reply.code(204).send(null)
  })
  app.post('/webhooks/:id/rotate', rotateRoute, async (request) => ({
    data: await rotateSecret(deps, askerOf(request), request.params.id),
  }))
  app.post('/webhooks/:id/test', testRoute, async (request, reply) =>
    reply.code(202).send({ data: await testWebhook(deps, askerOf(request), request.params.id) }),
  )
  app.post('/webhooks/:id/replay', replayRoute, async (request, reply) => {
    await replayWebhook(deps, askerOf(request), request.params.id, request.body.since)
    return reply.code(202).send({ data: { id: request.params.id } })
  })
  app.get('/webhooks/:id/deliveries', deliveriesRoute, async ({ caller, params, query }) => ({
    data: [...(await listDeliveries(deps, caller, params.id, query))],
  }))
  app.get('/webhooks/:id/deliveries/:delivery', deliveryRoute, async ({ caller, params }) => ({
    data: await readDelivery(deps, caller, params.id, params.delivery),
  }))
  app.post('/webhooks/:id/deliveries/:delivery/redeliver', redeliverRoute, async (request, reply) => {
    await redeliverOne(deps, askerOf(request), request.params.id, request.params.delivery)
    return reply.code(202).send({ data: { id: request.params.delivery } })
  })
}

const askerOf = (request: FastifyRequest) => ({ caller: request.caller, actor: actorOf(request) })

const declared = <const D extends Omit<Declaration, 'tag'>>(declaration: D) =>
  route({ tag: 'Webhooks', ...declaration }, { bodyLimit: 262_144 })

const nameShape = Filled('Orders to the warehouse', { maxLength: 255 })
const urlShape = Filled('https://warehouse.example/hooks/daybook', { maxLength: 2048, description: 'http or https.' })
const collectionsShape = Type.Array(Filled('order'), { minItems: 1, maxItems: 50 })
const actionShape = OneOf(actionsOfWebhooks, { description: '`remove`: the role sees it no more.' })
const orNull = <const Shape extends TSchema>(shape: Shape, example: unknown, description: string) =>
  Type.Unsafe<Static<Shape> | null>({ anyOf: [shape, { type: 'null' }], examples: [example], description })
const actionsShape = orNull(
  Type.Array(actionShape, { minItems: 1 }),
  ['create', 'update'],
  'All unless given: create, update, delete and remove, which says that the role sees it no more.',
)
const filterShape = orNull(
  Type.Record(Type.String(), Type.Unknown()),
  { status: { eq: 'paid' } },
  'A filter of the query language, for each of the collections.',
)
const fieldsShape = orNull(Type.Array(Text('status')), ['id', 'status'], 'All that the role may read unless given.')

const NewWebhook = Type.Object(
  {
    name: nameShape,
    url: urlShape,
    collections: collectionsShape,
    actions: Type.Optional(actionsShape),
    filter: Type.Optional(filterShape),
    fields: Type.Optional(fieldsShape),
    role_Id: Type.Optional(Id({ description: 'The role that it sees with; yours unless given.' })),
    tenant_Id: Type.Optional(NullableId({ description: 'And the tenant; yours unless given.' })),
  },
  closed,
)

const WebhookChange = Type.Object(
  {
    name: Type.Optional(nameShape),
    url: Type.Optional(urlShape),
    collections: Type.Optional(collectionsShape),
    actions: Type.Optional(actionsShape),
    filter: Type.Optional(filterShape),
    fields: Type.Optional(fieldsShape),
    role_Id: Type.Optional(Id()),
    tenant_Id: Type.Optional(NullableId()),
    status: Type.Optional(OneOf(['active', 'paused'])),
  },
  closed,
)

const Webhook = Type.Object({
  id: Id(),
  name: Text('Orders to the warehouse'),
  url: Text('https://warehouse.example/hooks/daybook'),
  collections: Type.Array(Text('order')),
  actions: actionsShape,
  filter: filterShape,
  fields: fieldsShape,
  status: OneOf(['active', 'paused']),
  reason: NullableText('nothing has reached the endpoint for a day', { description: 'Why it is paused.' }),
  role_Id: Id(),
  tenant_Id: NullableId(),
  user_Id: Id({ description: 'The owner.' }),
  createdAt: Type.Unsafe<Date>(Moment()),
  updatedAt: Type.Unsafe<Date>(Moment()),
})

const NullableCount = (example: number) =>
  Type.Unsafe<number | null>({ type: ['integer', 'null'], examples: [example] })

const Delivery = Type.Object({
  id: Id({ description: 'The `webhook-id` of its requests.' }),
  collection: NullableText('order'),
  action: Text('update', { description: 'create, update, delete, remove, resync or test' }),
  itemId: NullableText('42'),
  position: Text('4711'),
  status: OneOf(['pending', 'delivered', 'withheld', 'dead'], {
    description: '`withheld`: its role saw it no more when it was due. `dead`: given up after three days.',
  }),
  attempts: Count(1),
  nextAt: Type.Unsafe<Date | null>(NullableMoment()),
  responseStatus: NullableCount(204),
  response: NullableText('ok', { description: 'The beginning of the body that was answered.' }),
  error: NullableText('the endpoint answered 500'),
  durationMs: NullableCount(87),
  createdAt: Type.Unsafe<Date>(Moment()),
  updatedAt: Type.Unsafe<Date>(Moment()),
})

const WithSecret = Type.Object({
  data: Type.Object({
    id: Id(),
    secret: Text('whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD', { description: 'Shown once.' }),
  }),
})
const Accepted = Type.Object({ data: Type.Object({ id: Id() }) })
const ofOne = Type.Object({ id: Id() })
const ofDelivery = Type.Object({ id: Id(), delivery: Id() })

const createRoute = declared({
  summary: 'Make a webhook',
  scope: 'admin',
  answersSecret: true,
  body: NewWebhook,
  response: { 201: WithSecret },
})
const listRoute = declared({
  summary: 'List webhooks',
  scope: 'read',
  description: 'Yours; an administrator’s are all.',
  response: { 200: Type.Object({ data: Type.Array(Webhook) }) },
})
const one = { 200: Type.Object({ data: Webhook }) }
const readRoute = declared({ summary: 'Read a webhook', scope: 'read', params: ofOne, response: one })
const changeRoute = declared({
  summary: 'Change, pause or resume a webhook',
  scope: 'admin',
  description: 'While it is paused its place in the log is kept; resumed it is told everything since.',
  ...{ params: ofOne, body: WebhookChange, response: one },
})
const deleteRoute = declared({ summary: 'Delete a webhook', scope: 'admin', params: ofOne, response: { 204: Nothing } })
const rotateRoute = declared({
  summary: 'Give a webhook another secret',
  scope: 'admin',
  description: 'For a day deliveries are signed with both.',
  answersSecret: true,
  ...{ params: ofOne, response: { 200: WithSecret } },
})
const testRoute = declared({
  summary: 'Send a test delivery',
  scope: 'admin',
  params: ofOne,
  response: { 202: Accepted },
})
const replayRoute = declared({
  summary: 'Deliver everything again since a place',
  scope: 'admin',
  description: 'Repeated deliveries have the same `webhook-id`.',
  params: ofOne,
  body: Type.Object(
    {
      since: Filled('2026-03-14T09:26:53.589Z', { description: 'A cursor, a moment, `beginning` or `now`.' }),
    },
    closed,
  ),
  response: { 202: Accepted },
})
const deliveriesRoute = declared({
  summary: 'List the deliveries of a webhook',
  scope: 'read',
  description: 'The newest first. Those that are done are kept for a week, those given up for a month.',
  params: ofOne,
  query: Type.Object({
    status: Type.Optional(OneOf(['pending', 'delivered', 'withheld', 'dead'])),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 500, examples: [50] })),
  }),
  response: { 200: Type.Object({ data: Type.Array(Delivery) }) },
})
const deliveryRoute = declared({
  summary: 'Read a delivery',
  scope: 'read',
  params: ofDelivery,
  response: { 200: Type.Object({ data: Delivery }) },
})
const redeliverRoute = declared({
  summary: 'Deliver once more',
  scope: 'admin',
  params: ofDelivery,
  response: { 202: Accepted },
})
