import type { IncomingMessage } from 'node:http'
import type { FastifyRequest } from 'fastify'
import type { Config } from '../../../config/config.ts'
import { AppError, errors } from '../../../errors.ts'
import type { App } from '../../../http/http.ts'
import { excessOf, fingerprintList, refuseUnkeepable } from '../../../http/json-values.ts'
import { breather } from '../../../language/breather.ts'
import { readJsonArray } from './json-array.ts'

/** Bytes; a body that is no longer is parsed in one go. */
const smallBody = 1_048_576
const what = 'The request body'

/**
 * JSON bodies of routes that take lists. Elements are counted as they come in, and one too many (BULK_MAX_ITEMS) ends the
 * reading: 413. A long list is parsed element by element while it arrives, so that others have their turn meanwhile.
 */
export function acceptBulkBodies(app: App, config: Config): void {
  const parseJson = app.getDefaultJsonParser('error', 'ignore')
  const most = config.overload.bulkItems
  app.removeContentTypeParser('application/json')
  app.addContentTypeParser('application/json', (request, payload, done) => {
    const parse = (text: string): unknown => {
      let outcome: { error: Error | null; value?: unknown } | undefined
      parseJson(request, text, (error, value) => {
        outcome = { error, value }
      })
      if (outcome?.error) throw outcome.error
      refuseUnkeepable(text, outcome?.value, what)
      return outcome?.value
    }
    readBody(request, payload, { parse, most }).then((body) => done(null, body), done)
  })
}

type ElementReading = { readonly parse: (text: string) => unknown; readonly most: number }

async function readBody(request: FastifyRequest, payload: IncomingMessage, reading: ElementReading): Promise<unknown> {
  const text = textOf(payload, request.routeOptions.bodyLimit ?? Number.POSITIVE_INFINITY)
  if (Number(request.headers['content-length']) <= smallBody) return parseWhole(await joined(text), reading)
  const [start, chunks] = await begun(text)
  return start === '[' ? readList(request, chunks, reading) : parseWhole(await joined(chunks), reading)
}

function parseWhole(text: string, { parse, most }: ElementReading): unknown {
  if (text === '') return undefined
  const excess = excessOf(text)
  if (excess !== undefined) throw excess
  const body = parse(text)
  if (Array.isArray(body) && body.length > most) throw tooMany(most)
  return body
}

async function readList(request: FastifyRequest, chunks: AsyncIterable<string>, { parse, most }: ElementReading) {
  const breathe = breather()
  const fingerprint = fingerprintList(request)
  const elements: unknown[] = []
  const limits = { largestElement: Number.POSITIVE_INFINITY, parse }
  for await (const { value } of readJsonArray(chunks, limits)) {
    if (elements.length === most) throw tooMany(most)
    elements.push(value)
    fingerprint?.add(value)
    await breathe()
  }
  fingerprint?.end()
  return elements
}

/** The first character that is no white space, and the text from its beginning. */
async function begun(text: AsyncGenerator<string>): Promise<[string | undefined, AsyncIterable<string>]> {
  let before = ''
  for (;;) {
    const { value, done } = await text.next()
    if (done) return [undefined, again(before, text)]
    before += value
    const [start] = before.trimStart()
    if (start !== undefined) return [start, again(before, text)]
  }
}

async function* again(before: string, rest: AsyncGenerator<string>): AsyncGenerator<string> {
  yield before
  yield* rest
}

async function joined(text: AsyncIterable<string>): Promise<string> {
  const pieces: string[] = []
  for await (const piece of text) pieces.push(piece)
  return pieces.join('')
}

/** The rest of a body that is too large stays unread: the answer to it needs the line. */
async function* textOf(payload: IncomingMessage, limit: number): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  let size = 0
  const decoded = (chunk?: Buffer) => {
    try {
      return chunk === undefined ? decoder.decode() : decoder.decode(chunk, { stream: true })
    } catch (error) {
      throw new AppError(400, `${what} is not valid UTF-8`, { code: 'INVALID_UTF8', cause: error })
    }
  }
  for await (const chunk of arriving(payload)) {
    size += chunk.length
    if (size > limit) throw new AppError(413, 'Request body is too large')
    yield decoded(chunk)
  }
  yield decoded()
}

/** A client that leaves in the middle is its own mistake. */
async function* arriving(payload: IncomingMessage): AsyncGenerator<Buffer> {
  try {
    yield* payload.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
  } catch (error) {
    const refused = (error as { statusCode?: unknown }).statusCode !== undefined
    throw refused ? error : Object.assign(errors.badBody('The request body did not arrive whole'), { cause: error })
  }
}

const tooMany = (most: number) =>
  new AppError(413, `Request body must not hold more than ${most} items`, { code: 'TOO_MANY_ITEMS' })
