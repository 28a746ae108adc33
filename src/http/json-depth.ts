import { AppError, errors } from '../errors.ts'

/** More levels than any data has, and few enough for whoever walks them recursively, PostgreSQL included. */
export const deepestJson = 500

/** Of one text: each takes some fifty bytes of memory and time to make, however short it is written. */
const mostValues = 1_000_000

/**
 * What speaks against parsing JSON text: 400 where it nests more than {@link deepestJson} levels, 413 where it holds more
 * than a million values. Looks at the text, because the parser has no limits of its own. Most texts are too short for both.
 */
export function excessOf(text: string): AppError | undefined {
  if (text.length <= 2 * deepestJson) return undefined
  let depth = 0
  let values = 0
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code === quote) at = endOfString(text, at)
    else if (code === comma) values += 1
    else if (code === bracket.open || code === brace.open) {
      depth += 1
      values += 1
      if (depth > deepestJson) return errors.badBody('The request body is nested too deeply')
    } else if (code === bracket.close || code === brace.close) depth -= 1
    if (values > mostValues) return new AppError(413, 'Request body holds too many values', { code: 'TOO_MANY_VALUES' })
  }
  return undefined
}

/** Whether JSON text nests more than {@link deepestJson} levels. */
export const isTooDeep = (text: string): boolean => excessOf(text)?.status === 400

const quote = 0x22
const backslash = 0x5c
const comma = 0x2c
const bracket = { open: 0x5b, close: 0x5d }
const brace = { open: 0x7b, close: 0x7d }

/** Jumps from quote to quote: most characters are inside strings. */
function endOfString(text: string, start: number): number {
  let at = text.indexOf('"', start + 1)
  while (at >= 0 && isEscaped(text, at)) at = text.indexOf('"', at + 1)
  return at < 0 ? text.length : at
}

function isEscaped(text: string, at: number): boolean {
  let backslashes = 0
  while (text.charCodeAt(at - 1 - backslashes) === backslash) backslashes += 1
  return backslashes % 2 === 1
}
