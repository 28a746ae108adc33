import { hash } from 'node:crypto'
import type { ImageFacts } from '../../../adapters/image-processing.ts'
import type { MediaFacts } from '../../../adapters/media-metadata.ts'
import type { ready } from '../../../language/child-pool-step.ts'

/* Image transforms: read from a query, bounded, and named. */

export const fits = ['cover', 'contain', 'fill', 'inside', 'outside'] as const
type Fit = (typeof fits)[number]

type ImageFormat = 'jpeg' | 'png' | 'webp' | 'avif'

export type Transform = {
  readonly width?: number
  readonly height?: number
  /** Only with a width or a height. */
  readonly fit?: Fit
  readonly withoutEnlargement?: true
  readonly format: ImageFormat
  /** 1 to 100; PNG loses nothing and has none. */
  readonly quality?: number
}

const formats: ReadonlyMap<string, ImageFormat> = new Map([
  ['jpeg', 'jpeg'],
  ['jpg', 'jpeg'],
  ['png', 'png'],
  ['webp', 'webp'],
  ['avif', 'avif'],
])

export const extensionOf: Readonly<Record<ImageFormat, string>> = {
  jpeg: 'jpg',
  png: 'png',
  webp: 'webp',
  avif: 'avif',
}

type TransformQuery = Readonly<Record<string, unknown>>

/**
 * The transform that a query asks for; undefined where it has none of `width`, `height`, `quality` and `format`. Values
 * that make no sense count as absent, an unknown format is JPEG, an unknown fit `cover`, and sizes end at
 * `maxDimension`.
 */
export function transformOf(query: TransformQuery, maxDimension: number): Transform | undefined {
  const width = dimensionOf(query.width, maxDimension)
  const height = dimensionOf(query.height, maxDimension)
  const quality = qualityOf(query.quality)
  const isFormatGiven = typeof query.format === 'string' && query.format !== ''
  if (width === undefined && height === undefined && quality === undefined && !isFormatGiven) return undefined
  const format = formats.get(String(query.format).toLowerCase()) ?? 'jpeg'
  const isResized = width !== undefined || height !== undefined
  return {
    ...(width !== undefined && { width }),
    ...(height !== undefined && { height }),
    ...(isResized && { fit: fits.find((fit) => fit === query.fit) ?? 'cover' }),
    ...(isResized && query.withoutEnlargement === 'true' && { withoutEnlargement: true }),
    format,
    ...(format !== 'png' && { quality: quality ?? 80 }),
  }
}

/** One text for equal transforms. */
export function canonical(transform: Transform): string {
  const { width, height, fit, withoutEnlargement, format, quality } = transform
  const parts = Object.entries({ width, height, fit, withoutEnlargement, format, quality })
  return parts.flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${value}`])).join('&')
}

/** Part of the names of what was made: eight hex digits for equal transforms. */
export const digestOf = (transform: Transform): string => hash('md5', canonical(transform), 'hex').slice(0, 8)

type Size = { readonly width: number; readonly height: number }

/** How an image is to be resized: into exactly these dimensions, or into what they leave of its own proportions. */
type Resize = Size & { readonly fit: 'cover' | 'contain' | 'fill' }

/**
 * The size that an image of this size becomes; undefined where it stays as it is. Neither side exceeds `maxDimension`,
 * whatever the proportions of the original are: one pixel high it would otherwise grow without end.
 */
export function resizeOf(transform: Transform, original: Size, maxDimension: number): Resize | undefined {
  const { width, height, fit = 'cover', withoutEnlargement = false } = transform
  const isExact = width !== undefined && height !== undefined && (fit === 'cover' || fit === 'contain')
  if (isExact) {
    const isLarger = width > original.width || height > original.height
    // As a whole, like the library: cutting only one side would be neither.
    if (withoutEnlargement && isLarger) return fitting(original, original, maxDimension)
    return { width, height, fit }
  }
  const wanted = fit === 'fill' ? stretched(transform, original) : scaled(transform, original)
  const grows = wanted.width > original.width || wanted.height > original.height
  return fitting(withoutEnlargement && grows ? original : wanted, original, maxDimension)
}

const stretched = ({ width, height }: Transform, original: Size): Size => ({
  width: width ?? original.width,
  height: height ?? original.height,
})

/** In its own proportions: one side decides, or the one that stays inside or outside of both. */
function scaled({ width, height, fit }: Transform, original: Size): Size {
  const scales = [width && width / original.width, height && height / original.height].filter(
    (scale) => scale !== undefined && scale > 0,
  ) as number[]
  if (scales.length === 0) return original
  const scale = fit === 'outside' ? Math.max(...scales) : Math.min(...scales)
  return { width: original.width * scale, height: original.height * scale }
}

function fitting(wanted: Size, original: Size, maxDimension: number): Resize | undefined {
  const scale = Math.min(1, maxDimension / wanted.width, maxDimension / wanted.height)
  const [width, height] = [wanted.width * scale, wanted.height * scale].map((side) => Math.max(1, Math.round(side)))
  if (width === original.width && height === original.height) return undefined
  return { width: width!, height: height!, fit: 'fill' }
}

function dimensionOf(given: unknown, maxDimension: number): number | undefined {
  if (typeof given !== 'string' || !/^\d+$/.test(given)) return undefined
  const number = Number(given)
  return number > 0 ? Math.min(number, maxDimension) : undefined
}

function qualityOf(given: unknown): number | undefined {
  if (typeof given !== 'string' || !/^-?\d+(\.\d+)?$/.test(given)) return undefined
  return Math.min(100, Math.max(1, Math.round(Number(given))))
}

/** The messages between the pool and its processes. */

export type ImageLimits = { readonly maxInputPixels: number; readonly maxDimension: number }

/** Paths are those of files in ASSET_TEMP_DIR. */
export type Task =
  | { readonly kind: 'transform'; readonly source: string; readonly target: string; readonly transform: Transform }
  | { readonly kind: 'image'; readonly source: string }
  /** Its bytes are asked for. */
  | { readonly kind: 'media'; readonly size: number; readonly type: string }

export type ToChild =
  | { readonly kind: 'task'; readonly task: Task; readonly limits: ImageLimits }
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  | { readonly kind: 'no bytes'; readonly message: string }

export type ImageResult = ImageFacts | MediaFacts | undefined

/** `too many pixels`: the image was not decoded; `unreadable`: it could not be; `unwritable`: the result could not be kept. */
export type Fault = 'too many pixels' | 'unreadable' | 'unwritable'

export type FromChild =
  | typeof ready
  | { readonly kind: 'done'; readonly result: ImageResult }
  | { readonly kind: 'failed'; readonly fault: Fault; readonly message: string }
  /** From `start` up to, but without, `end`. */
  | { readonly kind: 'read'; readonly start: number; readonly end: number }

/** The argument of a process: how many megabytes it may take. */
export const memoryFlag = '--memory-mb='
