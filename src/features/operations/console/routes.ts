import { readFile } from 'node:fs/promises'
import { extname, join } from 'node:path'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { Type } from '../../../adapters/typebox.ts'
import type { Configuration } from '../../../config/config.ts'
import { AppError } from '../../../errors.ts'
import { type App, varyBy } from '../../../http/http.ts'
import { routesOf } from '../../../http/route.ts'
import { Text } from '../../../http/shapes.ts'

/** `/console` and below: the page, at each of its addresses, and the files that it is made of. Nothing without CONSOLE_ENABLED. */
export function consoleRoutes(app: App, { config }: Configuration): void {
  if (!config.console.enabled) return
  app.get('/console/assets/:name', fileRoute, async ({ params, headers }, reply) => {
    const { type, plain, compressed } = await builtFile(params.name)
    const takesGzip = /\bgzip\b/.test(String(headers['accept-encoding'] ?? ''))
    reply.headers({ ...safeguards, 'cache-control': 'public, max-age=31536000, immutable' }).type(type)
    varyBy(reply, 'Accept-Encoding')
    return takesGzip ? reply.header('content-encoding', 'gzip').send(compressed) : reply.send(plain)
  })
  for (const [path, { type, content }] of Object.entries(mailView))
    app.get(`/console/${path}`, mailViewRoute(type), async (_request, reply) =>
      reply
        .headers({ ...safeguards, 'content-security-policy': mailPolicy, 'cache-control': 'no-cache' })
        .type(type)
        .send(content),
    )
  for (const path of ['/console', '/console/*'])
    app.get(path, pageRoute, async (_request, reply) => {
      const page = await builtPage()
      return reply
        .headers({ ...safeguards, 'cache-control': 'no-cache' })
        .type('text/html; charset=utf-8')
        .send(page)
    })
}

/** Nothing of another host, nothing inline: what a stored value holds cannot become code. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "font-src 'self'",
  "img-src 'self' blob: data:",
  "frame-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const safeguards = {
  'content-security-policy': policy,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
}

/**
 * Where the console shows a mail that is not stored yet: a page of an origin of its own, without any rights, that shows the
 * HTML which the page around it tells. Our one script is all that may run: nothing in a mail can, nor fetch anything.
 */
const mailPolicy =
  "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox allow-scripts allow-popups; base-uri 'none'; form-action 'none'"
const mailView = {
  'mail-view': {
    type: 'text/html; charset=utf-8',
    content:
      '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Mail</title><script src="/console/mail-view.js"></script></head><body></body></html>',
  },
  'mail-view.js': {
    type: 'text/javascript; charset=utf-8',
    content: `addEventListener('message', ({ source, data }) => {
  if (source !== parent || typeof data !== 'string') return
  const { documentElement } = new DOMParser().parseFromString(data, 'text/html')
  document.documentElement.replaceWith(document.adoptNode(documentElement))
})
`,
  },
}

const declared = routesOf('Documentation')

/** A page is made of dozens of files. */
const ofFiles = { config: { limitedAs: 'assets' } } as const

const pageRoute = declared(
  {
    summary: 'Show the console',
    description: 'The same page for every address below `/console`. 503 where it has not been built.',
    scope: 'none',
    response: { 200: Text('<!doctype html>', { contentMediaType: 'text/html' }) },
    sendsText: true,
  },
  ofFiles,
)

const fileRoute = declared(
  {
    summary: 'Read a file of the console',
    scope: 'none',
    params: Type.Object({ name: Text('index-BxW2kq1c.js') }),
    response: { 200: Text('(a file)', { contentMediaType: 'text/javascript' }) },
    sendsText: true,
  },
  ofFiles,
)

const mailViewRoute = (type: string) =>
  declared(
    {
      summary: 'Show a mail that the console has yet to save',
      description: 'The frame of the preview and its script: in a sandbox, without rights.',
      scope: 'none',
      response: { 200: Text('(a file)', { contentMediaType: type.split(';')[0]! }) },
      sendsText: true,
    },
    ofFiles,
  )

/** A file of the console. Its name holds the hash of its content, so what was read once stays true. */
type BuiltFile = { readonly type: string; readonly plain: Buffer; readonly compressed: Buffer }

/** Where `npm run build:console` puts the console. */
const built = join(import.meta.dirname, '../../../../console/dist')

/** The page, read anew each time: a build may have replaced it. @throws {AppError} 503 where there is none */
async function builtPage(): Promise<Buffer> {
  const page = await readBuilt('index.html')
  if (page === undefined) throw new AppError(503, 'The console is not built here: run npm run build:console')
  return page
}

const types: Readonly<Record<string, string>> = {
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.woff2': 'font/woff2',
}

const kept = new Map<string, BuiltFile>()

/** @throws {AppError} 404 for what the console is not made of, 503 where it is not built */
async function builtFile(name: string): Promise<BuiltFile> {
  const known = kept.get(name)
  if (known !== undefined) return known
  const type = types[extname(name)]
  const plain = type !== undefined && /^[\w.-]+$/.test(name) ? await readBuilt(join('assets', name)) : undefined
  if (type === undefined || plain === undefined) {
    await builtPage()
    throw new AppError(404, 'Not found')
  }
  const file = { type, plain, compressed: await promisify(gzip)(plain) }
  kept.set(name, file)
  return file
}

async function readBuilt(name: string): Promise<Buffer | undefined> {
  try {
    return await readFile(join(built, name))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
