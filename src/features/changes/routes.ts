import type { App } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { queryOf } from '../items/routes.ts'
import { readChanges } from './changes.ts'

/** Pull synchronisation: open to whoever may read a collection, like the items themselves. */
export function changesRoutes(app: App, rt: Runtime): void {
  app.get('/changes', async (request, reply) => {
    const changes = await readChanges(rt, request.caller.access, queryOf(request))
    return reply.type('application/json; charset=utf-8').send(changes)
  })
}
