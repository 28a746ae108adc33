import type { App } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { previewTemplate } from './preview.ts'
import { commonVariableNames as commonVariables, defaultTemplate, templateTypes } from './types.ts'

/** What an editor of templates offers. */
export function templateRoutes(app: App, _rt: Runtime): void {
  app.get('/templates/types', async () => ({ data: { types: templateTypes, commonVariables } }))
}

/** The built-in texts and what stored ones look like, for administrators. */
export function templateAdminRoutes(app: App, rt: Runtime): void {
  app.get('/templates/defaults', async () => {
    const templates = templateTypes.flatMap(({ type }) => defaultTemplate(type) ?? [])
    return { data: { templates, commonVariables } }
  })
  app.get<{ Params: { type: string } }>('/templates/default/:type', async ({ params }, reply) => {
    const found = defaultTemplate(params.type)
    if (found === undefined) return reply.code(404).send({ data: null, message: 'There is no such built-in template' })
    return { data: { ...found, commonVariables } }
  })
  app.post<{ Params: { id: string } }>('/templates/:id/preview', async ({ params, body }) => {
    return { data: await previewTemplate(rt, params.id, body) }
  })
}
