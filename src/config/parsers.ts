import { isIP } from 'node:net'
import { onFirstUse } from '../language/once.ts'
import { withoutLastSlashes } from '../language/text.ts'

/** Of pg-boss, which keeps the schedules: another package would take other expressions for good. */
const cronParser = onFirstUse<{
  readonly CronExpressionParser: { parse(text: string, options: { readonly tz: string }): { next(): unknown } }
}>('cron-parser', 'pg-boss')

/**
 * A reading of one variable's text: the value, or the rest of a sentence that begins with the offending
 * text ("… is not a whole number"). `culprit` is the offending part where that is not the whole text. A `doubt` ends the
 * sentence of a value that is taken all the same.
 */
type Parsed<T> = { value: T; doubt?: string } | { problem: string; culprit?: string }

/**
 * Turns a text (empty only in a default) into a value; it is trimmed before unless the parser is `raw`. `values` describes
 * the accepted texts for docs/config.md.
 */
export type Parser<T> = Readonly<{ values: string; parse: (text: string) => Parsed<T>; raw?: true }>

export const boolean: Parser<boolean> = {
  values: 'true or false (also 1/0, yes/no, on/off)',
  parse: (text) => {
    const value = booleanWords.get(text.toLowerCase())
    return value === undefined ? { problem: 'is not true or false' } : { value }
  },
}

/** A whole number within bounds; `unit` is for the reader of messages and docs (e.g. `ms`). */
export function integer(bounds: { min: number; max?: number; unit?: string }): Parser<number> {
  const max = bounds.max ?? Number.MAX_SAFE_INTEGER
  const range = bounds.max === undefined ? `of at least ${bounds.min}` : `from ${bounds.min} to ${bounds.max}`
  const values = `whole number ${range}${bounds.unit ? ` (${bounds.unit})` : ''}`
  return {
    values,
    parse: (text) => {
      const value = /^-?\d+$/.test(text) ? Number(text) : Number.NaN
      return value >= bounds.min && value <= max ? { value } : { problem: `is not a ${values}` }
    },
  }
}

/** Beyond its bounds a number is taken for the nearest that is within. */
export function clamped(bounds: { min: number; max: number; unit?: string }): Parser<number> {
  const { values } = integer(bounds)
  return {
    values: `${values}; other values become the nearest allowed one`,
    parse: (text) => {
      if (!/^-?\d+$/.test(text)) return { problem: `is not a ${values}` }
      const value = Math.min(Math.max(Number(text), bounds.min), bounds.max)
      return value === Number(text) ? { value } : { value, doubt: `is not a ${values}: ${value} is used` }
    },
  }
}

/** A number from 0 to 1. */
export const share: Parser<number> = {
  values: 'number from 0 to 1',
  parse: (text) => {
    const value = /^\d*\.?\d+$/.test(text) ? Number(text) : Number.NaN
    return value >= 0 && value <= 1 ? { value } : { problem: 'is not a number from 0 to 1' }
  },
}

/** A size, returned in bytes. A bare number counts in `bareUnit`; units are powers of 1024. */
export function size(bareUnit: SizeUnit): Parser<number> {
  const values = `positive number with b, kb, mb or gb; a bare number is ${sizeNames[bareUnit]}`
  return {
    values,
    parse: (text) => {
      const [, amount, unit] = /^(\d+(?:\.\d+)?)\s*(b|kb|mb|gb)?$/i.exec(text) ?? []
      const bytes = Math.floor(Number(amount) * unitBytes[(unit?.toLowerCase() ?? bareUnit) as SizeUnit])
      return Number.isSafeInteger(bytes) && bytes > 0 ? { value: bytes } : { problem: `is not a ${values}` }
    },
  }
}

export const text: Parser<string> = { values: 'text', parse: (value) => ({ value }) }

/** A text whose blanks at either end belong to it. */
export const password: Parser<string> = { ...text, raw: true }

/** A text that matches `pattern`; `what` is its name in messages and docs. */
export function matching(pattern: RegExp, what: string): Parser<string> {
  return { values: what, parse: (value) => (pattern.test(value) ? { value } : { problem: `is not ${article(what)}` }) }
}

