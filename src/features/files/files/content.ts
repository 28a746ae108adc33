import { createHash } from 'node:crypto'
import { essenceOf, isExecutable, provenType, tellingBytes, usualType } from '../../../adapters/file-type.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import type { UnloggedWrites } from '../../../db/sql.ts'
import { type ContentKey, forgetContent, holdContent, renewHold } from '../../../db/unlogged/files.ts'
import { AppError, errors } from '../../../errors.ts'
import type { ItemWrites } from '../../data/items/items.ts'
import type { FileContent as Described, ImageProcessing, MediaDescription } from '../images/images.ts'
import { keyOf, type StorageServices } from '../storage/storage.ts'
import { sentName, shownName } from './names.ts'

/** Content that is stored and held, and that no row names yet. */
export type StoredContent = ContentLocation &
  MediaDescription & {
    readonly size: number
    /** Its sha256, in hex. */
    readonly hash: string
    readonly type: string
    readonly typeProven: boolean
    /** The name that its sender gave. */
    readonly originalFilename: string
  }

/** Where content is; the folder is null in a flat layout. */
export type ContentLocation = { readonly storage: string; readonly folder: string | null; readonly filename: string }

export const contentOf = ({ storage, folder, filename }: ContentLocation): ContentKey => ({
  storage,
  key: keyOf(folder, filename),
})

/** Content on its way: its bytes, and what its sender says of it. */
export type Incoming = {
  readonly content: AsyncIterable<Uint8Array>
  readonly name: string
  readonly declared: string | undefined
}

/** How long content may be on its way without a byte, and be without a row. Seconds. */
const holdSeconds = 3600
const renewEveryMs = 300_000

/**
 * Stores content while it comes, at most `most` bytes (413), and holds it until a row names it. Nothing is left where it
 * throws: what cannot be removed at once is removed when the hold is over.
 */
export async function storeContent(
  deps: ContentWrites,
  place: ContentLocation,
  { content, name, declared }: Incoming,
  most: number,
): Promise<StoredContent> {
  const service = deps.storages.holding(place.storage)
  const held = contentOf(place)
  if (!(await holdContent(deps, held, holdSeconds))) throw tookTooLong()
  const digest = createHash('sha256')
  let size = 0
  let renewedAt = performance.now()
  async function* measured(): AsyncGenerator<Uint8Array> {
    for await (const piece of content) {
      size += piece.length
      if (size > most) throw tooLarge()
      digest.update(piece)
      if (performance.now() - renewedAt > renewEveryMs) {
        renewedAt = performance.now()
        if (!(await renewHold(deps, held, holdSeconds))) throw tookTooLong()
      }
      yield piece
    }
  }
  try {
    const { head, whole } = await beginningOf(measured())
    const found = typeOf({ proven: await provenType(head), declared, extended: await usualType(sentName(name)) })
    await service.write(held.key, whole, { type: found.type })
    const described = found.typeProven ? await describe(deps, held, found.type, size) : {}
    return { ...place, ...found, ...described, size, hash: digest.digest('hex'), originalFilename: shownName(name) }
  } catch (error) {
    await discardContent(deps, place)
    throw error
  }
}

/** The description that an image or a recording contains. */
function describe(
  deps: ContentWrites,
  { storage, key }: ContentKey,
  type: string,
  size: number,
): Promise<MediaDescription> {
  const read: Described['read'] = async (range) => {
    const content = await deps.storages.holding(storage).read(key, range)
    if (content === undefined) throw contentGone()
    return content
  }
  return deps.images.describe({ size, type, read })
}

/** Moves content that no row names yet to where its row will be. */
export async function moveContent(
  deps: ContentWrites,
  stored: StoredContent,
  to: ContentLocation,
): Promise<StoredContent> {
  const [from, target] = [contentOf(stored), contentOf(to)]
  if (from.storage === target.storage && from.key === target.key) return stored
  try {
    if (!(await holdContent(deps, target, holdSeconds))) throw tookTooLong()
    await copyContent(deps, from, target, stored.type)
  } catch (error) {
    await discardContent(deps, to)
    throw error
  } finally {
    await discardContent(deps, stored)
  }
  return { ...stored, ...to }
}

/** Copies content within a service or to another one. The target must be held. */
export async function copyContent(
  { storages }: Pick<ContentWrites, 'storages'>,
  from: ContentKey,
  to: ContentKey,
  type: string,
): Promise<void> {
  const source = storages.holding(from.storage)
  if (from.storage === to.storage) {
    if ((await source.stat(from.key)) === undefined) throw contentGone()
    return source.copy(from.key, to.key)
  }
  const content = await source.read(from.key)
  if (content === undefined) throw contentGone()
  await storages.holding(to.storage).write(to.key, readable(content, source.name), { type })
}

