import { Type } from 'typebox'
import { type App, actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { queryOf, writerOf } from '../items/routes.ts'
import { daysOf, idsOfBody, idsOfQuery, newNotificationOf } from './input.ts'
import { cleanUpNotifications, listNotifications, sendNotifications } from './notifications.ts'
import { ownNotifications } from './own.ts'
import { countUnseen, deleteOwn, markSeen } from './queries.ts'

/** `/notifications`: the caller's own, nobody else's (realtime facts §6). Row events are appended by the database. */
export function notificationRoutes(app: App, rt: Runtime): void {
  app.get('/notifications', async (request, reply) => {
    const list = await listNotifications(rt, writerOf(request), queryOf(request))
    return reply.type('application/json; charset=utf-8').send(list)
  })
  app.get('/notifications/unread/count', answering(CountShape), async ({ caller }) => ({
    count: await countUnseen(rt, ownNotifications(caller.access)),
  }))
  app.post('/notifications/mark-seen', answering(DoneShape), async (request) => {
    const ids = idsOfBody(request.body)
    const count = await markSeen(rt, actorOf(request), ownNotifications(request.caller.access), ids)
    return { message: 'Notifications marked as seen', count }
  })
  app.delete('/notifications', answering(DoneShape), async (request) => {
    const ids = idsOfBody(request.body) ?? idsOfQuery(queryOf(request))
    const count = await deleteOwn(rt, actorOf(request), ownNotifications(request.caller.access), ids)
    return { message: 'Notifications deleted', count }
  })
}

export function notificationAdminRoutes(app: App, rt: Runtime): void {
  app.post('/notifications/send', answering(SentShape), async (request) => ({
    message: 'Notifications sent successfully',
    notificationIds: [...(await sendNotifications(rt, writerOf(request), newNotificationOf(request.body)))],
  }))
  app.post('/notifications/cleanup', answering(DoneShape), async (request) => ({
    message: 'Old notifications cleaned up',
    count: await cleanUpNotifications(rt, actorOf(request), daysOf(request.body)),
  }))
}

const CountShape = Type.Object({ count: Type.Integer() })
const DoneShape = Type.Object({ message: Type.String(), count: Type.Integer() })
const SentShape = Type.Object({ message: Type.String(), notificationIds: Type.Array(Type.String()) })

/** Bodies name rows, and no more of them than anybody looks at. */
const answering = <Shape>(shape: Shape) => ({ schema: { response: { 200: shape } }, bodyLimit: 1_048_576 })