/** A cron expression in UTC for a job of a queue: some moment must fit it. */
export const cron: Parser<string> = {
  values: 'cron expression of five fields',
  parse: (text) => {
    const problem = 'is not a cron expression of five fields'
    if (!/^\S+(\s+\S+){4}$/.test(text)) return { problem }
    try {
      cronParser().CronExpressionParser.parse(text, { tz: 'UTC' }).next()
      return { value: text }
    } catch (error) {
      return { problem: `${problem} that is ever due: ${(error as Error).message}` }
    }
  },
}

export const emailAddress = matching(/^[^\s@<>",;]+@[^\s@<>",;]+$/, 'e-mail address')

/** One of the given words, compared without case and returned as given here. */
export function oneOf<const W extends readonly string[]>(...words: W): Parser<W[number]> {
  const values = words.join(', ')
  return {
    values,
    parse: (text) => {
      const value = words.find((word) => word.toLowerCase() === text.toLowerCase())
      return value === undefined ? { problem: `is not one of ${values}` } : { value }
    },
  }
}

/** A comma-separated list: entries trimmed, empty ones and repetitions dropped. */
export function list<T>(entry: Parser<T>): Parser<readonly T[]> {
  return {
    values: `comma-separated list of: ${entry.values}`,
    parse: (text) => {
      const values = new Set<T>()
      for (const part of splitList(text)) {
        const outcome = entry.parse(part)
        if ('problem' in outcome) return { culprit: part, ...outcome }
        values.add(outcome.value)
      }
      return { value: [...values] }
    },
  }
}

/** `name=value` pairs, values percent-encoded as in a W3C Baggage. */
export const pairs: Parser<Readonly<Record<string, string>>> = {
  values: 'comma-separated list of: name=value, the value percent-encoded',
  parse: (text) => {
    const entries: [string, string][] = []
    for (const part of splitList(text)) {
      const [, name = '', value = ''] = /^([^\s=]+)\s*=\s*(.*)$/.exec(part) ?? []
      if (name === '' || /%(?![0-9a-f]{2})/i.test(value)) return { culprit: part, problem: 'is not a name=value' }
      try {
        entries.push([name, decodeURIComponent(value)])
      } catch {
        return { culprit: part, problem: 'is not percent-encoded UTF-8' }
      }
    }
    return { value: Object.fromEntries(entries) }
  },
}

/** A parser whose result is mapped to another shape. */
export function mapped<T, U>(parser: Parser<T>, change: (value: T) => U): Parser<U> {
  return {
    values: parser.values,
    parse: (text) => {
      const outcome = parser.parse(text)
      return 'problem' in outcome ? outcome : { value: change(outcome.value) }
    },
  }
}

/** The first parser that accepts the text wins; the last one words the problem. */
export function either<T, U>(first: Parser<T>, second: Parser<U>): Parser<T | U> {
  return {
    values: `${first.values}; or ${second.values}`,
    parse: (text) => {
      const outcome = first.parse(text)
      return 'problem' in outcome ? second.parse(text) : outcome
    },
  }
}

/** A URL with one of the schemes, kept as written but for trailing slashes. */
export function url(...schemes: string[]): Parser<string> {
  const values = `URL beginning with ${schemes.map((scheme) => `${scheme}://`).join(' or ')}`
  return {
    values,
    parse: (text) => {
      const parsed = parseUrl(text)
      const accepted = parsed !== null && parsed.host !== '' && schemes.includes(parsed.protocol.slice(0, -1))
      return accepted ? { value: withoutLastSlashes(text) } : { problem: `is not a ${values}` }
    },
  }
}

/** A PostgreSQL connection string; the host may be empty (a Unix socket named in the query). */
export const postgresUrl: Parser<string> = {
  values: 'URL beginning with postgres:// or postgresql://',
  parse: (text) => {
    const accepted = parseUrl(text) !== null && /^postgres(ql)?:\/\//i.test(text)
    return accepted ? { value: text } : { problem: 'is not a URL beginning with postgres:// or postgresql://' }
  },
}

/** A web origin (scheme, host, port) in the form browsers send it. */
export const origin: Parser<string> = {
  values: 'origin such as https://app.example.com',
  parse: (text) => {
    const outcome = webAddress(text)
    if ('problem' in outcome) return outcome
    const { pathname, search, hash } = outcome.value
    const bare = pathname === '/' && search === '' && hash === ''
    return bare ? { value: outcome.value.origin } : { problem: 'is not an origin: it has a path, query or fragment' }
  },
}

