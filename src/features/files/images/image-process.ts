import {
  readImageFacts,
  renderImage,
  TooManyPixelsError,
  UnwritableImageError,
} from '../../../adapters/image-processing.ts'
import { readMediaFacts } from '../../../adapters/media-metadata.ts'
import { ready } from '../../../language/child-pool-step.ts'
import { yieldProcessors } from '../../../language/child-process.ts'
import { tooLargeSignal, watchOver } from '../../../language/watchdog.ts'
import {
  type Fault,
  type FromChild,
  type ImageLimits,
  type ImageResult,
  memoryFlag,
  resizeOf,
  type Task,
  type ToChild,
} from './transform.ts'

/*
 * A process that decodes uploads of strangers: one task at a time, each answered by one message. It has no environment
 * and no way to the database. Whatever a task does to the process, the pool ends it and starts another.
 */

yieldProcessors()
const memoryMb = process.argv.find((arg) => arg.startsWith(memoryFlag))!.slice(memoryFlag.length)
watchOver(Number(memoryMb), tooLargeSignal)

/** The bytes of a file of sound or film that a task reads next. */
let awaited: PromiseWithResolvers<Uint8Array> | undefined

process.on('message', (message: ToChild) => {
  if (message.kind === 'task') void answer(message.task, message.limits)
  else if (message.kind === 'bytes') awaited?.resolve(message.bytes)
  else awaited?.reject(new Error(message.message))
})
process.on('disconnect', () => process.exit(0))
// A signal for all processes of a terminal is the parent's to answer.
process.on('SIGTERM', () => undefined).on('SIGINT', () => undefined)
say(ready)

async function answer(task: Task, limits: ImageLimits): Promise<void> {
  try {
    say({ kind: 'done', result: await resultOf(task, limits) })
  } catch (error) {
    say({ kind: 'failed', fault: faultOf(error), message: (error as Error).message.slice(0, 500) })
  }
}

function faultOf(error: unknown): Fault {
  if (error instanceof TooManyPixelsError) return 'too many pixels'
  return error instanceof UnwritableImageError ? 'unwritable' : 'unreadable'
}

async function resultOf(task: Task, { maxInputPixels, maxDimension }: ImageLimits): Promise<ImageResult> {
  if (task.kind === 'image') return readImageFacts(task.source)
  if (task.kind === 'media') return readMediaFacts({ size: task.size, type: task.type, read })
  const { source, target, transform } = task
  const { format, quality } = transform
  await renderImage({ source, target, maxInputPixels }, (size) => ({
    resize: resizeOf(transform, size, maxDimension),
    format,
    quality,
  }))
  return undefined
}

function read(start: number, end: number): Promise<Uint8Array> {
  awaited = Promise.withResolvers()
  say({ kind: 'read', start, end })
  return awaited.promise
}

/** The parent may just have ended, and not listen any more. */
function say(message: FromChild): void {
  if (process.connected) process.send!(message)
}
