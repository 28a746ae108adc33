import type { App } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { tenantOfQuery } from '../settings/settings.ts'
import { projectInfo } from './project-info.ts'

/** GET and POST /: what a frontend needs before anybody signs in; with `?tenant_id=` that of the tenant. */
export function projectInfoRoutes(app: App, rt: Runtime): void {
  app.route({
    method: ['GET', 'POST'],
    url: '/',
    bodyLimit: 16_384,
    handler: async (request) => projectInfo(rt, tenantOfQuery(request)),
  })
}
