import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { gzip as gzipCallback } from 'node:zlib'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { readViewerFile, viewerFiles } from '../../../adapters/swagger-ui.ts'
import { type App, varyBy } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Nothing, Text } from '../../../http/shapes.ts'
import { isFresh, listTag } from '../../data/items/items.ts'

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

/** `GET /docs` and its four files: a reference of the API for browsers, which asks no other host for anything. */
export function pageRoutes(app: App): void {
  for (const { path, type, read } of files) {
    const content = onFirstUse(read)
    app.get(path, pageRoute(path, type), async (request, reply) => {
      // The names of its files are relative, so that it works below any path of a proxy.
      if (path === '/docs' && /^[^?]*\/docs\/(\?|$)/.test(request.url)) return reply.redirect('../docs', 308)
      return send(request, reply.headers(headers).type(`${type}; charset=utf-8`), await content())
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

type Content = { readonly plain: Buffer; readonly gzip: Buffer; readonly tag: string }

const gzip = promisify(gzipCallback)

/** Files are read and compressed when the first browser asks; a failure is not kept. */
function onFirstUse(read: () => Promise<Buffer>): () => Promise<Content> {
  let content: Promise<Content> | undefined
  return () => {
    content ??= prepared(read).catch((error: unknown) => {
      content = undefined
      throw error
    })
    return content
  }
}

async function prepared(read: () => Promise<Buffer>): Promise<Content> {
  const plain = await read()
  return { plain, gzip: await gzip(plain), tag: listTag(plain.toString('latin1')) }
}

function send({ headers: given }: FastifyRequest, reply: FastifyReply, { plain, gzip, tag }: Content): FastifyReply {
  varyBy(reply, 'Accept-Encoding').header('etag', tag)
  if (isFresh(given['if-none-match'], tag)) return reply.code(304).send()
  const isCompressed = /\bgzip\b/.test(String(given['accept-encoding'] ?? ''))
  return isCompressed ? reply.header('content-encoding', 'gzip').send(gzip) : reply.send(plain)
}

const pageRoute = (path: string, contentMediaType: string) =>
  route({
    summary: path === '/docs' ? 'Show the API in a browser' : 'Read a file of the page /docs',
    scope: 'none',
    tag: 'Documentation',
    response: { 200: Text('(a file)', { contentMediaType }), 304: Nothing, 308: Nothing },
    sendsText: true,
  })
