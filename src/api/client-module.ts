import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { bundleForBrowsers } from '../adapters/bundler.ts'
import { AppError } from '../errors.ts'
import { isFresh } from '../features/data/items/items.ts'
import { type App, varyBy } from '../http/http.ts'
import { route } from '../http/route.ts'
import { Nothing, Text } from '../http/shapes.ts'
import { untilMade } from '../language/once.ts'

const clients = join(import.meta.dirname, '../../clients')

/** `GET /client.js`: the client as one ES module, for pages without a build of their own (docs/client.md). */
export function clientModuleRoute(app: App): void {
  const made = untilMade(moduleOf)
  app.get('/client.js', clientRoute, async ({ headers, log }, reply) => {
    const { body, tag, digest } = await made().catch((error: unknown) => {
      log.error({ err: error }, 'the client cannot be served')
      throw new AppError(503, 'The client is not built here: run npm run build')
    })
    // A page of another site may use it: there is nothing in it that is anybody's.
    reply.header('etag', tag).header('cache-control', 'public, max-age=300').header('content-digest', digest)
    varyBy(reply, 'Origin')
      .header('access-control-allow-origin', '*')
      .header('cross-origin-resource-policy', 'cross-origin')
    if (isFresh(headers['if-none-match'], tag)) return reply.code(304).send()
    return reply.type('text/javascript; charset=utf-8').send(body)
  })
}

/** As it was built; a checkout builds it at its first use. */
async function moduleOf() {
  const body = await readFile(join(clients, 'dist/client.js')).catch(() =>
    bundleForBrowsers(join(clients, 'client.ts')),
  )
  const hash = createHash('sha512').update(body).digest('base64')
  return { body, tag: `"${hash.slice(0, 22)}"`, digest: `sha-512=:${hash}:` }
}

const clientRoute = route(
  {
    summary: 'Download the client as an ES module',
    description: '`Content-Digest` has the hash that an `integrity` attribute takes.',
    tag: 'Documentation',
    scope: 'none',
    response: { 200: Text('export { createClient }', { contentMediaType: 'text/javascript' }), 304: Nothing },
    sendsText: true,
  },
  { config: { limitedAs: 'assets' } },
)
