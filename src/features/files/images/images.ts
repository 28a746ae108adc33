import { randomUUID } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { mkdir, readdir, rm, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import type { Logger } from 'pino'
import type { ImageFacts } from '../../../adapters/image-processing.ts'
import type { MediaFacts } from '../../../adapters/media-metadata.ts'
import type { Config } from '../../../config/config.ts'
import { AppError } from '../../../errors.ts'
import { JobFault, openPool } from './pool.ts'
import type { Transform } from './transform.ts'

export {
  canonical,
  digestOf,
  extensionOf,
  fits,
  type Transform,
  transformOf,
} from './transform.ts'

/** The content of a file, wherever it is stored. */
export type FileContent = {
  readonly size: number
  readonly type: string
  /** All of it, or its bytes from `start` to `end`, both included. */
  read(range?: { readonly start: number; readonly end: number }): Promise<Readable>
}

/** The facts in a file's own header, as columns and metadata of svc_File. */
export type MediaDescription = {
  readonly width?: number
  readonly height?: number
  readonly metadata?: Partial<ImageFacts & MediaFacts>
}

export type Images = {
  /**
   * Makes a transform of an image in a temporary file, and gives its path to `use`; the file is gone afterwards. 400 for an
   * image with too many pixels, 422 for one that cannot be decoded, 503 where too many wait, 507 without room. Where `isMade` finds, when its
   * turn has come, that it has been made already, that is the answer.
   */
  transform<T>(content: FileContent, transform: Transform, work: TransformWork<T>): Promise<T>
  /** Reads the header; gives nothing for a file that is broken or of another kind. Never refuses and never throws. */
  describe(content: FileContent): Promise<MediaDescription>
  load(): { readonly waiting: number; readonly processes: number }
  close(): Promise<void>
}

type TransformWork<T> = {
  /** The caller who takes turns with others. */
  readonly turn: string
  readonly signal?: AbortSignal | undefined
  isMade(): Promise<T | undefined>
  use(path: string): Promise<T>
}

/** Decodes images, in processes of its own. */
export type ImageProcessing = { readonly images: Images }

const transformMs = 30_000
const describeMs = 10_000
const headerTypes = /^image\/(?!svg)/
const mediaTypes = /^(audio|video)\//

/** Opens what decodes images and reads the headers of sound and film. Nothing is started before there is work. */
export function openImages({ assets }: Config, log: Logger): Images {
  const tempDir = resolve(assets.tempDir)
  const { maxInputPixels, maxDimension } = assets
  // Of the largest image every pixel may be held in eight bytes; the rest is the process itself.
  const memoryMb = Math.ceil(200 + (maxInputPixels * 8) / 1_048_576)
  const pool = openPool({ log, limits: { maxInputPixels, maxDimension }, memoryMb, tempDir })
  const files = openTempFiles(tempDir)
  return {
    async transform(content, transform, { turn, signal, isMade, use }) {
      await using held = await files.hold()
      const target = held.path()
      const made = await pool
        .run({
          turn,
          signal,
          isQuick: false,
          timeLimitMs: transformMs,
          prepare: async () => {
            const ready = await isMade()
            if (ready !== undefined) return { ready: { ready } }
            const source = held.path()
            await pipeline(await content.read(), createWriteStream(source, { flags: 'wx', mode: 0o600 }))
            return { task: { kind: 'transform', source, target, transform } }
          },
        })
        .catch((error: unknown) => {
          throw refusalOf(error, maxInputPixels)
        })
      // Its files stay until it has been used.
      return made !== undefined && 'ready' in made ? made.ready : await use(target)
    },
    async describe(content) {
      try {
        if (headerTypes.test(content.type)) return await imageDescription(await files.hold(), pool, content)
        return mediaTypes.test(content.type) ? await mediaDescription(pool, content) : {}
      } catch (error) {
        const { type } = content
        // A file is worth more than what is said of it.
        if (error instanceof JobFault)
          log.info({ reason: error.message, type }, 'the header of a file is broken or unknown')
        else log.warn({ err: error, type }, 'the header of a file could not be read')
        return {}
      }
    },
    load: () => pool.load(),
    close: () => pool.close(),
  }
}

const headerWork = { turn: 'uploads', isQuick: true, timeLimitMs: describeMs } as const

async function imageDescription(held: HeldFiles, pool: ReturnType<typeof openPool>, content: FileContent) {
  await using files = held
  const facts = (await pool.run({
    ...headerWork,
    prepare: async () => {
      const source = files.path()
      await pipeline(await content.read(), createWriteStream(source, { flags: 'wx', mode: 0o600 }))
      return { task: { kind: 'image', source } }
    },
  })) as ImageFacts
  const { width, height, ...metadata } = facts
  return { width, height, metadata }
}

async function mediaDescription(pool: ReturnType<typeof openPool>, content: FileContent): Promise<MediaDescription> {
  const read = async (start: number, end: number) =>
    end <= start ? new Uint8Array() : buffer(await content.read({ start, end: end - 1 }))
  const metadata = (await pool.run({
    ...headerWork,
    prepare: async () => ({ task: { kind: 'media', size: content.size, type: content.type }, read }),
  })) as MediaFacts
  // A name of a type is all that it has of it.
  if (metadata.container === undefined && metadata.streams.length === 0) return {}
  const video = metadata.streams.find(({ width, height }) => width !== undefined && height !== undefined)
  return { ...(video && { width: video.width!, height: video.height! }), metadata }
}

/** The refusal for a fault of a job; other errors pass unchanged. */
function refusalOf(error: unknown, maxInputPixels: number): unknown {
  const isFull = ['ENOSPC', 'EDQUOT'].includes((error as NodeJS.ErrnoException).code ?? '')
  if (isFull || (error instanceof JobFault && error.fault === 'unwritable'))
    return new AppError(507, 'There is no room to process images', { code: 'STORAGE_FULL', cause: error })
  if (!(error instanceof JobFault)) return error
  if (error.fault === 'too many pixels')
    return new AppError(400, `The image has more than ${maxInputPixels} pixels`, { code: 'TOO_MANY_PIXELS' })
  const isDeadly = error.fault === 'deadly'
  const message = isDeadly ? 'The image takes too much to be processed' : 'The image cannot be processed'
  return new AppError(422, message, { code: 'IMAGE_NOT_PROCESSED' })
}

type HeldFiles = { path(): string } & AsyncDisposable

const prefix = 'image-'
/** Nothing takes so long: what is older was left by a process that was killed. */
const leftoverMs = 3_600_000

/** Files in ASSET_TEMP_DIR, which is made, and rid of what killed processes have left, before the first. */
function openTempFiles(directory: string) {
  let prepared: Promise<void> | undefined
  const prepare = async () => {
    await mkdir(directory, { recursive: true })
    const old = Date.now() - leftoverMs
    for (const name of await readdir(directory)) {
      if (!name.startsWith(prefix)) continue
      const path = join(directory, name)
      const found = await stat(path).catch(() => undefined)
      if (found !== undefined && found.mtimeMs < old) await rm(path, { force: true })
    }
  }
  return {
    async hold(): Promise<HeldFiles> {
      prepared ??= prepare()
      await prepared.catch((error: unknown) => {
        prepared = undefined
        throw error
      })
      const paths: string[] = []
      return {
        path() {
          const path = join(directory, `${prefix}${randomUUID()}`)
          paths.push(path)
          return path
        },
        async [Symbol.asyncDispose]() {
          await Promise.all(paths.map((path) => rm(path, { force: true })))
        },
      }
    },
  }
}
