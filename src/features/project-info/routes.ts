import type { App } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { projectInfo } from './project-info.ts'

/** GET and POST /: what a frontend needs before anybody signs in. */
export function projectInfoRoutes(app: App, rt: Runtime): void {
  app.route({ method: ['GET', 'POST'], url: '/', bodyLimit: 16_384, handler: async () => projectInfo(rt) })
}
