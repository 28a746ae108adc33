import { errors } from '../../errors.ts'
import type { Feed } from '../../events/feed.ts'
import { type App, actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import {
  changeActions,
  collectionSetting,
  disableCollection,
  enableCollection,
  enabledCollections,
} from './realtime.ts'
import { realtimeStatus, replicationConfig } from './status.ts'

type OfCollection = { Params: { collection: string } }

/** The endpoints under /realtime (realtime facts §2). Emits: schema.changed. `feed` is undefined where the channel is off. */
export function realtimeRoutes(app: App, rt: Runtime, feed: Feed | undefined): void {
  app.get('/realtime/status', async () => ({ data: await realtimeStatus(rt, feed) }))
  app.get('/realtime/config', async () => ({ data: await replicationConfig(rt) }))
  app.get('/realtime/collections', async () => ({ data: enabledCollections(rt) }))
  app.get<OfCollection>('/realtime/collections/:collection', async ({ params }) => ({
    data: collectionSetting(rt, params.collection),
  }))
  app.post<OfCollection>('/realtime/collections/:collection/enable', async (request) => {
    const done = await enableCollection(rt, actorOf(request), request.params.collection, request.body)
    return { data: { ...done, walAvailable: feed?.status().source === 'wal' } }
  })
  app.post<OfCollection>('/realtime/collections/:collection/disable', async (request) => ({
    data: await disableCollection(rt, actorOf(request), request.params.collection),
  }))
  app.patch<OfCollection>('/realtime/collections/:collection', async (request) => ({
    data: await changeActions(rt, actorOf(request), request.params.collection, request.body),
  }))
  // Every process follows the definitions by itself; both only make sure of it at once.
  app.post('/realtime/reload', async () => reloaded('Realtime configuration reloaded'))
  app.post('/realtime/initialize', async () => {
    if (feed === undefined) throw errors.badBody('The realtime channel is off: set SOCKET_ENABLED=true')
    return reloaded('Realtime initialized')
  })

  async function reloaded(message: string) {
    await rt.catalog.reload()
    return { data: { message, status: await realtimeStatus(rt, feed) } }
  }
}
