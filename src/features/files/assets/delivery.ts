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

/** Types that a browser may run or that may load others, whatever they are called. */
const executable = new Set([
  'text/html',
  'text/xml',
  'text/xsl',
  'application/xml',
  'application/xml-dtd',
  'application/x-shockwave-flash',
  'multipart/x-mixed-replace',
  'message/rfc822',
  'text/vbscript',
  'text/cache-manifest',
])
const executableFamily = /\+xml$|\/(x-)?(java|ecma|j|live)script[\d.]*$/

export const isExecutable = (type: string): boolean => {
  const essence = essenceOf(type)
  return executable.has(essence) || executableFamily.test(essence)
}

/** `text/html` of `Text/HTML; charset=utf-8`. */
export const essenceOf = (type: string): string => type.split(';', 1)[0]!.trim().toLowerCase()

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