/** The address of a frontend: like an origin, but it may have a path. Kept as written, without trailing slash. */
export const appUrl: Parser<string> = {
  values: 'address such as https://app.example.com',
  parse: (text) => {
    const outcome = webAddress(text)
    if ('problem' in outcome) return outcome
    const { search, hash } = outcome.value
    return search === '' && hash === ''
      ? { value: withoutLastSlashes(text) }
      : { problem: 'is not a frontend address: it has a query or fragment' }
  },
}

/** The path of an endpoint: begins with a slash, and ends without one unless it is the root. */
export const urlPath: Parser<string> = {
  values: 'path that begins with /',
  parse: (text) =>
    /^\/[\w\-.~/]*$/.test(text)
      ? { value: withoutLastSlashes(text) || '/' }
      : { problem: 'is not a path that begins with /' },
}

/**
 * The proxies whose forwarded headers are believed: a number of hops, or addresses and networks.
 * `true` is refused: it would let every client choose its own address.
 */
export const trustedProxies: Parser<false | number | string> = {
  values:
    'number of hops, or comma-separated addresses, networks (10.0.0.0/8) and names (loopback, linklocal, uniquelocal)',
  parse: (text) => {
    if (/^(false|no|off)$/i.test(text)) return { value: false }
    if (/^\d+$/.test(text)) return { value: Number(text) === 0 ? false : Number(text) }
    const networks = splitList(text)
    const culprit = networks.find((network) => !isNetwork(network))
    if (culprit !== undefined) return { culprit, problem: 'is not a number of hops, an address or a network' }
    return { value: networks.join(',') }
  },
}

/** A PEM text whose line ends may be written as the two characters `\n`. */
export const pem: Parser<string> = mapped(text, (value) => value.replaceAll('\\n', '\n'))

type SizeUnit = keyof typeof unitBytes

const unitBytes = { b: 1, kb: 1024, mb: 1024 ** 2, gb: 1024 ** 3 }
const sizeNames: Record<SizeUnit, string> = { b: 'bytes', kb: 'kilobytes', mb: 'megabytes', gb: 'gigabytes' }

const booleanWords = new Map([
  ...['true', '1', 'yes', 'on'].map((word) => [word, true] as const),
  ...['false', '0', 'no', 'off'].map((word) => [word, false] as const),
])

const namedNetworks = ['loopback', 'linklocal', 'uniquelocal']

function splitList(value: string): string[] {
  return value
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')
}

/** An http(s) URL without userinfo. A backslash is refused: browsers read it as a slash, other readers do not. */
function webAddress(value: string): Parsed<URL> {
  const parsed = /[\\\s]/.test(value) ? null : parseUrl(value)
  if (parsed === null || !/^https?:\/\//i.test(value)) return { problem: 'is not an http:// or https:// address' }
  if (parsed.username !== '' || parsed.password !== '')
    return { problem: 'is an address with a user name or password, which is not allowed here' }
  return { value: parsed }
}

function isNetwork(value: string): boolean {
  if (namedNetworks.includes(value) || isIP(value) !== 0) return true
  const [address = '', prefix = '', ...rest] = value.split('/')
  const family = isIP(address)
  if (family === 0 || rest.length > 0 || !/^\d{1,3}$/.test(prefix)) return false
  return Number(prefix) <= (family === 4 ? 32 : 128)
}

function parseUrl(value: string): URL | null {
  return URL.canParse(value) ? new URL(value) : null
}

function article(noun: string): string {
  return /^[aeiou]/i.test(noun) ? `an ${noun}` : `a ${noun}`
}

/** Whole numbers with their unit; setTimeout takes no more milliseconds than these. */
export const seconds = (min: number, max?: number) => integer({ min, ...(max && { max }), unit: 's' })
export const milliseconds = (min: number) => integer({ min, max: 2_147_483_647, unit: 'ms' })
export const count = (min: number, max?: number) => integer({ min, ...(max && { max }) })

/** A name that begins the names of further variables. */
export const plainName = matching(/^[A-Za-z][A-Za-z0-9_-]*$/, 'name of letters, digits, - and _')
export const redisUrl = url('redis', 'rediss')
