/*
 * JSON numbers become doubles, and a double has some 16 digits: of longer numbers the last ones change. The numbers of a
 * parsed value are doubles here, too, but of those that may have changed the text is remembered, beside the value: by the
 * object or list that holds the number, and its key. A copy of that object knows nothing of it.
 */

const remembered = new WeakMap<object, ReadonlyMap<string, string>>()
const nothing: ReadonlyMap<string, string> = new Map<string, string>()

/** As `JSON.parse`, and remembers the texts of long numbers. */
export function parseJson(text: string): unknown {
  return hasLongNumber(text) ? parseLong(text) : JSON.parse(text)
}

/** The same for a text that has long numbers. */
export function parseLong(text: string): unknown {
  return JSON.parse(text.startsWith('\ufeff') ? text.slice(1) : text, remember as Reviver)
}

/** A JSON text that is a long number alone stays its text, as no object holds its digits; any other one is its value. */
export const aloneOrValue = (text: string, value: unknown): unknown =>
  typeof value === 'number' && hasLongNumber(text) ? text.trim() : value

/** The text of a long number as it was sent; undefined for any other value, and where it has been replaced since. */
export function longNumber(holder: object, key: string | number): string | undefined {
  const text = remembered.get(holder)?.get(String(key))
  return text !== undefined && Number(text) === (holder as Record<string, unknown>)[key] ? text : undefined
}

/** Whether there are long numbers anywhere in a value. */
export const hasLongNumbers = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && remembered.has(value)

/** Makes a copy know of the long numbers in its members, and of its own where it has them from `source`. Gives the copy. */
export function knowing<Copy extends object>(copy: Copy, source?: object): Copy {
  const own = source === undefined ? undefined : remembered.get(source)
  if (own !== undefined || Object.values(copy).some(hasLongNumbers)) remembered.set(copy, own ?? nothing)
  return copy
}

/** An object with one member, a long number. */
export function holding(key: string, value: unknown, text: string): object {
  const holder = { [key]: value }
  remembered.set(holder, new Map([[key, text]]))
  return holder
}

/** As `JSON.stringify`, with long numbers as they were sent. */
export function writeJson(value: unknown): string {
  if (!hasLongNumbers(value)) return JSON.stringify(value)
  return JSON.stringify(value, function (this: object, key: string, member: unknown) {
    const text = typeof member === 'number' ? longNumber(this, key) : undefined
    return text === undefined ? member : (JSON as SourceText).rawJSON(text)
  })
}

/** Of ECMAScript's proposal for the source texts of JSON, which Node has and the library of TypeScript does not know yet. */
type SourceText = typeof JSON & { rawJSON(text: string): unknown }
type Reviver = (this: object, key: string, value: unknown) => unknown

/** Called for what is inside of a value before the value. */
function remember(this: object, key: string, value: unknown, { source }: { readonly source?: string }): unknown {
  if (typeof value === 'number') {
    if (source !== undefined && !isKept(source)) {
      const own = remembered.get(this)
      if (own === undefined || own === nothing) remembered.set(this, new Map([[key, source]]))
      else (own as Map<string, string>).set(key, source)
    }
  } else if (hasLongNumbers(value) && !remembered.has(this)) remembered.set(this, nothing)
  return value
}

/** Digits and points of a number that may not fit a double; 15 digits always do. */
const shortestLong = 16

/** Whether JSON text may have a number that a double changes. Most texts have none, which costs a look at every 16th character. */
export function hasLongNumber(text: string): boolean {
  for (let at = shortestLong - 1; at < text.length; at += shortestLong) {
    if (!isDigit(text.charCodeAt(at)) || !isAmongDigits(text, at)) continue
    let [from, to] = [at, at + 1]
    while (from > 0 && isDigit(text.charCodeAt(from - 1))) from -= 1
    while (to < text.length && isDigit(text.charCodeAt(to))) to += 1
    if (to - from >= shortestLong && isNumber(text, from) && !isKept(numberAt(text, from, to))) return true
    at = to - 1
  }
  return hasTinyNumber(text, 'e-') || hasTinyNumber(text, 'E-')
}

/** A run of 16 digits has one that is 8 before or 8 after each of them. */
const isAmongDigits = (text: string, at: number): boolean =>
  isDigit(text.charCodeAt(at - shortestLong / 2)) ||
  (at + shortestLong / 2 < text.length && isDigit(text.charCodeAt(at + shortestLong / 2)))

/** A number may be so small that a double has few digits for it, or none. */
function hasTinyNumber(text: string, exponent: 'e-' | 'E-'): boolean {
  for (let at = text.indexOf(exponent); at >= 0; at = text.indexOf(exponent, at + 2)) {
    if (!isDigit(text.charCodeAt(at - 1))) continue
    tiny.lastIndex = at
    let from = at - 1
    while (from > 0 && isDigit(text.charCodeAt(from - 1))) from -= 1
    if (tiny.test(text) && isNumber(text, from) && !isKept(numberAt(text, from, at))) return true
  }
  return false
}

const tiny = /[eE]-0*[1-9]\d\d/y

/** Of a number, the point among them. */
const isDigit = (code: number): boolean => (code >= 0x30 && code <= 0x39) || code === 0x2e

/** Whether the digits from there on are no part of a text, as far as the character before them tells. */
function isNumber(text: string, from: number): boolean {
  const before = text.charCodeAt(from - 1) === minus ? from - 2 : from - 1
  return before < 0 || ':,[ \n\r\t'.includes(text[before]!)
}

const minus = 0x2d
const exponentOf = /[eE][+-]?\d+/y

/** Without its sign. */
function numberAt(text: string, from: number, to: number): string {
  if ((text.charCodeAt(to) | 0x20) !== 0x65) return text.slice(from, to)
  exponentOf.lastIndex = to
  return text.slice(from, to) + (exponentOf.exec(text)?.[0] ?? '')
}

/** Whether a double keeps a number, and whole numbers are told from their neighbours. */
function isKept(text: string): boolean {
  const value = Number(text)
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) return false
  const shortest = String(value)
  return shortest === text || digitsOf(shortest) === digitsOf(text)
}

/** The same text for every way to write a number. */
function digitsOf(text: string): string {
  const [mantissa = '', exponent = '0'] = text.toLowerCase().split('e')
  const [whole = '', fraction = ''] = mantissa.replace('-', '').split('.')
  const digits = whole + fraction
  let [from, to] = [0, digits.length]
  while (from < to && digits[from] === '0') from += 1
  while (to > from && digits[to - 1] === '0') to -= 1
  return from === to ? '0' : `${digits.slice(from, to)}e${Number(exponent) - fraction.length + digits.length - to}`
}
