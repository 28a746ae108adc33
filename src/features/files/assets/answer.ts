import { hash } from 'node:crypto'
import type { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { goneSignal } from '../../../admission/asker.ts'
import { AppError } from '../../../errors.ts'
import { turnOf } from '../../../http/http.ts'
import { digestOf, extensionOf, type Transform } from '../images/images.ts'
import { keyOf } from '../storage/storage.ts'
import { type Asset, type AssetWrites, fileNotFound, secureProxyRefusal } from './asset.ts'
import type { AssetContent, Contents } from './content.ts'
import {
  type ContentPart,
  conditionOf,
  type DeliverableFile,
  deliveryHeaders,
  essenceOf,
  isShown,
  partOf,
  type Validators,
} from './delivery.ts'
import type { Wanted } from './signed-urls.ts'

type Asked = {
  readonly asset: Asset
  readonly wanted: Wanted
  /** Everybody sees these, whatever their type is. */
  readonly isNamedBySettings: boolean
}

/** Answers a request for a file's content, or for a transform of it, that the caller may have. */
export async function answerAsset(
  deps: AssetWrites,
  contents: Contents,
  { request, reply }: { request: FastifyRequest; reply: FastifyReply },
  { asset, wanted, isNamedBySettings }: Asked,
): Promise<FastifyReply> {
  const refusal = isNamedBySettings
    ? undefined
    : secureProxyRefusal(asset.type, request.caller, request.headers['x-svc-user-auth'], deps.config)
  // Their clients know these words, without our envelope.
  if (refusal !== undefined) return reply.code(refusal.status).send({ error: refusal.message })
  const transform = essenceOf(asset.type).startsWith('image/') ? wanted.transform : undefined
  const validators = validatorsOf(asset, transform)
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
  reply.headers(deliveryHeaders(deliveredAs(asset, transform), deps.config, wanted.download))
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

/** Content has a key of its own for ever, so its name is as good as its hash. */
function validatorsOf({ hash: digest, filename, modified }: Asset, transform: Transform | undefined): Validators {
  const content = digest ?? hash('sha256', filename, 'hex')
  const made = transform === undefined ? '' : `-${digestOf(transform)}`
  return { tag: `"${content.slice(0, 40)}${made}"`, modified: new Date(modified) }
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

type Opened = {
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
): Promise<Opened> {
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
): Promise<Opened | undefined> {
  const { size } = content
  if (method === 'HEAD') return (await content.isThere()) ? { part: undefined, size, bytes: undefined } : undefined
  const part = partOf(headers, validators, size)
  if (part === 'unsatisfiable')
    throw new AppError(416, 'The range is not within the file', { headers: { 'content-range': `bytes */${size}` } })
  const bytes = await content.read(part)
  return bytes && { part, size, bytes }
}

function send(reply: FastifyReply, { part, size, bytes }: Opened): FastifyReply {
  reply.header('accept-ranges', 'bytes')
  if (part === undefined) reply.header('content-length', size)
  else
    reply
      .code(206)
      .header('content-length', part.end - part.start + 1)
      .header('content-range', `bytes ${part.start}-${part.end}/${part.size}`)
  return reply.send(bytes)
}
