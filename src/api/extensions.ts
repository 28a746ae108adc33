import { createHash, createHmac, type KeyObject, timingSafeEqual } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { extname, join } from 'node:path'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { bundleForBrowsers } from '../adapters/bundler.ts'
import { deriveKeys } from '../adapters/tokens.ts'
import { Type } from '../adapters/typebox.ts'
import type { Config, Configuration } from '../config/config.ts'
import { AppError } from '../errors.ts'
import { duringRequest } from '../extensions/endpoint-requests.ts'
import { type Extensions, explained, explanationOf, isServed, type LoadedConsole } from '../extensions/extensions.ts'
import { broken } from '../extensions/folders.ts'
import { statedRefusal } from '../features/data/hooks/hooks.ts'
import { accountabilityOf, isFresh, type Requester } from '../features/data/items/items.ts'
import { openDirectory } from '../features/files/storage/storage.ts'
import { type App, actorOf, varyBy } from '../http/http.ts'
import { routesOf } from '../http/route.ts'
import { Names, Nothing, Text } from '../http/shapes.ts'
import { asExtension } from '../language/extension-code.ts'
import { oncePer, untilMade } from '../language/once.ts'
import { registerAccess } from './access.ts'
import type { WebWrites } from './capabilities.ts'
import { maySee } from './extension-callers.ts'
import type { Limits } from './limits.ts'

/*
 * Extensions of the console: which ones there are for the caller, and their files. A frame in a sandbox has an origin that is
 * nobody's, so its requests come without the cookie: an address of files holds a key instead, which the list hands to those
 * whom the extension is for.
 */

/** `GET /console/extensions.json`: for every signed-in user. */
export function consoleExtensionListRoute(app: App, { config }: Configuration, all: readonly LoadedConsole[]): void {
  if (!config.console.enabled) return
  app.get('/console/extensions.json', listRoute, async ({ caller }) => ({
    data: all
      .filter((one) => maySee(one, caller))
      .map(({ id, definition: { title, page, editors = {}, collections = {} } }) => ({
        name: id,
        title,
        base: `/console/extension-files/${keyFor(config, id)}/${id}/`,
        page: page?.file ?? null,
        editors: Object.entries(editors).map(([name, { file }]) => ({ name, file })),
        collections: { read: [...(collections.read ?? [])], write: [...(collections.write ?? [])] },
      })),
  }))
}

/** The files of extensions, and what all of them load: `/console/extension.js` and `/console/extension.css`. */
export function consoleExtensionFileRoutes(app: App, { config }: Configuration, all: readonly LoadedConsole[]): void {
  if (!config.console.enabled) return
  const folders = new Map(all.map(({ id, files }) => [id, openDirectory(files, { confined: true })]))
  app.get('/console/extension-files/:key/:name/*', fileRoute, async (request, reply) => {
    const { key, name, '*': path } = request.params
    const policy = policyOf(request, config, `/console/extension-files/${key}/${name}/`)
    const type = types[extname(path).toLowerCase()]
    const folder = isKeyFor(config, name, key) ? folders.get(name) : undefined
    const content =
      type !== undefined && isServed(path) ? await folder?.read(path).catch(nothingBehindLinks) : undefined
    if (type === undefined || content === undefined) throw new AppError(404, 'Not found')
    reply.header('content-security-policy', policy)
    return send(request, reply, { type, body: await buffer(content) })
  })
  const helper = untilMade(builtHelper)
  app.get('/console/extension.js', helperRoute, async (request, reply) => {
    const body = await helper().catch((error: unknown) => {
      request.log.error({ err: error }, 'the helper of extensions cannot be served')
      throw new AppError(503, 'The helper of extensions is not built here: run npm run build')
    })
    return send(request, reply, { type: types['.js']!, body })
  })
  app.get('/console/extension.css', styleRoute, async (request, reply) =>
    send(request, reply, { type: types['.css']!, body: await readFile(join(clients, 'console-extension.css')) }),
  )
}

const clients = join(import.meta.dirname, '../../clients')

/** As it was built; a checkout builds it at its first use. */
const builtHelper = () =>
  readFile(join(clients, 'dist/console-extension.js')).catch(() =>
    bundleForBrowsers(join(clients, 'console-extension.ts')),
  )

const types: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.mjs': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.json': 'application/json; charset=utf-8',
  '.map': 'application/json; charset=utf-8',
  '.txt': 'text/plain; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
  '.jpeg': 'image/jpeg',
  '.gif': 'image/gif',
  '.webp': 'image/webp',
  '.avif': 'image/avif',
  '.ico': 'image/x-icon',
  '.woff2': 'font/woff2',
  '.wasm': 'application/wasm',
}

