import type { Field, Kind } from '../../../catalog/catalog.ts'
import { isEnd, readMoment, utcText } from '../../../catalog/moments.ts'
import { elementType, type ValueType } from '../../../catalog/values.ts'
import { errors, type FieldProblem } from '../../../errors.ts'
import { offsetsIn } from '../../../language/clocks.ts'
import { knowing } from '../../../language/exact-json.ts'
import { isObject, quoted } from '../../../query/guards.ts'
import { readTimezone } from '../../../query/resolve-fields.ts'
import { mapPayload, type Place } from './payload-values.ts'

/** How an imported file writes numbers, dates and times: strict, so that none is guessed. */

export type Notation = {
  readonly decimal: '.' | ','
  readonly dates: DateFormat
  /** The offset from UTC of times without one, by what the clocks show; they are of UTC without it. */
  readonly offsetAt: ((shown: number) => number) | undefined
}

/** The parameters of an import that say how its file writes values. */
export const notationNames = ['timezone', 'decimal', 'dateFormat'] as const

export type NotationGiven = Readonly<Partial<Record<(typeof notationNames)[number], string | undefined>>>

/** 400 for a time zone, a decimal sign or a format of dates that there is not. */
export function readNotation({ timezone, decimal = '.', dateFormat = iso }: NotationGiven): Notation {
  const zone = readTimezone(timezone)
  if (decimal !== '.' && decimal !== ',') throw errors.badQuery(`decimal: ${quoted(decimal)} is neither . nor ,`)
  if (!isDateFormat(dateFormat))
    throw errors.badQuery(`dateFormat: ${quoted(dateFormat)} is none of ${dateFormats.join(', ')}`)
  return { decimal, dates: dateFormat, offsetAt: zone === undefined ? undefined : offsetsIn(zone) }
}

const iso = 'YYYY-MM-DD'
export const dateFormats = [iso, 'YYYY/MM/DD', 'DD.MM.YYYY', 'DD/MM/YYYY', 'DD-MM-YYYY', 'MM/DD/YYYY'] as const
type DateFormat = (typeof dateFormats)[number]
const isDateFormat = (name: string): name is DateFormat => (dateFormats as readonly string[]).includes(name)

/**
 * A payload whose texts of numbers, dates and times are as in a body of a request, nested rows too. 400 with every field whose
 * text does not fit the notation; what other fields hold is not looked at.
 */
export function inNotation(place: Place, payload: object, notation: Notation): unknown {
  const { decimal, dates, offsetAt } = notation
  if (decimal === '.' && dates === iso && offsetAt === undefined) return payload
  const problems: FieldProblem[] = []
  const read = mapPayload(place, payload, {
    concerns: (value) => typeof value === 'object' && value !== null,
    field: (holder, key, field, path) => fieldInNotation((holder as Members)[key], field, notation, path, problems),
    id: (holder, key) => (holder as Members)[key],
    copied: knowing,
  })
  if (problems.length > 0) throw errors.validation(problems)
  return read
}

type Members = Readonly<Record<string, unknown>>

function fieldInNotation(
  value: unknown,
  field: Field,
  notation: Notation,
  path: string,
  problems: FieldProblem[],
): unknown {
  const { kind } = field.kind === 'array' || field.kind === 'range' ? elementType(field as ValueType) : field
  const read = (text: unknown) => {
    if (typeof text !== 'string' || text === '' || isEnd(text, kind)) return text
    const found = textInNotation(text, kind, notation)
    if (found === undefined)
      problems.push({ field: path, message: `expected ${expectedOf(kind, notation)}`, rule: 'type' })
    return found
  }
  if (field.kind === 'array') return Array.isArray(value) ? knowing(value.map(read), value) : value
  if (field.kind !== 'range') return read(value)
  if (Array.isArray(value)) return knowing(value.map(read), value)
  if (!isObject(value)) return value
  const bounds = ['lower', 'upper'].filter((name) => Object.hasOwn(value, name))
  return knowing({ ...value, ...Object.fromEntries(bounds.map((name) => [name, read(value[name])])) }, value)
}

const numberKinds: ReadonlySet<Kind> = new Set(['integer', 'bigint', 'decimal', 'float'])
const dateKinds: ReadonlySet<Kind> = new Set(['date', 'datetime', 'datetime_no_tz'])

/** The text of a value of the kind as in a body of a request; undefined where it does not fit the notation. */
export function textInNotation(text: string, kind: Kind, { decimal, dates, offsetAt }: Notation): string | undefined {
  if (numberKinds.has(kind)) return decimal === '.' ? text : withPoint(text)
  if (!dateKinds.has(kind)) return text
  const isoText = dates === iso ? text : isoOf(text, kind, dates)
  if (isoText === undefined || offsetAt === undefined || kind !== 'datetime') return isoText
  const moment = readMoment(isoText, kind, '')
  return moment?.zone === '' ? utcText(moment, offsetAt) : isoText
}

function expectedOf(kind: Kind, { dates }: Notation): string {
  if (numberKinds.has(kind)) return 'a number such as 1234,5 or 1.234,5'
  const example = dates.replace('YYYY', '2026').replace('MM', '01').replace('DD', '31')
  return kind === 'date' ? `a date such as ${example}` : `a date and a time such as ${example} 09:00`
}

/** Points, blanks (those that do not break too) or apostrophes may group the digits before the comma, in threes. */
const commaNumber = /^([+-]?)(\d*|[1-9]\d{0,2}(?:([. \u00a0\u202f'’])\d{3})(?:\3\d{3})*)(?:,(\d*))?(e[+-]?\d{1,3})?$/i

function withPoint(text: string): string | undefined {
  const [, sign, whole = '', , fraction, exponent = ''] = commaNumber.exec(text) ?? []
  if (sign === undefined || `${whole}${fraction ?? ''}` === '') return undefined
  const digits = whole.replaceAll(/\D/g, '')
  return `${sign}${digits}${fraction === undefined ? '' : `.${fraction}`}${exponent}`
}

const part = { YYYY: String.raw`(?<year>\d{4})`, MM: String.raw`(?<month>\d\d?)`, DD: String.raw`(?<day>\d\d?)` }
const timeAfter = String.raw`(?:[T ](?<hour>\d\d?)(?<rest>:.+))?`

const patterns: ReadonlyMap<DateFormat, RegExp> = new Map(
  dateFormats.map((format) => {
    const escaped = format.replaceAll('.', String.raw`\.`)
    const date = escaped.replace(/YYYY|MM|DD/g, (name) => part[name as keyof typeof part])
    return [format, new RegExp(`^${date}${timeAfter}$`)]
  }),
)

/** Years have four digits; days, months and hours may have one. */
function isoOf(text: string, kind: Kind, format: DateFormat): string | undefined {
  const found = patterns.get(format)!.exec(text)?.groups
  if (found === undefined) return undefined
  const two = (digits: string | undefined) => digits!.padStart(2, '0')
  const time = found.hour === undefined ? '' : ` ${two(found.hour)}${found.rest}`
  const isoText = `${found.year}-${two(found.month)}-${two(found.day)}${time}`
  return readMoment(isoText, kind) === undefined ? undefined : isoText
}
