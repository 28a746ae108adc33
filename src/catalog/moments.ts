/**
 * Dates and times as requests write them and as the API answers them, and the order of the bounds of a range.
 * PostgreSQL keeps more years than four digits write: a range of days that includes 9999-12-31 is stored, and answered,
 * with the bound 10000-01-01.
 */
import type { Kind } from './catalog.ts'

/** Its texts are parts of one for PostgreSQL. */
export type Moment = {
  /** Numbers of the date; the year 0 is 1 BC. */
  readonly day: readonly [year: number, month: number, day: number]
  readonly date: string
  readonly time: string
  readonly zone: string
  /** Goes after all of it. */
  readonly era: '' | ' BC'
}

const CLOCK = '(?:[01]\\d|2[0-3]):[0-5]\\d(?::[0-5]\\d(?:\\.\\d{1,9})?)?'
const ZONE = 'Z|[+-](?:0\\d|1[0-5])(?::?[0-5]\\d)?'
const YEAR = '\\d{4}|[1-9]\\d{4,6}|\\+\\d{6}'
const MOMENT = new RegExp(`^(${YEAR})-(\\d\\d)-(\\d\\d)(?:[T ](${CLOCK}) ?(${ZONE})?)?( BC)?$`, 'i')
const TIME = new RegExp(`^(${CLOCK})(${ZONE})?$`, 'i')

/** The last years of PostgreSQL's types. */
const lastYears: Readonly<Partial<Record<Kind, number>>> = {
  date: 5_874_897,
  datetime: 294_276,
  datetime_no_tz: 294_276,
}

/**
 * One ISO date with or without time, for a column of the kind. Text without a zone is of `unzoned`, UTC unless given. Extensions
 * may give a `Date`. Undefined for anything else.
 */
export function readMoment(given: unknown, kind: Kind, unzoned = 'Z'): Moment | undefined {
  const raw = given instanceof Date && !Number.isNaN(given.getTime()) ? given.toISOString() : given
  const match = typeof raw === 'string' ? MOMENT.exec(raw) : null
  if (match === null) return undefined
  const [, years, month, day, time = '00:00:00', zone = unzoned, before] = match as unknown as string[]
  const year = Number(years)
  const numbers = [before === undefined ? year : 1 - year, Number(month), Number(day)] as const
  if (year < 1 || year > lastYears[kind]! || !isCalendarDay(numbers)) return undefined
  return { day: numbers, ...dateOf(numbers), time, zone }
}

/** As PostgreSQL reads it for a column of the kind. */
export function momentText({ date, time, zone, era }: Moment, kind: Kind): string {
  if (kind === 'date') return `${date}${era}`
  return `${date}T${time}${kind === 'datetime' ? zone : ''}${era}`
}

/** In UTC, as {@link momentText} gives it, what clocks showed whose offset from UTC depends on what they show, both in milliseconds. */
export function utcText({ day, time }: Moment, offsetAt: (shown: number) => number): string {
  const [clock, decimals] = time.split('.') as [string, string?]
  const shown = dayNumber(day) * dayMs + clockMs(clock)
  const utc = shown - offsetAt(shown)
  const number = Math.floor(utc / dayMs)
  const seconds = new Date(utc - number * dayMs).toISOString().slice(11, 19)
  const { date, era } = dayOf(number)
  return `${date}T${seconds}${decimals === undefined ? '' : `.${decimals}`}Z${era}`
}

/** A time of day and the zone after it, which may be empty; undefined for anything else. */
export function readClock(raw: unknown): { readonly time: string; readonly zone: string } | undefined {
  const match = typeof raw === 'string' ? TIME.exec(raw) : null
  return match === null ? undefined : { time: match[1]!, zone: match[2] ?? '' }
}

