import { Type } from '../../../adapters/typebox.ts'
import { type App, actorOf, sendJson } from '../../../http/http.ts'
import { type Declaration, route } from '../../../http/route.ts'
import { Count, Id, Text } from '../../../http/shapes.ts'
import { ItemsShape, ListQuery, queryOf, requesterOf } from '../../data/items/items.ts'
import {
  CleanupShape,
  cleanUpNotifications,
  idsOfQuery,
  listNotifications,
  NamedShape,
  NewNotificationShape,
  newNotificationOf,
  sendNotifications,
} from './notifications.ts'
import { countUnseen, deleteOwn, markSeen, type NotificationWrites, ownNotifications } from './queries.ts'

/** `/notifications`: only the caller's own. The database appends row events. */
export function notificationRoutes(app: App, deps: NotificationWrites): void {
  app.get('/notifications', listRoute, async (request, reply) => {
    const list = await listNotifications(deps, requesterOf(request), queryOf(request))
    return sendJson(reply, list)
  })
  app.get('/notifications/unread/count', countRoute, async ({ caller }) => ({
    count: await countUnseen(deps, ownNotifications(caller.access)),
  }))
  app.post('/notifications/mark-seen', markRoute, async (request) => {
    const { notificationIds: ids } = request.body
    const count = await markSeen(deps, actorOf(request), ownNotifications(request.caller.access), ids)
    return { message: 'Notifications marked as seen', count }
  })
  app.delete('/notifications', deleteRoute, async (request) => {
    const ids = request.body.notificationIds ?? idsOfQuery(queryOf(request))
    const count = await deleteOwn(deps, actorOf(request), ownNotifications(request.caller.access), ids)
    return { message: 'Notifications deleted', count }
  })
}

export function notificationAdminRoutes(app: App, deps: NotificationWrites): void {
  app.post('/notifications/send', sendRoute, async (request) => ({
    message: 'Notifications sent successfully',
    notificationIds: [...(await sendNotifications(deps, requesterOf(request), newNotificationOf(request.body)))],
  }))
  app.post('/notifications/cleanup', cleanupRoute, async (request) => ({
    message: 'Old notifications cleaned up',
    count: await cleanUpNotifications(deps, actorOf(request), request.body.days ?? 30),
  }))
}

const done = (message: string) => Type.Object({ message: Text(message), count: Count(3) })

/** Bodies name rows, and no more of them than anybody looks at. */
const declared = <const D extends Omit<Declaration, 'tag'>>(declaration: D) =>
  route({ tag: 'Notifications', exact: true, ...declaration }, { bodyLimit: 1_048_576 })

const listRoute = route({
  summary: 'List your notifications',
  scope: 'read',
  description: 'The newest first, with the parameters of any list of items.',
  tag: 'Notifications',
  query: ListQuery,
  response: { 200: ItemsShape },
  readElsewhere: 'all',
  sendsText: true,
})
const countRoute = declared({
  summary: 'Count your unread notifications',
  scope: 'read',
  response: { 200: Type.Object({ count: Count(3) }) },
})
const markRoute = declared({
  summary: 'Mark notifications as seen',
  scope: 'write',
  description: 'All of yours, unless you name some.',
  body: NamedShape,
  response: { 200: done('Notifications marked as seen') },
})
const deleteRoute = declared({
  summary: 'Delete notifications',
  scope: 'write',
  description: 'All of yours, unless you name some, in the body or in the query.',
  query: Type.Object({
    notificationIds: Type.Optional(
      Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'A list with commas.' }),
    ),
  }),
  body: NamedShape,
  response: { 200: done('Notifications deleted') },
  readElsewhere: 'query',
})
const sendRoute = declared({
  summary: 'Send a notification to users',
  scope: 'admin',
  body: NewNotificationShape,
  response: {
    200: Type.Object({ message: Text('Notifications sent successfully'), notificationIds: Type.Array(Id()) }),
  },
})
const cleanupRoute = declared({
  summary: 'Delete old notifications of all users',
  scope: 'admin',
  body: CleanupShape,
  response: { 200: done('Old notifications cleaned up') },
})
