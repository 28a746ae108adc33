import { errors } from '../errors.ts'
import type { App } from '../http.ts'

/** More levels than any data has, and few enough for whoever walks them recursively, PostgreSQL included. */
const deepest = 500

/**
 * JSON bodies: empty ones count as absent, because clients send `Content-Type: application/json` on requests without a
 * body; keys that would reach a prototype and more than 500 levels are refused with 400.
 */
export function acceptJsonBodies(app: App): void {
  const parse = app.getDefaultJsonParser('error', 'ignore')
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
    if (body === '') done(null, undefined)
    else if (isTooDeep(body as string)) done(errors.badBody('The request body is nested too deeply'), undefined)
    else parse(request, body as string, done)
  })
}

/** Looks at the text, because the parser has no limit of its own. Most bodies are too short to be deep. */
function isTooDeep(text: string): boolean {
  if (text.length <= 2 * deepest) return false
  let depth = 0
  for (let at = 0; at < text.length && depth <= deepest; at += 1) {
    const code = text.charCodeAt(at)
    if (code === quote) at = endOfString(text, at)
    else if (code === bracket.open || code === brace.open) depth += 1
    else if (code === bracket.close || code === brace.close) depth -= 1
  }
  return depth > deepest
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
