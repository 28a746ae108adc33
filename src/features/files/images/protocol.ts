import type { ImageFacts } from '../../../adapters/image-processing.ts'
import type { MediaFacts } from '../../../adapters/media-metadata.ts'
import type { ready } from '../../../language/child-pool-step.ts'
import type { Transform } from './transform.ts'

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
