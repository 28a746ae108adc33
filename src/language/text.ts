/**
 * The known name that a misspelled one was meant to be: the same but for case and separators, else at most two edits
 * away (one for names of up to four letters, none for shorter than three). Undefined where nothing is near.
 */
export function nearName(name: string, known: Iterable<string>): string | undefined {
  const candidates = [...known]
  const same = candidates.find((candidate) => plain(candidate) === plain(name))
  if (same !== undefined) return same
  const edits = name.length < 3 ? 0 : name.length <= 4 ? 1 : 2
  const near = candidates
    .map((candidate) => ({ candidate, distance: editDistance(plain(name), plain(candidate)) }))
    .filter(({ candidate, distance }) => distance <= edits && distance < candidate.length / 2)
    .sort((a, b) => a.distance - b.distance)
  return near[0]?.candidate
}

/**
 * The text of bytes by the charset that their content type names, else as UTF-8; what is none of its characters becomes U+FFFD.
 * Undefined for a charset that the Encoding Standard does not have.
 */
export function decodeAs(contentType: string | undefined, bytes: Uint8Array): string | undefined {
  const [, charset = 'utf-8'] = /;\s*charset\s*=\s*"?([^\s;"]+)/i.exec(contentType ?? '') ?? []
  try {
    return new TextDecoder(charset).decode(bytes)
  } catch (error) {
    if (error instanceof RangeError) return undefined
    throw error
  }
}

/**
 * The first of the texts that stands there a second time. Looking each one up among the others would take a list from
 * outside the time of its square.
 */
export function firstRepeated<Text extends string | null>(texts: Iterable<Text>): Text | undefined {
  const seen = new Set<Text>()
  for (const text of texts) {
    if (seen.has(text)) return text
    seen.add(text)
  }
  return undefined
}

/**
 * What `look` finds at the beginning of a text that arrives in pieces, as soon as it finds it, and the text from its beginning. `look` is
 * asked again with each piece; undefined where it has found nothing in the whole text.
 */
export async function peek<Found>(
  text: AsyncGenerator<string>,
  look: (beginning: string) => Found | undefined,
): Promise<[Found | undefined, AsyncGenerator<string>]> {
  let beginning = ''
  for (;;) {
    const { value, done } = await text.next()
    if (done) return [undefined, continued(beginning, text)]
    beginning += value
    const found = look(beginning)
    if (found !== undefined) return [found, continued(beginning, text)]
  }
}

async function* continued(beginning: string, rest: AsyncGenerator<string>): AsyncGenerator<string> {
  yield beginning
  yield* rest
}

/** Without slashes at its end. The look back keeps a run of slashes within the text from being tried from each of them. */
export const withoutLastSlashes = (text: string): string => text.replace(/(?<!\/)\/+$/, '')

/** A name without case and separators: `not_null`, `not-null` and `notNull` are one. */
export const plain = (name: string): string => name.toLowerCase().replace(/[\s_-]/g, '')

/** Levenshtein distance, one row at a time; infinite where the lengths alone are three apart. */
export function editDistance(left: string, right: string): number {
  if (Math.abs(left.length - right.length) > 2) return Number.POSITIVE_INFINITY
  let row = Array.from({ length: right.length + 1 }, (_, column) => column)
  for (const [index, char] of [...left].entries()) row = nextRow(row, index + 1, char, right)
  return row[right.length] ?? 0
}

function nextRow(above: readonly number[], first: number, char: string, right: string): number[] {
  const row = [first]
  for (const [column, other] of [...right].entries()) {
    const replaced = (above[column] ?? 0) + (char === other ? 0 : 1)
    row.push(Math.min(replaced, (above[column + 1] ?? 0) + 1, (row[column] ?? 0) + 1))
  }
  return row
}

/**
 * A foreign value as a message quotes it: text as it is, everything else as JSON. `String` would call a member
 * `toString` of the value, which may be anything.
 */
export const shown = (value: unknown): string =>
  typeof value === 'string' ? value : (JSON.stringify(value) ?? 'undefined')

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

/** Text as HTML shows it, between tags and within quoted attributes. */
export const escapeHtml = (text: string): string => text.replaceAll(/[&<>"']/g, (sign) => escapes[sign]!)

/** Whether a value is the text of a UUID, in any case: what is none must not reach a statement that expects one. */
export function isUuid(value: unknown): value is string {
  return typeof value === 'string' && /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(value)
}
