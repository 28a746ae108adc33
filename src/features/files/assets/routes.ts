import { hash } from 'node:crypto'
import type { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { identified } from '../../../access/principal.ts'
import { essenceOf } from '../../../adapters/file-type.ts'
import { Type } from '../../../adapters/typebox.ts'
import { goneSignal } from '../../../admission/asker.ts'
import { AppError } from '../../../errors.ts'
import { type App, turnOf } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Count, GeneralError, Id, Moment, OneOf, Text } from '../../../http/shapes.ts'
import { canonical, digestOf, extensionOf, fits, type Transform } from '../images/images.ts'
import { keyOf } from '../storage/storage.ts'
import {
  type Asset,
  type AssetContent,
  type AssetQuery,
  type AssetReads,
  type AssetWrites,
  badSignature,
  type Contents,
  checkTransform,
  contentOf,
  contentsOf,
  fileNotFound,
  isSettingsImage,
  isSigned,
  readableAsset,
  secureProxyRefusal,
  settingsAsset,
  signAssets,
  signerOf,
  type Wanted,
  wantedOf,
} from './assets.ts'
import {
  type ContentPart,
  conditionOf,
  type DeliverableFile,
  deliveryHeaders,
  isShown,
  partOf,
  type Validators,
} from './delivery.ts'

/** The content of files, as browsers get it (docs/assets.md). */
export function assetRoutes(app: App, deps: AssetWrites): void {
  const contents = contentsOf(deps)
  app.route({
    method: ['GET', 'HEAD'],
    url: '/assets/:id',
    ...assetRoute,
    handler: async (request, reply) => {
      const { id } = request.params
      const wanted = wantedOf(request.query as AssetQuery, deps.config)
      const isNamedBySettings = isSettingsImage(id)
      // No signature covers these.
      checkTransform(isNamedBySettings ? { ...wanted, signature: undefined } : wanted, deps.config)
      const asset = isNamedBySettings
        ? await settingsAsset(deps, id, (request.query as AssetQuery).tenant_id)
        : await assetFor(deps, request, id, wanted)
      if (asset === undefined) return reply.code(404).type('text/plain; charset=utf-8').send('File not found')
      return answerAsset(deps, contents, { request, reply }, { asset, wanted, isNamedBySettings })
    },
  })
}

/** For known callers: what they sign is read in their name. */
export function assetBearerRoutes(app: App, deps: AssetReads): void {
  app.post('/files/:id/signed-url', signRoute, async (request) => {
    const [signed] = await signAssets(deps, identified(request.caller), [{ id: request.params.id, ...request.body }])
    return { data: signed! }
  })
  app.post('/files/signed-urls', signAllRoute, async (request) => {
    const { files, expiresIn } = request.body
    const wanted = files.map((file) => ({ expiresIn, ...(typeof file === 'string' ? { id: file } : file) }))
    return { data: await signAssets(deps, identified(request.caller), wanted) }
  })
}

/** In the caller's own name, or in that of the signer of the address. */
async function assetFor(deps: AssetReads, request: FastifyRequest, id: string, wanted: Wanted): Promise<Asset> {
  const { signature, transform, download } = wanted
  if (signature === undefined) return readableAsset(deps, request.caller, id)
  const { signer, expires, text } = signature
  if (!(expires * 1000 > deps.clock().getTime()))
    throw new AppError(403, 'This address has expired', { code: 'SIGNED_URL_EXPIRED' })
  const asset = await readableAsset(deps, await signerOf(deps, signer), id)
  const signed = {
    fileId: asset.id,
    content: contentOf(asset),
    transform: textOf(transform),
    download,
    signer,
    expires,
  }
  if (!isSigned(deps.config, signed, text)) throw badSignature()
  // A signed address opens the content for its holders, but no shared cache may keep it.
  return { ...asset, isForAll: false }
}

const textOf = (transform: Transform | undefined): string => (transform === undefined ? '' : canonical(transform))

