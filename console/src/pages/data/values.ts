import type { Field } from '../../app/definition.ts'

/** What a text and a value of it need to know of a field. */
type Typed = Pick<Field, 'kind'> & Partial<Pick<Field, 'element' | 'maxLength'>>

/** Kinds whose values are written as JSON; lists whose members have a type also as one member per line. */
const structured = new Set(['json', 'array', 'range', 'geometry', 'vector'])

export const isStructured = ({ kind }: Pick<Field, 'kind'>): boolean => structured.has(kind)

export const isNumeric = ({ kind }: Pick<Field, 'kind'>): boolean =>
  kind === 'integer' || kind === 'decimal' || kind === 'float'

/** A value as the text that a control edits. Empty for none. */
export function textOf(field: Typed, value: unknown): string {
  if (value === null || value === undefined) return ''
  const lines = linesOf(field, value)
  if (lines !== undefined) return lines
  if (isStructured(field)) return JSON.stringify(value, null, field.kind === 'json' ? 2 : undefined)
  if (field.kind === 'datetime' && typeof value === 'string') return localTime(value)
  if (field.kind === 'datetime without zone' && typeof value === 'string') return value.slice(0, 19)
  return String(value)
}

/** A list with one member per line, if that gives the same list again: a member of two lines does not. */
function linesOf({ element, kind }: Typed, value: unknown): string | undefined {
  if (element === undefined || !Array.isArray(value) || value.length === 0) return undefined
  const text = value.map((member) => textOf({ kind: element }, member)).join('\n')
  const back = attempt(() => parseValue({ kind, element }, text))
  return 'value' in back && sameValue(back.value, value) ? text : undefined
}

/** What `read` returns, or the error that it throws. */
export function attempt<Value>(read: () => Value): { readonly value: Value } | { readonly error: Error } {
  try {
    return { value: read() }
  } catch (error) {
    return { error: error as Error }
  }
}

/**
 * The value that a text stands for; null for none.
 *
 * @throws {Error} in words for whoever typed it
 */
export function parseValue(field: Typed, text: string): unknown {
  const { element } = field
  if (element !== undefined && text.trim() !== '' && !isJsonList(text, element))
    return text
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '')
      .map((line) => parseValue({ kind: element }, line))
  if (isStructured(field)) return text.trim() === '' ? null : hasDigits(field) ? parsedExactly(text) : parsed(text)
  if (field.kind === 'text' || field.kind === 'long text') return notTooLong(text, field.maxLength)
  const trimmed = text.trim()
  if (trimmed === '') return null
  switch (field.kind) {
    case 'integer':
      if (!/^[+-]?\d+$/.test(trimmed)) throw new Error('This must be a whole number.')
      return Number.isSafeInteger(Number(trimmed)) ? Number(trimmed) : trimmed
    case 'float':
      if (!Number.isFinite(Number(trimmed))) throw new Error('This must be a number.')
      return Number(trimmed)
    case 'decimal':
      // As text: a decimal has more digits than a number of JavaScript.
      if (!/^[+-]?(\d+\.?\d*|\.\d+)$/.test(trimmed)) throw new Error('This must be a number such as 12.50.')
      return trimmed
    case 'boolean':
      if (trimmed !== 'true' && trimmed !== 'false') throw new Error('This must be true or false.')
      return trimmed === 'true'
    case 'datetime': {
      const time = new Date(trimmed)
      if (Number.isNaN(time.getTime())) throw new Error('This must be a date and a time.')
      return time.toISOString()
    }
    case 'datetime without zone':
      return `${trimmed.length === 16 ? `${trimmed}:00` : trimmed}Z`
    default:
      return trimmed
  }
}

/** Members of these kinds may begin like a list of JSON; of others none does, and the text is a broken list. */
const free = new Set<Field['kind']>(['text', 'long text', 'enum'])

/** Whether a text is meant as a list of JSON, not as one member per line. */
const isJsonList = (text: string, element: Field['kind']): boolean =>
  text.trimStart().startsWith('[') && (!free.has(element) || 'value' in attempt(() => parsed(text)))

/** A text as it was typed: a control that cuts off what is too long would lose the rest of what somebody pastes. */
function notTooLong(text: string, most: number | undefined): string {
  // In characters, as the database counts them.
  const length = most === undefined || text.length <= most ? 0 : [...text].length
  if (most !== undefined && length > most) throw new Error(`At most ${most} characters: these are ${length}.`)
  return text
}

/** Whether a value is a list or a range of numbers that may have more digits than those of JavaScript. */
const hasDigits = ({ kind, element }: Typed): boolean =>
  kind === 'range' || element === 'decimal' || element === 'integer'

/** Numbers with more digits than those of JavaScript as texts, which lists and ranges take for numbers. */
const parsedExactly = (text: string): unknown =>
  parsed(text, (_key, value, { source } = {}) =>
    typeof value === 'number' && source !== undefined && digitsOf(source) > 15 ? source : value,
  )

const digitsOf = (number: string): number => number.replace(/e.*$/i, '').replace(/\D/g, '').length

/** As browsers call it; those that do not give the source text are without the last argument. */
type Reviver = (key: string, value: unknown, context?: { readonly source?: string }) => unknown

function parsed(text: string, reviver?: Reviver): unknown {
  try {
    return JSON.parse(text, reviver)
  } catch (error) {
    throw new Error(`This is no JSON: ${(error as Error).message}`)
  }
}

/** In the browser's zone, as `datetime-local` takes it, with seconds. */
function localTime(value: string): string {
  const time = new Date(value)
  if (Number.isNaN(time.getTime())) return value
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
}

/** A value in one line, for people. */
export function shortText(field: Pick<Field, 'kind'>, value: unknown): string {
  if (value === null || value === undefined) return '—'
  if (typeof value === 'object') return JSON.stringify(value)
  if (typeof value === 'string') {
    if (field.kind === 'datetime') return timeText(value)
    if (field.kind === 'datetime without zone') return value.slice(0, 19).replace('T', ' ')
    if (value === '') return '“”'
  }
  return String(value)
}

/** A time in the browser's zone: 2026-03-14 09:26:53. */
export function timeText(value: string): string {
  const text = localTime(value)
  return text.replace('T', ' ')
}

export const sameValue = (a: unknown, b: unknown): boolean => a === b || JSON.stringify(a) === JSON.stringify(b)
