import { Type } from '../../../adapters/typebox.ts'
import type { DeclaredRoute } from '../../../http/declared-routes.ts'
import { type App, varyBy } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Anything, Nothing, Text } from '../../../http/shapes.ts'
import { isFresh } from '../../data/items/items.ts'
import type { DescriptionReads } from './description.ts'
import { pageRoutes } from './page.ts'

/** `GET /openapi`: the API as its caller may use it, and `/docs`, a page that shows it. Neither without OPENAPI_ENABLED. */
export function openapiRoutes(app: App, rt: DescriptionReads, declared: () => readonly DeclaredRoute[]): void {
  if (!rt.config.openapi.enabled) return
  pageRoutes(app)
  app.get('/openapi', openapiRoute, async ({ caller, headers }, reply) => {
    // The generator is loaded by its first use.
    const { descriptionFor } = await import('./description.ts')
    const { body, tag } = descriptionFor(rt, caller, declared())
    varyBy(reply, 'Authorization', 'Cookie').header('etag', tag).header('cache-control', 'private, no-cache')
    if (isFresh(headers['if-none-match'], tag)) return reply.code(304).send()
    return reply.type('application/json; charset=utf-8').send(body)
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
