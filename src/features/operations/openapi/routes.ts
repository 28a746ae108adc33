import { readFile } from 'node:fs/promises'
import { readViewerFile, viewerFiles } from '../../../adapters/swagger-ui.ts'
import { Type } from '../../../adapters/typebox.ts'
import { type App, varyBy } from '../../../http/http.ts'
import { type DeclaredRoute, route } from '../../../http/route.ts'
import { Anything, Nothing, Text } from '../../../http/shapes.ts'
import { untilMade } from '../../../language/once.ts'
import { keptText, sendKept } from './kept-text.ts'
import type { DescriptionReads } from './openapi.ts'

/** `GET /openapi`: the API as its caller may use it, and `/docs`, a page that shows it. Neither without OPENAPI_ENABLED. */
export function openapiRoutes(app: App, deps: DescriptionReads, declared: () => readonly DeclaredRoute[]): void {
  if (!deps.config.openapi.enabled) return
  pageRoutes(app)
  app.get('/openapi', openapiRoute, async (request, reply) => {
    // The generator is loaded by its first use.
    const { descriptionFor } = await import('./openapi.ts')
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

type PageFile = { readonly path: string; readonly type: string; readonly read: () => Promise<Buffer> }

const ownFile = (path: string, name: string, type: string): PageFile => ({
  path,
  type,
  read: () => readFile(new URL(`./page/${name}`, import.meta.url)),
})

const files: readonly PageFile[] = [
  ownFile('/docs', 'index.html', 'text/html'),
  ownFile('/docs/init.js', 'init.js', 'text/javascript'),
  ownFile('/docs/page.css', 'page.css', 'text/css'),
  ...viewerFiles.map(([name, type]) => ({ path: `/docs/${name}`, type, read: () => readViewerFile(name) })),
]

/**
 * `GET /docs` and its four files: a reference of the API for browsers, which asks no other host for anything. They are read when
 * the first browser asks.
 */
function pageRoutes(app: App): void {
  for (const { path, type, read } of files) {
    const content = untilMade(async () => keptText(await read()))
    app.get(path, pageRoute(path, type), async (request, reply) => {
      // The names of its files are relative, so that it works below any path of a proxy.
      if (path === '/docs' && /^[^?]*\/docs\/(\?|$)/.test(request.url)) return reply.redirect('../docs', 308)
      return sendKept(request, reply.headers(headers).type(`${type}; charset=utf-8`), await content())
    })
  }
}

const headers = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-cache',
}

const pageRoute = (path: string, contentMediaType: string) =>
  route(
    {
      summary: path === '/docs' ? 'Show the API in a browser' : 'Read a file of the page /docs',
      scope: 'none',
      tag: 'Documentation',
      response: { 200: Text('(a file)', { contentMediaType }), 304: Nothing, 308: Nothing },
      sendsText: true,
    },
    { config: { limitedAs: 'assets' } },
  )
