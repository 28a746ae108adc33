import type { FastifyRequest } from 'fastify'
import type { App } from '../http/http.ts'
import { excessOf } from '../http/json-depth.ts'
import { decodeText, refuseUnkeepable } from '../http/json-values.ts'

/**
 * JSON bodies: empty ones count as absent, because clients send `Content-Type: application/json` on requests without a
 * body; keys that would reach a prototype, more than 500 levels, bytes that are no UTF-8 and values that cannot be kept
 * are refused with 400, more than a million values with 413.
 */
export function acceptJsonBodies(app: App): void {
  const parser = app.getDefaultJsonParser('error', 'ignore')
  const parse = (request: FastifyRequest, text: string): Outcome => {
    let outcome: Outcome = { error: null, value: undefined }
    // It answers at once, and takes what its callback throws for a fault of the text.
    parser(request, text, (error, value) => {
      outcome = { error, value }
    })
    return outcome
  }
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    const { error, value } = body.length === 0 ? empty : outcomeOf(body as Buffer, (text) => parse(request, text))
    done(error, value)
  })
}

type Outcome = { readonly error: Error | null; readonly value: unknown }

const empty: Outcome = { error: null, value: undefined }
const what = 'The request body'

function outcomeOf(body: Buffer, parse: (text: string) => Outcome): Outcome {
  try {
    const text = decodeText(body, what)
    const excess = excessOf(text)
    if (excess !== undefined) throw excess
    const outcome = parse(text)
    if (outcome.error === null) refuseUnkeepable(text, outcome.value, what)
    return outcome
  } catch (error) {
    return { error: error as Error, value: undefined }
  }
}
