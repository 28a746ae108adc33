import { isUtf8 } from 'node:buffer'
import { createHash, type Hash } from 'node:crypto'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { AppError, errors } from '../errors.ts'
import { hasLongNumber, parseLong, writeJson } from '../language/exact-json.ts'

/*
 * JSON says more than can be kept: a string may hold half of a pair of surrogates, which UTF-8 has no bytes for, and a
 * number may be too large for a double. Both would be stored as something else (U+FFFD, null), so both are refused. Numbers
 * with more digits than a double has are remembered as they were written (language/exact-json.ts).
 */

/** The text of UTF-8 bytes; 400 for bytes that are none. `what` is named in the message: `The request body`. */
export function decodeText(bytes: Buffer, what: string): string {
  if (!isUtf8(bytes)) throw errors.invalidUtf8(what)
  return bytes.toString('utf8')
}

/**
 * What is kept of JSON text; `value` is what it was parsed to. Refuses with 400 what cannot be kept, and remembers long numbers.
 * Most texts have neither, which the text itself tells at little cost.
 */
export function keepable(text: string, value: unknown, what: string): unknown {
  const refusal = mayBeUnkeepable(text) ? unkeepable(value, what) : undefined
  if (refusal !== undefined) throw refusal
  return hasLongNumber(text) ? parseLong(text) : value
}

/**
 * A parser of the JSON text of bodies. Throws (400) for what is no JSON, for a key that would reach a prototype and for what
 * cannot be kept.
 */
export function bodyParser(app: Pick<FastifyInstance, 'getDefaultJsonParser'>) {
  const parser = app.getDefaultJsonParser('error', 'ignore')
  return (request: FastifyRequest, text: string): unknown => {
    let outcome: { readonly error: Error | null; readonly value?: unknown } | undefined
    // It answers at once, and takes what its callback throws for a fault of the text.
    parser(request, text, (error, value) => {
      outcome = { error, value }
    })
    if (outcome?.error) throw isJson(text) ? forbiddenKey(outcome.error) : outcome.error
    return keepable(text, outcome?.value, 'The request body')
  }
}

/** The parser has the same words for what is no JSON and for the one key that it refuses. */
const forbiddenKey = (cause: Error): AppError =>
  new AppError(400, 'The request body has the key "__proto__", which is not allowed', {
    code: 'FORBIDDEN_KEY',
    cause,
  })

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** The refusal of a value whose text is gone; undefined where it can be kept. Binary parts are not JSON's. */
export function unkeepable(value: unknown, what: string): AppError | undefined {
  const problem = problemOf(value)
  if (problem === 'text')
    return new AppError(400, `${what} has text that is not valid Unicode`, { code: 'INVALID_TEXT' })
  return problem && new AppError(400, `${what} has a number that is too large`, { code: 'NUMBER_TOO_LARGE' })
}

/** An escaped surrogate, a number with an exponent, or more digits than the largest double has. */
function mayBeUnkeepable(text: string): boolean {
  return escapedSurrogate.test(text) || exponent.test(text) || hasManyDigits(text)
}

const escapedSurrogate = /\\u[dD][89a-fA-F]/
/** Numbers only: a digit and an `e` are in every other UUID. Looks back from the `e`, of which a text has fewer than of digits. */
const exponent = /(?<=(?:^|[:,[\s])-?\d[\d.]*)[eE]\+?\d/

const mostDigits = 308

/** Looks at every so many-th character only: a longer run of digits has one of them. */
function hasManyDigits(text: string): boolean {
  for (let at = mostDigits; at < text.length; at += mostDigits)
    if (isDigit(text, at) && digitsAround(text, at) > mostDigits) return true
  return false
}

function digitsAround(text: string, at: number): number {
  let [from, to] = [at, at]
  while (at - from <= mostDigits && isDigit(text, from - 1)) from -= 1
  while (to - at <= mostDigits && isDigit(text, to + 1)) to += 1
  return to - from + 1
}

function isDigit(text: string, at: number): boolean {
  const code = text.charCodeAt(at)
  return code >= 0x30 && code <= 0x39
}

/** Iterative, so that no depth can exhaust the stack. */
function problemOf(root: unknown): 'text' | 'number' | undefined {
  const pending = [root]
  while (pending.length > 0) {
    const value = pending.pop()
    if (typeof value === 'string' && !value.isWellFormed()) return 'text'
    if (typeof value === 'number' && !Number.isFinite(value)) return 'number'
    if (Array.isArray(value)) for (const member of value) pending.push(member)
    else if (isObject(value))
      for (const [key, member] of Object.entries(value)) {
        if (!key.isWellFormed()) return 'text'
        pending.push(member)
      }
  }
  return undefined
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !ArrayBuffer.isView(value) && !(value instanceof ArrayBuffer)
}

/** More levels than any data has, and few enough for recursive readers, PostgreSQL included. */
export const deepestJson = 500

/** Of one text: each takes some fifty bytes of memory and time to make, however short it is written. */
const mostValues = 1_000_000

/**
 * The reason not to parse a JSON text: 400 where it nests more than {@link deepestJson} levels, 413 where it holds more
 * than a million values. Looks at the text, because the parser has no limits of its own. Most texts are too short for
 * both.
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
    if (values > mostValues) return errors.tooManyValues()
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

/** The fingerprint that tells two requests with the same Idempotency-Key apart: SHA-256 over method, address and the body as JSON. */
export function fingerprintOf(request: FastifyRequest): string {
  return (
    ofLists.get(request) ??
    begun(request)
      .update(writeJson(request.body ?? null))
      .digest('base64url')
  )
}

type ListFingerprint = { add(element: unknown): void; end(): void }

/** The same of a body that is a list, made while it comes in; undefined where it is not needed. */
export function fingerprintList(request: FastifyRequest): ListFingerprint | undefined {
  if (request.headers['idempotency-key'] === undefined) return undefined
  const hash = begun(request).update('[')
  let separator = ''
  return {
    add: (element) => {
      hash.update(separator).update(writeJson(element))
      separator = ','
    },
    end: () => void ofLists.set(request, hash.update(']').digest('base64url')),
  }
}

const ofLists = new WeakMap<FastifyRequest, string>()

const begun = ({ method, url }: FastifyRequest): Hash => createHash('sha256').update(`${method} ${url}\n`)
