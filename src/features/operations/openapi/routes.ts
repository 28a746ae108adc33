import { Type } from '../../../adapters/typebox.ts'
import type { DeclaredRoute } from '../../../http/declared-routes.ts'
import { type App, varyBy } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Anything, Nothing, Text } from '../../../http/shapes.ts'
import type { DescriptionReads } from './description.ts'
import { sendKept } from './kept-text.ts'
import { pageRoutes } from './page.ts'

/** `GET /openapi`: the API as its caller may use it, and `/docs`, a page that shows it. Neither without OPENAPI_ENABLED. */
export function openapiRoutes(app: App, deps: DescriptionReads, declared: () => readonly DeclaredRoute[]): void {
  if (!deps.config.openapi.enabled) return
  pageRoutes(app)
  app.get('/openapi', openapiRoute, async (request, reply) => {
    // The generator is loaded by its first use.
    const { descriptionFor } = await import('./description.ts')
    varyBy(reply, 'Authorization', 'Cookie').header('cache-control', 'private, no-cache')
    reply.type('application/json; charset=utf-8')
    return sendKept(request, reply, descriptionFor(deps, request.caller, declared()))
  })
}

const openapiRoute = route({
  summary: 'Describe the API as you may use it',
  scope: 'none',
  description: 'OpenAPI 3.1. The answer has an ETag and changes with collections, permissions and the caller.',
  tag: 'Documentation',
  response: {
    200: Type.Object(
      {
        openapi: Text('3.1.0'),
        info: Anything({ title: 'Daybook', version: '0.1.0' }),
        paths: Anything({}),
        components: Anything({}),
      },
      { additionalProperties: true },
    ),
    304: Nothing,
  },
  sendsText: true,
})