function nothingBehindLinks(error: unknown): undefined {
  if (error instanceof AppError && error.status === 400) return undefined
  throw error
}

/** Read anew each time, so that an edit shows at the next look; a browser that has it is told so. */
function send(request: FastifyRequest, reply: FastifyReply, { type, body }: { type: string; body: Buffer }) {
  const tag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`
  reply.headers({
    etag: tag,
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'x-dns-prefetch-control': 'off',
    // To a frame of no origin every server is a foreign one, ours too. Nothing here depends on the caller.
    'access-control-allow-origin': '*',
    'cross-origin-resource-policy': 'cross-origin',
  })
  varyBy(reply, 'Origin')
  if (isFresh(request.headers['if-none-match'], tag)) return reply.code(304).send()
  return reply.type(type).send(body)
}

/**
 * A frame may load the files of its own extension and those that every extension gets, nothing else of this server or
 * another, and nothing inline. `self` would allow the whole server, so the policy names the paths.
 */
function policyOf({ host }: FastifyRequest, { server }: Config, base: string): string {
  if (!/^([\w.-]+|\[[\da-f:]+\])(:\d{1,5})?$/i.test(host)) throw new AppError(400, 'The host is not valid')
  const hosts = new Set([host, ...(server.baseUrl === undefined ? [] : [new URL(server.baseUrl).host])])
  // By the rules of policies, http stands for https of the same host, too.
  const at = (path: string) => [...hosts].map((one) => `http://${one}${path}`).join(' ')
  return [
    "default-src 'none'",
    `script-src ${at(base)} ${at('/console/extension.js')}`,
    `style-src ${at(base)} ${at('/console/extension.css')}`,
    `img-src ${at(base)} data: blob:`,
    `font-src ${at(base)} data:`,
    `connect-src ${at(base)}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'self'",
    'sandbox allow-scripts',
  ].join('; ')
}

/* Keys of addresses. */

/** How long an address holds at least, and at most twice. Seconds. */
const heldFor = 12 * 3600

const keysOf = oncePer((config: Config): readonly KeyObject[] => deriveKeys(config, 'files of console extensions'))

const signatureOf = (key: KeyObject, name: string, expires: number): string =>
  createHmac('sha256', key).update(`${name} ${expires}`).digest('base64url')

/** The same for half a day, so that browsers keep what they have. */
function keyFor(config: Config, name: string): string {
  const expires = (Math.floor(Date.now() / 1000 / heldFor) + 2) * heldFor
  return `${expires}.${signatureOf(keysOf(config)[0]!, name, expires)}`
}

function isKeyFor(config: Config, name: string, key: string): boolean {
  const [expires = '', signature = ''] = key.split('.')
  if (!/^\d{1,12}$/.test(expires) || Number(expires) * 1000 < Date.now()) return false
  const given = Buffer.from(signature)
  return keysOf(config).some((one) => {
    const right = Buffer.from(signatureOf(one, name, Number(expires)))
    return given.length === right.length && timingSafeEqual(given, right)
  })
}

/* The declarations of the routes. */

const declared = routesOf('Documentation')
const ofFiles = { config: { limitedAs: 'assets' } } as const

const listRoute = declared({
  summary: 'List the extensions of the console that are for you',
  description: '`base` is the address of the files, with a key that holds for half a day.',
  scope: 'none',
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({
          name: Text('prices'),
          title: Text('Prices'),
          base: Text('/console/extension-files/1795478400.q0J…/prices/'),
          page: Type.Unsafe<string | null>({ type: ['string', 'null'], examples: ['page.html'] }),
          editors: Type.Array(Type.Object({ name: Text('colour'), file: Text('colour.html') })),
          collections: Type.Object({ read: Names(['product']), write: Names(['product']) }),
        }),
      ),
    }),
  },
})

const fileRoute = declared(
  {
    summary: 'Read a file of an extension of the console',
    description: 'In a sandbox, with a policy that lets it load the files of its own extension alone.',
    scope: 'none',
    params: Type.Object({ key: Text('1795478400.q0J…'), name: Text('prices'), '*': Text('page.html') }),
    response: { 200: Text('<!doctype html>', { contentMediaType: 'text/html' }), 304: Nothing },
    sendsText: true,
  },
  ofFiles,
)

const helperRoute = declared(
  {
    summary: 'Download the module by which frames of extensions speak with the console',
    scope: 'none',
    response: { 200: Text('export { connect }', { contentMediaType: 'text/javascript' }), 304: Nothing },
    sendsText: true,
  },
  ofFiles,
)

const styleRoute = declared(
  {
    summary: 'Download the style of the console for frames of extensions',
    scope: 'none',
    response: { 200: Text('body { … }', { contentMediaType: 'text/css' }), 304: Nothing },
    sendsText: true,
  },
  ofFiles,
)

/**
 * Registers the routes of each endpoint below `/{id}`, in a scope of its own: what it adds to the server besides (hooks,
 * parsers, error handlers) concerns its own routes. Anybody may call them; who does is in `request.accountability`.
 * A path that the platform has routes at stops the start.
 */
export function registerEndpoints(
  app: App,
  deps: WebWrites,
  endpoints: Extensions['endpoints'],
  { taken, limits }: { readonly taken: ReadonlySet<string>; readonly limits: Limits },
): void {
  app.decorateRequest('accountability', null)
  app.decorateRequest('rawBody', undefined)
  for (const { name, file, definition, context } of endpoints)
    app
      .register(
        async (scope) => {
          if (taken.has(definition.id.toLowerCase()))
            throw broken(file, `has the id ${definition.id}, a path of the platform`)
          registerAccess(scope as App, deps, 'public', limits)
          prepareScope(scope as App, deps, { name, id: definition.id })
          // In a scope within, where the endpoint may set an error handler of its own.
          await scope.register(async (own) =>
            explained(file, 'failed', async () => definition.handler(own as unknown as App, context)),
          )
        },
        { prefix: `/${definition.id}` },
      )
      // The scopes that it has registered itself are made later than it. The types leave `done` out.
      .after(((error: Error | null, done: (error?: Error) => void) =>
        done(error ? explanationOf(file, 'failed', error) : undefined)) as (error: Error | null) => void)
}

/** What the routes of an endpoint have besides those of the platform. */
function prepareScope(scope: App, deps: WebWrites, { name, id }: { readonly name: string; readonly id: string }): void {
  scope.addHook('onRequest', async (request) => {
    request.accountability = accountabilityOf(deps, requesterOf(request))
  })
  scope.addHook('onRequest', (_request, _reply, done) => asExtension(name, done))
  scope.addHook('preParsing', (request, _reply, payload, done) => {
    const keeps = request.routeOptions.config.rawBody === true
    done(null, keeps ? Readable.from(keptFor(request, payload), { objectMode: false }) : payload)
  })
  // Again, because what reads a body goes on from the socket.
  scope.addHook('preHandler', (request, reply, done) =>
    asExtension(name, () => duringRequest(answered(request, reply), done)),
  )
  scope.addHook('onRoute', (route) => {
    route.config = { ...route.config, decodesBodies: true, endpoint: id }
  })
  scope.setErrorHandler((error) => {
    throw isFramework(error) ? error : (statedRefusal(error) ?? asError(error))
  })
}

/** The bytes of a body as they came, which are the request's when its parser has read them. */
async function* keptFor(request: FastifyRequest, payload: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const { bodyLimit = Number.POSITIVE_INFINITY } = request.routeOptions
  const pieces: Buffer[] = []
  let size = 0
  for await (const piece of payload) {
    size += piece.length
    if (size > bodyLimit) throw new AppError(413, 'Request body is too large')
    pieces.push(piece)
    yield piece
  }
  request.rawBody = Buffer.concat(pieces)
}

const answered = (request: FastifyRequest, { raw }: FastifyReply) => ({
  repeatable: () => request.repeatable,
  guard: actorOf(request).guard,
  isAnswered: () => raw.writableEnded || raw.destroyed,
})

/** A thrown value that is no error would be sent as it is. */
function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error('an endpoint has thrown what is no error', { cause: thrown })
}

/** Bodies that are too large, broken JSON and the like are answered as everywhere. */
function isFramework(error: unknown): boolean {
  const { code, validation } = Object(error) as { code?: unknown; validation?: unknown }
  return validation !== undefined || (typeof code === 'string' && code.startsWith('FST_'))
}

/** The actor is made when it is asked for: what makes a request repeatable is known only after its body was read. */
function requesterOf(request: FastifyRequest): Requester {
  const { access, user, sessionId } = request.caller
  return {
    access,
    user,
    sessionId,
    get actor() {
      return actorOf(request)
    },
  }
}

/** The first parts of the paths of all routes that are registered from now on, and of the realtime channel. */
export function pathsTaken(app: App, { config }: Configuration): ReadonlySet<string> {
  const taken = new Set([firstPart(config.realtime.path)])
  app.addHook('onRoute', ({ url }) => {
    taken.add(firstPart(url))
  })
  return taken
}

const firstPart = (url: string): string => url.split('/')[1]?.toLowerCase() ?? ''
