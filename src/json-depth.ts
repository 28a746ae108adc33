/** More levels than any data has, and few enough for whoever walks them recursively, PostgreSQL included. */
export const deepestJson = 500

/**
 * Whether JSON text nests more than {@link deepestJson} levels. Looks at the text, because the parser has no limit of its
 * own. Most texts are too short to be deep.
 */
export function isTooDeep(text: string): boolean {
  if (text.length <= 2 * deepestJson) return false
  let depth = 0
  for (let at = 0; at < text.length && depth <= deepestJson; at += 1) {
    const code = text.charCodeAt(at)
    if (code === quote) at = endOfString(text, at)
    else if (code === bracket.open || code === brace.open) depth += 1
    else if (code === bracket.close || code === brace.close) depth -= 1
  }
  return depth > deepestJson
}

const quote = 0x22
const backslash = 0x5c
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
