import { randomBytes, randomUUID } from 'node:crypto'

/** A new id and the name of its content, from what it was sent as. */
export function newName(originalFilename: string): { readonly id: string; readonly filename: string } {
  // Not made of the time: an id is part of a key that must not be guessed.
  const id = randomUUID()
  return { id, filename: `${id}-${leafOf(originalFilename)}` }
}

/** The name of content that takes the place of other content; never that of any other. */
export function nameOfReplacement(id: string, originalFilename: string): string {
  return `${id}-${randomBytes(4).toString('hex')}-${leafOf(originalFilename)}`
}

/** 40 characters of the name that every system takes, and its extension. */
function leafOf(originalFilename: string): string {
  const [, name = '', extension = ''] = /^(.*?)(\.[A-Za-z0-9]{1,10})?$/su.exec(baseOf(originalFilename)) ?? []
  const plain = name.replaceAll(/[^A-Za-z0-9._-]+/g, '_').slice(0, 40)
  return `${plain}${extension}`
}

/** Of a path, in either system's spelling, the last part. */
const baseOf = (name: string): string => name.split(/[/\\]/).at(-1) ?? ''

/** The name under which a file was sent: no path, no control characters. */
export const sentName = (name: string): string =>
  baseOf(name)
    .toWellFormed()
    .replaceAll(/[\x00-\x1f\x7f]/g, '')
    .trim()

const mostBytes = 255

/** The same, fit to be kept and shown: at most 255 bytes. A longer one loses characters before its extension. */
export function shownName(name: string): string {
  const sent = sentName(name)
  if (sent === '') return 'file'
  if (Buffer.byteLength(sent) <= mostBytes) return sent
  const [extension = ''] = /(?<=.)\.[\p{L}\p{N}_-]{1,16}$/su.exec(sent) ?? []
  const stem = sent.slice(0, sent.length - extension.length)
  return (beginningOf(stem, mostBytes - Buffer.byteLength(extension)) || 'file') + extension
}

/** As many whole characters of a text, as a reader counts them, as fit so many bytes. */
function beginningOf(text: string, most: number): string {
  // A code unit is at least a byte.
  const start = text.slice(0, most + 1)
  let [end, bytes] = [0, 0]
  for (const { segment, index } of characters.segment(start)) {
    bytes += Buffer.byteLength(segment)
    if (bytes > most) break
    end = index + segment.length
  }
  return start.slice(0, end)
}

const characters = new Intl.Segmenter('und', { granularity: 'grapheme' })
