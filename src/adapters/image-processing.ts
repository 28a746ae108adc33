import type { Metadata, ResizeOptions, Sharp } from 'sharp'

/** The form of a rendered picture: a size, if it changes, and a format. */
type Rendering = {
  readonly resize: (ResizeOptions & { readonly width: number; readonly height: number }) | undefined
  readonly format: 'jpeg' | 'png' | 'webp' | 'avif'
  readonly quality: number | undefined
}

/** As a viewer shows it: turned by its orientation. */
type ImageSize = { readonly width: number; readonly height: number }

export type ImageFacts = ImageSize & {
  readonly format: string
  readonly space: string
  readonly channels: number
  readonly hasAlpha: boolean
  readonly depth: string
  /** Pixels per inch. */
  readonly density?: number
  /** As EXIF counts: 1 is upright. */
  readonly orientation?: number
  /** More than one: an animation, or a document. */
  readonly pages?: number
}

/** The image has more pixels than are decoded. */
export class TooManyPixelsError extends Error {
  override readonly name = 'TooManyPixelsError'
}

/** Not an image that is decoded here, or not a whole one. */
class UnreadableImageError extends Error {
  override readonly name = 'UnreadableImageError'
}

/** The image is not at fault: what was made of it could not be written. */
export class UnwritableImageError extends Error {
  override readonly name = 'UnwritableImageError'
}

/**
 * The decoders that files of strangers may reach. SVG is not among them, which loads other files and runs long, nor is
 * whatever the library comes to know.
 */
const decoders = ['Jpeg', 'Png', 'Webp', 'Nsgif', 'Heif', 'Tiff'].map((name) => `VipsForeignLoad${name}File`)

let opening: Promise<typeof import('sharp').default> | undefined

function opened(): Promise<typeof import('sharp').default> {
  opening ??= import('sharp').then(({ default: sharp }) => {
    sharp.block({ operation: ['VipsForeignLoad'] })
    sharp.unblock({ operation: decoders })
    // Each job is another image, and what runs side by side are processes.
    sharp.cache(false)
    sharp.concurrency(1)
    return sharp
  })
  return opening
}

/** Reads the header of an image file. Throws {@link UnreadableImageError}. */
export async function readImageFacts(path: string): Promise<ImageFacts> {
  const sharp = await opened()
  const facts = await attempted(() => sharp(path, { limitInputPixels: false }).metadata())
  const { format, mediaType, space, channels, hasAlpha, depth, density, orientation, pages } = facts
  return {
    ...sizeOf(facts),
    format: mediaType === 'image/avif' ? 'avif' : format,
    space,
    channels,
    hasAlpha,
    depth,
    ...(density !== undefined && { density }),
    ...(orientation !== undefined && { orientation }),
    ...(pages !== undefined && pages > 1 && { pages }),
  }
}

/**
 * Renders the first frame of an image file, upright, in sRGB of eight bits, transparency on white where the format has
 * none. `decide` says how, once the size is known. Throws {@link TooManyPixelsError}, {@link UnreadableImageError} or
 * {@link UnwritableImageError}.
 */
export async function renderImage(
  { source, target, maxInputPixels }: { source: string; target: string; maxInputPixels: number },
  decide: (size: ImageSize) => Rendering,
): Promise<void> {
  const { width, height } = await readImageFacts(source)
  if (width * height > maxInputPixels) throw new TooManyPixelsError(`it has ${width} × ${height} pixels`)
  const { resize, format, quality } = decide({ width, height })
  const sharp = await opened()
  const image = sharp(source, {
    limitInputPixels: maxInputPixels,
    failOn: 'error',
    sequentialRead: true,
  }).autoOrient()
  if (resize !== undefined) image.resize(resize)
  await attempted(() => encoded(image.toColourspace('srgb'), format, quality).toFile(target))
}

function encoded(image: Sharp, format: Rendering['format'], quality: number | undefined): Sharp {
  const lossy = quality === undefined ? {} : { quality }
  if (format === 'png') return image.png()
  if (format === 'webp') return image.webp(lossy)
  // The encoder's own choice takes four times as long for a twentieth of the size.
  if (format === 'avif') return image.avif({ ...lossy, effort: 2 })
  return image.flatten({ background: '#ffffff' }).jpeg(lossy)
}

const sizeOf = ({ width, height, autoOrient }: Metadata): ImageSize => ({
  width: autoOrient?.width ?? width,
  height: autoOrient?.height ?? height,
})

async function attempted<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const { message } = error as Error
    if (/pixel limit/i.test(message)) throw new TooManyPixelsError(message, { cause: error })
    if (/write error|open for write/i.test(message)) throw new UnwritableImageError(message, { cause: error })
    throw new UnreadableImageError(message, { cause: error })
  }
}