const tag = 'Assets'
const said = (example: string, description: string) => Type.Optional(Text(example, { description }))
const pixels = (example: number) =>
  Type.Optional(Count(example, { minimum: 1, description: 'Pixels, at most ASSET_MAX_DIMENSION.' }))

/** Invalid values are ignored, as existing clients expect. */
const transforms = {
  width: pixels(800),
  height: pixels(600),
  fit: Type.Optional(OneOf(fits, { default: 'cover' })),
  quality: Type.Optional(Count(80, { minimum: 1, maximum: 100 })),
  format: Type.Optional(OneOf(['webp', 'avif', 'jpeg', 'png'])),
  withoutEnlargement: Type.Optional(Type.Boolean({ description: 'Leave smaller images as they are.' })),
  preset: said('thumb', 'A name of ASSET_PRESETS instead.'),
}

/** Types of ASSET_SECURE_PROXY_URLS are refused in words of their own. */
const Refused = Type.Union([GeneralError, Type.Object({ error: Text('Authentication required') })])

const assetRoute = route(
  {
    summary: 'Read the content of a file',
    description:
      'Or an image made of it: any of `width`, `height`, `quality` and `format` asks for one. Single ranges of bytes and conditions are understood.',
    tag,
    scope: 'read',
    params: Type.Object({
      id: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'Of a file, or a name such as `project_icon`.' }),
    }),
    query: Type.Object({
      ...transforms,
      download: Type.Optional(Type.Boolean({ description: 'To be saved rather than shown.' })),
      access_token: said('eyJhbGciOiJIUzI1NiJ9…', 'Of a sign-in, for what cannot send headers.'),
      tenant_id: said('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', 'The tenant whose settings name the image.'),
      signer: said('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', 'Part of a signed address.'),
      expires: said('1773480413', 'Part of a signed address.'),
      signature: said('kJ1…', 'Part of a signed address.'),
    }),
    response: {
      200: Text('(bytes)', { contentMediaType: '*/*' }),
      206: Text('(bytes)', { contentMediaType: '*/*' }),
      302: Text('', { description: 'Sound and film of S3 are read there.' }),
      304: Text(''),
      401: Refused,
      403: Refused,
    },
    readElsewhere: 'all',
    sendsText: true,
  },
  { exposeHeadRoute: false, config: { takesTokenInQuery: true, limitedAs: 'assets' } },
)

const longestSeconds = 7 * 86_400
const ExpiresIn = Type.Integer({
  minimum: 1,
  maximum: longestSeconds,
  examples: [3600],
  description: 'Seconds, at most seven days.',
  refusal: `expiresIn must be a whole number of seconds from 1 to ${longestSeconds}`,
})
const TransformBody = Type.Optional(
  Type.Object(
    {
      width: Type.Optional(Count(800)),
      height: Type.Optional(Count(600)),
      fit: Type.Optional(Text('cover')),
      quality: Type.Optional(Count(80)),
      format: Type.Optional(Text('webp')),
      withoutEnlargement: Type.Optional(Type.Boolean({ examples: [true] })),
      preset: Type.Optional(Text('thumb')),
    },
    { refusal: 'transform must be an object of width, height, fit, quality, format, withoutEnlargement or preset' },
  ),
)
const download = Type.Optional(Type.Boolean({ examples: [false], description: 'To be saved rather than shown.' }))
const SignedShape = Type.Object({
  id: Id(),
  url: Text('/assets/0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44?expires=1773480413&signer=…&signature=…'),
  expiresAt: Moment(),
})

