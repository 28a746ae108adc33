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
 * The value that a text stands for; null for none. In the hour that clocks show twice in autumn it is a time of the offset that the
 * value before had.
 *
 * @throws {Error} in words for whoever typed it
 */
export function parseValue(field: Typed, text: string, before?: unknown): unknown {
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
    case 'datetime':
      return instantOf(momentIn(trimmed), before).toISOString()
    case 'datetime without zone': {
      const { day, clock, zone } = momentIn(trimmed)
      if (zone !== undefined && zone !== 'Z') throw new Error('This must be a date and a time without a zone.')
      return `${day}T${clock.length === 5 ? `${clock}:00` : clock}Z`
    }
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

type Moment = { readonly day: string; readonly clock: string; readonly zone: string | undefined }

const moment = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?) ?(Z|[+-]\d\d(?::?\d\d)?)?$/i

/** The parts of a moment of ISO 8601: of what is written otherwise, each browser makes something else. */
function momentIn(text: string): Moment {
  const [, day = '', clock = '', zone] = moment.exec(text) ?? []
  const midnight = new Date(`${day}T00:00Z`)
  // A browser takes the 30th of February for a day of March.
  const isDay = !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(day)
  if (!isDay || Number.isNaN(Date.parse(`${day}T${clock}Z`)))
    throw new Error('This must be a date and a time, such as 2026-01-31 09:00.')
  return { day, clock, zone: zone?.toUpperCase() }
}

/** In the browser's zone, unless another is written. */
function instantOf({ day, clock, zone = '' }: Moment, before: unknown): Date {
  if (zone === '' && typeof before === 'string') {
    const minutes = new Date(before).getTimezoneOffset()
    const kept = new Date(Date.parse(`${day}T${clock}Z`) + minutes * 60_000)
    if (kept.getTimezoneOffset() === minutes) return kept
  }
  // A browser reads offsets with a colon alone.
  const written = zone.replace(/^([+-]\d\d):?(\d\d)?$/, (_all, hours, minutes = '00') => `${hours}:${minutes}`)
  return new Date(`${day}T${clock}${written}`)
}

/** In the browser's zone, as `datetime-local` takes it, with seconds. Without a zone it is of UTC, as the server reads it. */
function localTime(value: string): string {
  const time = new Date(/^\d{4}-\d\d-\d\d[T ][\d:.]+$/.test(value) ? `${value}Z` : value)
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

/** The browser's zone as it was at that time: `Europe/Zurich, UTC+1`. */
export function zoneAt(time: Date): string {
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone
  const minutes = -time.getTimezoneOffset()
  if (minutes === 0) return name === 'UTC' ? 'UTC' : `${name}, UTC+0`
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60]
  return `${name}, UTC${minutes < 0 ? '−' : '+'}${hours}${rest === 0 ? '' : `:${String(rest).padStart(2, '0')}`}`
}

export const sameValue = (a: unknown, b: unknown): boolean => a === b || JSON.stringify(a) === JSON.stringify(b)
