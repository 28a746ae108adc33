/** What the clocks of a time zone show. Times are in milliseconds since 1970-01-01, in UTC or as the clocks show them. */

/**
 * The offset from UTC of clocks that show a time, by PostgreSQL's rule for `AT TIME ZONE`: a time that they skip has the offset
 * before the change, one that they show twice is the later one.
 *
 * @throws {RangeError} for a zone that has no such IANA name
 */
export function offsetsIn(timezone: string): (shown: number) => number {
  const offsetAt = utcOffsetsIn(timezone)
  return (shown) => {
    const time = knownTime(shown)
    const [before, after] = [offsetAt(time - dayMs), offsetAt(time + dayMs)]
    return before !== after && offsetAt(time - after) === after ? after : before
  }
}

const dayMs = 86_400_000
const cycleMs = 146_097 * dayMs
const firstKnown = Date.UTC(1800)
const cycleStart = Date.UTC(2400)

/** A time whose offset is the same: no zone had another one before 1800, and calendar and weekdays repeat every 400 years. */
function knownTime(time: number): number {
  if (time < firstKnown) return firstKnown
  return time < cycleStart + cycleMs ? time : cycleStart + ((time - cycleStart) % cycleMs)
}

function utcOffsetsIn(timeZone: string): (utc: number) => number {
  const numeric = 'numeric'
  const clock = new Intl.DateTimeFormat('en-US', {
    ...{ timeZone, calendar: 'gregory', numberingSystem: 'latn', hourCycle: 'h23' },
    ...{ year: numeric, month: numeric, day: numeric, hour: numeric, minute: numeric, second: numeric },
  })
  return (utc) => {
    const shown = Object.fromEntries(clock.formatToParts(utc).map(({ type, value }) => [type, Number(value)]))
    const { year, month, day, hour, minute, second } = shown as Record<'year' | 'month' | 'day' | Part, number>
    return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(utc / 1000) * 1000
  }
}

type Part = 'hour' | 'minute' | 'second'