const signRoute = route({
  summary: 'Sign an address of a file',
  scope: 'write',
  description:
    'Everybody who has the address reads the file until it expires, as long as the signer may read it and the content stays the same.',
  tag,
  params: Type.Object({ id: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44') }),
  body: Type.Object({ expiresIn: ExpiresIn, transform: TransformBody, download }),
  response: { 200: Type.Object({ data: SignedShape }) },
})
const signAllRoute = route({
  summary: 'Sign addresses of many files',
  scope: 'write',
  tag,
  body: Type.Object({
    expiresIn: ExpiresIn,
    files: Type.Array(Type.Union([Id(), Type.Object({ id: Id(), transform: TransformBody, download })]), {
      minItems: 1,
      maxItems: 1000,
      examples: [['0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44']],
      refusal: 'files must be a list of up to 1000 ids, or of objects with id, transform and download',
    }),
  }),
  response: { 200: Type.Object({ data: Type.Array(SignedShape) }) },
})

type RequestedAsset = {
  readonly asset: Asset
  readonly wanted: Wanted
  /** Everybody sees these, whatever their type is. */
  readonly isNamedBySettings: boolean
}

/** Answers a request for a file's content, or for a transform of it, that the caller may have. */
async function answerAsset(
  deps: AssetWrites,
  contents: Contents,
  { request, reply }: { request: FastifyRequest; reply: FastifyReply },
  { asset, wanted, isNamedBySettings }: RequestedAsset,
): Promise<FastifyReply> {
  const refusal = isNamedBySettings
    ? undefined
    : secureProxyRefusal(asset.type, request.caller, request.headers['x-svc-user-auth'], deps.config)
  // Their clients know these words, without our envelope.
  if (refusal !== undefined) return reply.code(refusal.status).send({ error: refusal.message })
  const transform = essenceOf(asset.type).startsWith('image/') ? wanted.transform : undefined
  const delivered = deliveredAs(asset, transform)
  const isNamed = wanted.download || !isShown(delivered, deps.config)
  const validators = validatorsOf(asset, transform, isNamed ? delivered.name : undefined)
  const condition = conditionOf(request.headers, validators)
  if (condition === 412) throw new AppError(412, 'The file has changed')
  if (condition === 304)
    return reply
      .code(304)
      .headers(keepingHeaders(deps, reply, asset, validators))
      .send()
  const address = transform === undefined ? await addressOf(deps, request, asset, wanted) : undefined
  if (address !== undefined) return reply.header('cache-control', 'private, no-store').redirect(address, 302)
  const found = await open(deps, contents, request, { asset, transform, validators })
  reply.headers(keepingHeaders(deps, reply, asset, validators))
  if (transform === undefined && isProxied(deps, asset, wanted))
    reply.header('cache-control', 'no-cache, no-store, must-revalidate')
  reply.headers(deliveryHeaders(delivered, deps.config, wanted.download))
  return send(reply, found)
}

/** Headers for caches: who may keep the answer, for how long, and how to revalidate it. */
function keepingHeaders({ config }: AssetWrites, reply: FastifyReply, asset: Asset, { tag, modified }: Validators) {
  return {
    // A cookie that is dropped with the answer is one client's own.
    'cache-control': cacheControl(asset.isForAll && !reply.hasHeader('set-cookie'), config.assets.cacheSeconds),
    etag: tag,
    'last-modified': modified.toUTCString(),
    ...(!asset.isForAll && { vary: varied(reply) }),
  }
}

/** Content has a key of its own for ever, so its name is as good as its hash. `shownName` is that of a download. */
function validatorsOf(
  { hash: digest, filename, modified }: Asset,
  transform: Transform | undefined,
  shownName: string | undefined,
): Validators {
  const content = digest ?? hash('sha256', filename, 'hex')
  const made = transform === undefined ? '' : `-${digestOf(transform)}`
  const called = shownName === undefined ? '' : `-${hash('sha256', shownName, 'hex').slice(0, 8)}`
  return { tag: `"${content.slice(0, 40)}${made}${called}"`, modified: new Date(modified) }
}

function cacheControl(isForAll: boolean, seconds: number): string {
  if (!isForAll) return 'private, no-cache'
  return seconds === 0 ? 'public, no-cache' : `public, max-age=${seconds}`
}

/** The request headers that the answer depends on; CORS adds to them. */
function varied(reply: FastifyReply): string {
  const before = reply.getHeader('vary')
  return before === undefined ? 'Authorization, Cookie' : `${String(before)}, Authorization, Cookie`
}

function deliveredAs({ type, typeProven, name }: Asset, transform: Transform | undefined): DeliverableFile {
  if (transform === undefined) return { type, isTypeProven: typeProven, name }
  const base = name.replace(/\.[^.]*$/, '')
  const { format } = transform
  return { type: `image/${format}`, isTypeProven: true, name: `${base}.${extensionOf[format]}` }
}

const isFilm = (type: string): boolean => /^(audio|video)\//.test(essenceOf(type))

/** An address of the storage that reads sound or film without us; undefined where it goes through us. */
async function addressOf(
  { config, storages }: AssetWrites,
  { method }: FastifyRequest,
  asset: Asset,
  { download }: Wanted,
): Promise<string | undefined> {
  const { proxyEnabled, signedUrlTtlSeconds } = config.assets
  const delivered = deliveredAs(asset, undefined)
  // Its signature is for GET alone, and it can't say everything that keeps other types harmless.
  if (method !== 'GET' || proxyEnabled || download || !isFilm(asset.type) || !isShown(delivered, config))
    return undefined
  const storage = storages.holding(asset.storage)
  return storage.presign(keyOf(asset.folder, asset.filename), {
    expiresInSeconds: signedUrlTtlSeconds,
    type: asset.type,
    disposition: 'inline',
  })
}

function isProxied({ config, storages }: AssetWrites, { storage }: Asset, { download }: Wanted): boolean {
  return config.assets.proxyEnabled && !download && storages.holding(storage).driver === 'S3'
}

type OpenedContent = {
  readonly part: ContentPart | undefined
  readonly size: number
  /** Undefined where only the headers are asked for. */
  readonly bytes: Readable | Buffer | undefined
}

type Opening = {
  readonly asset: Asset
  readonly transform: Transform | undefined
  readonly validators: Validators
}

/** The content from where it is asked for. 404 where the storage has lost it, 416 where there is no such part. */
async function open(
  { log }: AssetWrites,
  contents: Contents,
  request: FastifyRequest,
  { asset, transform, validators }: Opening,
): Promise<OpenedContent> {
  if (transform === undefined) {
    const opened = await openContent(request, contents.original(asset), validators)
    if (opened === undefined) throw fileNotFound()
    return opened
  }
  const waiting = { turn: turnOf(request), gone: goneSignal() }
  const again = async () => openContent(request, await contents.variant(asset, transform, waiting), validators)
  const opened = await again()
  if (opened !== undefined) return opened
  log.warn({ fileId: asset.id }, 'the storage has lost a transform; it is made again')
  await contents.lost(asset, transform)
  const made = await again()
  if (made === undefined) throw fileNotFound()
  return made
}

async function openContent(
  { method, headers }: FastifyRequest,
  content: AssetContent,
  validators: Validators,
): Promise<OpenedContent | undefined> {
  const { size } = content
  if (method === 'HEAD') return (await content.isThere()) ? { part: undefined, size, bytes: undefined } : undefined
  const part = partOf(headers, validators, size)
  if (part === 'unsatisfiable')
    throw new AppError(416, 'The range is not within the file', { headers: { 'content-range': `bytes */${size}` } })
  const bytes = await content.read(part)
  return bytes && { part, size, bytes }
}

function send(reply: FastifyReply, { part, size, bytes }: OpenedContent): FastifyReply {
  reply.header('accept-ranges', 'bytes')
  if (part === undefined) reply.header('content-length', size)
  else
    reply
      .code(206)
      .header('content-length', part.end - part.start + 1)
      .header('content-range', `bytes ${part.start}-${part.end}/${part.size}`)
  return reply.send(bytes)
}
