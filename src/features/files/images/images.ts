import { randomUUID } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { readdir, rm, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import type { Logger } from 'pino'
import type { ImageFacts } from '../../../adapters/image-processing.ts'
import type { MediaFacts } from '../../../adapters/media-metadata.ts'
import type { Config } from '../../../config/config.ts'
import { AppError, errors } from '../../../errors.ts'
import { ChildDeathError, type ChildLine, openChildPool } from '../../../language/child-pool.ts'
import { moduleFile } from '../../../language/child-process.ts'
import { makeDirectory } from '../../../language/directories.ts'
import { untilMade } from '../../../language/once.ts'
import {
  type Fault,
  type FromChild,
  type ImageLimits,
  type ImageResult,
  memoryFlag,
  type Task,
  type ToChild,
  type Transform,
} from './transform.ts'

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

const facts: Readonly<Record<Exclude<keyof (ImageFacts & MediaFacts), 'width' | 'height'>, true>> = {
  ...{ format: true, space: true, channels: true, hasAlpha: true, depth: true, density: true },
  ...{ orientation: true, pages: true, container: true, duration: true, bitrate: true, streams: true },
}

/** The members of the metadata that {@link MediaDescription} may have. */
export const factNames: ReadonlySet<string> = new Set(Object.keys(facts))

/** Whether headers are read of content whose type this is, and proven. */
export const isDescribed = (type: string): boolean => headerTypes.test(type) || mediaTypes.test(type)

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
  const prepared = untilMade(async () => {
    await makeDirectory(directory)
    const old = Date.now() - leftoverMs
    for (const name of await readdir(directory)) {
      if (!name.startsWith(prefix)) continue
      const path = join(directory, name)
      const found = await stat(path).catch(() => undefined)
      if (found !== undefined && found.mtimeMs < old) await rm(path, { force: true })
    }
  })
  return {
    async hold(): Promise<HeldFiles> {
      await prepared()
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

/** The work of a process, made when its turn has come. */
type Prepared = {
  readonly task: Task
  /** The bytes from `start` up to, but without, `end`, of a file of sound or film. */
  readonly read?: (start: number, end: number) => Promise<Uint8Array>
}

type ImageJob<T> = {
  /** The caller who takes turns with others. */
  readonly turn: string
  /** Goes first and is never refused. */
  readonly isQuick: boolean
  /** How long its process may compute. */
  readonly timeLimitMs: number
  /** Aborts when the last caller has stopped waiting. */
  readonly signal?: AbortSignal | undefined
  /** Called again if its process died. A `ready` result needs no process. */
  readonly prepare: () => Promise<Prepared | { readonly ready: T }>
}

/** Why a job could not be done. `deadly`: it took too much time or memory, or processes died of it. */
class JobFault extends Error {
  override readonly name = 'JobFault'
  readonly fault: Fault | 'deadly'
  constructor(fault: Fault | 'deadly', message: string) {
    super(message)
    this.fault = fault
  }
}

export type ImagePool = {
  /** @throws {JobFault} and 503 where too many wait, or no process can be started */
  run<T = never>(job: ImageJob<T>): Promise<ImageResult | T>
  /** Jobs that wait, and processes. */
  load(): { readonly waiting: number; readonly processes: number }
  close(): Promise<void>
}

type ImagePoolOptions = {
  readonly log: Logger
  readonly limits: ImageLimits
  /** Megabytes that one process may take. */
  readonly memoryMb: number
  /** Where the library puts what does not fit into memory. */
  readonly tempDir: string
}

/** A client hears of it before its connection is given up. */
const longestWaitMs = 45_000
/** A process that yields to all others may not get its time within so many times as long, but for short times. */
const patience = 4
const leastPatienceMs = 20_000
/** A child that is asked for a file may read so much of it: what containers say stands at their ends. */
const mostRead = 32 * 1_048_576
const mostReadAtOnce = 4 * 1_048_576

/** Two processes at most, for what the files of strangers make of a decoder (ADR 0044). */
export function openPool({ log, limits, memoryMb, tempDir }: ImagePoolOptions): ImagePool {
  const pool = openChildPool<ToChild, FromChild>({
    log,
    name: 'images',
    script: moduleFile(import.meta.dirname, 'image-process'),
    args: [`${memoryFlag}${memoryMb}`],
    // No secret of the environment can be in its memory.
    env: { MALLOC_ARENA_MAX: '2', TMPDIR: tempDir },
    serialization: 'advanced',
    atOnce: 2,
    mostWaiting: 100,
    mostDeaths: 2,
    unusedMs: 30_000,
    longestWaitMs,
    refusal: tooMany,
  })
  return {
    run: ({ turn, isQuick, timeLimitMs, signal, prepare }) =>
      pool
        .run({
          ...{ turn, isQuick, signal },
          run: async (line) => {
            const prepared = await prepare()
            if ('ready' in prepared) return prepared.ready
            line.limit({
              computeMs: timeLimitMs,
              passedMs: Math.max(leastPatienceMs, patience * timeLimitMs),
              lookMs: timeLimitMs / 10,
              refusal: (overrun) => (overrun === 'passed' ? starved() : new JobFault('deadly', 'it takes too long')),
            })
            return answerOf(line, prepared, limits)
          },
        })
        .catch((error: unknown) => {
          throw error instanceof ChildDeathError ? new JobFault('deadly', error.message) : error
        }),
    load: () => pool.load(),
    close: () => pool.close(),
  }
}

function answerOf(
  line: ChildLine<ToChild, FromChild>,
  { task, read }: Prepared,
  limits: ImageLimits,
): Promise<ImageResult> {
  const { promise, resolve, reject } = Promise.withResolvers<ImageResult>()
  const onRead = readingFor(line, read)
  line.listen((message) => {
    if (message.kind === 'read') void onRead(message)
    else if (message.kind === 'done') resolve(message.result)
    else if (message.kind === 'failed') reject(new JobFault(message.fault, message.message))
  })
  line.send({ kind: 'task', task, limits })
  return promise
}

/** Answers what a process wants to read of its file, one piece after the other. */
function readingFor(line: ChildLine<ToChild, FromChild>, read: Prepared['read']) {
  let total = 0
  return async ({ start, end }: Extract<FromChild, { kind: 'read' }>): Promise<void> => {
    total += end - start
    if (read === undefined || end - start > mostReadAtOnce || total > mostRead)
      return line.send({ kind: 'no bytes', message: 'too much of the file is asked for' })
    try {
      line.send({ kind: 'bytes', bytes: await read(start, end) })
    } catch (error) {
      line.send({ kind: 'no bytes', message: (error as Error).message })
    }
  }
}

const starved = () => errors.unavailable('This machine has no time for images now. Please try again later.')

const tooMany = () =>
  new AppError(503, 'Too many images are being processed. Please try again later.', {
    code: 'OVERLOADED',
    headers: { 'retry-after': '5' },
  })