/** A service that breaks off is away. */
async function* readable(content: AsyncIterable<Uint8Array>, name: string): AsyncGenerator<Uint8Array> {
  try {
    yield* content
  } catch (error) {
    throw errors.unavailable(`Storage service ${name} is not available`, error)
  }
}

/** Removes content that no row can name any more. If that fails, the content is removed when the hold is over. */
export const discardContent = (deps: ContentWrites, place: ContentLocation): Promise<void> =>
  discardKey(deps, contentOf(place))

/** The same by its key. */
export async function discardKey(deps: ContentWrites, content: ContentKey): Promise<void> {
  try {
    // Without a hold a row names it, or it has been removed.
    if (!(await renewHold(deps, content, holdSeconds))) return
    await deps.storages.holding(content.storage).delete(content.key)
    await forgetContent(deps, content)
  } catch (error) {
    deps.log.warn({ err: error, ...content }, 'content of an upload that failed stays until its hold is over')
  }
}

export const tooLarge = (): AppError => new AppError(413, 'The file is too large', { code: 'FILE_TOO_LARGE' })
export const tookTooLong = (): AppError => errors.unavailable('The upload took too long')
export const contentGone = (): AppError => new AppError(409, 'content is gone', { code: 'CONTENT_GONE' })

/** The first bytes of content, and all of it. */
async function beginningOf(content: AsyncGenerator<Uint8Array>) {
  const first: Uint8Array[] = []
  let size = 0
  while (size < tellingBytes) {
    const { value, done } = await content.next()
    if (done === true) break
    first.push(value)
    size += value.length
  }
  async function* whole(): AsyncGenerator<Uint8Array> {
    try {
      yield* first
      yield* content
    } finally {
      await content.return(undefined)
    }
  }
  return { head: Buffer.concat(first), whole: whole() }
}

/** The clues about content when its first bytes have arrived. */
type Clues = {
  /** The type that the first bytes prove. */
  readonly proven: string | undefined
  /** The type that the sender declares. */
  readonly declared: string | undefined
  /** The type of its file extension. */
  readonly extended: string | undefined
}

/**
 * The type of content, and whether the content itself proves it. Pure. First bytes win; what is declared beside them counts
 * only where nothing contradicts it, and proves nothing.
 */
function typeOf({ proven, declared, extended }: Clues): { readonly type: string; readonly typeProven: boolean } {
  const said = usual(declared)
  if (proven === undefined) return { type: said ?? usual(extended) ?? unknown, typeProven: false }
  const shown = usual(proven) ?? unknown
  // A picture that is sent as one of another format is still a picture.
  if (said === undefined || said === shown || (isMedia(said) && halfOf(said) === halfOf(shown)))
    return { type: shown, typeProven: true }
  // Drawings, feeds and tracks are XML.
  if (shown === 'application/xml' && said.endsWith('+xml')) return { type: said, typeProven: false }
  // Office documents and many others are archives or XML inside.
  if (isContainer(shown) && !isMedia(said) && !isExecutable(said)) return { type: said, typeProven: false }
  return { type: shown, typeProven: false }
}

const unknown = 'application/octet-stream'

/** Without parameters, in lower case, by its registered name; undefined where nothing is said. */
function usual(type: string | undefined): string | undefined {
  const bare = essenceOf(type ?? '')
  if (!/^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$/.test(bare) || bare === unknown)
    return undefined
  return synonyms[bare] ?? bare
}

const synonyms: Readonly<Record<string, string>> = {
  'image/jpg': 'image/jpeg',
  'image/pjpeg': 'image/jpeg',
  'image/x-png': 'image/png',
  'image/vnd.microsoft.icon': 'image/x-icon',
  'audio/mp3': 'audio/mpeg',
  'audio/x-wav': 'audio/wav',
  'audio/wave': 'audio/wav',
  'audio/vnd.wave': 'audio/wav',
  'audio/x-m4a': 'audio/mp4',
  'audio/m4a': 'audio/mp4',
  'application/x-zip-compressed': 'application/zip',
  'application/x-gzip': 'application/gzip',
  'text/xml': 'application/xml',
}

const halfOf = (type: string): string => type.split('/', 1)[0]!
const isMedia = (type: string): boolean => /^(image|audio|video)\//.test(type)
const isContainer = (type: string): boolean => /^application\/(zip|xml|x-cfb|ogg|gzip)$/.test(type)

/** The capabilities to store content. */
export type ContentWrites = UnloggedWrites & Configuration & StorageServices & ImageProcessing & Logs

/** The capabilities that this folder takes to read. */
export type FileReads = Reads & Configuration & StorageServices

/** The capabilities that this folder takes to change. */
export type FileWrites = ItemWrites & ContentWrites