function isCalendarDay([year, month, day]: Moment['day']): boolean {
  const leap = (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0
  const days = [31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1] ?? 0
  return day >= 1 && day <= days
}

const dayMs = 86_400_000
const daysIn400Years = 146_097

/** Since 1970-01-01. JavaScript's own dates end in 275760; the calendar repeats every 400 years. */
function dayNumber([year, month, day]: Moment['day']): number {
  const cycles = Math.floor(year / 400) - 5
  return Date.UTC(year - cycles * 400, month - 1, day) / dayMs + cycles * daysIn400Years
}

/** The day of that number. */
function dayOf(number: number): Pick<Moment, 'date' | 'era'> {
  const cycles = Math.floor(number / daysIn400Years)
  const day = new Date((number - cycles * daysIn400Years) * dayMs)
  return dateOf([day.getUTCFullYear() + cycles * 400, day.getUTCMonth() + 1, day.getUTCDate()])
}

function dateOf([year, month, day]: Moment['day']): Pick<Moment, 'date' | 'era'> {
  const padded = (number: number, length: number) => String(number).padStart(length, '0')
  const date = `${padded(year < 1 ? 1 - year : year, 4)}-${padded(month, 2)}-${padded(day, 2)}`
  return { date, era: year < 1 ? ' BC' : '' }
}

/** A moment as {@link momentText} gives it, at the first or the last microsecond of the millisecond in which PostgreSQL would store it. */
export function edgeOfMillisecond(text: string, kind: Kind, edge: 'first' | 'last'): string {
  const moment = readMoment(text, kind)!
  const [clock, decimals = ''] = moment.time.split('.') as [string, string?]
  const ms = clockMs(clock) + Math.floor(Math.round(Number(`0.${decimals}`) * 1e6) / 1e3)
  // Decimals that are rounded up may reach the next day.
  const { date, era } = ms < dayMs ? moment : dayOf(dayNumber(moment.day) + 1)
  const time = `${new Date(ms % dayMs).toISOString().slice(11, -1)}${edge === 'last' ? '999' : ''}`
  return momentText({ ...moment, date, time, era }, kind)
}

const unending = /^-?infinity$/i
/** By kind the ends of all its values, which are bounds and nothing else. */
const ends: Readonly<Partial<Record<Kind, RegExp>>> = {
  date: unending,
  datetime: unending,
  datetime_no_tz: unending,
  decimal: unending,
  float: unending,
  time: new RegExp(`^24:00(?::00)?(?:${ZONE})?$`, 'i'),
  time_no_tz: /^24:00(?::00)?$/,
}

/** Whether PostgreSQL takes the text for a bound of the kind that no value of a field may be: `infinity`, `24:00`. */
export const isEnd = (bound: unknown, kind: Kind): bound is string =>
  typeof bound === 'string' && ends[kind]?.test(bound) === true

/** A value that compares as the bounds of the kind do; undefined for what is none, and for what only PostgreSQL can order. */
export function orderOf(bound: unknown, kind: Kind): number | bigint | undefined {
  if (isEnd(bound, kind)) return kind === 'time' ? undefined : bound.startsWith('-') ? -Infinity : Infinity
  switch (kind) {
    case 'date': {
      const moment = readMoment(bound, kind)
      return moment && dayNumber(moment.day)
    }
    case 'datetime':
    case 'datetime_no_tz': {
      const moment = readMoment(bound, kind)
      if (moment === undefined) return undefined
      const local = dayNumber(moment.day) * dayMs + clockMs(moment.time)
      return kind === 'datetime' ? local - zoneMs(moment.zone) : local
    }
    case 'time':
    case 'time_no_tz': {
      const clock = readClock(bound)
      return clock === undefined || (kind === 'time' && clock.zone !== '') ? undefined : clockMs(clock.time)
    }
    default:
      return numberOf(bound)
  }
}

function clockMs(time: string): number {
  const [hours, minutes, seconds = 0] = time.split(':').map(Number) as [number, number, number?]
  return ((hours * 60 + minutes) * 60 + seconds) * 1000
}

/** `Z`, `+02`, `+0200` or `+02:00`. */
function zoneMs(zone: string): number {
  const [, sign, hours, minutes = 0] = /^([+-])(\d\d):?(\d\d)?$/.exec(zone) ?? []
  if (hours === undefined) return 0
  return (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60_000
}

function numberOf(bound: unknown): number | bigint | undefined {
  if (typeof bound === 'string' && /^[+-]?\d{1,400}$/.test(bound)) return BigInt(bound.replace('+', ''))
  const isNumeric = typeof bound === 'number' || (typeof bound === 'string' && bound.trim() !== '')
  const number = isNumeric ? Number(bound) : Number.NaN
  return Number.isFinite(number) ? number : undefined
}
