import { createReadStream } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { extname } from 'node:path'
import type { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { type BoundedMemory, openBoundedMemory } from '../../../adapters/bounded-memory.ts'
import { clientGone, workFor } from '../../../admission/asker.ts'
import {
  claimVariant,
  completeVariant,
  forgetVariant,
  surplusVariants,
  type VariantClaim,
} from '../../../db/unlogged/files.ts'
import { AppError } from '../../../errors.ts'
import { oncePer } from '../../../language/once.ts'
import { digestOf, extensionOf, type Transform } from '../images/images.ts'
import { type ByteRange, keyOf, type Storage } from '../storage/storage.ts'
import { type AssetRow, type AssetWrites, variantSize } from './asset.ts'

/** The bytes that an answer is made of. */
export type AssetContent = {
  readonly size: number
  /** Undefined where the storage has lost them. */
  read(range?: ByteRange): Promise<Readable | Buffer | undefined>
  isThere(): Promise<boolean>
}

/** For whom a variant is made, where that takes a while. */
type Waiting = { readonly turn: string; readonly gone: AbortSignal | undefined }

export type Contents = {
  original(asset: AssetRow): AssetContent
  /**
   * The transformed image: from memory, from storage, or made now, once for all who wait. 400, 422 and 503 as
   * `Images.transform`; 404 where the original is gone.
   */
  variant(asset: AssetRow, transform: Transform, waiting: Waiting): Promise<AssetContent>
  /** Its content was not where it should be, so that it is to be made anew. */
  lost(asset: AssetRow, transform: Transform): Promise<void>
}

/** Small content is kept: its key never stands for another one. */
const keptBytes = 32 * 1_048_576
const keptEach = 128 * 1024
const keptMs = 3_600_000

type KeptImage = { readonly bytes: Buffer }

/** Those of a process. */
export const contentsOf = oncePer(openContents)

/** All of it, in memory; undefined where the storage has lost it. */
export async function wholeOf(content: AssetContent): Promise<Buffer | undefined> {
  const found = await content.read()
  return found === undefined || Buffer.isBuffer(found) ? found : buffer(found)
}

function openContents(deps: AssetWrites): Contents {
  const kept = openBoundedMemory<KeptImage>({
    maxBytes: keptBytes,
    maxEntryBytes: keptEach,
    sizeOf: ({ bytes }, key) => bytes.length + key.length + 100,
  })
  const making = openSharedWork<AssetContent>()
  const stored = (asset: AssetRow, key: string, size: number): AssetContent => {
    const storage = deps.storages.holding(asset.storage)
    return {
      size,
      read: (range) => readStored({ storage, key, size, kept }, range),
      isThere: async () => kept.has(nameOf(storage.name, key)) || (await storage.stat(key)) !== undefined,
    }
  }
  return {
    original: (asset) => stored(asset, originalKey(asset), asset.size),
    async variant(asset, transform, waiting) {
      checkImage(asset, deps.config.assets.maxInputPixels)
      const key = variantKey(asset, transform)
      const found = kept.get(nameOf(asset.storage, key))
      if (found !== undefined) return inMemory(found.bytes)
      const size = await variantSize(deps, asset.storage, key)
      if (size !== undefined) return stored(asset, key, size)
      return making.do(nameOf(asset.storage, key), waiting.gone, (signal) =>
        make(deps, { asset, transform, key, kept, stored, turn: waiting.turn, signal }),
      )
    },
    lost: (asset, transform) => forgetVariant(deps, { storage: asset.storage, key: variantKey(asset, transform) }),
  }
}

const nameOf = (storage: string, key: string): string => `${storage}/${key}`
const originalKey = ({ folder, filename }: AssetRow): string => keyOf(folder, filename)

/** Beside the original, by a name that says what it was made of. */
export function variantKey({ folder, filename }: Pick<AssetRow, 'folder' | 'filename'>, transform: Transform): string {
  const base = filename.slice(0, filename.length - extname(filename).length)
  return keyOf(folder, `${base}_processed_${digestOf(transform)}.${extensionOf[transform.format]}`)
}

/** Spares a process what cannot succeed. */
function checkImage({ type, typeProven, width, height }: AssetRow, maxInputPixels: number): void {
  if (!typeProven || /^image\/(svg|hei[cf])/.test(type))
    throw new AppError(422, 'The image cannot be processed', { code: 'IMAGE_NOT_PROCESSED' })
  if ((width ?? 0) * (height ?? 0) > maxInputPixels)
    throw new AppError(400, `The image has more than ${maxInputPixels} pixels`, { code: 'TOO_MANY_PIXELS' })
}

type ImagePlace = {
  readonly storage: Storage
  readonly key: string
  readonly size: number
  readonly kept: BoundedMemory<KeptImage>
}

async function readStored(
  { storage, key, size, kept }: ImagePlace,
  range?: ByteRange,
): Promise<Readable | Buffer | undefined> {
  const name = nameOf(storage.name, key)
  const found = kept.get(name)
  if (found !== undefined) return partOf(found.bytes, range)
  if (size > keptEach - name.length - 100) return storage.read(key, range)
  const content = await storage.read(key)
  if (content === undefined) return undefined
  const bytes = await buffer(content)
  kept.set(name, { bytes }, keptMs)
  return partOf(bytes, range)
}

const inMemory = (bytes: Buffer): AssetContent => ({
  size: bytes.length,
  read: async (range) => partOf(bytes, range),
  isThere: async () => true,
})

const partOf = (bytes: Buffer, range: ByteRange | undefined): Buffer =>
  range === undefined ? bytes : bytes.subarray(range.start, range.end + 1)

type Making = {
  readonly asset: AssetRow
  readonly transform: Transform
  readonly key: string
  readonly kept: BoundedMemory<KeptImage>
  readonly stored: (asset: AssetRow, key: string, size: number) => AssetContent
  readonly turn: string
  readonly signal: AbortSignal
}

async function make(
  deps: AssetWrites,
  { asset, transform, key, kept, stored, turn, signal }: Making,
): Promise<AssetContent> {
  const storage = deps.storages.holding(asset.storage)
  const original = originalKey(asset)
  const read = async (range?: ByteRange): Promise<Readable> => {
    const found = await storage.read(original, range)
    if (found === undefined) throw new AppError(404, 'File not found')
    return found
  }
  return deps.images.transform({ size: asset.size, type: asset.type, read }, transform, {
    turn,
    signal,
    async isMade() {
      const size = await variantSize(deps, asset.storage, key)
      return size === undefined ? undefined : stored(asset, key, size)
    },
    async use(path) {
      const { size } = await stat(path)
      const bytes = size <= keptEach ? await readFile(path) : undefined
      const isStored = await store(deps, { asset, storage, key, original, path, size, transform })
      if (bytes !== undefined) {
        if (isStored) kept.set(nameOf(storage.name, key), { bytes }, keptMs)
        return inMemory(bytes)
      }
      return isStored ? stored(asset, key, size) : inMemory(await readFile(path))
    },
  })
}

type Storing = {
  readonly asset: AssetRow
  readonly storage: Storage
  readonly key: string
  readonly original: string
  readonly path: string
  readonly size: number
  readonly transform: Transform
}

/**
 * Keeps a variant for the next one who asks. False where it is not kept: somebody else is writing it, the file is gone, or
 * the storage does not take it, which is no reason to keep it from those who wait.
 */
async function store(
  deps: AssetWrites,
  { asset, storage, key, original, path, size, transform }: Storing,
): Promise<boolean> {
  const claim = await claimVariant(deps, { storage: asset.storage, key, original }, asset.id)
  if (claim === undefined) return false
  try {
    // A killed process may have left a part of it.
    await storage.delete(key)
    await storage.write(key, createReadStream(path), { type: `image/${transform.format}` })
  } catch (error) {
    deps.log.warn({ err: error, fileId: asset.id }, 'a transform could not be stored; it will be made again')
    await forgetVariant(deps, claim)
    return false
  }
  if (!(await completeVariant(deps, claim, size))) {
    await storage.delete(key)
    return false
  }
  await removeSurplus(deps, storage, claim)
  return true
}

async function removeSurplus(deps: AssetWrites, storage: Storage, claim: VariantClaim): Promise<void> {
  const surplus = await surplusVariants(deps, claim, deps.config.assets.variantsPerFile)
  for (const key of surplus) {
    await storage.delete(key)
    await forgetVariant(deps, { storage: claim.storage, key })
  }
}

/** Does what several ask for at the same time once. It is given up when the last of them has gone. */
function openSharedWork<T>() {
  type Shared = { readonly result: Promise<T>; readonly left: AbortController; waiting: number }
  const running = new Map<string, Shared>()
  const begin = (name: string, work: (signal: AbortSignal) => Promise<T>): Shared => {
    const left = new AbortController()
    // Several callers share it: its statements must not end when the first of them leaves.
    const nobody = { caller: 'assets', gone: undefined, places: 0 }
    const result = workFor(nobody, () => work(left.signal)).finally(() => running.delete(name))
    const shared: Shared = { result, left, waiting: 0 }
    running.set(name, shared)
    return shared
  }
  return {
    async do(name: string, gone: AbortSignal | undefined, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
      const found = running.get(name)
      const shared = found === undefined || found.left.signal.aborted ? begin(name, work) : found
      shared.waiting += 1
      const leave = () => {
        shared.waiting -= 1
        if (shared.waiting === 0) shared.left.abort(clientGone())
      }
      if (gone?.aborted) leave()
      gone?.addEventListener('abort', leave, { once: true })
      try {
        return await shared.result
      } finally {
        gone?.removeEventListener('abort', leave)
      }
    },
  }
}
