import { deepestJson, keepable } from '../../../http/json-values.ts'

/** An element of a JSON array, how much text it was, in characters, and the line in which it begins, counted from 1. */
type ArrayElement = { readonly value: unknown; readonly length: number; readonly line: number }

type ElementLimits = {
  /** Characters. */
  readonly largestElement: number
  /** Makes an element of its text; by default as `JSON.parse`, and refuses what cannot be kept. */
  readonly parse?: (text: string) => unknown
}

/** The text is valid JSON, but no array. */
export class NoArrayError extends Error {}

/**
 * The elements of a JSON array, each as soon as its text is there, so that the array may be of any length. Throws a
 * SyntaxError for what is no JSON, {@link NoArrayError} for what is no array; text of nothing but white space has no
 * elements. Only the places where elements begin and end are found here; `JSON.parse` judges what is between them.
 */
export async function* readJsonArray(
  chunks: AsyncIterable<string>,
  limits: ElementLimits,
): AsyncGenerator<ArrayElement> {
  const reading = startReading(limits)
  for await (const chunk of chunks) yield* readChunk(reading, chunk)
  finish(reading)
}

type ArrayReading = {
  readonly limits: ElementLimits
  /** `other`: text that does not begin as an array does. */
  place: 'before' | 'inside' | 'after' | 'other'
  /** Elements begun so far. */
  count: number
  /** The text of the element that is being read. */
  pieces: string[]
  length: number
  /** In which that text begins. */
  line: number
  depth: number
  inString: boolean
  /** The next character follows a backslash. */
  escaped: boolean
}

const startReading = (limits: ElementLimits): ArrayReading => ({
  limits,
  place: 'before',
  count: 0,
  pieces: [],
  length: 0,
  line: 1,
  depth: 0,
  inString: false,
  escaped: false,
})

function* readChunk(reading: ArrayReading, chunk: string): Generator<ArrayElement> {
  let at = reading.place === 'before' ? begin(reading, chunk) : 0
  while (at < chunk.length && reading.place === 'inside') {
    const end = endOfElement(reading, chunk, at)
    keep(reading, chunk.slice(at, end))
    if (end === chunk.length) return
    const isLast = chunk[end] === ']'
    const element = takeElement(reading, isLast)
    if (isLast) reading.place = 'after'
    if (element !== undefined) yield element
    at = end + 1
  }
  if (reading.place === 'other') keep(reading, chunk.slice(at))
  else if (reading.place === 'after' && notSpace.test(chunk.slice(at)))
    throw new SyntaxError('there is text after the array')
}

const notSpace = /[^ \t\r\n]/

/** Where the first element begins. */
function begin(reading: ArrayReading, chunk: string): number {
  const start = chunk.search(notSpace)
  reading.line += lineBreaksIn(start < 0 ? chunk : chunk.slice(0, start))
  if (start < 0) return chunk.length
  reading.place = chunk[start] === '[' ? 'inside' : 'other'
  reading.count = 1
  return reading.place === 'inside' ? start + 1 : start
}

/** The comma or bracket that ends the element, or the end of the chunk. */
function endOfElement(reading: ArrayReading, chunk: string, start: number): number {
  let at = start
  while (at < chunk.length) {
    if (reading.escaped) {
      reading.escaped = false
      at += 1
      continue
    }
    const mark = reading.inString ? inString : outsideStrings
    mark.lastIndex = at
    const found = mark.exec(chunk)
    if (found === null) return chunk.length
    if (isEnd(reading, found[0])) return found.index
    at = found.index + 1
  }
  return chunk.length
}

const inString = /["\\]/g
const outsideStrings = /["{}[\],]/g

function isEnd(reading: ArrayReading, mark: string): boolean {
  if (mark === '"') reading.inString = !reading.inString
  else if (mark === '\\') reading.escaped = true
  else if (mark === '{' || mark === '[') deepen(reading)
  else if (reading.depth === 0) return mark !== '}'
  else if (mark !== ',') reading.depth -= 1
  return false
}

function deepen(reading: ArrayReading): void {
  reading.depth += 1
  if (reading.depth > deepestJson) throw new SyntaxError(`item ${reading.count} is nested too deeply`)
}

function keep(reading: ArrayReading, piece: string): void {
  reading.length += piece.length
  if (reading.length > reading.limits.largestElement) throw new SyntaxError(`item ${reading.count} is too large`)
  reading.pieces.push(piece)
}

/** Undefined where the array is empty. */
function takeElement(reading: ArrayReading, isLast: boolean): ArrayElement | undefined {
  const text = reading.pieces.join('')
  const { count, length, limits, line } = reading
  Object.assign(reading, { count: count + 1, pieces: [], length: 0, line: line + lineBreaksIn(text) })
  if (count === 1 && isLast && !notSpace.test(text)) return undefined
  const blank = text.slice(0, text.search(notSpace))
  return { value: parsed(text, `item ${count}: `, limits.parse), length, line: line + lineBreaksIn(blank) }
}

function finish({ place, pieces }: ArrayReading): void {
  if (place === 'inside') throw new SyntaxError('the array has no end')
  if (place !== 'other') return
  parsed(pieces.join(''), '')
  throw new NoArrayError('not an array')
}

function parsed(text: string, label: string, parse: (text: string) => unknown = parseKeepable): unknown {
  try {
    return parse(text)
  } catch (error) {
    // Another parser has words of its own.
    if (parse !== parseKeepable && !(error instanceof SyntaxError)) throw error
    throw new SyntaxError(`${label}${(error as Error).message}`, { cause: error })
  }
}

function parseKeepable(text: string): unknown {
  return keepable(text, JSON.parse(text), 'it')
}

function lineBreaksIn(text: string): number {
  let count = 0
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) count += 1
  return count
}
