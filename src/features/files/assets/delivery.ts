import type { IncomingHttpHeaders } from 'node:http'
import { essenceOf, isExecutable } from '../../../adapters/file-type.ts'
import type { Config } from '../../../config/config.ts'

/* Headers about a file for browsers, so that an uploaded file never runs in the name of this origin. */

/** A file as its delivery is decided by. */
export type DeliverableFile = {
  /** A content type. */
  readonly type: string
  /** The content itself shows that it is of the type. */
  readonly isTypeProven: boolean
  /** The name for saving it. */
  readonly name: string
}

/** Texts prove nothing by their content. As long as a browser does not guess, these are shown as what they are. */
const harmlessTexts = new Set([
  'text/plain',
  'text/csv',
  'text/tab-separated-values',
  'text/markdown',
  'application/json',
])

/** Whether such a file may be opened in a browser, rather than saved. */
export function isShown({ type, isTypeProven }: DeliverableFile, { assets }: Config): boolean {
  return (isTypeProven || harmlessTexts.has(essenceOf(type))) && !(assets.xssProtection && isExecutable(type))
}

/** The headers that say what a file is and what may be done with it. */
export function deliveryHeaders(file: DeliverableFile, config: Config, asDownload: boolean): Record<string, string> {
  const { nosniff, xssProtection } = config.assets
  const isBarred = !isShown(file, config)
  return {
    'content-type': xssProtection && isExecutable(file.type) ? 'application/octet-stream' : file.type,
    'content-disposition': isBarred || asDownload ? attachment(file.name) : 'inline',
    ...((nosniff || isBarred || !file.isTypeProven) && { 'x-content-type-options': 'nosniff' }),
    'content-security-policy': policyOf(file, isBarred),
    // The address may hold a token.
    'referrer-policy': 'no-referrer',
  }
}

/** The viewers that browsers have for documents, sound and film do not work in a sandbox, nor without their own sources. */
function policyOf({ type }: DeliverableFile, isBarred: boolean): string {
  const needsViewer = /^(audio\/|video\/|application\/pdf)/.test(essenceOf(type))
  return needsViewer && !isBarred
    ? "object-src 'none'; base-uri 'none'"
    : "default-src 'none'; style-src 'unsafe-inline'; sandbox"
}

/** As RFC 6266 wants it: a name that every client understands, and the real one (RFC 8187) where that is another. */
export function attachment(name: string): string {
  const real = withoutControls(name.toWellFormed()).slice(0, 255) || 'download'
  const plain = real.replaceAll(/[^ -~]/g, '_').replaceAll(/["\\%/]/g, '_')
  return `attachment; filename="${plain}"; filename*=UTF-8''${extended(real)}`
}

/** Nor what turns the direction of text around: `exe.gpj` must not read as a picture. */
const withoutControls = (name: string): string =>
  name.replaceAll(/[\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, '')

const extended = (text: string): string =>
  encodeURIComponent(text).replaceAll(/[*'()]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`)

/* Conditional and partial reads as RFC 9110 has them (§13, §14): what of a file a request gets. */

/** The identity of the requested bytes. The tag is strong: equal tags, equal bytes. */
export type Validators = { readonly tag: string; readonly modified: Date }

/** The first and last byte of a part, and of how many the whole has. */
export type ContentPart = { readonly start: number; readonly end: number; readonly size: number }

type Conditions = Partial<
  Pick<
    IncomingHttpHeaders,
    'if-match' | 'if-unmodified-since' | 'if-none-match' | 'if-modified-since' | 'if-range' | 'range'
  >
>

/** 304 where the client has it already, 412 where it wants another version; undefined where it gets an answer. */
export function conditionOf(headers: Conditions, { tag, modified }: Validators): 304 | 412 | undefined {
  const ifMatch = headers['if-match']
  const unmodifiedSince = momentOf(headers['if-unmodified-since'])
  if (ifMatch !== undefined) {
    if (!names(ifMatch, tag, 'strongly')) return 412
  } else if (unmodifiedSince !== undefined && secondsOf(modified) > unmodifiedSince) return 412
  const ifNoneMatch = headers['if-none-match']
  if (ifNoneMatch !== undefined) return names(ifNoneMatch, tag, 'weakly') ? 304 : undefined
  const modifiedSince = momentOf(headers['if-modified-since'])
  return modifiedSince !== undefined && secondsOf(modified) <= modifiedSince ? 304 : undefined
}

/**
 * The part that a GET asks for; undefined for the whole, which also answers what is no single range of bytes, and a range
 * of another version.
 */
export function partOf(
  headers: Conditions,
  validators: Validators,
  size: number,
): ContentPart | 'unsatisfiable' | undefined {
  const asked = /^bytes=\s*(\d*)\s*-\s*(\d*)\s*$/i.exec(headers.range ?? '')
  if (asked === null || !isSameVersion(headers['if-range'], validators)) return undefined
  const [, first = '', last = ''] = asked
  if (first === '') return last === '' ? undefined : suffixOf(Number(last), size)
  const start = Number(first)
  const end = last === '' ? size - 1 : Math.min(Number(last), size - 1)
  if (last !== '' && Number(last) < start) return undefined
  return start >= size ? 'unsatisfiable' : { start, end, size }
}

function suffixOf(length: number, size: number): ContentPart | 'unsatisfiable' {
  return length === 0 || size === 0 ? 'unsatisfiable' : { start: Math.max(0, size - length), end: size - 1, size }
}

/** A date says less than a tag, so it must be the very one that we gave. */
function isSameVersion(ifRange: string | string[] | undefined, { tag, modified }: Validators): boolean {
  if (ifRange === undefined) return true
  const text = String(ifRange).trim()
  return text.startsWith('"') ? text === tag : text === modified.toUTCString()
}

function names(header: string, tag: string, how: 'strongly' | 'weakly'): boolean {
  if (header.trim() === '*') return true
  const tags = header.match(/(?:W\/)?"[^"]*"/g) ?? []
  return tags.some((one) => (how === 'weakly' ? one.replace(/^W\//, '') : one) === tag)
}

/** Seconds; undefined for what is no date, which counts for nothing. */
function momentOf(text: string | undefined): number | undefined {
  const moment = text === undefined ? Number.NaN : Date.parse(text)
  return Number.isNaN(moment) ? undefined : Math.floor(moment / 1000)
}

const secondsOf = (date: Date): number => Math.floor(date.getTime() / 1000)
